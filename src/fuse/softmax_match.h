// Internal to fuse/: recognises softmax and the scores in it, however the model writes them.
#pragma once
#include "graph/graph.h"

namespace sardonyx {

/// A score of attention: softcap(scale * factor * product) + bias for begin <= key < end, else minus infinity.
struct Scores {
  Expr key;                     ///< the variable of keys
  bool any_expression = false;  ///< limits and softcaps may be recognised (FuseOptions::attention_limits)
  const MatMulOp* product = nullptr;
  Expr load;             ///< of the product's result
  bool swapped = false;  ///< the product's rows are keys, and its columns queries
  double scale = 1;
  Expr factor;         ///< of each query, the same for all keys; empty for 1
  double softcap = 0;  ///< softcap * tanh(scale * product / softcap), if not 0
  Expr bias;           ///< added after that; empty for none
  Expr begin, end;     ///< empty for none
  /// The finite mask from which begin and end follow, while nothing else was added that may be as low; empty for none.
  Expr finite_mask;
};

struct SoftmaxMatch {
  Expr scores;              ///< what is normalised, over the variables of the body and `key`
  Expr sink;                ///< one more score that counts in the sum only; empty for none
  bool zero_empty = false;  ///< rows without a key, or whose scores are all minus infinity, give zeros
};

/// The body of the loop that computes a loaded value, at the load's indices; empty if `load` is no load of a loop.
Expr body_at(const Expr& load);
/// e with loads of score loops (those without a reduction that a matmul feeds) replaced by their bodies, down to loads
/// of the matmul's result. Masks stay in memory.
Expr expand_scores(const Expr& e);
/// Matches body = exp(s - max s) / sum exp(s - max s) over `key`. `any_expression`: sinks and empty rows too, and a
/// select that replaces NaN by zero. A sink may be a further column of the scores, of which the body leaves out the
/// result. What is subtracted from all scores is left out: it changes nothing.
bool match_softmax(const Expr& body, const Expr& key, bool any_expression, SoftmaxMatch& found);
/// Writes e in the form of Scores, with `product` the matmul's result. False if e has another form.
bool decompose(const Expr& e, const Value* product, Scores& s);

}  // namespace sardonyx
