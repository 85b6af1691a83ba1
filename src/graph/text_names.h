// Internal to graph/: the names of operations in the text form, shared by printer and parser.
#pragma once
#include <optional>
#include <string>
#include <string_view>

#include "expr/expr.h"

namespace sardonyx::text {

/// How a binary operation is written between its operands; empty if it is written as a function.
std::string_view infix(Op op);
/// The operation with this infix spelling.
std::optional<Op> infix_op(std::string_view spelling);
/// How tightly an infix operation binds: larger is tighter; all are left-associative.
int precedence(Op op);
/// The name of an operation written as a function: "exp", "floordiv", "select".
std::string_view function_name(Op op);
std::optional<Op> function_op(std::string_view name);
std::string_view reduce_name(ReduceKind kind);
std::optional<ReduceKind> reduce_kind(std::string_view name);
/// Whether a symbol of this name must be quoted: not an identifier, or one that means something else.
bool needs_quotes(std::string_view symbol);
/// "..." with \" \\ \n and \xNN for other control characters and bytes beyond ASCII.
std::string quoted(std::string_view s, char quote = '"');

}  // namespace sardonyx::text
