// Attention on the host without storing the scores: softmax(cap(scale * Q K^T) + mask) V, float32.
#pragma once
#include <cstdint>

#include "support/dtype.h"

namespace sardonyx::host {

/// Where a tensor's elements stand: [batch, head, row, element] at these distances, counted in elements. A tensor
/// stored [B, S, H, D] needs no transpose: its head distance is D, its row distance H * D.
struct HeadStrides {
  std::int64_t batch = 0, head = 0, row = 0, element = 1;
};

struct AttentionDesc {
  std::int64_t batch = 1, heads = 1;
  std::int64_t kv_heads = 1;  ///< divides heads; query head h reads key and value head h / (heads / kv_heads)
  std::int64_t queries = 0, keys = 0;
  std::int64_t head_dim = 0, value_dim = 0;
  HeadStrides q, k, v, out;  ///< q, v and out with element distance 1
  float scale = 1;
  /// Query i sees keys j <= i + causal_offset only.
  bool causal = false;
  std::int64_t causal_offset = 0;
  /// Added to the scores (float32), or kept where true (bool). Distances are 0 where the mask is broadcast.
  bool has_mask = false;
  DType mask_type = DType::kFloat32;
  HeadStrides mask;  ///< row: query, element: key
  /// Query i sees keys [begin, end) only; distances of these tensors of int64 (element: none).
  bool has_begin = false, has_end = false;
  HeadStrides begin, end;
  /// A further score of each row that takes part in the softmax but has no value (row, element: none).
  bool has_sink = false;
  HeadStrides sink;
  float softcap = 0;        ///< scores become softcap * tanh(scores / softcap); 0: no cap
  bool zero_empty = false;  ///< a query that sees no key gives zeros
  int threads = 1;
};

/// Further tensors, where the description has them.
struct AttentionTerms {
  const std::int64_t *begin = nullptr, *end = nullptr;
  const float* sink = nullptr;
};

/// Computes out. A query that sees no key gives NaN, as softmax does, unless the description says otherwise. Tiles as
/// FlashAttention does (Dao et al., 2022): running maximum and sum over blocks of keys. Throws Error(kInternal) for a
/// description that does not fit. `mask` may be null without one. Any number of threads may call it at once.
void attention(const AttentionDesc& desc, const float* q, const float* k, const float* v, const void* mask, float* out,
               const AttentionTerms& terms = {});

}  // namespace sardonyx::host
