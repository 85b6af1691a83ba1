// Attention on the host without storing the scores: softmax(cap(scale * Q K^T) + mask) V, float32.
#pragma once
#include <cstdint>

#include "support/dtype.h"

namespace sardonyx::host {

/// Strides of [batch, head, row, element], in elements. A tensor stored as [B, S, H, D] needs no transpose: its head
/// stride is D, its row stride H * D.
struct HeadStrides {
  std::int64_t batch = 0, head = 0, row = 0, element = 1;
};

struct AttentionDesc {
  std::int64_t batch = 1, heads = 1;
  std::int64_t kv_heads = 1;  ///< divides heads; query head h reads key and value head h / (heads / kv_heads)
  std::int64_t queries = 0, keys = 0;
  std::int64_t head_dim = 0, value_dim = 0;
  HeadStrides q, k, v, out;  ///< q, v and out have element stride 1
  float scale = 1;
  /// Query i attends to keys j <= i + causal_offset only.
  bool causal = false;
  std::int64_t causal_offset = 0;
  /// Added to the scores (float32), or true where a key is attended to (bool). Strides are 0 where the mask is
  /// broadcast.
  bool has_mask = false;
  DType mask_type = DType::kFloat32;
  HeadStrides mask;  ///< row: query, element: key
  /// Query i attends to keys [begin, end) only; strides of these int64 tensors (element: unused).
  bool has_begin = false, has_end = false;
  HeadStrides begin, end;
  /// One more score for each row that takes part in the softmax but has no value (attention sink; strides: row,
  /// element).
  bool has_sink = false;
  HeadStrides sink;
  /// If not 0, keys and values lie in pages of as many rows: key t in page pages[b * pages_batch + t / page_rows] of
  /// AttentionTerms. Pages are k_page and v_page elements apart.
  std::int64_t page_rows = 0, pages_batch = 0, k_page = 0, v_page = 0;
  /// Keys and values are int8 (float8: float8_e4m3fn) in pages, times a scale for each row of a head; k and v then
  /// point to bytes. Pages of scales are k_scale_page and v_scale_page elements apart; element strides are not used.
  bool scaled = false, float8 = false;
  HeadStrides k_scale, v_scale;
  std::int64_t k_scale_page = 0, v_scale_page = 0;
  float softcap = 0;        ///< scores become softcap * tanh(scores / softcap); 0: no cap
  bool zero_empty = false;  ///< a query without keys gives zeros
  int threads = 1;
};

/// The tensors of the optional terms.
struct AttentionTerms {
  const std::int64_t *begin = nullptr, *end = nullptr;
  const float* sink = nullptr;
  const std::int64_t* pages = nullptr;
  const float *k_scale = nullptr, *v_scale = nullptr;
};

/// Computes out. A query without keys gives NaN, as softmax does, unless zero_empty is set. Tiled like FlashAttention
/// (Dao et al., 2022), with a running maximum and sum over blocks of keys. Throws Error(kInternal) if the extents of
/// `desc` contradict each other. `mask` may be null if there is none. May be called from several threads at once.
void attention(const AttentionDesc& desc, const float* q, const float* k, const float* v, const void* mask, float* out,
               const AttentionTerms& terms = {});

}  // namespace sardonyx::host
