// Operands of attention on wgmma: ranges of keys, copies of queries, keys and values to shared memory, and the two
// GEMMs. Part of the kernel of attention_wgmma.h.
#pragma once
#include "attention_row_bias.h"
#include "attention_tiles.h"
#include "attention_wgmma_gemms.h"

#if defined(__NVPTX__)
namespace sdx {
namespace detail {

/// Descriptor of an operand whose columns are contiguous: see gemm_detail::wgmma_across().
SDX_FN u64 wgmma_columns(const shared16* tile, u32 next) {
  return gemm_detail::wgmma_across((const gemm_detail::shared_vec*)tile, next);
}

}  // namespace detail

/// kKeys: keys of a warpgroup's tile. kKeySlices: warpgroups that have the same queries. kHeads: 2 if each warpgroup
/// has a head of its own, both of which share keys.
template <class P, int kKeys, int kKeySlices, int kHeads>
struct WgmmaOperands {
  using T = typename P::T;
  static constexpr int kHead = P::kHeadDim, kD = layout::padded_head(kHead);
  static constexpr layout::WgmmaAttentionLayout kLayout{kD, kKeys, kKeySlices, P::kColumn != 0, P::kBias != 0};
  static constexpr int kRows = kLayout.rows(), kTile = kLayout.tile(), kRowChunks = kLayout.row_chunks();
  static_assert(kHeads == 1 || (kHeads == 2 && kKeySlices == 1 && P::kColumn == 0));
  static_assert(P::kValueDim == kHead && kHead % 8 == 0 && kHead <= 128 && sizeof(T) == 2);
  static_assert(P::kQueryDirect && (P::kKeyDirect == 1 || P::kKeyDirect == 2) && P::kKeyDirect == P::kValueDirect);
  static constexpr bool kScored = P::kPlain == 0 && P::kColumn == 0 && P::kBias == 0;
  using Bias = typename BiasOf<P>::Type;
  /// A bias of f16 alone: scores include the factor, since their product with log2(e) stays in the range of f32.
  static constexpr bool kPureBias = P::kBias != 0 && P::kColumn == 0 && is_same<Bias, f16>;
  /// Whether scores are in units of log2. With P::kPlain they are products without the factor.
  static constexpr bool kLog2Scores = !kPureBias && P::kPlain == 0;
  static constexpr int kHeadChunks = kHead / 8, kSteps = (kHead + 15) / 16;  ///< of 16 bytes; of K = 16
  /// Queries stay in registers where these suffice, otherwise in shared memory.
  static constexpr bool kQueryShared = kLayout.queries_shared();
  static constexpr u32 kValues = kLayout.kValueTiles;
  // In shared memory, in units of 16 bytes: rows of 64 elements for all rows of a tile, then their next 64 elements;
  // swizzled.
  static constexpr int kHalf = kTile * 8, kPart = kLayout.part();
  static constexpr int kKeyAt = kLayout.key_at(), kValueAt = kLayout.value_at(), kColumnAt = kLayout.column_at();
  /// Columns of the second GEMM: no more than the head needs.
  static constexpr int kColumns = kHead <= 32   ? 32
                                  : kHead <= 48 ? 48
                                  : kHead <= 64 ? 64
                                  : kHead <= 80 ? 80
                                  : kHead <= 96 ? 96
                                                : 128;
  static constexpr int kScores = kKeys / 2, kAcc = kColumns / 2;  // floats that a lane holds

  const P& p;
  u32 queries, keys;
  i64 b, h;
  u32 row0;         // first row of the thread block
  u32 group, lane;  // warpgroup; lane of the warp
  u32 own;          // first of this lane's two rows, within the thread block
  detail::shared_ptr<vec16> shared;

  SDX_FN i64 row_at(u32 slot) const {
    const u32 r = row0 + own + slot * 8;
    return r < queries ? r : queries - 1;
  }
  // Returns x, marked as uniform for ptxas, which keeps wgmma asynchronous only under uniform control flow.
  static SDX_FN i32 same(i32 x) { return __nvvm_shfl_sync_idx_i32(~0u, x, 0, 31); }
  static SDX_FN i32 smaller(i32 x, i32 y) { return x < y ? x : y; }
  static SDX_FN i32 larger(i32 x, i32 y) { return x > y ? x : y; }

  // ---- ranges of keys
  struct Range {
    i32 low, high;  // low <= t < high
  };
  struct Ranges {
    Range row[2];  // of this lane
    Range any;     // of the thread block: keys that at least one row attends to
    Range all;     // of the warp: keys that all of its rows attend to
  };
  SDX_FN i32 clamp_key(i64 t) const { return t < 0 ? 0 : t > i64(keys) ? i32(keys) : i32(t); }
  SDX_FN Ranges ranges() const {
    Ranges r;
    r.any = r.all = r.row[0] = r.row[1] = {0, i32(keys)};
    if constexpr (P::kBounds != 0) {
      r.any = {i32(keys), 0};
#pragma clang loop unroll(full)
      for (int k = 0; k < 2; ++k) {
        Range& x = r.row[k];
        const i64 s = row_at(k);
        x = {clamp_key(p.begin(b, h, s)), clamp_key(p.end(b, h, s))};
        r.any = {smaller(r.any.low, x.low), larger(r.any.high, x.high)};
        r.all = {larger(r.all.low, x.low), smaller(r.all.high, x.high)};
      }
#pragma clang loop unroll(full)
      for (u32 m = 4; m < 32; m *= 2) {
        r.any = {smaller(r.any.low, detail::attention_xor(r.any.low, m)),
                 larger(r.any.high, detail::attention_xor(r.any.high, m))};
        r.all = {larger(r.all.low, detail::attention_xor(r.all.low, m)),
                 smaller(r.all.high, detail::attention_xor(r.all.high, m))};
      }
      const auto all = (detail::shared_ptr<i32>)shared;
      const u32 wave = thread_id() / kWave;
      if (lane == 0) all[2 * wave] = r.any.low, all[2 * wave + 1] = r.any.high;
      barrier();
#pragma clang loop unroll(full)
      for (u32 w = 0; w < kThreads / kWave; ++w)
        r.any = {smaller(r.any.low, all[2 * w]), larger(r.any.high, all[2 * w + 1])};
      barrier();
      r.any = {same(r.any.low), same(r.any.high)}, r.all = {same(r.all.low), same(r.all.high)};
    }
    return r;
  }

  // ---- copies to shared memory
  /// Rows of keys or values: at one distance, or in pages, where each row's place is looked up.
  struct Rows {
    const T* base = nullptr;
    i64 distance = 0;
  };
  /// How many of a thread's rows of a tile, `step` rows apart, certainly lie in one page.
  static consteval u32 rows_of_page(u32 step) {
    constexpr u32 kPage = P::kPageRows, kSpan = kTile;
    if (kPage == 0 || kPage % step != 0 || (kSpan % kPage != 0 && kPage % kSpan != 0)) return 1;
    return kPage / step;
  }
  template <bool kOfValues, bool kEdge>
  SDX_FN void copy_rows(detail::shared_ptr<vec16> to, const Rows& rows, u32 t0, u32 limit) const {
    constexpr u32 kStep = kThreads / kRowChunks;
    const u32 chunk = thread_id() % kRowChunks, row = thread_id() / kRowChunks;
    if (chunk >= u32(kOfValues ? kColumns / 8 : 2 * kSteps)) return;  // no GEMM reads these
    const auto first = to + (chunk / 8 * (kTile * 8) + row * 8 + ((chunk ^ row) & 7));
    const T* from = nullptr;
    if constexpr (P::kKeyDirect == 1) from = rows.base + (i64(t0 + row) * rows.distance + chunk * 8);
    const bool of_head = kHead == kD || chunk < kHeadChunks;
#pragma clang loop unroll(full)
    for (u32 k = 0; k < kTile / kStep; ++k) {
      const u32 t = t0 + row + k * kStep;
      const bool inside = of_head && (!kEdge || t < limit);
      if constexpr (P::kKeyDirect == 1) {
        detail::copy_async(first + k * (kStep * 8), inside ? from + i64(k * kStep) * rows.distance : rows.base, inside);
      } else {
        constexpr i64 kStride = kOfValues ? P::kValueStride : P::kKeyStride;
        constexpr u32 kSame = rows_of_page(kStep);
        if (k % kSame == 0) {  // the next rows lie in the same page
          const i64 there = !kEdge || t < limit ? t : limit - 1;
          from = (kOfValues ? p.value_from(b, h, there) : p.key_from(b, h, there)) + (of_head ? chunk * 8 : 0);
        }
        detail::copy_async(first + k * (kStep * 8), inside ? from + k % kSame * kStep * kStride : from, inside);
      }
    }
  }
  template <bool kOfValues>
  SDX_FN void copy_tile(u32 at, const Rows& rows, i32 t0, i32 limit) const {
    if (t0 + kTile <= limit)
      copy_rows<kOfValues, false>(shared + at, rows, t0, limit);
    else
      copy_rows<kOfValues, true>(shared + at, rows, t0, limit);
  }
  SDX_FN void copy_queries() const {
    constexpr u32 kStep = kThreads / kRowChunks;
    const u32 chunk = thread_id() % kRowChunks, row = thread_id() / kRowChunks;
    const bool of_head = kHead == kD || chunk < kHeadChunks;
#pragma clang loop unroll(full)
    for (u32 k = 0; k < kRows / kStep; ++k) {
      const u32 slot = row + k * kStep, r = row0 + (kHeads == 1 ? slot : slot % 64);
      const i64 head = kHeads == 1 ? h : h - group + slot / 64;
      detail::copy_async(shared + (chunk / 8 * (kRows * 8) + slot * 8 + ((chunk ^ row) & 7)),
                         p.query(b, head, r < queries ? r : queries - 1) + (of_head ? chunk * 8 : 0), of_head);
    }
  }
  // x in units of log2. Infinite only if x is.
  static SDX_FN f32 in_log2(f32 x) {
    constexpr f32 kMost = 0x1p+126f;
    const f32 y = x * kLog2e;
    if (y < -kMost && x != -inf32()) return -kMost;
    if (y > kMost && x != inf32()) return kMost;
    return y;
  }
  // What is added to the scores of this thread's key of the tile at t0, in units of log2.
  SDX_FN f32 column(i32 t0, i32 limit) const {
    const i32 t = t0 + i32(thread_id());
    if (i32(thread_id()) >= kTile || t >= limit) return -inf32();
    return in_log2(p.column(b, h, t));
  }
  SDX_FN void place_column(u32 stage, f32 x) const {
    if (thread_id() < kTile) ((detail::shared_ptr<f32>)(shared + kColumnAt))[stage * kTile + thread_id()] = x;
  }

  // ---- the two GEMMs
  SDX_FN void load_queries(u32 (&q)[kD / 4]) const {
    const T *low = p.query(b, h, row_at(0)) + lane % 4 * 2, *high = p.query(b, h, row_at(1)) + lane % 4 * 2;
#pragma clang loop unroll(full)
    for (u32 s = 0; s < kSteps; ++s) {
      const bool whole = 2 * s + 1 < kHeadChunks;
      q[4 * s] = *(const u32*)(low + s * 16), q[4 * s + 1] = *(const u32*)(high + s * 16);
      q[4 * s + 2] = whole ? *(const u32*)(low + s * 16 + 8) : 0;
      q[4 * s + 3] = whole ? *(const u32*)(high + s * 16 + 8) : 0;
    }
  }
  SDX_FN u32 slice_at() const { return kKeySlices == 1 ? 0 : group * (kKeys * 8); }
  SDX_FN void multiply_keys(u32 stage, const u32 (&q)[kD / 4], f32 (&scores)[kScores]) const {
    const u64 k = gemm_detail::wgmma_descriptor(shared + kKeyAt + stage * kPart + slice_at());
    if constexpr (kQueryShared) {
      const u64 a = gemm_detail::wgmma_descriptor(shared + (kKeySlices == 1 ? group * (64 * 8) : 0));
      detail::wgmma_shared<T, kKeys, true>(a, k, scores);
#pragma clang loop unroll(full)
      for (u32 s = 1; s < kSteps; ++s)
        detail::wgmma_shared<T, kKeys, false>(a + (s / 4 * (kRows * 8) + s % 4 * 2), k + (s / 4 * kHalf + s % 4 * 2),
                                              scores);
    } else {
      detail::wgmma_left<T, kKeys, true>(q, k, scores);
#pragma clang loop unroll(full)
      for (u32 s = 1; s < kSteps; ++s)
        detail::wgmma_left<T, kKeys, false>(q + 4 * s, k + (s / 4 * kHalf + s % 4 * 2), scores);
    }
    gemm_detail::wgmma_commit();
  }
  SDX_FN void multiply_values(u32 stage, const u32 (&weights)[kKeys / 4], f32 (&acc)[kAcc]) const {
    const u64 v = detail::wgmma_columns(shared + kValueAt + stage * kPart + slice_at(), kHalf * 16);
#pragma clang loop unroll(full)
    for (u32 s = 0; s < kKeys / 16; ++s) detail::wgmma_left_columns<T, kColumns>(weights + 4 * s, v + s * 128, acc);
    gemm_detail::wgmma_commit();
  }
};

}  // namespace sdx
#endif
