// Attention on Hopper's asynchronous matrix instructions (wgmma). It supports heads of 16-bit elements whose rows can
// be copied 16 bytes at a time, also those of a paged KV cache (kKeyDirect and kValueDirect are 2), padded with zeros
// to 64 or 128 elements. Scores are products times a factor, plus a number that is the same for all queries
// (P::kColumn) and an element of a 16-bit tensor (P::kBias); others are computed by P::score, element by element.
// attention.h computes everything else; it also describes P, which in addition has
//   kColumn, column(b, h, t)           what is added to the scores of key t
//   kBias, Bias, bias(b, h, s)         what is added to the scores of query s, for all keys: contiguous
//
// The order of work is that of FlashAttention-3 (Shah et al., 2024): the first GEMM of the next tile of keys is issued
// before the softmax of this tile, and the second GEMM of this tile overlaps with that softmax.
//
// There are two warpgroups. With kKeySlices = 1 each has 64 of the thread block's 128 queries. With kKeySlices = 2 both
// have all of its 64 queries, each takes half of every tile of keys, and their results are merged at the end.
#pragma once
#include "attention_wgmma_operands.h"

#if defined(__NVPTX__)
namespace sdx {

/// The running softmax, the order of work, and results. kKeys, kKeySlices, kHeads: see WgmmaOperands.
template <class P, int kKeys, int kKeySlices, int kHeads>
struct WgmmaAttention : WgmmaOperands<P, kKeys, kKeySlices, kHeads> {
  using Base = WgmmaOperands<P, kKeys, kKeySlices, kHeads>;
  using Base::column, Base::copy_queries, Base::in_log2, Base::load_queries, Base::multiply_keys, Base::multiply_values,
      Base::place_column, Base::ranges, Base::row_at;
  using Base::kAcc, Base::kColumnAt, Base::kD, Base::kHead, Base::kKeyAt, Base::kLog2Scores, Base::kPart,
      Base::kPureBias, Base::kQueryShared, Base::kScored, Base::kScores, Base::kTile, Base::kValueAt, Base::kValues;
  using Base::p, Base::queries, Base::keys, Base::b, Base::h, Base::row0, Base::group, Base::lane, Base::own,
      Base::shared;
  using typename Base::Bias, typename Base::Range, typename Base::Ranges, typename Base::Rows, typename Base::T;

  // ---- the running softmax
  static SDX_FN f32 of_quad(f32 x, auto combine) {
    x = combine(x, detail::attention_xor(x, 1));
    return combine(x, detail::attention_xor(x, 2));
  }
  // The scores of the products of the tile at t0. Keys past the end, which are masked later, count as the last one.
  SDX_FN void compute_scores(i32 t0, f32 (&scores)[kScores]) const {
    const i64 row[2] = {row_at(0), row_at(1)};
#pragma clang loop unroll(full)
    for (int i = 0; i < kScores; i += 4) {
      u32 first = u32(t0) + lane % 4 * 2;
      hide(first);  // otherwise the compiler keeps an address per score in registers
#pragma clang loop unroll(full)
      for (int e = 0; e < 4; ++e) {
        const u32 t = first + u32(i * 2 + e % 2);
        scores[i + e] = in_log2(p.score(b, h, row[e / 2], i64(t < keys ? t : keys - 1), scores[i + e]));
      }
    }
  }
  // ---- the bias of scores
  using BiasRows = RowBias<Bias, kScores>;
  SDX_FN u32 slice_begin() const { return kKeySlices == 1 ? 0 : group * kKeys; }
  SDX_FN void begin_bias(BiasRows& x) const {
    x.begin(p.bias(b, h, row_at(0)) + slice_begin(), p.bias(b, h, row_at(1)) + slice_begin(), lane);
  }
  SDX_FN void fetch_bias(i32 t0, BiasRows& x) const { x.fetch(t0, i32(keys) - t0 - i32(slice_begin() + lane % 4 * 2)); }
  SDX_FN void add_bias(const BiasRows& x, f32 (&scores)[kScores]) const {
    f32 factor = p.factor();
    if constexpr (kLog2Scores) factor *= kLog2e;
#pragma clang loop unroll(full)
    for (int i = 0; i < kScores; i += 2) {
      const u32 pair = x.pair(i / 2, lane);
#pragma clang loop unroll(full)
      for (int e = 0; e < 2; ++e) {
        const f32 y = cast<f32>(__builtin_bit_cast(Bias, u16(pair >> (e * 16))));
        if constexpr (P::kColumn != 0)
          scores[i + e] += in_log2(y);  // the factor and the column are already there
        else
          scores[i + e] = __builtin_fmaf(scores[i + e], factor, kLog2Scores ? in_log2(y) : y);
      }
    }
  }
  // Turns the scores of the tile at t0 into probabilities relative to `top`, the maximum so far. Earlier sums have to
  // be multiplied by `rescale`.
  SDX_FN void update_softmax(i32 t0, u32 stage, const Ranges& r, BiasRows& bias, f32 (&scores)[kScores], f32 (&top)[2],
                             f32 (&total)[2], f32 (&rescale)[2]) const {
    f32 factor = 1;
    if constexpr (kPureBias)
      factor = kLog2e;
    else if constexpr (!kScored)
      factor = p.factor() * kLog2e;
    const i32 next = t0 + kTile;
    t0 += kKeySlices == 1 ? 0 : i32(group) * kKeys;
    if constexpr (kScored) compute_scores(t0, scores);
    if constexpr (P::kColumn != 0) {
      const auto own = (detail::shared_ptr<vec<f32, 2>>)(shared + kColumnAt) +
                       (stage * kTile + (kKeySlices == 1 ? 0 : group * kKeys)) / 2 + lane % 4;
#pragma clang loop unroll(full)
      for (int i = 0; i < kScores; i += 4) {
        const vec<f32, 2> x = own[i];
#pragma clang loop unroll(full)
        for (int e = 0; e < 4; ++e) scores[i + e] = __builtin_fmaf(scores[i + e], factor, x[e % 2]);
      }
    }
    if constexpr (P::kBias != 0) {
      add_bias(bias, scores);
      if (next < r.any.high) fetch_bias(next, bias);
    }
    if ((P::kBounds != 0 || P::kColumn == 0) && (t0 < r.all.low || t0 + kKeys > r.all.high)) {
#pragma clang loop unroll(full)
      for (int i = 0; i < kScores; ++i) {
        const i32 t = t0 + i32(i / 4 * 8 + lane % 4 * 2 + i % 2);
        const Range& x = r.row[i / 2 % 2];
        scores[i] = t >= x.low && t < x.high ? scores[i] : -inf32();
      }
    }
#pragma clang loop unroll(full)
    for (int k = 0; k < 2; ++k) {
      f32 m = -inf32(), parts[4] = {m, m, m, m};  // four independent chains
#pragma clang loop unroll(full)
      for (int i = 0; i < kScores; i += 4)
#pragma clang loop unroll(full)
        for (int e = 0; e < 2; ++e) {
          f32& x = parts[(i / 2 + e) % 4];
          x = __builtin_fmaxf(x, scores[i + 2 * k + e]);
        }
      m = __builtin_fmaxf(__builtin_fmaxf(parts[0], parts[1]), __builtin_fmaxf(parts[2], parts[3]));
      m = of_quad(m, [](f32 x, f32 y) SDX_LAMBDA { return __builtin_fmaxf(x, y); });
      m = __builtin_fmaxf(m, top[k]);
      const f32 base = m == -inf32() ? 0.0f : kLog2Scores ? m : m * factor;
      rescale[k] = fast_exp2(kLog2Scores ? top[k] - base : __builtin_fmaf(top[k], factor, -base));
      top[k] = m;
      f32 sum[2] = {};
#pragma clang loop unroll(full)
      for (int i = 2 * k; i < kScores; i += 4)
#pragma clang loop unroll(full)
        for (int e = 0; e < 2; ++e) {
          f32& x = scores[i + e];
          x = fast_exp2(kLog2Scores ? x - base : __builtin_fmaf(x, factor, -base));
          sum[e] += x;
        }
      total[k] = __builtin_fmaf(total[k], rescale[k], sum[0] + sum[1]);
    }
  }
  static SDX_FN void pack(const f32 (&scores)[kScores], u32 (&weights)[kKeys / 4]) {
#pragma clang loop unroll(full)
    for (int i = 0; i < kKeys / 4; ++i) weights[i] = detail::pack2<T>(scores[2 * i], scores[2 * i + 1]);
  }

  // Lets one warpgroup run ahead far enough that its softmax overlaps with the other's wgmma. A warpgroup signals the
  // other that its copies have arrived, and that it no longer needs the keys of the previous tile and the values of the
  // one before that. There is a barrier for each waiting warpgroup and parity of the tile.
  SDX_FN void arrive(u32 parity) const {
    asm volatile("bar.arrive %0, 256;" ::"r"(1 + (group ^ 1) * 2 + parity) : "memory");
  }
  SDX_FN void others_arrived(u32 parity) const {
    asm volatile("bar.sync %0, 256;" ::"r"(1 + group * 2 + parity) : "memory");
  }

  // ---- all work of one thread block
  SDX_FN void run() const {
    using namespace gemm_detail;
    const Ranges r = ranges();
    Rows key, value;
    if constexpr (P::kKeyDirect == 1) key = {p.key(b, h), p.key_row()}, value = {p.value(b, h), p.value_row()};
    const i32 first = r.any.low / kTile * kTile, end = r.any.high,
              count = end > first ? (end - first - 1) / kTile + 1 : 0;
    f32 top[2] = {-inf32(), -inf32()}, total[2] = {}, acc[kAcc] = {};
    if (count > 0) {
      u32 query[kD / 4];
      f32 scores[kScores], rescale[2];
      u32 weights[kKeys / 4];
      BiasRows bias;
      if constexpr (P::kBias != 0) {
        begin_bias(bias);
        fetch_bias(first, bias);
      }
      if constexpr (kQueryShared) copy_queries();
      this->template copy_tile<false>(kKeyAt, key, first, end);
      commit_copies();
      this->template copy_tile<true>(kValueAt, value, first, end);
      if (count > 1) this->template copy_tile<false>(kKeyAt + kPart, key, first + kTile, end);
      commit_copies();
      if constexpr (!kQueryShared) load_queries(query);
      if constexpr (P::kColumn != 0) {
        place_column(0, column(first, end));
        place_column(1, column(first + kTile, end));
      }
      wait_copies<1>();
      fence_async_reads();
      barrier();
      wgmma_fence();
      multiply_keys(0, query, scores);
      wgmma_wait<0>();
      detail::wgmma_arrived<kScores>(scores);
      update_softmax(first, 0, r, bias, scores, top, total, rescale);
      pack(scores, weights);
      wait_copies<0>();
      fence_async_reads();
      arrive(0);
      u32 at = 0;  // stage that holds the values of tile j
      for (i32 j = 0; j + 1 < count; ++j) {
        const u32 stage = j % 2, next_at = at + 1 == kValues ? 0 : at + 1;
        const i32 t0 = first + (j + 1) * kTile;  // the tile whose scores are computed
        others_arrived(stage);
        wgmma_fence();
        multiply_keys(stage ^ 1, query, scores);
        multiply_values(at, weights, acc);
        this->template copy_tile<true>(kValueAt + next_at * kPart, value, t0, end);
        f32 next = 0;
        if (t0 + kTile < end) {
          this->template copy_tile<false>(kKeyAt + stage * kPart, key, t0 + kTile, end);
          if constexpr (P::kColumn != 0) next = column(t0 + kTile, end);
        }
        commit_copies();
        wgmma_wait<1>();
        detail::wgmma_arrived<kScores>(scores);
        update_softmax(t0, stage ^ 1, r, bias, scores, top, total, rescale);
        if constexpr (P::kColumn != 0) place_column(stage, next);
        // Never true. Without a branch that depends on all probabilities, ptxas waits for wgmma before it computes
        // them.
        if (detail::any_lane(total[0] + total[1] < 0)) __builtin_trap();
        wait_copies<0>();
        fence_async_reads();
        arrive(stage ^ 1);
        wgmma_wait<0>();
        detail::wgmma_arrived<kAcc>(acc);
        detail::wgmma_arrived<kScores>(scores);
        pack(scores, weights);
        // Later tiles seldom raise the maximum.
        if (detail::any_lane(rescale[0] != 1 || rescale[1] != 1)) {
#pragma clang loop unroll(full)
          for (int i = 0; i < kAcc; ++i) acc[i] *= rescale[i / 2 % 2];
        }
        at = next_at;
      }
      others_arrived((count - 1) % 2);
      wgmma_fence();
      multiply_values(at, weights, acc);
      wgmma_wait<0>();
      detail::wgmma_arrived<kAcc>(acc);
    }
#pragma clang loop unroll(full)
    for (int k = 0; k < 2; ++k) {
      total[k] = of_quad(total[k], [](f32 x, f32 y) SDX_LAMBDA { return x + y; });
      if constexpr (kLog2Scores)
        top[k] *= 1 / kLog2e;
      else if constexpr (!kPureBias)
        top[k] *= p.factor();
    }
    if constexpr (kKeySlices == 2) merge(top, total, acc);
    if (kKeySlices == 1 || group == 0) store(top, total, acc);
    barrier();
  }

  // Merges the results of the second warpgroup into the first one's.
  SDX_FN void merge(f32 (&top)[2], f32 (&total)[2], f32 (&acc)[kAcc]) const {
    const auto all = (detail::shared_ptr<f32>)(shared + kKeyAt) + thread_id() % 128;
    barrier();
    if (group == 1) {
#pragma clang loop unroll(full)
      for (int k = 0; k < 2; ++k) all[2 * k * 128] = top[k], all[(2 * k + 1) * 128] = total[k];
#pragma clang loop unroll(full)
      for (int i = 0; i < kAcc; ++i) all[(4 + i) * 128] = acc[i];
    }
    barrier();
    if (group == 1) return;
    f32 first[2], second[2];
#pragma clang loop unroll(full)
    for (int k = 0; k < 2; ++k) {
      const f32 t = all[2 * k * 128], m = __builtin_fmaxf(top[k], t), base = m == -inf32() ? 0.0f : m;
      first[k] = detail::fast_exp(top[k] - base), second[k] = detail::fast_exp(t - base);
      total[k] = total[k] * first[k] + all[(2 * k + 1) * 128] * second[k];
      top[k] = m;
    }
#pragma clang loop unroll(full)
    for (int i = 0; i < kAcc; ++i) acc[i] = acc[i] * first[i / 2 % 2] + all[(4 + i) * 128] * second[i / 2 % 2];
  }

  // Of 32 elements of a row a lane has four pairs; lanes exchange them until each has eight neighbouring bytes.
  SDX_FN void store_bytes(const f32 (&top)[2], const f32 (&total)[2], const f32 (&acc)[kAcc]) const {
    using Out = typename P::Out;
#pragma clang loop unroll(full)
    for (int k = 0; k < 2; ++k) {
      const i64 row = row_at(k);
      const f32 scale = attention_scale(p, b, h, top[k], total[k]);
      Out* to = p.out(b, h, row);
#pragma clang loop unroll(full)
      for (int i = 0; i < kHead / 2; i += 16) {
        gemm_detail::Octet<Out> octet;
#pragma clang loop unroll(full)
        for (int g = 0; g < 2; ++g) {
          decltype(p.wide(b, h, row, 0, 0.0f)) four[4];
#pragma clang loop unroll(full)
          for (int e = 0; e < 4; ++e)
            four[e] = p.wide(b, h, row, i * 2 + g * 16 + e / 2 * 8 + lane % 4 * 2 + e % 2,
                             acc[i + g * 8 + e / 2 * 4 + 2 * k + e % 2] * scale);
          pack_wide<Out, true>(four, octet.words + g);
        }
        gemm_detail::exchange_octets<1>(octet.words);
        if (row0 + own + k * 8 < queries)
          *(gemm_detail::Octet<Out>*)__builtin_assume_aligned(to + i * 2 + lane % 4 * 8, 8) = octet;
      }
    }
  }

  SDX_FN void store(const f32 (&top)[2], const f32 (&total)[2], const f32 (&acc)[kAcc]) const {
    using Out = typename P::Out;
    if constexpr (P::kWideOut != 0 && kHead % 32 == 0) return store_bytes(top, total, acc);
    struct Pair {
      Out x[2];
    };
#pragma clang loop unroll(full)
    for (int k = 0; k < 2; ++k) {
      if (row0 + own + k * 8 >= queries) continue;
      const f32 scale = attention_scale(p, b, h, top[k], total[k]);
      Out* to = p.out(b, h, row_at(k));
#pragma clang loop unroll(full)
      for (int i = 0; i < kAcc; i += 4) {
        if (i * 2 >= kHead) break;
        const u32 at = i * 2 + lane % 4 * 2;
        const Pair x = {p.result(b, h, row_at(k), at, acc[i + 2 * k] * scale),
                        p.result(b, h, row_at(k), at + 1, acc[i + 2 * k + 1] * scale)};
        if constexpr (P::kOutDirect != 0)
          *(Pair*)__builtin_assume_aligned(to + at, sizeof(Pair)) = x;
        else
          to[at * p.out_step()] = x.x[0], to[(at + 1) * p.out_step()] = x.x[1];
      }
    }
  }
};

/// Correct with any number of thread blocks; at most batches * heads * (tiles of kRows queries) of them get work.
/// Launched with layout::WgmmaAttentionLayout::bytes() of dynamic shared memory.
template <class P, int kKeys, int kKeySlices, int kTogether, int kHeads = 1>
SDX_FN void attention_wgmma(const P& p, u32 queries, u32 keys, u32 heads, u32 batches) {
  using Kernel = WgmmaAttention<P, kKeys, kKeySlices, kHeads>;
  constexpr u32 kRows = Kernel::kRows / kHeads;  // of a head
  const u32 thread = thread_id(), group = u32(Kernel::same(i32(thread / 128))), first = kHeads == 1 ? 0 : group;
  const u32 tiles = (queries + kRows - 1) / kRows, units = heads / kHeads * batches, items = units * tiles;
  for (u32 item = block_id(); item < items; item += block_count()) {
    // With causal masks the last rows have the most keys: start them first.
    const u32 tile = P::kBounds != 0 ? tiles - 1 - item / units : item % tiles;
    const u32 unit = P::kBounds != 0 ? item % units : item / tiles;
    const u32 b = unit / (heads / kHeads), h = unit % (heads / kHeads) * kHeads + first;
    const Kernel k{{p, queries, keys, i64(b), i64(h), tile * kRows, group, thread % kWave,
                    (kKeySlices == 1 && kHeads == 1 ? group * 64 : 0) + thread / kWave % 4 * 16 + thread % kWave / 4,
                    (detail::shared_ptr<vec16>)dynamic_lds}};
    k.run();
  }
}

}  // namespace sdx
#endif
