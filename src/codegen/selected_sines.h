// Sines among which each element selects, as in encodings of positions: concatenations of sin(x), cos(x), sin(2 x), ...
#pragma once
#include "expr/expr.h"

namespace sardonyx::codegen {

/// `body` with one sine for all sides of a chain of selects that are sines, of which the selected numbers differ:
/// sin(select(c, a, b)) for select(c, sin(a), sin(b)). Neighbouring threads take all sides one after another otherwise.
/// Only of selects whose conditions use `inner`, the variable along memory.
Expr merge_selected_sines(const Expr& body, const Expr& inner);

}  // namespace sardonyx::codegen
