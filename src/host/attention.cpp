// Splits attention into blocks of query rows for the vector kernels.
#include "host/attention.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <limits>
#include <memory>

#include "host/buffer.h"
#include "host/parallel.h"
#include "host/simd.h"
#include "support/error.h"

namespace sardonyx::host {
namespace {

/// Scratch memory of the calling thread, reused by later calls.
float* thread_scratch(std::size_t bytes) {
  thread_local std::unique_ptr<Buffer> buffer;
  if (!buffer || buffer->bytes() < bytes) buffer = std::make_unique<Buffer>(bytes);
  return static_cast<float*>(buffer->data());
}

/// What the codes of float8_e4m3fn stand for (OCP's specification of 8-bit floats: bias 7, no infinities).
const std::array<float, 256>& float8_values() {
  static const std::array<float, 256> values = [] {
    std::array<float, 256> v{};
    for (int code = 0; code < 256; ++code) {
      const int exponent = code >> 3 & 15, mantissa = code & 7;
      float x = exponent ? std::ldexp(static_cast<float>(8 + mantissa), exponent - 10)
                         : std::ldexp(static_cast<float>(mantissa), -9);
      if ((code & 127) == 127) x = std::numeric_limits<float>::quiet_NaN();
      v[static_cast<std::size_t>(code)] = code & 128 ? -x : x;
    }
    return v;
  }();
  return values;
}

}  // namespace

void attention(const AttentionDesc& d, const float* q, const float* k, const float* v, const void* mask, float* out,
               const AttentionTerms& terms) {
  check(d.batch >= 0 && d.heads > 0 && d.kv_heads > 0 && d.heads % d.kv_heads == 0 && d.queries >= 0 && d.keys >= 0 &&
            d.head_dim > 0 && d.value_dim > 0,
        "attention of {} heads on {}, {} queries, {} keys, sizes {} and {}", d.heads, d.kv_heads, d.queries, d.keys,
        d.head_dim, d.value_dim);
  check(d.q.element == 1 && d.v.element == 1 && d.out.element == 1, "attention needs contiguous rows of q, v and out");
  check(!d.has_mask || d.mask_type == DType::kFloat32 || d.mask_type == DType::kBool, "an attention mask of {}",
        name(d.mask_type));
  check(!d.scaled || (d.page_rows > 0 && d.k.element == 1 && terms.k_scale && terms.v_scale),
        "attention of 8 bits without pages or scales");
  check(d.page_rows >= 0 && (d.page_rows == 0 || terms.pages), "attention without the numbers of its pages");
  const SimdKernels& kernels = simd();
  const std::int64_t group = d.heads / d.kv_heads;
  // Rows that read the same keys and values: all queries of a group of heads.
  const std::int64_t rows = group * d.queries, lanes = kernels.attention_lanes;
  const std::int64_t vectors = (rows + lanes - 1) / lanes, heads = d.batch * d.kv_heads;
  // Blocks of nearly equal size; smaller ones if there would be too few for all threads.
  std::int64_t most = kernels.attention_rows / lanes, blocks = 0;
  for (;; --most) {
    blocks = (vectors + most - 1) / most;
    if (most == 1 || heads * blocks >= (most > 2 ? 3 : 1) * d.threads) break;
  }
  const std::int64_t mask_bytes = d.mask_type == DType::kBool ? 1 : 4;
  const auto scratch_bytes =
      static_cast<std::size_t>(kernels.attention_scratch(d.head_dim, d.value_dim)) * sizeof(float);

  parallel_for(heads * blocks, 1, d.threads, [&](std::int64_t begin, std::int64_t end) {
    float* scratch = thread_scratch(scratch_bytes);
    for (std::int64_t task = begin; task < end; ++task) {
      const std::int64_t block = task % blocks, kv_head = task / blocks % d.kv_heads, b = task / blocks / d.kv_heads;
      AttentionRows t;
      const std::int64_t first = vectors * block / blocks * lanes;
      t.rows = static_cast<int>(std::min(vectors * (block + 1) / blocks * lanes, rows) - first);
      std::int64_t query = first % d.queries, head = kv_head * group + first / d.queries;
      for (int i = 0; i < t.rows; ++i, ++query) {
        if (query == d.queries) query = 0, ++head;
        t.q[i] = q + b * d.q.batch + head * d.q.head + query * d.q.row;
        t.out[i] = out + b * d.out.batch + head * d.out.head + query * d.out.row;
        t.mask[i] = nullptr;
        if (d.has_mask) {
          t.mask[i] = static_cast<const char*>(mask) +
                      (b * d.mask.batch + head * d.mask.head + query * d.mask.row) * mask_bytes;
        }
        const auto place = [&](const HeadStrides& s) { return b * s.batch + head * s.head + query * s.row; };
        t.visible[i] = d.causal ? std::clamp<std::int64_t>(query + d.causal_offset + 1, 0, d.keys) : d.keys;
        if (d.has_end) t.visible[i] = std::clamp<std::int64_t>(terms.end[place(d.end)], 0, t.visible[i]);
        t.hidden[i] = d.has_begin ? std::clamp<std::int64_t>(terms.begin[place(d.begin)], 0, d.keys) : 0;
        if (t.hidden[i] >= t.visible[i]) t.hidden[i] = t.visible[i] = 0;
        t.sink[i] = d.has_sink ? terms.sink[place(d.sink)] : 0;
      }
      const auto of_head = [&](const HeadStrides& s) { return b * s.batch + kv_head * s.head; };
      if (d.scaled) {
        t.decoded = d.float8 ? float8_values().data() : nullptr;
        t.k_numbers = reinterpret_cast<const std::int8_t*>(k) + of_head(d.k);
        t.v_numbers = reinterpret_cast<const std::int8_t*>(v) + of_head(d.v);
        t.k_scale = terms.k_scale + of_head(d.k_scale), t.v_scale = terms.v_scale + of_head(d.v_scale);
        t.k_scale_row = d.k_scale.row, t.v_scale_row = d.v_scale.row;
        t.k_scale_page = d.k_scale_page, t.v_scale_page = d.v_scale_page;
      } else {
        t.k = k + of_head(d.k);
        t.v = v + of_head(d.v);
      }
      if (d.page_rows > 0) {
        t.pages = terms.pages + b * d.pages_batch;
        t.page_rows = d.page_rows, t.k_page = d.k_page, t.v_page = d.v_page;
      }
      t.k_row = d.k.row, t.k_element = d.k.element, t.v_row = d.v.row, t.mask_element = d.mask.element;
      t.keys = d.keys, t.head_dim = d.head_dim, t.value_dim = d.value_dim;
      t.scale = d.scale;
      t.mask_is_bool = d.mask_type == DType::kBool;
      t.has_sink = d.has_sink;
      t.softcap = d.softcap;
      t.zero_empty = d.zero_empty;
      kernels.attention(t, scratch);
    }
  });
}

}  // namespace sardonyx::host
