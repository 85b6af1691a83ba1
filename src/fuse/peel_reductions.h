// Internal to fuse/: reductions of which a part of the terms is constant.
#pragma once
#include "fuse/options.h"

namespace sardonyx {

/// Takes terms that are all the same out of reductions: max over r < 513 of select(r < 512, x[r], s) becomes
/// max(max over r < 512 of x[r], s). Such terms come from concatenations and from padding. The rest reads memory in
/// order, and softmax with one more score (an attention sink) gets the form that the pass "attention" knows. Sums,
/// maxima and minima along one variable; of products and of integers' sums only a single term.
void peel_reductions(Graph& g);

}  // namespace sardonyx
