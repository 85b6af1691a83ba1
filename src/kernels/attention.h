// Attention without storing the scores: out = softmax over keys of score(q . k) times v, with the running maximum and
// sum of FlashAttention-2 (Dao, 2023), over the matrix instructions of matrix.h.
//
// A workgroup of 256 threads takes tiles of keys one after another: keys and values go to LDS, each wave multiplies its
// 16 (or 32) queries with them. The waves stand in a grid of kWavesQ by kWavesK: those of one row have the same queries
// and share the keys of each tile; their sums are put together at the end.
//
// Of the first product the chip's lanes hold sums in the places in which the second product wants them as an operand,
// if the first is K . Q^T (Q . K^T on NVIDIA) and its rows are keys in a suitable order (key_at): probabilities go from
// one product to the next in registers. Values are stored transposed, so that keys are contiguous (on NVIDIA, ldmatrix
// transposes them). Only chips without matrix instructions pass probabilities through LDS.
//
// What is attended to is described by a struct P, which code generation writes:
//   T, Out                             element types of q, k, v and of the output
//   kHeadDim, kValueDim                elements of a head of q and k, of v
//   kQueryDirect ...                   rows are contiguous, 16-byte aligned: query(b, h, s), key(b, h), value(b, h)
//                                      point to them, key_row() and value_row() are the distances of rows; otherwise
//                                      query_at, key_at, value_at(b, h, row, d) give elements
//   out(b, h, s), out_step()           where a row of the output begins, and the distance of its elements
//   kOutDirect                         rows of the output are contiguous and 16-byte aligned
//   kPlain, factor()                   scores are products times a positive factor only; otherwise score(b, h, s, t, x)
//   kBounds, begin, end(b, h, s)       the query attends to keys begin <= t < end only
//   kSink, sink(b, h)                  a further score without a value
//   kZeroEmpty                         a query without keys gives zeros, rather than NaN
#pragma once
#include "attention_tiles.h"

namespace sdx {

/// Sizes of a launch. A unit is `heads_per_unit` heads whose queries are the rows of tiles: 1, or, to share the reading
/// of keys, all heads of a group.
struct AttentionSizes {
  u32 queries, keys, heads, heads_per_unit;
  u32 splits;  ///< of the keys; with more than one the result goes to `partial`
  f32* partial;
};

template <class P, bool kDecode>
struct AttentionKernel {
  using T = typename P::T;
  using C = AttentionTiles<T, P::kHeadDim, P::kValueDim, kDecode, P::kPlain != 0>;
  using M = Matrix<T>;
  static constexpr MatrixFamily kFamily = M::kFamily;
  static constexpr bool kMma = C::kMma, kVector = C::kVector;
  static constexpr int kVec = C::kVec, kD = C::kD, kDv = C::kDv, kKeys = C::kKeys, kTilesQ = C::kTilesQ;
  static constexpr int kTilesK = C::kKeysWave / 16, kTilesV = kDv / 16, kSteps = kD / C::kStepD;
  static constexpr int kCount = M::kCount;
  /// Different queries of which a lane holds sums, in a tile.
  static constexpr int kSlots = kMma || kVector ? 2 : 1;
  static constexpr int kVectorsQ = kMma ? 1 : M::kVectorsB, kQueryRows = kMma ? 2 : M::kB.rows;

  using KeyRows = detail::SharedRows<kD / kVec, false>;
  using ValueRows = select_type<kMma, detail::SharedRows<kDv / kVec, false>, detail::SharedRows<kKeys / kVec, true>>;
  using ScoreRows = detail::SharedRows<C::kKeysWave / kVec, false>;
  static constexpr int kKeyChunks = kKeys * KeyRows::kPitch, kValueChunks = (kMma ? kKeys : kDv) * ValueRows::kPitch;
  static constexpr int kScoreChunks = kVector ? 16 * ScoreRows::kPitch : 0;  // of a wave
  static constexpr int kMergeTiles = 4;                                      // of values, put together at a time
  static constexpr int kMergeChunks = C::kWavesK > 1 ? C::kWavesQ* int(kWave) * kMergeTiles* kCount / 4 : 0;
  static constexpr int kMain = kKeyChunks + kValueChunks + kScoreChunks * C::kWaves;
  static constexpr int kShared = kMain > kMergeChunks ? kMain : kMergeChunks;

  /// Keys and values on their way from memory to LDS. Values: blocks of kVec keys by kWide elements.
  static constexpr int kKeyLoads = (kKeys * (kD / kVec) + int(kThreads) - 1) / int(kThreads);
  static constexpr int kWidest = kKeys * kDv / (kVec * int(kThreads));
  static constexpr int kWide = kWidest >= 4 ? 4 : kWidest >= 2 ? 2 : 1;
  static constexpr int kBlocks = kKeys / kVec * (kDv / kWide);
  static constexpr int kValueLoads = (kBlocks + int(kThreads) - 1) / int(kThreads);
  struct Wide {
    T x[kWide];
  };
  using WideBits = select_type<sizeof(Wide) == 16, vec16, unsigned_of<select_type<sizeof(Wide) == 16, u64, Wide>>>;
  struct Chunk {
    T x[kVec];
  };

  const P& p;
  const AttentionSizes& n;
  detail::shared_ptr<vec16> shared;
  u32 lane, wave_q, wave_k;
  i64 b, h0;  // batch, first head of the unit
  u32 row0;   // of the workgroup's rows
  u32 rows;   // of the unit

  // ---- where lanes hold what
  static SDX_FN u32 query_of(u32 lane, u32 slot) {
    return kMma ? lane / 4 + slot * 8 : kVector ? lane % 8 + slot * 8 : lane % 16;
  }
  static SDX_FN constexpr u32 slot_of(u32 e) { return kMma ? e / 2 % 2 : kVector ? e % 2 : 0; }
  /// The key, of those of a wave, that is row r of key tile j.
  static SDX_FN u32 key_at(u32 j, u32 r) {
    if constexpr (kFamily == MatrixFamily::kMfma && C::kStepK == 32)
      return j / 2 * 32 + r / 4 * 8 + j % 2 * 4 + r % 4;
    else if constexpr (kFamily == MatrixFamily::kWmma11)
      return j * 16 + r % 2 * 8 + r / 2;
    else
      return j * 16 + r;
  }
  SDX_FN u32 key_of(u32 j, u32 e) const {
    return wave_k * C::kKeysWave + key_at(j, kMma ? M::sum_col(lane, e) : M::sum_row(lane, e));
  }
  template <class F>
  static SDX_FN f32 over_lanes(f32 x, F combine) {  // lanes with sums of the same query
    if constexpr (kMma) {
      x = combine(x, detail::attention_xor(x, 1));
      x = combine(x, detail::attention_xor(x, 2));
    } else {
      if constexpr (kVector) x = combine(x, detail::attention_xor(x, 8));
      x = combine(x, detail::attention_xor(x, 16));
      if constexpr (kWave == 64) x = combine(x, detail::attention_xor(x, 32));
    }
    return x;
  }

  // ---- rows
  struct Row {
    i64 h, s;
    bool inside;
  };
  /// Rows past the last one are it once more.
  SDX_FN Row row_at(u32 in_block) const {
    u32 r = row0 + in_block;
    const bool inside = r < rows;
    r = inside ? r : rows - 1;
    if (n.heads_per_unit == 1) return {h0, i64(r), inside};
    return {h0 + r / n.queries, i64(r % n.queries), inside};
  }
  SDX_FN u32 tile_row(u32 q) const { return (wave_q * kTilesQ + q) * 16; }

  // ---- queries
  SDX_FN vec16 query_chunk(const Row& r, u32 chunk, u32 zero) const {
    const u32 d = chunk * kVec;
    if constexpr (P::kQueryDirect != 0) {
      if (d >= P::kHeadDim) return vec16{};
      return *(const vec16*)(p.query(b, r.h, r.s) + (d + zero));
    } else {
      Chunk c;
#pragma unroll
      for (u32 k = 0; k < kVec; ++k) c.x[k] = d + k < P::kHeadDim ? T(p.query_at(b, r.h, r.s, i64(d + k + zero))) : T{};
      return bit_cast<vec16>(c);
    }
  }
  SDX_FN u32 query_pair(const Row& r, u32 d) const {  // two elements of 16 bits
    struct Pair {
      T x[sizeof(T) == 2 ? 2 : 1];
    };
    if constexpr (P::kQueryDirect != 0) {
      if (d >= P::kHeadDim) return 0;
      return *(const u32*)(p.query(b, r.h, r.s) + d);
    } else {
      Pair c;
      for (u32 k = 0; k < sizeof(c.x) / sizeof(T); ++k)
        c.x[k] = d + k < P::kHeadDim ? T(p.query_at(b, r.h, r.s, i64(d + k))) : T{};
      return bit_cast<u32>(c);
    }
  }
  // The rows of query tile q that a lane holds parts of, as an operand.
  SDX_FN void query_rows(u32 q, Row (&own)[kQueryRows]) const {
#pragma unroll
    for (u32 k = 0; k < kQueryRows; ++k)
      own[k] = row_at(tile_row(q) + (kMma ? lane / 4 + k * 8 : M::row_b(lane, k * u32(kVectorsQ / kQueryRows))));
  }
  // The operand of step s. `zero` is 0.
  SDX_FN void load_query(const Row (&own)[kQueryRows], u32 s, u32 zero, vec16 (&x)[kVectorsQ]) const {
    if constexpr (kMma) {
      const Row &low = own[0], &high = own[1];
      const u32 d = s * 16 + lane % 4 * 2;
      x[0] = vec16{query_pair(low, d), query_pair(high, d), query_pair(low, d + 8), query_pair(high, d + 8)};
    } else {
#pragma unroll
      for (u32 v = 0; v < kVectorsQ; ++v)
        x[v] = query_chunk(own[v * kQueryRows / kVectorsQ], s * (C::kStepD / kVec) + M::chunk(lane, v), zero);
    }
  }

  // ---- keys and values to LDS
  template <class F>
  SDX_FN void each_key_chunk(F f) const {
#pragma unroll
    for (int k = 0; k < kKeyLoads; ++k) {
      const u32 i = thread_id() + k * kThreads, row = i / (kD / kVec), chunk = i % (kD / kVec);
      if (kKeys * (kD / kVec) % kThreads == 0 || row < kKeys) f(k, row, chunk);
    }
  }
  SDX_FN vec16 key_chunk(u32 t, u32 chunk, const T* base, i64 distance, u32 limit) const {
    const u32 d = chunk * kVec;
    if constexpr (P::kKeyDirect != 0) {
      vec16 x{};
      if (t < limit && d < P::kHeadDim) x = *(const vec16*)(base + i64(t) * distance + d);
      return x;
    } else {
      Chunk c;
#pragma unroll
      for (u32 k = 0; k < kVec; ++k)
        c.x[k] = t < limit && d + k < P::kHeadDim ? T(p.key_at(b, h0, i64(t), i64(d + k))) : T{};
      return bit_cast<vec16>(c);
    }
  }
  SDX_FN Wide wide_value(u32 t, u32 d, const T* base, i64 distance, u32 limit) const {
    if constexpr (P::kValueDirect != 0) {
      WideBits bits{};
      if (t < limit && d < P::kValueDim) bits = *(const WideBits*)(base + i64(t) * distance + d);
      return bit_cast<Wide>(bits);
    } else {
      Wide w;
#pragma unroll
      for (u32 k = 0; k < kWide; ++k)
        w.x[k] = t < limit && d + k < P::kValueDim ? T(p.value_at(b, h0, i64(t), i64(d + k))) : T{};
      return w;
    }
  }

  struct Fetched {
    vec16 keys[kKeyLoads];
    Wide values[kValueLoads][kVec];
  };
  // Base addresses, where there are such; and how many keys are read: what lies behind the last one that some row
  // attends to may be anything (a cache that is not full), and nothing times a number that is none would still be none.
  struct Bases {
    const T *key = nullptr, *value = nullptr;
    i64 key_row = 0, value_row = 0;
    u32 limit = 0;
  };
  SDX_FN Bases bases(i32 limit) const {
    Bases x;
    x.limit = u32(limit);
    if constexpr (P::kKeyDirect != 0) x.key = p.key(b, h0), x.key_row = p.key_row();
    if constexpr (P::kValueDirect != 0) x.value = p.value(b, h0), x.value_row = p.value_row();
    return x;
  }
  SDX_FN void fetch(u32 t0, const Bases& from, Fetched& f) const {
    each_key_chunk([&](int k, u32 row, u32 chunk)
                       SDX_LAMBDA { f.keys[k] = key_chunk(t0 + row, chunk, from.key, from.key_row, from.limit); });
#pragma unroll
    for (int k = 0; k < kValueLoads; ++k) {
      const u32 i = thread_id() + k * kThreads, d = i % (kDv / kWide) * kWide, t = i / (kDv / kWide) * kVec;
      if (kBlocks % kThreads != 0 && i >= kBlocks) continue;
#pragma unroll
      for (int j = 0; j < kVec; ++j) f.values[k][j] = wide_value(t0 + t + j, d, from.value, from.value_row, from.limit);
    }
  }
  SDX_FN void place(const Fetched& f) const {
    each_key_chunk([&](int k, u32 row, u32 chunk) SDX_LAMBDA { shared[KeyRows::at(row, chunk)] = f.keys[k]; });
#pragma unroll
    for (int k = 0; k < kValueLoads; ++k) {
      const u32 i = thread_id() + k * kThreads, d = i % (kDv / kWide) * kWide, chunk = i / (kDv / kWide);
      if (kBlocks % kThreads != 0 && i >= kBlocks) continue;
#pragma unroll
      for (int j = 0; j < kWide; ++j) {
        Chunk c;
#pragma unroll
        for (int x = 0; x < kVec; ++x) c.x[x] = f.values[k][x].x[j];
        shared[kKeyChunks + ValueRows::at(d + j, chunk)] = bit_cast<vec16>(c);
      }
    }
  }
#if defined(__NVPTX__)
  // NVIDIA: rows as they are, copied without registers where they are contiguous.
  SDX_FN void copy_keys(u32 t0, const Bases& from) const {
    each_key_chunk([&](int, u32 row, u32 chunk) SDX_LAMBDA {
      const u32 t = t0 + row;
      const auto to = shared + KeyRows::at(row, chunk);
      if constexpr (P::kKeyDirect != 0) {
        const bool inside = t < from.limit && chunk * kVec < P::kHeadDim;
        detail::copy_async(to, inside ? from.key + i64(t) * from.key_row + chunk * kVec : from.key, inside);
      } else {
        *to = key_chunk(t, chunk, nullptr, 0, from.limit);
      }
    });
  }
  SDX_FN void copy_values(u32 t0, const Bases& from) const {
    constexpr u32 kRow = kDv / kVec, kAll = kKeys * kRow;
#pragma unroll
    for (u32 k = 0; k < (kAll + kThreads - 1) / kThreads; ++k) {
      const u32 i = thread_id() + k * kThreads, row = i / kRow, chunk = i % kRow, t = t0 + row, d = chunk * kVec;
      if (kAll % kThreads != 0 && row >= kKeys) continue;
      const auto to = shared + kKeyChunks + ValueRows::at(row, chunk);
      if constexpr (P::kValueDirect != 0) {
        const bool inside = t < from.limit && d < P::kValueDim;
        detail::copy_async(to, inside ? from.value + i64(t) * from.value_row + d : from.value, inside);
      } else {
        Chunk c;
#pragma unroll
        for (u32 x = 0; x < kVec; ++x)
          c.x[x] = t < from.limit && d + x < P::kValueDim ? T(p.value_at(b, h0, i64(t), i64(d + x))) : T{};
        *to = bit_cast<vec16>(c);
      }
    }
  }
#endif

  // ---- the first product: scores[q][j] of query tile q and key tile j
  SDX_FN void multiply_keys(const Row (&rows)[kTilesQ][kQueryRows],
                            const vec16 (&queries)[kTilesQ][C::kKeep ? kSteps : 1][kVectorsQ],
                            f32 (&scores)[kTilesQ][kTilesK][kCount]) const {
    u32 zero = 0;
    if constexpr (!C::kKeep) detail::hide(zero);  // queries are read again for each tile, rather than kept
#pragma unroll(C::kKeep ? kSteps : 2)
    for (int s = 0; s < kSteps; ++s) {
      if (C::kTight && s % 2 == 0) detail::stay();
      vec16 own[kTilesQ][kVectorsQ];
#pragma unroll
      for (int q = 0; q < kTilesQ; ++q) {
        if constexpr (C::kKeep) {
#pragma unroll
          for (int v = 0; v < kVectorsQ; ++v) own[q][v] = queries[q][s][v];
        } else {
          load_query(rows[q], s, zero, own[q]);
        }
      }
#pragma unroll
      for (int j = 0; j < kTilesK; ++j) {
        const u32 first = wave_k * C::kKeysWave;
#if defined(__NVPTX__)
        if constexpr (kMma) {
          u32 r[4];
          detail::load_matrices<false>(
              shared + KeyRows::at(first + j * 16 + lane / 16 * 8 + lane % 8, 2 * s + lane / 8 % 2), r);
#pragma unroll
          for (int q = 0; q < kTilesQ; ++q) {
            auto& c = scores[q][j];
            const vec16 a = own[q][0];
            detail::mma<T>(a[0], a[1], a[2], a[3], r[0], r[1], c[0], c[1], c[2], c[3]);
            detail::mma<T>(a[0], a[1], a[2], a[3], r[2], r[3], c[4], c[5], c[6], c[7]);
          }
        } else
#endif
        {
          vec16 k[M::kVectorsA];
#pragma unroll
          for (int v = 0; v < M::kVectorsA; ++v)
            k[v] =
                shared[KeyRows::at(first + key_at(j, M::row_a(lane, v)), s * (C::kStepD / kVec) + M::chunk(lane, v))];
          if constexpr (!kMma) {
#pragma unroll
            for (int q = 0; q < kTilesQ; ++q) M::product(k, own[q], scores[q][j]);
          }
        }
      }
    }
  }

  // ---- the second product: sums[q][d] += probabilities times values of the wave's keys
  SDX_FN void multiply_values(const f32 (&scores)[kTilesQ][kTilesK][kCount],
                              f32 (&sums)[kTilesQ][kTilesV][kCount]) const {
    const u32 first = wave_k * C::kKeysWave;
#if defined(__NVPTX__)
    if constexpr (kMma) {
#pragma unroll
      for (int j = 0; j < kTilesK; ++j) {
        u32 a[kTilesQ][4];
#pragma unroll
        for (int q = 0; q < kTilesQ; ++q)
#pragma unroll
          for (int x = 0; x < 4; ++x) a[q][x] = detail::pack2<T>(scores[q][j][2 * x], scores[q][j][2 * x + 1]);
#pragma unroll
        for (int d = 0; d < kTilesV; ++d) {
          u32 r[4];
          detail::load_matrices<true>(
              shared + kKeyChunks + ValueRows::at(first + j * 16 + lane / 8 % 2 * 8 + lane % 8, 2 * d + lane / 16), r);
#pragma unroll
          for (int q = 0; q < kTilesQ; ++q) {
            auto& c = sums[q][d];
            detail::mma<T>(a[q][0], a[q][1], a[q][2], a[q][3], r[0], r[1], c[0], c[1], c[2], c[3]);
            detail::mma<T>(a[q][0], a[q][1], a[q][2], a[q][3], r[2], r[3], c[4], c[5], c[6], c[7]);
          }
        }
      }
      return;
    }
#endif
    if constexpr (!kMma) {
      constexpr int kStep = M::kStep, kTiles = kStep / 16;  // key tiles of a step
      const auto own = shared + kKeyChunks + kValueChunks + (wave_q * C::kWavesK + wave_k) * kScoreChunks;
      if constexpr (kVector) {
        const auto elements = (detail::shared_ptr<T>)own;
#pragma unroll
        for (int j = 0; j < kTilesK; ++j)
#pragma unroll
          for (int e = 0; e < kCount; ++e) {
            const u32 key = j * 16 + M::sum_row(lane, e);
            elements[ScoreRows::at(query_of(lane, slot_of(e)), key / kVec) * kVec + key % kVec] =
                cast<T>(scores[0][j][e]);
          }
        detail::attention_wave_sync();
      }
#pragma unroll(kVector ? 1 : C::kKeysWave / kStep)
      for (int s = 0; s < C::kKeysWave / kStep; ++s) {
        vec16 x[kTilesQ][M::kVectorsB];
#pragma unroll
        for (int q = 0; q < kTilesQ; ++q) {
          if constexpr (kVector) {
#pragma unroll
            for (int v = 0; v < M::kVectorsB; ++v)
              x[q][v] = own[ScoreRows::at(M::row_b(lane, v), s + M::chunk(lane, v))];
          } else if constexpr (sizeof(T) == 4) {
            const auto& c = scores[q][s];
            x[q][0] = bit_cast<vec16>(vec<f32, 4>{c[0], c[1], c[2], c[3]});
          } else if constexpr (kFamily == MatrixFamily::kMfma) {
            const auto &c = scores[q][s * kTiles], &d = scores[q][s * kTiles + kTiles - 1];
            x[q][0] = vec16{detail::pack2<T>(c[0], c[1]), detail::pack2<T>(c[2], c[3]), detail::pack2<T>(d[0], d[1]),
                            detail::pack2<T>(d[2], d[3])};
          } else {
            const auto& c = scores[q][s];
            vec16 half;
#pragma unroll
            for (int k = 0; k < 4; ++k) half[k] = detail::pack2<T>(c[2 * k], c[2 * k + 1]);
            if constexpr (kFamily == MatrixFamily::kWmma11) {
              // Both half waves want all 16 keys.
              vec16 other;
#pragma unroll
              for (int k = 0; k < 4; ++k) other[k] = detail::attention_xor(u32(half[k]), 16);
              x[q][0] = lane < 16 ? half : other;
              x[q][M::kVectorsB - 1] = lane < 16 ? other : half;
            } else {
              x[q][0] = half;
            }
          }
        }
#pragma unroll
        for (int d = 0; d < kTilesV; ++d) {
          if (kVector || (C::kTight && d % 2 == 0)) detail::stay();
          vec16 v[M::kVectorsA];
#pragma unroll
          for (int k = 0; k < M::kVectorsA; ++k)
            v[k] = shared[kKeyChunks +
                          ValueRows::at(d * 16 + M::row_a(lane, k), (first + s * kStep) / kVec + M::chunk(lane, k))];
#pragma unroll
          for (int q = 0; q < kTilesQ; ++q) M::product(v, x[q], sums[q][d]);
        }
      }
      if constexpr (kVector) detail::attention_wave_sync();
    }
  }

  // ---- which keys
  struct Range {
    i32 low, high;  // low <= t < high
  };
  struct Ranges {
    Range row[kTilesQ][kSlots];
    Range any;  // of the workgroup: keys that some row attends to
    Range all;  // of the wave: keys that all its rows attend to
  };
  SDX_FN i32 clamp_key(i64 t) const { return t < 0 ? 0 : t > i64(n.keys) ? i32(n.keys) : i32(t); }
  template <class F>
  static SDX_FN i32 over_queries(i32 x, F combine) {
#pragma unroll
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
#pragma unroll
      for (int q = 0; q < kTilesQ; ++q)
#pragma unroll
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
#pragma unroll
      for (int w = 0; w < C::kWaves; ++w) r.any = {smaller(r.any.low, all[2 * w]), larger(r.any.high, all[2 * w + 1])};
      r.any = {i32(uniform(u32(r.any.low))), i32(uniform(r.any.high))};
      r.all = {i32(uniform(r.all.low)), i32(uniform(r.all.high))};
      lds_barrier();
    }
    return r;
  }

  // ---- the running softmax
  /// exp(x - base), where x is a sum of the first product or, unless kPlain, a score. Scores may be as low as floats
  /// are: they are subtracted first.
  SDX_FN f32 exp_from(f32 x, f32 base) const {
    if constexpr (P::kPlain != 0) {
      const f32 f = p.factor() * kLog2e;
      return fast_exp2(__builtin_fmaf(x, f, -(base * f)));
    } else {
      return detail::fast_exp(x - base);
    }
  }
  // Scores of the tile at t0 become probabilities relative to the new maximum; what is there already is rescaled.
  SDX_FN void soften(i32 t0, const Ranges& r, f32 (&scores)[kTilesQ][kTilesK][kCount], f32 (&top)[kTilesQ][kSlots],
                     f32 (&total)[kTilesQ][kSlots], f32 (&sums)[kTilesQ][kTilesV][kCount]) const {
    const bool edge = t0 < r.all.low || t0 + kKeys > r.all.high;
#pragma unroll
    for (int q = 0; q < kTilesQ; ++q) {
      if constexpr (P::kPlain == 0) {
        Row row[kSlots];
#pragma unroll
        for (int k = 0; k < kSlots; ++k) row[k] = row_at(tile_row(q) + query_of(lane, k));
#pragma unroll
        for (int j = 0; j < kTilesK; ++j) {
          detail::stay();
          u32 first = t0;
          detail::hide(first);  // or the compiler keeps an address for every score
#pragma unroll
          for (int e = 0; e < kCount; ++e) {
            const u32 t = first + key_of(j, e);
            const Row& at = row[slot_of(e)];
            scores[q][j][e] = p.score(b, at.h, at.s, i64(t < n.keys ? t : n.keys - 1), scores[q][j][e]);
          }
        }
        detail::stay();
      }
      if (edge) {
#pragma unroll
        for (int j = 0; j < kTilesK; ++j)
#pragma unroll
          for (int e = 0; e < kCount; ++e) {
            const i32 t = t0 + i32(key_of(j, e));
            bool inside = t < i32(n.keys);
            if constexpr (P::kBounds != 0) inside = t >= r.row[q][slot_of(e)].low && t < r.row[q][slot_of(e)].high;
            scores[q][j][e] = inside ? scores[q][j][e] : -inf32();
          }
      }
      f32 base[kSlots], rescale[kSlots];
#pragma unroll
      for (int k = 0; k < kSlots; ++k) {
        f32 m = -inf32();
#pragma unroll
        for (int j = 0; j < kTilesK; ++j)
#pragma unroll
          for (int e = 0; e < kCount; ++e)
            if (slot_of(e) == u32(k)) m = __builtin_fmaxf(m, scores[q][j][e]);
        m = over_lanes(m, [](f32 x, f32 y) SDX_LAMBDA { return __builtin_fmaxf(x, y); });
        m = __builtin_fmaxf(m, top[q][k]);
        base[k] = m == -inf32() ? 0.0f : m;
        rescale[k] = exp_from(top[q][k], base[k]);
        top[q][k] = m;
        total[q][k] *= rescale[k];
      }
#pragma unroll
      for (int j = 0; j < kTilesK; ++j)
#pragma unroll
        for (int e = 0; e < kCount; ++e) {
          const f32 x = exp_from(scores[q][j][e], base[slot_of(e)]);
          scores[q][j][e] = x;
          total[q][slot_of(e)] += x;
        }
      // Later tiles seldom have a larger score.
      if (detail::any_lane(rescale[0] != 1 || rescale[kSlots - 1] != 1)) {
#pragma unroll
        for (int d = 0; d < kTilesV; ++d)
#pragma unroll
          for (int e = 0; e < kCount; ++e) sums[q][d][e] *= rescale[slot_of(e)];
      }
    }
  }

  // ---- everything for one workgroup's rows and one part of the keys
  SDX_FN void run(u32 split) const {
    const Ranges r = ranges();
    i32 t = r.any.low / kKeys * kKeys, end = r.any.high;
    if (n.splits > 1) {
      const i32 count = end > t ? (end - t + kKeys - 1) / kKeys : 0;
      const i32 own = (count + i32(n.splits) - 1) / i32(n.splits) * kKeys;
      t += i32(split) * own;
      end = smaller(end, t + own);
    }
    const bool active = row0 + tile_row(0) < rows;
    f32 top[kTilesQ][kSlots], total[kTilesQ][kSlots], sums[kTilesQ][kTilesV][kCount] = {};
#pragma unroll
    for (int q = 0; q < kTilesQ; ++q)
#pragma unroll
      for (int k = 0; k < kSlots; ++k) top[q][k] = -inf32(), total[q][k] = 0;
    vec16 queries[kTilesQ][C::kKeep ? kSteps : 1][kVectorsQ];
    Row own[kTilesQ][kQueryRows];
#pragma unroll
    for (int q = 0; q < kTilesQ; ++q) query_rows(q, own[q]);
    if constexpr (C::kKeep) {
#pragma unroll
      for (int q = 0; q < kTilesQ; ++q)
#pragma unroll
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
        if (active) multiply_keys(own, queries, scores);
        detail::copies_arrived();
        barrier();
        if (t + kKeys < end) copy_keys(t + kKeys, from);
        if (active) {
          soften(t, r, scores, top, total, sums);
          multiply_values(scores, sums);
        }
      }
      barrier();
    } else
#endif
    {
      Fetched next;
      if (t < end) fetch(t, from, next);
      for (; t < end; t += kKeys) {
        lds_barrier();
        place(next);
        lds_barrier();
        if (t + kKeys < end) fetch(t + kKeys, from, next);
        if (active) {
          f32 scores[kTilesQ][kTilesK][kCount] = {};
          multiply_keys(own, queries, scores);
          soften(t, r, scores, top, total, sums);
          multiply_values(scores, sums);
        }
      }
      lds_barrier();
    }
#pragma unroll
    for (int q = 0; q < kTilesQ; ++q)
#pragma unroll
      for (int k = 0; k < kSlots; ++k) {
        total[q][k] = over_lanes(total[q][k], [](f32 x, f32 y) SDX_LAMBDA { return x + y; });
        if constexpr (P::kPlain != 0) top[q][k] *= p.factor();
      }
    if constexpr (C::kWavesK > 1) merge(top, total, sums);
    if (wave_k == 0) store(top, total, sums, split);
    lds_barrier();
  }

  // Puts together what the waves of a row of the grid have: the first of them gets all.
  SDX_FN void merge(f32 (&top)[kTilesQ][kSlots], f32 (&total)[kTilesQ][kSlots],
                    f32 (&sums)[kTilesQ][kTilesV][kCount]) const {
    static_assert(kTilesQ == 1);
    const auto all = (detail::shared_ptr<f32>)shared + wave_q * (kWave * kMergeTiles * kCount) + lane;
    for (u32 other = 1; other < C::kWavesK; ++other) {
      if (wave_k == other)
#pragma unroll
        for (int k = 0; k < kSlots; ++k) all[(2 * k) * kWave] = top[0][k], all[(2 * k + 1) * kWave] = total[0][k];
      lds_barrier();
      f32 own[kSlots] = {}, its[kSlots] = {};
      if (wave_k == 0)
#pragma unroll
        for (int k = 0; k < kSlots; ++k) {
          const f32 t = all[(2 * k) * kWave], m = __builtin_fmaxf(top[0][k], t), base = m == -inf32() ? 0.0f : m;
          own[k] = detail::fast_exp(top[0][k] - base), its[k] = detail::fast_exp(t - base);
          total[0][k] = total[0][k] * own[k] + all[(2 * k + 1) * kWave] * its[k];
          top[0][k] = m;
        }
      lds_barrier();
#pragma unroll
      for (int d = 0; d < kTilesV; d += kMergeTiles) {
        constexpr int kMany = kMergeTiles * kCount;
        if (wave_k == other)
#pragma unroll
          for (int x = 0; x < kMany; ++x)
            if (d + x / kCount < kTilesV) all[x * kWave] = sums[0][d + x / kCount][x % kCount];
        lds_barrier();
        if (wave_k == 0)
#pragma unroll
          for (int x = 0; x < kMany; ++x)
            if (d + x / kCount < kTilesV) {
              f32& s = sums[0][d + x / kCount][x % kCount];
              s = s * own[slot_of(x % kCount)] + all[x * kWave] * its[slot_of(x % kCount)];
            }
        lds_barrier();
      }
    }
  }

  static SDX_FN u32 value_of(u32 lane, u32 d, u32 e) {
    return d * 16 + (kMma ? M::sum_col(lane, e) : M::sum_row(lane, e));
  }
  SDX_FN void store(const f32 (&top)[kTilesQ][kSlots], const f32 (&total)[kTilesQ][kSlots],
                    const f32 (&sums)[kTilesQ][kTilesV][kCount], u32 split) const {
    using Out = typename P::Out;
    // Consecutive elements of a row that a lane has.
    constexpr int kRun = P::kOutDirect == 0 || kVector || kFamily == MatrixFamily::kWmma11 ? 1
                         : kMma                                                            ? 2
                         : sizeof(Out) == 4                                                ? 4
                                                                                           : kCount;
    struct Run {
      Out x[kRun];
    };
#pragma unroll
    for (int q = 0; q < kTilesQ; ++q)
#pragma unroll
      for (int k = 0; k < kSlots; ++k) {
        const Row row = row_at(tile_row(q) + query_of(lane, k));
        if (!row.inside) continue;
        if (n.splits > 1) {
          f32* to = n.partial + (((b * n.heads + row.h) * n.queries + row.s) * n.splits + split) * (kDv + 2);
          to[kDv] = top[q][k], to[kDv + 1] = total[q][k];
#pragma unroll
          for (int d = 0; d < kTilesV; ++d)
#pragma unroll
            for (int e = 0; e < kCount; ++e)
              if (slot_of(e) == u32(k)) to[value_of(lane, d, e)] = sums[q][d][e];
          continue;
        }
        const f32 scale = attention_scale(p, b, row.h, top[q][k], total[q][k]);
        Out* to = p.out(b, row.h, row.s);
#pragma unroll
        for (int d = 0; d < kTilesV; ++d)
#pragma unroll
          for (int e = 0; e < kCount; e += kRun) {
            if (slot_of(e) != u32(k)) continue;
            const u32 at = value_of(lane, d, e);
            if (P::kValueDim % 16 != 0 && at >= P::kValueDim) continue;
            Run run;
#pragma unroll
            for (int x = 0; x < kRun; ++x) run.x[x] = cast<Out>(sums[q][d][e + x] * scale);
            if constexpr (kRun == 1)
              to[at * p.out_step()] = run.x[0];
            else
              *(Run*)__builtin_assume_aligned(to + at, sizeof(Run)) = run;
          }
      }
  }
};

/// Any number of workgroups computes everything; batch * units * tiles * splits have something to do.
template <class P, bool kDecode>
SDX_FN void attention(const P& p, const AttentionSizes& n, u32 batches) {
  using Kernel = AttentionKernel<P, kDecode>;
  static SDX_SHARED vec16 shared[Kernel::kShared];
  if constexpr (Kernel::C::kLong <= 64 && sizeof(typename P::T) == 2) SDX_TWO_ON_A_UNIT;
  const u32 thread = thread_id(), wave = uniform(thread / kWave);
  const u32 units = n.heads / n.heads_per_unit, rows = n.heads_per_unit * n.queries,
            tiles = (rows + Kernel::C::kRows - 1) / Kernel::C::kRows, points = batches * units * tiles * n.splits;
  for (u32 point = block_id(); point < points; point += block_count()) {
    u32 rest = point, tile, split, unit, batch;
    split = rest % n.splits, rest /= n.splits;
    if constexpr (P::kBounds != 0) {  // the last rows, which causal attention makes the longest, first
      tile = tiles - 1 - rest / (batches * units), rest %= batches * units;
      unit = rest % units, batch = rest / units;
    } else {
      tile = rest % tiles, rest /= tiles;
      unit = rest % units, batch = rest / units;
    }
    const Kernel k{p,
                   n,
                   (detail::shared_ptr<vec16>)shared,
                   thread % kWave,
                   wave / Kernel::C::kWavesK,
                   wave % Kernel::C::kWavesK,
                   i64(batch),
                   i64(unit) * n.heads_per_unit,
                   tile * Kernel::C::kRows,
                   rows};
    k.run(split);
  }
}

/// Puts the parts of `splits` together; a point is a row (batch, head, query).
template <class P>
SDX_FN void attention_merge(const P& p, const AttentionSizes& n, i64 points) {
  constexpr u32 kDv = (P::kValueDim + 15) / 16 * 16;
  for (i64 row = block_id(); row < points; row += block_count()) {
    const f32* parts = n.partial + row * n.splits * (kDv + 2);
    f32 top = -inf32(), total = 0;
    for (u32 k = 0; k < n.splits; ++k) top = __builtin_fmaxf(top, parts[k * (kDv + 2) + kDv]);
    const f32 base = top == -inf32() ? 0.0f : top;
    for (u32 k = 0; k < n.splits; ++k) {
      const f32* part = parts + k * (kDv + 2);
      total += part[kDv + 1] * detail::fast_exp(part[kDv] - base);
    }
    const i64 s = row % n.queries, h = row / n.queries % n.heads, b = row / n.queries / n.heads;
    const f32 scale = attention_scale(p, b, h, top, total);
    for (u32 d = thread_id(); d < u32(P::kValueDim); d += kThreads) {
      f32 sum = 0;
      for (u32 k = 0; k < n.splits; ++k) {
        const f32* part = parts + k * (kDv + 2);
        sum += part[d] * detail::fast_exp(part[kDv] - base);
      }
      p.out(b, h, s)[d * p.out_step()] = cast<typename P::Out>(sum * scale);
    }
  }
}

}  // namespace sdx
