// Scaled dot-product attention built from GEMMs and loops, shared by the attention operators.
#pragma once
#include <functional>

#include "ops/op.h"

namespace sardonyx {

/// A term of the score of query s and key t: f(b, h, s, t).
using ScoreTerm = std::function<Expr(const Expr& b, const Expr& h, const Expr& s, const Expr& t)>;

struct AttentionSpec {
  Value *q = nullptr, *k = nullptr,
        *v = nullptr;       ///< [B, H, S, D], [B, Hk, T, D], [B, Hk, T, Dv]; H is a multiple of Hk
  Expr scale;               ///< a float of `type`; empty: 1 / sqrt(D)
  double softcap = 0;       ///< scores become softcap * tanh(scores / softcap); 0: no cap
  ScoreTerm bias;           ///< added to the score, of `type`; may be empty
  ScoreTerm allowed;        ///< bool: whether s attends to t; may be empty
  bool empty_rows = false;  ///< a query may attend to no key: its output is then zeros
  /// One more score per head that takes part in the softmax but has no value (attention sink): f(h), of `type`; may be
  /// empty.
  std::function<Expr(const Expr&)> sink;
  /// Replacements of the whole scores or probabilities [B, H, S, T] of `type`; may be empty.
  std::function<Value*(Value*)> change_scores, change_probabilities;
  DType type = DType::kFloat32;  ///< of the scores and the softmax
};
struct AttentionResult {
  Value* y;                ///< [B, H, S, Dv], of v's dtype
  Value *scores, *capped;  ///< [B, H, S, T] of `type`: scaled products; the same after the cap
  Value *masked,
      *probabilities;  ///< after bias and mask (minus infinity where not allowed); after the softmax, of v's dtype
};
AttentionResult attention(Graph& g, const AttentionSpec& spec);

/// [B, S, H * D] as [B, H, S, D] and back.
Value* split_heads(Graph& g, Value* x, const Expr& heads);
Value* merge_heads(Graph& g, Value* x);

/// Rotates pairs of features by their position. x is [B, S, H, D] or, with `heads_first`, [B, H, S, D].
struct Rotary {
  Value *cos = nullptr, *sin = nullptr;  ///< [positions, R / 2], or [B, S, R / 2] when `position` is empty
  std::function<Expr(const Expr& b, const Expr& s)> position;  ///< int64, clamped to the table
  bool interleaved = false;  ///< pairs are (0, 1), (2, 3) ... instead of (0, R / 2), (1, R / 2 + 1) ...
  Expr rotated;              ///< R: how many features, from the first on, are rotated
};
Value* rotate(Graph& g, Value* x, bool heads_first, const Rotary& r);

}  // namespace sardonyx
