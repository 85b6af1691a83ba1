// Products of which one row is used.
#pragma once
#include "graph/graph.h"

namespace sardonyx {

/// A product whose users all read the same row of it (the logits of the last token) computes that row only.
void drop_unused_rows(Graph& g);

}  // namespace sardonyx
