// Attention with few keys on NVIDIA's matrix instructions: a warp has some queries of a unit (AttentionSizes), and all
// of its keys and values in registers. Nothing goes through shared memory and no warp waits for another. The tiles of
// attention.h and attention_wgmma.h would be mostly empty for short sequences, and a thread block's chain of loads and
// barriers would serve one head.
//
// Operands come straight from memory, in vectors. The order of the elements of K in a product is free if both operands
// have the same: of each 4 kWords neighbouring pairs of elements, a lane loads kWords neighbouring ones and supplies
// them one after another. movmatrix transposes values, of which the second product needs pairs of keys; so a lane also
// gets neighbouring elements of the result. All scores of a query are known at once, so nothing is rescaled.
//
// Besides what attention.h requires, P has
//   kQueryUnit, kKeyUnit, kValueUnit   elements of a row that can be loaded at a time wherever a vector begins: 8, 4, 2
//                                      or 1; then query(), key() and value() point to rows. 0: elements only
//   kOutUnit, kBiasUnit                the same of results and of bias(); 0 where results of a row are not contiguous
// Source: PTX ISA, "mma.m16n8k16", "movmatrix".
#pragma once
#include "attention_operands.h"
#include "layout_attention.h"

namespace sdx {
namespace detail {

/// How a lane gets rows of kDim elements that can be loaded kUnit at a time.
template <int kDim, int kUnit>
struct ShortRow {
  static constexpr layout::ShortRow kRow{kDim, kUnit};
  static constexpr int kVector = kRow.vector(), kWords = kRow.words(), kGroups = kRow.groups(), kSteps = kRow.steps(),
                       kMany = 2 * kSteps;  // pairs of a lane
  /// The first element of a lane's vector g.
  static SDX_FN u32 first(u32 lane, int g) { return g * 8 * kWords + lane % 4 * 2 * kWords; }
};

}  // namespace detail

template <class P, int kKeyCount>
struct AttentionShortMma {
  using T = typename P::T;
  static constexpr int kQueryKey = P::kQueryUnit == 0            ? P::kKeyUnit
                                   : P::kKeyUnit == 0            ? P::kQueryUnit
                                   : P::kQueryUnit < P::kKeyUnit ? P::kQueryUnit
                                                                 : P::kKeyUnit;
  using Keys = detail::ShortRow<P::kHeadDim, kQueryKey>;
  using Values = detail::ShortRow<P::kValueDim, P::kValueUnit>;
  static constexpr int kSteps = (kKeyCount + 15) / 16, kTiles = 2 * kSteps;  // of 16 and 8 keys
  static constexpr bool kAdds = P::kColumn != 0 || P::kBias != 0;
  using Queries = u32[2][Keys::kMany];
  using Scores = f32[kTiles][4];

  struct Row {
    i64 h, s;
    bool inside;
    i32 low, high;
  };

  const P& p;
  const AttentionSizes& n;
  u32 lane;
  i64 b, h0;
  u32 rows;

  // ---- loads
  /// Pairs of elements of a row: from(d) is the address of element d, at(d) an element.
  template <class R, bool kDirect, class From, class At>
  static SDX_FN void load_row(u32 lane, int dim, From from, At at, u32 (&x)[R::kMany]) {
    constexpr int kWords = R::kWords;
#pragma clang loop unroll(full)
    for (int g = 0; g < R::kMany / kWords; ++g) {
      const u32 d = R::first(lane, g);
      u32* to = x + g * kWords;
      const bool whole = (g + 1) * 8 * kWords <= dim;
      if constexpr (kDirect && R::kVector >= 2) {
        typedef u32 Vector __attribute__((ext_vector_type(kWords)));
        Vector v = {};
        if (whole || d < u32(dim)) v = *(const Vector*)from(d);
#pragma clang loop unroll(full)
        for (int w = 0; w < kWords; ++w) to[w] = v[w];
      } else {
#pragma clang loop unroll(full)
        for (int w = 0; w < kWords; ++w) {
          const u32 e = d + 2 * w;
          const u32 low = whole || e < u32(dim) ? u32(bit_cast<u16>(T(at(i64(e))))) : 0,
                    high = whole || e + 1 < u32(dim) ? u32(bit_cast<u16>(T(at(i64(e + 1))))) : 0;
          to[w] = low | high << 16;
        }
      }
    }
  }
  SDX_FN void load_query(const Row& row, u32 (&x)[Keys::kMany]) const {
    if constexpr (P::kQueryUnit != 0) {
      const T* from = p.query(b, row.h, row.s);
      load_row<Keys, true>(
          lane, P::kHeadDim, [&](u32 d) SDX_LAMBDA { return from + d; }, [&](i64 d) SDX_LAMBDA { return from[d]; }, x);
    } else {
      load_row<Keys, false>(
          lane, P::kHeadDim, [](u32) SDX_LAMBDA { return (const T*)nullptr; },
          [&](i64 d) SDX_LAMBDA { return p.query_at(b, row.h, row.s, d); }, x);
    }
  }
  /// The key that this lane has of tile j; past the end the last one.
  SDX_FN u32 key_of_lane(int j) const {
    const u32 t = j * 8 + lane / 4;
    return (j + 1) * 8 <= kKeyCount || t < kKeyCount ? t : kKeyCount - 1;
  }
  SDX_FN void load_keys(u32 (&x)[kTiles][Keys::kMany]) const {
#pragma clang loop unroll(full)
    for (int j = 0; j < kTiles; ++j) {
      if (j * 8 >= kKeyCount) continue;
      const u32 t = key_of_lane(j);
      if constexpr (P::kKeyUnit != 0) {
        const T* from = p.key(b, h0) + t * u32(p.key_row());
        load_row<Keys, true>(
            lane, P::kHeadDim, [&](u32 d) SDX_LAMBDA { return from + d; }, [&](i64 d) SDX_LAMBDA { return from[d]; },
            x[j]);
      } else {
        load_row<Keys, false>(
            lane, P::kHeadDim, [](u32) SDX_LAMBDA { return (const T*)nullptr; },
            [&](i64 d) SDX_LAMBDA { return p.key_at(b, h0, i64(t), d); }, x[j]);
      }
    }
  }
  SDX_FN void load_values(u32 (&x)[kTiles][Values::kMany]) const {
#pragma clang loop unroll(full)
    for (int j = 0; j < kTiles; ++j) {
      if (j * 8 >= kKeyCount) continue;
      const u32 t = key_of_lane(j);
      if constexpr (P::kValueUnit != 0) {
        const T* from = p.value(b, h0) + t * u32(p.value_row());
        load_row<Values, true>(
            lane, P::kValueDim, [&](u32 d) SDX_LAMBDA { return from + d; }, [&](i64 d) SDX_LAMBDA { return from[d]; },
            x[j]);
      } else {
        load_row<Values, false>(
            lane, P::kValueDim, [](u32) SDX_LAMBDA { return (const T*)nullptr; },
            [&](i64 d) SDX_LAMBDA { return p.value_at(b, h0, i64(t), d); }, x[j]);
      }
    }
  }
  /// Zeros in place of values from key `limit` on, whose probability is 0: memory may hold anything there.
  SDX_FN void trim(u32 (&x)[kTiles][Values::kMany], u32 limit) const {
#pragma clang loop unroll(full)
    for (int j = 0; j < kTiles; ++j)
#pragma clang loop unroll(full)
      for (int w = 0; w < Values::kMany; ++w)
        if (j * 8 >= kKeyCount || ((P::kBounds != 0 || (j + 1) * 8 > kKeyCount) && j * 8 + lane / 4 >= limit))
          x[j][w] = 0;
  }

  // ---- rows
  SDX_FN i32 clamp_key(i64 t) const { return t < 0 ? 0 : t > kKeyCount ? kKeyCount : i32(t); }
  /// Rows past the end repeat the last one.
  SDX_FN Row row_at(u32 r) const {
    Row x;
    x.inside = r < rows;
    r = x.inside ? r : rows - 1;
    x.h = n.heads_per_unit == 1 ? h0 : h0 + r / n.queries;
    x.s = n.heads_per_unit == 1 ? r : r % n.queries;
    x.low = 0, x.high = kKeyCount;
    if constexpr (P::kBounds != 0) x.low = clamp_key(p.begin(b, x.h, x.s)), x.high = clamp_key(p.end(b, x.h, x.s));
    return x;
  }
  /// One more than the last key that any query of the unit attends to.
  SDX_FN u32 last_key() const {
    if constexpr (P::kBounds == 0) return kKeyCount;
    i32 limit = 0;
    for (u32 r = lane; r < rows; r += kWave) {
      const i32 high = row_at(r).high;
      limit = high > limit ? high : limit;
    }
    return u32(reduce_lanes(limit, kWave, [](i32 x, i32 y) SDX_LAMBDA { return x > y ? x : y; }));
  }

  // ---- scores
  SDX_FN u32 key_of(int j, int e) const { return j * 8 + lane % 4 * 2 + e % 2; }
  static constexpr bool is_whole(int j) { return (j + 1) * 8 <= kKeyCount; }
  SDX_FN void add_bias(const Row& row, int e, Scores& x) const {
    const typename P::Bias* bias = p.bias(b, row.h, row.s);
#pragma clang loop unroll(full)
    for (int j = 0; j < kTiles; ++j) {
      if (j * 8 >= kKeyCount) continue;
      const u32 t = key_of(j, 0);
      if constexpr (P::kBiasUnit >= 2 && kKeyCount % 2 == 0) {
        const u32 pair = *(const u32*)(bias + (is_whole(j) || t < kKeyCount ? t : 0));
        x[j][e] += cast<f32>(bit_cast<typename P::Bias>(u16(pair)));
        x[j][e + 1] += cast<f32>(bit_cast<typename P::Bias>(u16(pair >> 16)));
      } else {
        x[j][e] += cast<f32>(bias[is_whole(j) || t < kKeyCount ? t : kKeyCount - 1]);
        x[j][e + 1] += cast<f32>(bias[is_whole(j) || t + 1 < kKeyCount ? t + 1 : kKeyCount - 1]);
      }
    }
  }
  using Column = f32[P::kColumn != 0 ? kTiles : 1][2];
  SDX_FN void load_column(Column& x) const {
    if constexpr (P::kColumn != 0)
#pragma clang loop unroll(full)
      for (int j = 0; j < kTiles; ++j)
#pragma clang loop unroll(full)
        for (int e = 0; e < 2; ++e) {
          const u32 t = key_of(j, e);
          x[j][e] = p.column(b, h0, i64(is_whole(j) || t < kKeyCount ? t : kKeyCount - 1));
        }
  }
  /// What is added to the scores of a lane's two queries, or P::score(); -inf for keys to which they do not attend.
  SDX_FN void finish_scores(const Row (&row)[2], const Column& column, Scores& x) const {
    if constexpr (kAdds) {
#pragma clang loop unroll(full)
      for (int j = 0; j < kTiles; ++j)
#pragma clang loop unroll(full)
        for (int e = 0; e < 4; ++e) {
          if constexpr (P::kColumn != 0)
            x[j][e] = __builtin_fmaf(x[j][e], p.factor(), column[j][e % 2]);
          else
            x[j][e] *= p.factor();
        }
      if constexpr (P::kBias != 0) add_bias(row[0], 0, x), add_bias(row[1], 2, x);
    }
#pragma clang loop unroll(full)
    for (int j = 0; j < kTiles; ++j)
#pragma clang loop unroll(full)
      for (int e = 0; e < 4; ++e) {
        const u32 t = key_of(j, e);
        const Row& r = row[e / 2];
        if constexpr (P::kPlain == 0 && !kAdds)
          if (j * 8 < kKeyCount)
            x[j][e] = p.score(b, r.h, r.s, i64(is_whole(j) || t < kKeyCount ? t : kKeyCount - 1), x[j][e]);
        if (P::kBounds != 0 || !is_whole(j)) x[j][e] = i32(t) >= r.low && i32(t) < r.high ? x[j][e] : -inf32();
      }
  }
  /// Turns a query's scores into probabilities relative to their maximum `top`; returns their sum.
  SDX_FN f32 weigh(int slot, Scores& x, f32& top) const {
    f32 m = -inf32(), total = 0;
#pragma clang loop unroll(full)
    for (int j = 0; j < kTiles; ++j)
      if (j * 8 < kKeyCount) m = __builtin_fmaxf(m, __builtin_fmaxf(x[j][2 * slot], x[j][2 * slot + 1]));
    m = __builtin_fmaxf(m, from_lane_xor(m, 1));
    m = __builtin_fmaxf(m, from_lane_xor(m, 2));
    top = m;
    const f32 base = m == -inf32() ? 0.0f : m;
#pragma clang loop unroll(full)
    for (int j = 0; j < kTiles; ++j)
#pragma clang loop unroll(full)
      for (int e = 2 * slot; e < 2 * slot + 2; ++e) {
        if (j * 8 >= kKeyCount) {
          x[j][e] = 0;
        } else if constexpr (P::kPlain != 0) {
          const f32 f = p.factor() * kLog2e;
          x[j][e] = fast_exp2(__builtin_fmaf(x[j][e], f, -(base * f)));
        } else {
          x[j][e] = detail::fast_exp(x[j][e] - base);
        }
        total += x[j][e];
      }
    total += from_lane_xor(total, 1);
    total += from_lane_xor(total, 2);
    if constexpr (P::kPlain != 0) top *= p.factor();
    return total;
  }

  // ---- results
  SDX_FN void store(const Row& row, int slot, f32 scale, const f32 (&acc)[Values::kMany][4]) const {
    using Out = typename P::Out;
    constexpr int kVector = 2 * Values::kWords;
    constexpr int kRun = P::kOutUnit == 0 ? 1 : P::kOutUnit < kVector ? P::kOutUnit : kVector;
    struct __attribute__((aligned(sizeof(Out) * kRun > 16 ? 16 : sizeof(Out) * kRun))) Run {
      Out x[kRun];
    };
    Out* to = p.out(b, row.h, row.s);
#pragma clang loop unroll(full)
    for (int g = 0; g < Values::kGroups; ++g)
#pragma clang loop unroll(full)
      for (int k = 0; k < kVector; k += kRun) {
        const u32 d = Values::first(lane, g) + k;
        if ((g + 1) * 4 * kVector > P::kValueDim && d >= u32(P::kValueDim)) continue;
        Run run;
#pragma clang loop unroll(full)
        for (int i = 0; i < kRun; ++i)
          run.x[i] = p.result(b, row.h, row.s, i64(d + i),
                              acc[g * Values::kWords + (k + i) / 2][2 * slot + (k + i) % 2] * scale);
        if constexpr (P::kOutUnit == 0)
          to[i64(d) * p.out_step()] = run.x[0];
        else
          *(Run*)(to + d) = run;
      }
  }

  // ---- all work of a warp: tiles of 16 queries from `part` on, of which `parts` warps have every other one
  SDX_FN void run(u32 part, u32 parts) const {
    const u32 tiles = (rows + 15) / 16;
    Queries queries;
    u32 keys[kTiles][Keys::kMany], values[kTiles][Values::kMany];
    Column column;
    const Row first[2] = {row_at(part * 16 + lane / 4), row_at(part * 16 + lane / 4 + 8)};
    load_query(first[0], queries[0]), load_query(first[1], queries[1]);
    load_keys(keys);
    load_values(values);
    load_column(column);
    trim(values, last_key());
#pragma clang loop unroll(full)
    for (int j = 0; j < kTiles; ++j)
#pragma clang loop unroll(full)
      for (int w = 0; w < Values::kMany; ++w) values[j][w] = j * 8 < kKeyCount ? detail::transposed(values[j][w]) : 0;
    // Each warp has a first tile: without a test for it, all loads begin before the first value is used.
    u32 tile = part;
    do {
      const Row row[2] = {row_at(tile * 16 + lane / 4), row_at(tile * 16 + lane / 4 + 8)};
      Scores scores = {};
#pragma clang loop unroll(full)
      for (int s = 0; s < Keys::kSteps; ++s)
#pragma clang loop unroll(full)
        for (int j = 0; j < kTiles; ++j)
          if (j * 8 < kKeyCount)
            detail::mma<T>(queries[0][2 * s], queries[1][2 * s], queries[0][2 * s + 1], queries[1][2 * s + 1],
                           keys[j][2 * s], keys[j][2 * s + 1], scores[j][0], scores[j][1], scores[j][2], scores[j][3]);
      if (tile + parts < tiles) {
        const u32 next = (tile + parts) * 16 + lane / 4;
        load_query(row_at(next), queries[0]), load_query(row_at(next + 8), queries[1]);
      }
      finish_scores(row, column, scores);
      f32 top[2], total[2], acc[Values::kMany][4] = {};
      total[0] = weigh(0, scores, top[0]), total[1] = weigh(1, scores, top[1]);
#pragma clang loop unroll(full)
      for (int s = 0; s < kSteps; ++s) {
        const auto &low = scores[2 * s], &high = scores[2 * s + 1];
        const u32 a0 = detail::pack2<T>(low[0], low[1]), a1 = detail::pack2<T>(low[2], low[3]),
                  a2 = detail::pack2<T>(high[0], high[1]), a3 = detail::pack2<T>(high[2], high[3]);
#pragma clang loop unroll(full)
        for (int w = 0; w < Values::kMany; ++w)
          detail::mma<T>(a0, a1, a2, a3, values[2 * s][w], values[2 * s + 1][w], acc[w][0], acc[w][1], acc[w][2],
                         acc[w][3]);
      }
#pragma clang loop unroll(full)
      for (int slot = 0; slot < 2; ++slot)
        if (row[slot].inside) store(row[slot], slot, attention_scale(p, b, row[slot].h, top[slot], total[slot]), acc);
      tile += parts;
    } while (tile < tiles);
  }
};

/// Launch: ceil(batch * units * splits / 8) thread blocks, or any number from kMostBlocks (gpu.h) on. Of the queries of
/// a unit, each of `splits` warps has some.
template <class P, int kKeyCount>
SDX_FN void attention_short_mma(const P& p, const AttentionSizes& n, u32 batches) {
  constexpr u32 kWarps = kThreads / kWave;
  const u32 thread = thread_id(), warp = uniform(thread / kWave);
  const u32 units = n.heads / n.heads_per_unit, count = batches * units * n.splits,
            blocks = (count + kWarps - 1) / kWarps;
  for (u32 block = block_id(); block < blocks; block += late_block_count()) {
    const u32 item = block * kWarps + warp, unit = item / n.splits;
    if (item < count)
      AttentionShortMma<P, kKeyCount>{
          p, n, thread % kWave, i64(unit / units), i64(unit % units) * n.heads_per_unit, n.heads_per_unit * n.queries}
          .run(item % n.splits, n.splits);
    if (!has_more(blocks)) break;
  }
}

}  // namespace sdx
