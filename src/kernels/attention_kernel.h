// Attention without storing the scores: out = softmax over keys of score(q . k) times v, with the running maximum and
// sum of FlashAttention-2 (Dao, 2023), on the matrix instructions of matrix.h.
//
// A workgroup of 256 threads loops over tiles of keys. It copies the keys and values of a tile to LDS, and each wave
// multiplies them with its 16 (or 32) queries. Waves form a grid of kWavesQ x kWavesK: waves of a row have the same
// queries and divide the keys of each tile among them; their partial results are merged at the end.
//
// The first GEMM is computed as K . Q^T (Q . K^T on NVIDIA) with its keys in a suitable order (key_at). Each lane's
// sums then are exactly what it has to supply as an operand of the second GEMM, so probabilities stay in registers.
// Values are stored transposed, so that keys are contiguous (on NVIDIA, ldmatrix transposes them). Only chips without
// matrix instructions pass probabilities through LDS.
//
// A generated struct P describes queries, keys and values:
//   T, Out                             element types of q, k, v and of the output
//   kHeadDim, kValueDim                elements of a head of q and k, of v
//   kQueryDirect ...                   rows are contiguous, 16-byte aligned: query(b, h, s), key(b, h), value(b, h)
//                                      point to them, key_row() and value_row() are row strides in elements; otherwise
//                                      query_at, key_at, value_at(b, h, row, d) give elements. 2 for keys and values:
//                                      rows are contiguous, aligned and each at an address of its own, key_from(b, h,
//                                      t) and value_from(b, h, t), as in a paged KV cache. 3: the same for int8 or
//                                      float8, key_numbers(b, h, t), times key_scale(b, h, t)
//   out(b, h, s), out_step()           where a row of the output begins, and the stride of its elements
//   result(b, h, s, d, x)              what is stored for a result x, of type Out
//   wide(b, h, s, d, x), kWideOut      where it is not 0: what pack_wide<Out>() makes that of, for bytes
//   kOutDirect                         rows of the output are contiguous and 16-byte aligned
//   kPlain, factor()                   scores are products times a positive factor only; otherwise score(b, h, s, t, x)
//   kBounds, begin, end(b, h, s)       the query attends to keys begin <= t < end only
//   kSink, sink(b, h)                  one more score, without a value (attention sink)
//   kZeroEmpty                         a query without keys gives zeros, not NaN
#pragma once
#include "attention_gemms.h"

namespace sdx {

template <class P, int kForm>
struct AttentionKernel : AttentionGemms<P, kForm> {
  using Base = AttentionGemms<P, kForm>;
  using Base::kFamily, Base::kMma, Base::kVector, Base::kDv, Base::kKeys, Base::kTilesQ, Base::kTilesK, Base::kTilesV,
      Base::kSteps, Base::kCount, Base::kSlots, Base::kVectorsQ, Base::kQueryRows, Base::kMergeTiles, Base::kTileChunks,
      Base::kBuffers;
  using Base::p, Base::n, Base::shared, Base::lane, Base::wave_q, Base::wave_k, Base::b, Base::row0, Base::rows;
  using Base::query_of, Base::slot_of, Base::key_of, Base::over_lanes, Base::row_at, Base::tile_row, Base::query_rows,
      Base::load_query, Base::bases, Base::fetch, Base::place, Base::multiply_keys, Base::multiply_values,
      Base::read_first_values, Base::multiply_values_ahead, Base::arrive;
  using typename Base::T, typename Base::C, typename Base::M, typename Base::Row, typename Base::Bases,
      typename Base::Fetched, typename Base::ValueRing;
#if defined(__NVPTX__)
  using Base::copy_keys, Base::copy_values;
#endif

  // ---- ranges of keys
  struct Range {
    i32 low, high;  // low <= t < high
  };
  struct Ranges {
    Range row[kTilesQ][kSlots];
    Range any;  // of the workgroup: keys that at least one row attends to
    Range all;  // of the wave: keys that all of its rows attend to
  };
  SDX_FN i32 clamp_key(i64 t) const { return t < 0 ? 0 : t > i64(n.keys) ? i32(n.keys) : i32(t); }
  template <class F>
  static SDX_FN i32 over_queries(i32 x, F combine) {
#pragma clang loop unroll(full)
    for (u32 m = kMma ? 4 : 1; m < (kMma ? 32 : kVector ? 8 : 16); m *= 2) x = combine(x, detail::attention_xor(x, m));
    return x;
  }
  static SDX_FN i32 smaller(i32 x, i32 y) { return x < y ? x : y; }
  static SDX_FN i32 larger(i32 x, i32 y) { return x > y ? x : y; }
  SDX_FN Ranges ranges() const {
    Ranges r;
    r.any = r.all = {0, i32(n.keys)};
    if constexpr (P::kBounds != 0) {
      r.any = {i32(n.keys), 0};
#pragma clang loop unroll(full)
      for (int q = 0; q < kTilesQ; ++q)
#pragma clang loop unroll(full)
        for (int k = 0; k < kSlots; ++k) {
          const Row row = row_at(tile_row(q) + query_of(lane, k));
          Range& x = r.row[q][k];
          x = {clamp_key(p.begin(b, row.h, row.s)), clamp_key(p.end(b, row.h, row.s))};
          r.any = {smaller(r.any.low, x.low), larger(r.any.high, x.high)};
          r.all = {larger(r.all.low, x.low), smaller(r.all.high, x.high)};
        }
      const auto min = [](i32 x, i32 y) SDX_LAMBDA { return smaller(x, y); };
      const auto max = [](i32 x, i32 y) SDX_LAMBDA { return larger(x, y); };
      r.all.low = over_queries(r.all.low, max), r.all.high = over_queries(r.all.high, min);
      const auto all = (detail::shared_ptr<i32>)shared;
      const i32 low = over_queries(r.any.low, min), high = over_queries(r.any.high, max);
      const u32 wave = thread_id() / kWave;
      lds_barrier();
      if (lane == 0) all[2 * wave] = low, all[2 * wave + 1] = high;
      lds_barrier();
      r.any = {i32(n.keys), 0};
#pragma clang loop unroll(full)
      for (int w = 0; w < C::kWaves; ++w) r.any = {smaller(r.any.low, all[2 * w]), larger(r.any.high, all[2 * w + 1])};
      r.any = {i32(uniform(u32(r.any.low))), i32(uniform(r.any.high))};
      r.all = {i32(uniform(r.all.low)), i32(uniform(r.all.high))};
      lds_barrier();
    }
    return r;
  }

  // ---- the running softmax
  /// exp(x - base), where x is a sum of the first GEMM or, unless kPlain, a score. Scores may be close to -FLT_MAX, so
  /// that they must be subtracted before they are scaled.
  SDX_FN f32 exp_from(f32 x, f32 base) const {
    if constexpr (P::kPlain != 0) {
      const f32 f = p.factor() * kLog2e;
      return fast_exp2(__builtin_fmaf(x, f, -(base * f)));
    } else {
      return detail::fast_exp(x - base);
    }
  }
  /// The same, larger by what pack2() will lose.
  SDX_FN f32 probability(f32 x, f32 base) const {
    if constexpr (detail::pack_loss<T>() == 0 || kVector) {
      return exp_from(x, base);
    } else if constexpr (P::kPlain != 0) {
      const f32 f = p.factor() * kLog2e;
      return fast_exp2(__builtin_fmaf(x, f, detail::pack_loss_log2<T>() - base * f));
    } else {
      return fast_exp2(__builtin_fmaf(x - base, kLog2e, detail::pack_loss_log2<T>()));
    }
  }
  /// Whether a tile's scores may exceed the base of the probabilities, by at most a factor of 2^kSlack. Weights of
  /// 16-bit floats have room for that, and no fewer digits.
  static constexpr bool kLazy = !kMma && !kVector && sizeof(T) == 2;
  static constexpr f32 kSlack = 8;
  /// Whether score x is too large for probabilities relative to `base`.
  SDX_FN bool exceeds(f32 x, f32 base) const {
    f32 factor = kLog2e;
    if constexpr (P::kPlain != 0) factor *= p.factor();
    return (x - base) * factor > kSlack;
  }
  /// Probabilities of one query tile and their sum, two at a time: CDNA has packed arithmetic of 32-bit floats.
  static constexpr bool kPairs = kFamily == MatrixFamily::kMfma && P::kPlain != 0;
  SDX_FN void weigh_pairs(f32 (&scores)[kTilesK][kCount], f32 base, f32& total) const {
    using Pair = vec<f32, 2>;
    const f32 f = p.factor() * kLog2e, shift = detail::pack_loss_log2<T>() - base * f;
    Pair sum = {0, 0};
#pragma clang loop unroll(full)
    for (int j = 0; j < kTilesK; ++j)
#pragma clang loop unroll(full)
      for (int e = 0; e < kCount; e += 2) {
        const Pair power =
            __builtin_elementwise_fma(Pair{scores[j][e], scores[j][e + 1]}, Pair{f, f}, Pair{shift, shift});
        const Pair x = {fast_exp2(power[0]), fast_exp2(power[1])};
        scores[j][e] = x[0], scores[j][e + 1] = x[1];
        sum += x;
      }
    total += sum[0] + sum[1];
  }
  /// Scores of query tile q for keys that its rows do not attend to become -inf.
  SDX_FN void mask(i32 t0, const Ranges& r, int q, f32 (&scores)[kTilesK][kCount]) const {
#pragma clang loop unroll(full)
    for (int j = 0; j < kTilesK; ++j)
#pragma clang loop unroll(full)
      for (int e = 0; e < kCount; ++e) {
        const i32 t = t0 + i32(key_of(j, e));
        bool inside = t < i32(n.keys);
        if constexpr (P::kBounds != 0) inside = t >= r.row[q][slot_of(e)].low && t < r.row[q][slot_of(e)].high;
        scores[j][e] = inside ? scores[j][e] : -inf32();
      }
  }
  // Turns the scores of the tile at t0 into probabilities relative to the new maximum, and rescales earlier sums.
  SDX_FN void update_softmax(i32 t0, const Ranges& r, f32 (&scores)[kTilesQ][kTilesK][kCount],
                             f32 (&top)[kTilesQ][kSlots], f32 (&total)[kTilesQ][kSlots],
                             f32 (&acc)[kTilesQ][kTilesV][kCount]) const {
    const bool edge = t0 < r.all.low || t0 + kKeys > r.all.high;
#pragma clang loop unroll(full)
    for (int q = 0; q < kTilesQ; ++q) {
      if constexpr (P::kPlain == 0) {
        Row row[kSlots];
#pragma clang loop unroll(full)
        for (int k = 0; k < kSlots; ++k) row[k] = row_at(tile_row(q) + query_of(lane, k));
#pragma clang loop unroll(full)
        for (int j = 0; j < kTilesK; ++j) {
          detail::stay();
          u32 first = t0;
          hide(first);  // otherwise the compiler keeps an address per score in registers
#pragma clang loop unroll(full)
          for (int e = 0; e < kCount; ++e) {
            const u32 t = first + key_of(j, e);
            const Row& at = row[slot_of(e)];
            scores[q][j][e] = p.score(b, at.h, at.s, i64(t < n.keys ? t : n.keys - 1), scores[q][j][e]);
          }
        }
        detail::stay();
      }
      if (edge) mask(t0, r, q, scores[q]);
      f32 base[kSlots], rescale[kSlots];
      [[maybe_unused]] bool higher = true;
#pragma clang loop unroll(full)
      for (int k = 0; k < kSlots; ++k) {
        f32 m = -inf32();
#pragma clang loop unroll(full)
        for (int j = 0; j < kTilesK; ++j)
#pragma clang loop unroll(full)
          for (int e = 0; e < kCount; ++e)
            if (slot_of(e) == u32(k)) m = __builtin_fmaxf(m, scores[q][j][e]);
        if constexpr (kLazy) {
          // An earlier maximum can be kept while no score exceeds it by much: probabilities are at most 2^kSlack. Lanes
          // of a row then need not exchange their maxima, nor rescale the accumulators.
          higher = detail::any_lane(exceeds(m, top[q][k]));
          if (!higher) {
            base[k] = top[q][k] == -inf32() ? 0.0f : top[q][k];
            continue;
          }
        }
        m = over_lanes(m, [](f32 x, f32 y) SDX_LAMBDA { return __builtin_fmaxf(x, y); });
        m = __builtin_fmaxf(m, top[q][k]);
        base[k] = m == -inf32() ? 0.0f : m;
        rescale[k] = exp_from(top[q][k], base[k]);
        top[q][k] = m;
        total[q][k] *= rescale[k];
      }
      if constexpr (kPairs) {
        weigh_pairs(scores[q], base[0], total[q][0]);
      } else
#pragma clang loop unroll(full)
        for (int j = 0; j < kTilesK; ++j)
#pragma clang loop unroll(full)
          for (int e = 0; e < kCount; ++e) {
            const f32 x = probability(scores[q][j][e], base[slot_of(e)]);
            scores[q][j][e] = x;
            total[q][slot_of(e)] += x;
          }
      // Later tiles seldom raise the maximum.
      if (kLazy ? higher : detail::any_lane(rescale[0] != 1 || rescale[kSlots - 1] != 1)) {
#pragma clang loop unroll(full)
        for (int d = 0; d < kTilesV; ++d)
#pragma clang loop unroll(full)
          for (int e = 0; e < kCount; ++e) acc[q][d][e] *= rescale[slot_of(e)];
      }
    }
  }

  /// The keys of a split, in whole tiles.
  SDX_FN void own_keys(const Ranges& r, u32 split, i32& t, i32& end) const {
    t = r.any.low / kKeys * kKeys, end = r.any.high;
    if (n.splits > 1) {
      const i32 count = end > t ? (end - t + kKeys - 1) / kKeys : 0;
      const i32 own = (count + i32(n.splits) - 1) / i32(n.splits) * kKeys;
      t += i32(split) * own;
      end = smaller(end, t + own);
    }
  }

  // ---- all work of one workgroup: its rows, and one split of the keys
  SDX_FN void run(u32 split) const {
    const Ranges r = ranges();
    i32 t, end;
    own_keys(r, split, t, end);
    const bool active = row0 + tile_row(0) < rows;
    f32 top[kTilesQ][kSlots], total[kTilesQ][kSlots], acc[kTilesQ][kTilesV][kCount] = {};
#pragma clang loop unroll(full)
    for (int q = 0; q < kTilesQ; ++q)
#pragma clang loop unroll(full)
      for (int k = 0; k < kSlots; ++k) top[q][k] = -inf32(), total[q][k] = 0;
    vec16 queries[kTilesQ][C::kKeep ? kSteps : 1][kVectorsQ];
    Row own[kTilesQ][kQueryRows];
#pragma clang loop unroll(full)
    for (int q = 0; q < kTilesQ; ++q) query_rows(q, own[q]);
    if constexpr (C::kKeep) {
#pragma clang loop unroll(full)
      for (int q = 0; q < kTilesQ; ++q)
#pragma clang loop unroll(full)
        for (int s = 0; s < kSteps; ++s) load_query(own[q], s, 0, queries[q][s]);
    }
    const Bases from = bases(r.any.high);
#if defined(__NVPTX__)
    if constexpr (kMma) {
      if (t < end) copy_keys(t, from);
      for (; t < end; t += kKeys) {
        detail::copies_arrived();
        barrier();
        copy_values(t, from);
        f32 scores[kTilesQ][kTilesK][kCount] = {};
        if (active) multiply_keys(shared, own, queries, scores);
        detail::copies_arrived();
        barrier();
        if (t + kKeys < end) copy_keys(t + kKeys, from);
        if (active) {
          update_softmax(t, r, scores, top, total, acc);
          multiply_values(scores, acc);
        }
      }
      barrier();
    } else
#endif
    {
      Fetched next;
      if (t < end) fetch(t, from, next);
      u32 buffer = 0;
      if constexpr (kBuffers == 2)
        if (t < end) place(shared, next, t, from.limit);
      // Queries have arrived when the loop begins. Otherwise every step waits for memory before its first product,
      // because queries might still be in flight there.
      if constexpr (C::kKeep) arrive(queries);
      for (; t < end; t += kKeys) {
        lds_barrier();
        if constexpr (kBuffers == 1) {
          place(shared, next, t, from.limit);
          lds_barrier();
        }
        const bool more = t + kKeys < end;
        if (more) fetch(t + kKeys, from, next);
        const auto tile = shared + buffer;
        if (active) {
          f32 scores[kTilesQ][kTilesK][kCount] = {};
          multiply_keys(tile, own, queries, scores);
          if constexpr (kVector) {
            update_softmax(t, r, scores, top, total, acc);
            multiply_values(scores, acc);
          } else {
            ValueRing ring;
            read_first_values(tile, ring);
            update_softmax(t, r, scores, top, total, acc);
            multiply_values_ahead(tile, scores, ring, acc);
          }
        }
        if constexpr (kBuffers == 2) {
          buffer = kTileChunks - buffer;
          if (more) place(shared + buffer, next, t + kKeys, from.limit);
        }
      }
      lds_barrier();
    }
    finish(top, total, acc, split);
  }

  /// Adds up the sums of lanes and waves, and stores the result.
  SDX_FN void finish(f32 (&top)[kTilesQ][kSlots], f32 (&total)[kTilesQ][kSlots], f32 (&acc)[kTilesQ][kTilesV][kCount],
                     u32 split) const {
#pragma clang loop unroll(full)
    for (int q = 0; q < kTilesQ; ++q)
#pragma clang loop unroll(full)
      for (int k = 0; k < kSlots; ++k) {
        total[q][k] = over_lanes(total[q][k], [](f32 x, f32 y) SDX_LAMBDA { return x + y; });
        if constexpr (!kVector && detail::pack_loss<T>() != 0) total[q][k] *= 1 / (1 + detail::pack_loss<T>());
        if constexpr (P::kPlain != 0) top[q][k] *= p.factor();
      }
    if constexpr (C::kWavesK > 1) merge(top, total, acc);
    if (wave_k == 0) store(top, total, acc, split);
    lds_barrier();
  }

  // Merges the partial results of the waves in a row of the grid into the first of them.
  SDX_FN void merge(f32 (&top)[kTilesQ][kSlots], f32 (&total)[kTilesQ][kSlots],
                    f32 (&acc)[kTilesQ][kTilesV][kCount]) const {
    static_assert(kTilesQ == 1);
    const auto all = (detail::shared_ptr<f32>)shared + wave_q * (kWave * kMergeTiles * kCount) + lane;
    for (u32 other = 1; other < C::kWavesK; ++other) {
      if (wave_k == other)
#pragma clang loop unroll(full)
        for (int k = 0; k < kSlots; ++k) all[(2 * k) * kWave] = top[0][k], all[(2 * k + 1) * kWave] = total[0][k];
      lds_barrier();
      f32 own[kSlots] = {}, its[kSlots] = {};
      if (wave_k == 0)
#pragma clang loop unroll(full)
        for (int k = 0; k < kSlots; ++k) {
          const f32 t = all[(2 * k) * kWave], m = __builtin_fmaxf(top[0][k], t), base = m == -inf32() ? 0.0f : m;
          own[k] = detail::fast_exp(top[0][k] - base), its[k] = detail::fast_exp(t - base);
          total[0][k] = total[0][k] * own[k] + all[(2 * k + 1) * kWave] * its[k];
          top[0][k] = m;
        }
      lds_barrier();
#pragma clang loop unroll(full)
      for (int d = 0; d < kTilesV; d += kMergeTiles) {
        constexpr int kMany = kMergeTiles * kCount;
        if (wave_k == other)
#pragma clang loop unroll(full)
          for (int x = 0; x < kMany; ++x)
            if (d + x / kCount < kTilesV) all[x * kWave] = acc[0][d + x / kCount][x % kCount];
        lds_barrier();
        if (wave_k == 0)
#pragma clang loop unroll(full)
          for (int x = 0; x < kMany; ++x)
            if (d + x / kCount < kTilesV) {
              f32& s = acc[0][d + x / kCount][x % kCount];
              s = s * own[slot_of(x % kCount)] + all[x * kWave] * its[slot_of(x % kCount)];
            }
        lds_barrier();
      }
    }
  }

  static SDX_FN u32 value_of(u32 lane, u32 d, u32 e) {
    return d * 16 + (kMma ? M::acc_col(lane, e) : M::acc_row(lane, e));
  }
  SDX_FN void store(const f32 (&top)[kTilesQ][kSlots], const f32 (&total)[kTilesQ][kSlots],
                    const f32 (&acc)[kTilesQ][kTilesV][kCount], u32 split) const {
#pragma clang loop unroll(full)
    for (int q = 0; q < kTilesQ; ++q) store_tile(q, top[q], total[q], acc[q], split);
  }
  SDX_FN void store_tile(int q, const f32 (&top)[kSlots], const f32 (&total)[kSlots], const f32 (&acc)[kTilesV][kCount],
                         u32 split) const {
    using Out = typename P::Out;
    // Consecutive elements of an output row that a lane holds.
    constexpr int kRun = P::kOutDirect == 0 || kVector || kFamily == MatrixFamily::kWmma11 ? 1
                         : kMma                                                            ? 2
                         : sizeof(Out) == 4                                                ? 4
                                                                                           : kCount;
    struct Run {
      Out x[kRun];
    };
#pragma clang loop unroll(full)
    for (int k = 0; k < kSlots; ++k) {
      const Row row = row_at(tile_row(q) + query_of(lane, k));
      if (!row.inside) continue;
      if (n.splits > 1) {
        f32* to = n.partial + (((b * n.heads + row.h) * n.queries + row.s) * n.splits + split) * (kDv + 2);
        to[kDv] = top[k], to[kDv + 1] = total[k];
#pragma clang loop unroll(full)
        for (int d = 0; d < kTilesV; ++d)
#pragma clang loop unroll(full)
          for (int e = 0; e < kCount; ++e)
            if (slot_of(e) == u32(k)) to[value_of(lane, d, e)] = acc[d][e];
        continue;
      }
      const f32 scale = attention_scale(p, b, row.h, top[k], total[k]);
      Out* to = p.out(b, row.h, row.s);
#pragma clang loop unroll(full)
      for (int d = 0; d < kTilesV; ++d)
#pragma clang loop unroll(full)
        for (int e = 0; e < kCount; e += kRun) {
          if (slot_of(e) != u32(k)) continue;
          const u32 at = value_of(lane, d, e);
          if (P::kValueDim % 16 != 0 && at >= P::kValueDim) continue;
          Run run;
#pragma clang loop unroll(full)
          for (int x = 0; x < kRun; ++x) run.x[x] = p.result(b, row.h, row.s, at + x, acc[d][e + x] * scale);
          if constexpr (kRun == 1)
            to[at * p.out_step()] = run.x[0];
          else
            *(Run*)__builtin_assume_aligned(to + at, sizeof(Run)) = run;
        }
    }
  }
};

}  // namespace sdx
