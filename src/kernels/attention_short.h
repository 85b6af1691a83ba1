// Attention with few keys on AMD's matrix instructions: a wave has some queries of a unit (AttentionSizes), and all of
// its keys and values in registers. Nothing goes through LDS and no wave waits for another. The tiles of attention.h
// would be mostly empty for short sequences, and a workgroup's chain of loads and barriers would serve one head.
//
// All scores of a query are known at once, so there is one pass of softmax and nothing is rescaled. Values are loaded
// as rows, like keys. The operand of the second GEMM needs them along the keys: a product with a matrix of ones and
// zeros transposes them, without rounding. That matrix also gives each lane neighbouring elements of the result. An
// infinity or a NaN in a value becomes NaN in all elements of a row that one matrix instruction multiplies, and an
// infinity in a key a score of NaN, if heads are no whole steps of the first GEMM.
//
// Besides what attention.h requires, P has
//   kQueryLoose, kKeyLoose, kValueLoose   rows are contiguous but not aligned, and at least 16 bytes long: there are
//                                         query(), key() and value() besides query_at(), key_at() and value_at()
//   kOutRows                              out_step() is 1
#pragma once
#include "attention_kernel.h"

namespace sdx {

template <class P, int kKeyCount, int kTilesQ, bool kOnce>
struct AttentionShort : AttentionKernel<P, kManyQueries> {
  using Base = AttentionKernel<P, kManyQueries>;
  using Base::kFamily, Base::kVec, Base::kSteps, Base::kTilesV, Base::kCount, Base::kVectorsQ;
  using Base::p, Base::n, Base::lane, Base::b, Base::h0, Base::rows, Base::row_at, Base::over_lanes;
  using typename Base::T, typename Base::C, typename Base::M, typename Base::Row;
  using Sums = typename M::Sums;

  static constexpr int kStep = M::kStep;  // of a head's elements (first GEMM), of keys (second)
  static constexpr int kStepsV = (kKeyCount + kStep - 1) / kStep, kTilesK = kStepsV * kStep / 16;
  static constexpr int kChunks = kStep / kVec;  // vectors of 16 bytes in a step
  static constexpr bool kAdds = P::kColumn != 0 || P::kBias != 0;
  using Scores = Sums[kTilesK];
  using Queries = vec16[kSteps][kVectorsQ];
  using Keys = vec16[kTilesK][kSteps][M::kVectorsA];
  using Rows = vec16[kTilesK][kTilesV * 16 / kStep + 1][M::kVectorsA];
  using Values = vec16[kStepsV][M::kVectorsB];  // of a tile of results
  using Column = f32[P::kColumn != 0 ? kTilesK : 1][kCount];

  // ---- vectors of rows. Of one that the row's end cuts, the row's last kVec elements are loaded, of which the first
  // `repeated` are those of the vector before.
  template <int kDim>
  static SDX_FN u32 vector_at(u32 chunk) {
    const u32 d = chunk * kVec;
    return d + kVec <= kDim ? d : d < kDim && kDim > kVec ? kDim - kVec : 0;
  }
  template <int kDim>
  static SDX_FN u32 repeated(u32 chunk) {
    const u32 d = chunk * kVec;
    return d >= kDim ? kVec : d + kVec <= kDim || kDim < kVec ? 0 : d + kVec - kDim;
  }
  /// A vector without its first `count` elements.
  static SDX_FN vec16 without(vec16 x, u32 count) {
    vec16 kept;
#pragma clang loop unroll(full)
    for (u32 w = 0; w < 4; ++w) kept[w] = x[w] & ((2 * w < count ? 0 : 0xffff) | (2 * w + 1 < count ? 0 : 0xffff0000));
    return kept;
  }
  template <bool kAligned>
  static SDX_FN vec16 load_vector(const T* from, u32 at) {
    typedef u32 Loose __attribute__((ext_vector_type(4), aligned(2)));  // an alias would lose the alignment
    const auto address = (const char*)from + u32(at * sizeof(T));
    if constexpr (kAligned) return *(const vec16*)address;
    return *(const Loose*)address;
  }
  template <int kDim, class F>
  static SDX_FN vec16 load_elements(u32 at, F element) {
    vec<u16, 8> x = {};
#pragma clang loop unroll(full)
    for (u32 k = 0; k < 8; ++k)
      if (kDim >= 8 || at + k < kDim) x[k] = bit_cast<u16>(element(i64(at + k)));
    return bit_cast<vec16>(x);
  }

  SDX_FN void load_queries(u32 tile, Queries& q) const {
    const Row row = row_at(tile * 16 + lane % 16);
#pragma clang loop unroll(full)
    for (u32 s = 0; s < kSteps; ++s)
#pragma clang loop unroll(full)
      for (u32 v = 0; v < kVectorsQ; ++v) {
        const u32 at = vector_at<P::kHeadDim>(s * kChunks + M::chunk(lane, v));
        if constexpr (P::kQueryDirect != 0 || P::kQueryLoose != 0)
          q[s][v] = load_vector<P::kQueryDirect != 0>(p.query(b, row.h, row.s), at);
        else
          q[s][v] = load_elements<P::kHeadDim>(at, [&](i64 d) SDX_LAMBDA { return T(p.query_at(b, row.h, row.s, d)); });
      }
  }
  /// Zeros in place of elements that are none of the head's, or are repeated. Keys may have any numbers there.
  SDX_FN void trim(Queries& q) const {
    if constexpr (P::kHeadDim % kStep != 0)
#pragma clang loop unroll(full)
      for (u32 v = 0; v < kVectorsQ; ++v)
        q[kSteps - 1][v] = without(q[kSteps - 1][v], repeated<P::kHeadDim>((kSteps - 1) * kChunks + M::chunk(lane, v)));
  }
  /// The key that is row r of tile j; rows past the end repeat the last key.
  static SDX_FN u32 key_of_row(u32 j, u32 r) {
    const u32 t = Base::key_at(j, r);
    return (j / 2 + 1) * 32 <= kKeyCount || t < kKeyCount ? t : kKeyCount - 1;
  }
  SDX_FN void load_keys(Keys& k) const {
#pragma clang loop unroll(full)
    for (u32 j = 0; j < kTilesK; ++j)
#pragma clang loop unroll(full)
      for (u32 s = 0; s < kSteps; ++s)
#pragma clang loop unroll(full)
        for (u32 v = 0; v < M::kVectorsA; ++v) {
          const u32 t = key_of_row(j, M::row_a(lane, v)), at = vector_at<P::kHeadDim>(s * kChunks + M::chunk(lane, v));
          if constexpr (P::kKeyDirect != 0 || P::kKeyLoose != 0)
            k[j][s][v] = load_vector<P::kKeyDirect != 0>(p.key(b, h0), t * u32(p.key_row()) + at);
          else
            k[j][s][v] =
                load_elements<P::kHeadDim>(at, [&](i64 d) SDX_LAMBDA { return T(p.key_at(b, h0, i64(t), d)); });
        }
  }
  SDX_FN void load_values(Rows& x) const {
#pragma clang loop unroll(full)
    for (u32 j = 0; j < kTilesK; ++j)
#pragma clang loop unroll(full)
      for (u32 s = 0; s * kStep < P::kValueDim; ++s)
#pragma clang loop unroll(full)
        for (u32 v = 0; v < M::kVectorsA; ++v) {
          const u32 t = key_of_row(j, M::row_a(lane, v)), at = vector_at<P::kValueDim>(s * kChunks + M::chunk(lane, v));
          if constexpr (P::kValueDirect != 0 || P::kValueLoose != 0)
            x[j][s][v] = load_vector<P::kValueDirect != 0>(p.value(b, h0), t * u32(p.value_row()) + at);
          else
            x[j][s][v] =
                load_elements<P::kValueDim>(at, [&](i64 d) SDX_LAMBDA { return T(p.value_at(b, h0, i64(t), d)); });
        }
  }
  /// Zeros in place of values from key `limit` on, which no query attends to: memory may hold anything there.
  SDX_FN void trim(Rows& x, u32 limit) const {
#pragma clang loop unroll(full)
    for (u32 j = 0; j < kTilesK; ++j)
#pragma clang loop unroll(full)
      for (u32 s = 0; s * kStep < P::kValueDim; ++s)
#pragma clang loop unroll(full)
        for (u32 v = 0; v < M::kVectorsA; ++v)
          if (key_of_row(j, M::row_a(lane, v)) >= limit) x[j][s][v] = vec16{};
  }

  // ---- the transposition of values
  /// The element of a head that is row r of tile c of the second GEMM's results: a lane's results are neighbours.
  static SDX_FN u32 value_at(u32 c, u32 r) {
    if constexpr (kFamily == MatrixFamily::kMfma) {
      if (c / 2 * 2 + 1 < kTilesV) return c / 2 * 32 + r / 4 * 8 + c % 2 * 4 + r % 4;
    } else if constexpr (kFamily == MatrixFamily::kWmma11) {
      return c * 16 + r % 2 * 8 + r / 2;
    }
    return c * 16 + r;
  }
  /// The operand that selects elements value_at(c, ...) from vectors of step s.
  SDX_FN void selector(u32 s, u32 c, vec16 (&x)[M::kVectorsB]) const {
    constexpr u32 kOne = is_same<T, f16> ? 0x3c00 : 0x3f80;
#pragma clang loop unroll(full)
    for (u32 v = 0; v < M::kVectorsB; ++v) {
      const u32 chunk = s * kChunks + M::chunk(lane, v), first = repeated<P::kValueDim>(chunk),
                k = value_at(c, M::row_b(lane, v)) - vector_at<P::kValueDim>(chunk);
      const u32 one = k >= first && k < u32(kVec) ? k % 2 != 0 ? kOne << 16 : kOne : 0;
#pragma clang loop unroll(full)
      for (u32 w = 0; w < 4; ++w) x[v][w] = k / 2 == w ? one : 0;
    }
  }
  /// Operands of tile c of the second GEMM's results.
  SDX_FN void transpose(const Rows& x, u32 c, Values& values) const {
    const u32 s = c * 16 / kStep;
    vec16 select[M::kVectorsB];
    selector(s, c, select);
    Scores sums = {};
#pragma clang loop unroll(full)
    for (u32 j = 0; j < kTilesK; ++j) M::mma(x[j][s], select, sums[j]);
#pragma clang loop unroll(full)
    for (u32 k = 0; k < kStepsV; ++k) this->pack_probabilities(sums, k, values[k]);
  }

  // ---- scores
  SDX_FN u32 key_of(u32 j, u32 e) const { return Base::key_at(j, M::acc_row(lane, e)); }
  /// Whether all keys of tile j exist.
  static constexpr bool is_whole(u32 j) {
    return (j / 2 + 1) * 32 <= kKeyCount || (kStep == 16 && (j + 1) * 16 <= kKeyCount);
  }
  SDX_FN void load_column(Column& column) const {
    if constexpr (P::kColumn != 0)
#pragma clang loop unroll(full)
      for (u32 j = 0; j < kTilesK; ++j)
#pragma clang loop unroll(full)
        for (u32 e = 0; e < kCount; ++e) {
          const u32 t = key_of(j, e);
          column[j][e] = p.column(b, h0, i64(is_whole(j) || t < kKeyCount ? t : kKeyCount - 1));
        }
  }
  /// Of the bias of a query, the vector whose first element is that of lane's first key of tile j.
  SDX_FN vec<u16, 8> load_bias(const u16* bias, u32 j) const {
    typedef u16 Loose __attribute__((ext_vector_type(8), aligned(2)));
    const u32 t = key_of(j, 0);
    constexpr u32 kCut = kKeyCount % 8;
    if (is_whole(j) || kCut == 0) return *(const Loose*)(bias + (is_whole(j) || t < kKeyCount ? t : 0));
    if constexpr (kKeyCount < 8) {
      vec<u16, 8> x = {};
#pragma clang loop unroll(full)
      for (u32 k = 0; k < kKeyCount; ++k) x[k] = bias[k];
      return x;
    }
    const bool whole = t + 8 <= kKeyCount;
    const vec<u16, 8> x = *(const Loose*)(bias + (whole ? t : kKeyCount - 8));
    vec<u16, 8> cut = {};
#pragma clang loop unroll(full)
    for (u32 k = 0; k < kCut; ++k) cut[k] = x[8 - kCut + k];
    return whole ? x : cut;
  }
  using Biases = vec<u16, 8>[P::kBias != 0 ? kTilesK * kCount / 8 : 1];
  SDX_FN void load_biases(const Row& row, Biases& x) const {
    if constexpr (P::kBias != 0)
#pragma clang loop unroll(full)
      for (u32 k = 0; k < kTilesK * kCount / 8; ++k)
        x[k] = load_bias((const u16*)p.bias(b, row.h, row.s), k * 8 / kCount);
  }
  /// What is added to the scores of a query; or P::score().
  SDX_FN void finish_scores(const Row& row, const Column& column, const Biases& biases, Scores& scores) const {
#pragma clang loop unroll(full)
    for (u32 j = 0; j < kTilesK; ++j)
#pragma clang loop unroll(full)
      for (u32 e = 0; e < kCount; ++e) {
        if constexpr (P::kPlain != 0) {
        } else if constexpr (kAdds) {
          f32 added = 0;
          if constexpr (P::kColumn != 0) added = column[j][e];
          if constexpr (P::kBias != 0) {
            const u32 k = j * kCount + e;
            added += cast<f32>(bit_cast<typename P::Bias>(biases[k / 8][k % 8]));
          }
          scores[j][e] = __builtin_fmaf(scores[j][e], p.factor(), added);
        } else {
          const u32 t = key_of(j, e);
          scores[j][e] = p.score(b, row.h, row.s, i64(is_whole(j) || t < kKeyCount ? t : kKeyCount - 1), scores[j][e]);
        }
      }
  }
  struct Limits {
    i32 low = 0, high = kKeyCount;
  };
  SDX_FN Limits limits(const Row& row) const {
    Limits x;
    if constexpr (P::kBounds != 0)
      x = {this->clamp_key(p.begin(b, row.h, row.s)), this->clamp_key(p.end(b, row.h, row.s))};
    return x;
  }
  SDX_FN void mask(const Limits& limits, Scores& scores) const {
#pragma clang loop unroll(full)
    for (u32 j = 0; j < kTilesK; ++j) {
      if (P::kBounds == 0 && is_whole(j)) continue;
#pragma clang loop unroll(full)
      for (u32 e = 0; e < kCount; ++e) {
        const i32 t = i32(key_of(j, e));
        scores[j][e] = t >= limits.low && t < limits.high ? scores[j][e] : -inf32();
      }
    }
  }
  /// Turns scores into probabilities relative to their maximum `top`; returns their sum.
  SDX_FN f32 weigh(Scores& scores, f32& top) const {
    f32 m = -inf32(), total = 0;
#pragma clang loop unroll(full)
    for (u32 j = 0; j < kTilesK; ++j)
#pragma clang loop unroll(full)
      for (u32 e = 0; e < kCount; ++e) m = __builtin_fmaxf(m, scores[j][e]);
    m = over_lanes(m, [](f32 x, f32 y) SDX_LAMBDA { return __builtin_fmaxf(x, y); });
    top = m;
    const f32 base = m == -inf32() ? 0.0f : m;
#pragma clang loop unroll(full)
    for (u32 j = 0; j < kTilesK; ++j)
#pragma clang loop unroll(full)
      for (u32 e = 0; e < kCount; ++e) {
        const f32 x = this->probability(scores[j][e], base);
        scores[j][e] = x, total += x;
      }
    total = over_lanes(total, [](f32 x, f32 y) SDX_LAMBDA { return x + y; });
    if constexpr (P::kPlain != 0) top *= p.factor();
    return total * (1 / (1 + detail::pack_loss<T>()));
  }

  // ---- results
  /// Stores kRun neighbouring results, x(k), of elements from d on.
  template <int kRun, class F>
  SDX_FN void store_run(const Row& row, u32 d, F x) const {
    using Out = typename P::Out;
    Out* to = p.out(b, row.h, row.s);
    struct __attribute__((packed, aligned(sizeof(Out)))) Run {
      Out x[kRun];
    } run;
#pragma clang loop unroll(full)
    for (u32 k = 0; k < kRun; ++k) run.x[k] = p.result(b, row.h, row.s, i64(d + k), x(k));
    if constexpr (P::kOutRows != 0)
      *(Run*)(to + d) = run;
    else
#pragma clang loop unroll(full)
      for (u32 k = 0; k < kRun; ++k) to[i64(d + k) * p.out_step()] = run.x[k];
  }
  /// Stores the results of kTiles tiles from c on, in which a lane has neighbours.
  template <int kTiles>
  SDX_FN void store(const Row& row, u32 c, f32 scale, const Sums (&acc)[kTiles]) const {
    constexpr int kMany = kTiles * kCount, kDim = P::kValueDim;
    constexpr int kRun = kDim % 8 == 0 && kMany >= 8 ? 8 : kDim % 4 == 0 ? 4 : kDim % 2 == 0 ? 2 : 1;
    const auto x = [&](u32 k) SDX_LAMBDA { return acc[k / kCount][k % kCount] * scale; };
    const u32 d = value_at(c, M::acc_row(lane, 0));
    if ((c + kTiles) * 16 <= kDim) return store_run<kMany>(row, d, x);
#pragma clang loop unroll(full)
    for (u32 k = 0; k < kMany; k += kRun)
      if (d + k < kDim) store_run<kRun>(row, d + k, [&](u32 i) SDX_LAMBDA { return x(k + i); });
  }

  // ---- tiles of queries, of which a wave has kTilesQ at a time
  struct Tiles {
    Row row[kTilesQ];
    vec16 weights[kTilesQ][kStepsV][M::kVectorsB];
    f32 top[kTilesQ], total[kTilesQ];
  };
  SDX_FN void load_queries(u32 tile, Queries (&q)[kTilesQ]) const {
#pragma clang loop unroll(full)
    for (u32 k = 0; k < kTilesQ; ++k) load_queries(tile + k, q[k]);
  }
  SDX_FN void score(u32 tile, Queries (&queries)[kTilesQ], const Keys& keys, const Column& column, Tiles& x) const {
    Biases biases[kTilesQ];
    Scores scores[kTilesQ] = {};
#pragma clang loop unroll(full)
    for (u32 q = 0; q < kTilesQ; ++q) {
      x.row[q] = row_at((tile + q) * 16 + lane % 16);
      load_biases(x.row[q], biases[q]);
      trim(queries[q]);
    }
#pragma clang loop unroll(full)
    for (u32 j = 0; j < kTilesK; ++j)
#pragma clang loop unroll(full)
      for (u32 s = 0; s < kSteps; ++s)
#pragma clang loop unroll(full)
        for (u32 q = 0; q < kTilesQ; ++q) M::mma(keys[j][s], queries[q][s], scores[q][j]);
#pragma clang loop unroll(full)
    for (u32 q = 0; q < kTilesQ; ++q) {
      finish_scores(x.row[q], column, biases[q], scores[q]);
      mask(limits(x.row[q]), scores[q]);
      x.total[q] = weigh(scores[q], x.top[q]);
#pragma clang loop unroll(full)
      for (u32 s = 0; s < kStepsV; ++s) this->pack_probabilities(scores[q], s, x.weights[q][s]);
    }
  }
  /// Multiplies with values and stores. operands(c, values): those of tile c of the results.
  template <class F>
  SDX_FN void multiply(const Tiles& x, F operands) const {
    constexpr int kPair = kFamily == MatrixFamily::kMfma ? 2 : 1;
#pragma clang loop unroll(full)
    for (u32 c = 0; c < kTilesV; c += kPair) {
      Sums acc[kTilesQ][kPair] = {};
#pragma clang loop unroll(full)
      for (u32 i = 0; i < kPair && c + i < kTilesV; ++i) {
        Values values;
        operands(c + i, values);
#pragma clang loop unroll(full)
        for (u32 s = 0; s < kStepsV; ++s)
#pragma clang loop unroll(full)
          for (u32 q = 0; q < kTilesQ; ++q) M::mma(values[s], x.weights[q][s], acc[q][i]);
      }
#pragma clang loop unroll(full)
      for (u32 q = 0; q < kTilesQ; ++q) {
        // Matrix instructions need all lanes: the compiler would move them into the branch.
#pragma clang loop unroll(full)
        for (u32 i = 0; i < kPair; ++i) asm volatile("" : "+v"(acc[q][i]));
        if (!x.row[q].inside) continue;
        const f32 scale = attention_scale(p, b, x.row[q].h, x.top[q], x.total[q]);
        if (c + kPair <= kTilesV)
          store<kPair>(x.row[q], c, scale, acc[q]);
        else
          store<1>(x.row[q], c, scale, {acc[q][0]});
      }
    }
  }

  // ---- all work of a wave: kTilesQ tiles of its unit's queries at a time, from kTilesQ * part on
  SDX_FN void run(u32 part, u32 parts) const {
    const u32 tiles = (rows + 15) / 16, first = part * kTilesQ, step = parts * kTilesQ;
    Queries queries[kTilesQ];
    Keys keys;
    Rows loaded;
    Column column;
    load_queries(first, queries);
    load_keys(keys);
    load_values(loaded);
    load_column(column);
    if constexpr (P::kBounds != 0) {
      i32 limit = 0;
      for (u32 tile = first; tile < tiles; tile += step)
#pragma clang loop unroll(full)
        for (u32 q = 0; q < kTilesQ; ++q) limit = Base::larger(limit, limits(row_at((tile + q) * 16 + lane % 16)).high);
      trim(loaded, u32(reduce_lanes(limit, 16, [](i32 x, i32 y) SDX_LAMBDA { return Base::larger(x, y); })));
    }
    Tiles x;
    if constexpr (kOnce) {
      score(first, queries, keys, column, x);
      multiply(x, [&](u32 c, Values& values) SDX_LAMBDA { transpose(loaded, c, values); });
      return;
    }
    Values values[kTilesV];
#pragma clang loop unroll(full)
    for (u32 c = 0; c < kTilesV; ++c) transpose(loaded, c, values[c]);
    for (u32 tile = first; tile < tiles; tile += step) {
      Queries own[kTilesQ];
      __builtin_memcpy(own, queries, sizeof own);
      if (tile + step < tiles) load_queries(tile + step, queries);
      score(tile, own, keys, column, x);
      multiply(x, [&](u32 c, Values& v) SDX_LAMBDA { __builtin_memcpy(v, values[c], sizeof v); });
    }
  }
};

/// Launch: ceil(batch * units * splits / waves of a workgroup) workgroups, or any number from kMostBlocks (gpu.h) on.
/// Of the queries of a unit, each of `splits` waves has some. kTilesQ: tiles of 16 queries that it has at a time.
/// kOnce: it has no more.
template <class P, int kKeyCount, int kTilesQ, bool kOnce>
SDX_FN void attention_short(const P& p, const AttentionSizes& n, u32 batches) {
  constexpr u32 kWaves = kThreads / kWave;
  const u32 thread = thread_id(), wave = uniform(thread / kWave);
  const u32 units = n.heads / n.heads_per_unit, count = batches * units * n.splits,
            blocks = (count + kWaves - 1) / kWaves;
  for (u32 block = block_id(); block < blocks; block += late_block_count()) {
    const u32 item = block * kWaves + wave, unit = item / n.splits;
    if (item < count) {
      const AttentionShort<P, kKeyCount, kTilesQ, kOnce> k{p,
                                                           n,
                                                           nullptr,
                                                           thread % kWave,
                                                           0,
                                                           0,
                                                           i64(unit / units),
                                                           i64(unit % units) * n.heads_per_unit,
                                                           0,
                                                           n.heads_per_unit * n.queries};
      k.run(item % n.splits, n.splits);
    }
    if (!has_more(blocks)) break;
  }
}

}  // namespace sdx
