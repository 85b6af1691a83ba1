// Attention's operands: which lanes of a wave hold which elements, how queries get into registers, and keys and values
// into LDS. Part of the kernel of attention.h, where P is described.
#pragma once
#include "attention_tiles.h"

namespace sdx {

/// Sizes of a launch. A unit is `heads_per_unit` heads whose queries form the rows of tiles: 1 head, or all heads that
/// share keys and values (grouped-query attention), so that keys are read once for them.
struct AttentionSizes {
  u32 queries, keys, heads, heads_per_unit;
  u32 splits;  ///< of the keys; if more than one, results go to `partial`
  f32* partial;
};

template <class P, int kForm>
struct AttentionOperands {
  using T = typename P::T;
  static constexpr bool kToLds = attention_to_lds<P, kForm>();
  using C = AttentionTiles<T, P::kHeadDim, P::kValueDim, kForm, P::kPlain != 0, kToLds>;
  using M = Matrix<T>;
  static constexpr MatrixFamily kFamily = M::kFamily;
  static constexpr bool kMma = C::kMma, kVector = C::kVector;
  static constexpr int kVec = C::kVec, kD = C::kD, kDv = C::kDv, kKeys = C::kKeys, kTilesQ = C::kTilesQ;
  static constexpr int kTilesK = C::kKeysWave / 16, kTilesV = kDv / 16, kSteps = kD / C::kStepD;
  static constexpr int kCount = M::kCount;
  /// Queries whose sums a lane holds, per tile.
  static constexpr int kSlots = kMma || kVector ? 2 : 1;
  static constexpr int kVectorsQ = kMma ? 1 : M::kVectorsB, kQueryRows = kMma ? 2 : M::kB.rows;

  static constexpr bool kWmma = kFamily == MatrixFamily::kWmma11 || kFamily == MatrixFamily::kWmma12;
  using KeyRows = select_type<kWmma, detail::PaddedRows<kD / kVec>, detail::SharedRows<kD / kVec, false>>;
  using ValueColumns = select_type<kFamily == MatrixFamily::kMfma && kKeys / kVec == 4, detail::PairedRows,
                                   detail::SharedRows<kKeys / kVec, true>>;
  using ValueRows = select_type<kMma, detail::SharedRows<kDv / kVec, false>,
                                select_type<kWmma, detail::PaddedRows<kKeys / kVec>, ValueColumns>>;
  using ScoreRows = detail::SharedRows<C::kKeysWave / kVec, false>;
  static constexpr int kKeyChunks = kKeys * KeyRows::kPitch, kValueChunks = (kMma ? kKeys : kDv) * ValueRows::kPitch;
  static constexpr int kScoreChunks = kVector ? 16 * ScoreRows::kPitch : 0;  // per wave
  static constexpr int kMergeTiles = 4;                                      // tiles of values merged at a time
  static constexpr int kMergeChunks = C::kWavesK > 1 ? C::kWavesQ* int(kWave) * kMergeTiles* kCount / 4 : 0;
  /// Tiles of keys and values in LDS: two, of which one is filled while the other is used, if two workgroups of that
  /// size fit in 64 KB; on RDNA three in 128 KB.
  static constexpr int kTileChunks = kKeyChunks + kValueChunks;
  static constexpr int kSpace = kWmma ? 40960 : 32768;
  static constexpr int kBuffers = !kMma && !kVector && 2 * kTileChunks * 16 <= kSpace ? 2 : 1;
  static constexpr int kMain = kTileChunks * kBuffers + kScoreChunks * C::kWaves;
  static constexpr int kShared = kMain > kMergeChunks ? kMain : kMergeChunks;

  /// Loads of keys and values by a thread. Values are loaded in blocks of kVec keys by kWide elements.
  static constexpr int kKeyLoads = (kKeys * (kD / kVec) + int(kThreads) - 1) / int(kThreads);
  static constexpr int kWidest = kKeys * kDv / (kVec * int(kThreads));
  static constexpr int kWide = kWidest >= 4 ? 4 : kWidest >= 2 ? 2 : 1;
  static constexpr int kBlocks = kKeys / kVec * (kDv / kWide);
  static constexpr int kValueLoads = (kBlocks + int(kThreads) - 1) / int(kThreads);
  /// Whether rows of keys and values have addresses that their elements are read from as they are.
  static constexpr bool kKeyAddress = P::kKeyDirect == 1 || P::kKeyDirect == 2;
  static constexpr bool kValueAddress = P::kValueDirect == 1 || P::kValueDirect == 2;
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
  u32 row0;   // first row of the workgroup
  u32 rows;   // of the unit

  // ---- which lanes hold which elements
  static SDX_FN u32 query_of(u32 lane, u32 slot) {
    return kMma ? lane / 4 + slot * 8 : kVector ? lane % 8 + slot * 8 : lane % 16;
  }
  static SDX_FN constexpr u32 slot_of(u32 e) { return kMma ? e / 2 % 2 : kVector ? e % 2 : 0; }
  /// Which of a wave's keys is row r of key tile j.
  static SDX_FN u32 key_at(u32 j, u32 r) {
    if constexpr (kFamily == MatrixFamily::kMfma && C::kStepK == 32)
      return j / 2 * 32 + r / 4 * 8 + j % 2 * 4 + r % 4;
    else if constexpr (kFamily == MatrixFamily::kWmma11)
      return j * 16 + r % 2 * 8 + r / 2;
    else
      return j * 16 + r;
  }
  SDX_FN u32 key_of(u32 j, u32 e) const {
    return wave_k * C::kKeysWave + key_at(j, kMma ? M::acc_col(lane, e) : M::acc_row(lane, e));
  }
  template <class F>
  static SDX_FN f32 over_lanes(f32 x, F combine) {  // reduces over the lanes that hold sums of the same query
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
  /// Rows past the end repeat the last one.
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
#pragma clang loop unroll(full)
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
  // The rows of query tile q of which this lane holds operand elements.
  SDX_FN void query_rows(u32 q, Row (&own)[kQueryRows]) const {
#pragma clang loop unroll(full)
    for (u32 k = 0; k < kQueryRows; ++k)
      own[k] = row_at(tile_row(q) + (kMma ? lane / 4 + k * 8 : M::row_b(lane, k * u32(kVectorsQ / kQueryRows))));
  }
  // The operand of K step s. `zero` is 0, hidden from the compiler so that it does not keep queries in registers.
  SDX_FN void load_query(const Row (&own)[kQueryRows], u32 s, u32 zero, vec16 (&x)[kVectorsQ]) const {
    if constexpr (kMma) {
      const Row &low = own[0], &high = own[1];
      const u32 d = s * 16 + lane % 4 * 2;
      x[0] = vec16{query_pair(low, d), query_pair(high, d), query_pair(low, d + 8), query_pair(high, d + 8)};
    } else {
#pragma clang loop unroll(full)
      for (u32 v = 0; v < kVectorsQ; ++v)
        x[v] = query_chunk(own[v * kQueryRows / kVectorsQ], s * (C::kStepD / kVec) + M::chunk(lane, v), zero);
    }
  }

  // Waits for queries from memory.
  template <int kTiles, int kMany, int kVectors>
  static SDX_FN void arrive(vec16 (&queries)[kTiles][kMany][kVectors]) {
#if defined(__AMDGCN__)
#pragma clang loop unroll(full)
    for (int q = 0; q < kTiles; ++q)
#pragma clang loop unroll(full)
      for (int s = 0; s < kMany; ++s)
#pragma clang loop unroll(full)
        for (int v = 0; v < kVectors; ++v) asm volatile("" : "+v"(queries[q][s][v]));
#endif
  }

  // ---- keys and values to LDS
  template <class F>
  SDX_FN void each_key_chunk(F f) const {
#pragma clang loop unroll(full)
    for (int k = 0; k < kKeyLoads; ++k) {
      const u32 i = thread_id() + k * kThreads, row = i / (kD / kVec), chunk = i % (kD / kVec);
      if (kKeys * (kD / kVec) % kThreads == 0 || row < kKeys) f(k, row, chunk);
    }
  }
  // Where the row of key t begins, for operands with addresses.
  SDX_FN const T* key_row(u32 t, const T* base, i64 distance) const {
    if constexpr (P::kKeyDirect == 2)
      return p.key_from(b, h0, i64(t));
    else
      return base + i64(t) * distance;
  }
  SDX_FN const T* value_row(u32 t, const T* base, i64 distance) const {
    if constexpr (P::kValueDirect == 2)
      return p.value_from(b, h0, i64(t));
    else
      return base + i64(t) * distance;
  }
  // Numbers of a row times its scale.
  template <class Number, int N>
  static SDX_FN void scaled_elements(const Number* numbers, f32 scale, T (&x)[N]) {
    const auto n = *(const vec<u8, N>*)numbers;
#pragma clang loop unroll(full)
    for (int k = 0; k < N; ++k) x[k] = cast<T>(cast<f32>(bit_cast<Number>(u8(n[k]))) * scale);
  }
  // Rows past the limit are read from the last one; place() zeroes them.
  SDX_FN vec16 key_chunk(u32 t, u32 chunk, const T* base, i64 distance, u32 limit) const {
    const u32 d = chunk * kVec;
    if constexpr (kKeyAddress) {
      return *(const vec16*)(key_row(t < limit ? t : limit - 1, base, distance) + (d < P::kHeadDim ? d : 0));
    } else if constexpr (P::kKeyDirect == 3) {
      Chunk c = {};
      if (t < limit && d < P::kHeadDim)
        scaled_elements(p.key_numbers(b, h0, i64(t)) + d, p.key_scale(b, h0, i64(t)), c.x);
      return bit_cast<vec16>(c);
    } else {
      Chunk c;
#pragma clang loop unroll(full)
      for (u32 k = 0; k < kVec; ++k)
        c.x[k] = t < limit && d + k < P::kHeadDim ? T(p.key_at(b, h0, i64(t), i64(d + k))) : T{};
      return bit_cast<vec16>(c);
    }
  }
  SDX_FN WideBits wide_value(u32 t, u32 d, const T* base, i64 distance, u32 limit) const {
    if constexpr (kValueAddress) {
      return *(const WideBits*)(value_row(t < limit ? t : limit - 1, base, distance) + (d < P::kValueDim ? d : 0));
    } else if constexpr (P::kValueDirect == 3) {
      Wide w = {};
      if (t < limit && d < P::kValueDim)
        scaled_elements(p.value_numbers(b, h0, i64(t)) + d, p.value_scale(b, h0, i64(t)), w.x);
      return bit_cast<WideBits>(w);
    } else {
      Wide w;
#pragma clang loop unroll(full)
      for (u32 k = 0; k < kWide; ++k)
        w.x[k] = t < limit && d + k < P::kValueDim ? T(p.value_at(b, h0, i64(t), i64(d + k))) : T{};
      return bit_cast<WideBits>(w);
    }
  }

  // Nothing may use these registers before place(): even masking or splitting them would wait for memory before the
  // matrix instructions of the step.
  struct Fetched {
    vec16 keys[kKeyLoads];
    WideBits values[kValueLoads][kVec];
  };
  // Waits for keys and values from memory.
  static SDX_FN void arrive(Fetched& f) {
#if defined(__AMDGCN__)
#pragma clang loop unroll(full)
    for (int k = 0; k < kKeyLoads; ++k) asm volatile("" : "+v"(f.keys[k]));
#pragma clang loop unroll(full)
    for (int k = 0; k < kValueLoads; ++k)
#pragma clang loop unroll(full)
      for (int x = 0; x < kVec; ++x)
        if constexpr (sizeof f.values[k][x] >= 4) asm volatile("" : "+v"(f.values[k][x]));
#endif
  }
  // Base addresses, where operands have them, and how many keys are read. Memory past the last key that any row attends
  // to may hold anything (a KV cache that is not full), and zero times NaN would be NaN.
  struct Bases {
    const T *key = nullptr, *value = nullptr;
    i64 key_row = 0, value_row = 0;
    u32 limit = 0;
    bool near = true;  // offsets in a tile have 32 bits
  };
  SDX_FN Bases bases(i32 limit) const {
    Bases x;
    x.limit = u32(limit);
    if constexpr (P::kKeyDirect == 1) x.key = p.key(b, h0), x.key_row = p.key_row();
    if constexpr (P::kValueDirect == 1) x.value = p.value(b, h0), x.value_row = p.value_row();
#if defined(__AMDGCN__)
    constexpr i64 kFar = ((i64(1) << 31) / int(sizeof(T)) - C::kLong) / kKeys;
    x.near = x.key_row >= 0 && x.key_row < kFar && x.value_row >= 0 && x.value_row < kFar;
#endif
    return x;
  }
  /// Whole: the tile is known to be below the limit, and operands to be near.
  template <bool Keys = true, bool Values = true, bool Whole = false>
  SDX_FN void fetch(u32 t0, const Bases& from, Fetched& f) const {
    if constexpr (Whole) {
      fetch_tile<true, Keys, Values>(t0, from, f);
    } else if (t0 + kKeys <= from.limit && from.near) {
      fetch_tile<true, Keys, Values>(t0, from, f);
#if defined(__AMDGCN__)
      asm volatile("; whole tile");  // keeps the compiler from sharing loads, and with them addresses of 64 bits
#endif
    } else {
      fetch_tile<false, Keys, Values>(t0, from, f);
    }
  }
  /// Elements from `at` on of a tile in memory, whose address is the same for all lanes: offsets of lanes do not change
  /// from tile to tile, and the address is computed once for the wave.
  template <class V>
  static SDX_FN V load_near(const T* tile, u32 at) {
    return *(const V*)((const char*)tile + u32(at * sizeof(T)));
  }
  // Whole: all keys of the tile are below the limit, and its offsets have 32 bits.
  template <bool Whole, bool Keys, bool Values>
  SDX_FN void fetch_tile(u32 t0, const Bases& from, Fetched& f) const {
    if constexpr (Keys) fetch_keys<Whole>(t0, from, f);
    if constexpr (Values) fetch_values<Whole>(t0, from, f);
  }
  template <bool Whole>
  SDX_FN void fetch_keys(u32 t0, const Bases& from, Fetched& f) const {
    each_key_chunk([&](int k, u32 row, u32 chunk) SDX_LAMBDA {
      const u32 d = chunk * kVec < P::kHeadDim ? chunk * kVec : 0;
      if constexpr (Whole && P::kKeyDirect == 1)
        f.keys[k] = load_near<vec16>(from.key + i64(t0) * from.key_row, row * u32(from.key_row) + d);
      else
        f.keys[k] = key_chunk(t0 + row, chunk, from.key, from.key_row, from.limit);
    });
  }
  template <bool Whole>
  SDX_FN void fetch_values(u32 t0, const Bases& from, Fetched& f) const {
#pragma clang loop unroll(full)
    for (int k = 0; k < kValueLoads; ++k) {
      const u32 i = thread_id() + k * kThreads, d = i % (kDv / kWide) * kWide, t = i / (kDv / kWide) * kVec;
      if (kBlocks % kThreads != 0 && i >= kBlocks) continue;
#pragma clang loop unroll(full)
      for (int j = 0; j < kVec; ++j)
        if constexpr (Whole && P::kValueDirect == 1)
          f.values[k][j] = load_near<WideBits>(from.value + i64(t0 + j) * from.value_row,
                                               t * u32(from.value_row) + (d < P::kValueDim ? d : 0));
        else
          f.values[k][j] = wide_value(t0 + t + j, d, from.value, from.value_row, from.limit);
    }
  }
  /// Stores to `tile` in LDS what fetch() has loaded from key t0 on. Operands with base addresses are zeroed past the
  /// limit and past the head's elements.
  template <bool Keys = true, bool Values = true, bool Whole = false>
  SDX_FN void place(detail::shared_ptr<vec16> tile, const Fetched& f, u32 t0, u32 limit) const {
    Fetched arrived = f;
#if defined(__AMDGCN__)
    // Otherwise the compiler splits values right after the load, at the end of the previous step.
#pragma clang loop unroll(full)
    for (int k = 0; k < (Values ? kValueLoads : 0); ++k)
#pragma clang loop unroll(full)
      for (int x = 0; x < kVec; ++x) {
        auto bits = f.values[k][x];
        if constexpr (sizeof bits >= 4) asm volatile("" : "+v"(bits));
        arrived.values[k][x] = bits;
      }
#endif
    if (Whole || t0 + kKeys <= limit)
      place_masked<false, Keys, Values>(tile, arrived, t0, limit);
    else
      place_masked<true, Keys, Values>(tile, arrived, t0, limit);
  }
  template <bool Masked, bool Keys, bool Values>
  SDX_FN void place_masked(detail::shared_ptr<vec16> tile, const Fetched& f, u32 t0, u32 limit) const {
    if constexpr (Keys) place_keys<Masked>(tile, f, t0, limit);
    if constexpr (Values) place_values<Masked>(tile, f, t0, limit);
  }
  template <bool Masked>
  SDX_FN void place_keys(detail::shared_ptr<vec16> tile, const Fetched& f, u32 t0, u32 limit) const {
    each_key_chunk([&](int k, u32 row, u32 chunk) SDX_LAMBDA {
      bool inside = !Masked || t0 + row < limit;
      if constexpr (int(P::kHeadDim) != kD) inside = inside && chunk * kVec < P::kHeadDim;
      tile[KeyRows::at(row, chunk)] = !kKeyAddress || inside ? f.keys[k] : vec16{};
    });
  }
  template <bool Masked>
  SDX_FN void place_values(detail::shared_ptr<vec16> tile, const Fetched& f, u32 t0, u32 limit) const {
#pragma clang loop unroll(full)
    for (int k = 0; k < kValueLoads; ++k) {
      const u32 i = thread_id() + k * kThreads, d = i % (kDv / kWide) * kWide, chunk = i / (kDv / kWide);
      if (kBlocks % kThreads != 0 && i >= kBlocks) continue;
      Wide in[kVec];
#pragma clang loop unroll(full)
      for (int x = 0; x < kVec; ++x) {
        bool inside = !Masked || t0 + chunk * kVec + x < limit;
        if constexpr (int(P::kValueDim) != kDv) inside = inside && d < P::kValueDim;
        in[x] = bit_cast<Wide>(!kValueAddress || inside ? f.values[k][x] : WideBits{});
      }
#pragma clang loop unroll(full)
      for (int j = 0; j < kWide; ++j) {
        Chunk c;
#pragma clang loop unroll(full)
        for (int x = 0; x < kVec; ++x) c.x[x] = in[x].x[j];
        tile[kKeyChunks + ValueRows::at(d + j, chunk)] = bit_cast<vec16>(c);
      }
    }
  }
#if defined(__NVPTX__)
  // NVIDIA: rows as they are, by asynchronous copies (cp.async) where they are contiguous.
  SDX_FN void copy_keys(u32 t0, const Bases& from) const {
    each_key_chunk([&](int, u32 row, u32 chunk) SDX_LAMBDA {
      const u32 t = t0 + row;
      const auto to = shared + KeyRows::at(row, chunk);
      if constexpr (kKeyAddress) {
        const bool inside = t < from.limit && chunk * kVec < P::kHeadDim;
        const T* row = key_row(inside ? t : 0, from.key, from.key_row);
        detail::copy_async(to, inside ? row + chunk * kVec : row, inside);
      } else {
        *to = key_chunk(t, chunk, nullptr, 0, from.limit);
      }
    });
  }
  SDX_FN void copy_values(u32 t0, const Bases& from) const {
    constexpr u32 kRow = kDv / kVec, kAll = kKeys * kRow;
#pragma clang loop unroll(full)
    for (u32 k = 0; k < (kAll + kThreads - 1) / kThreads; ++k) {
      const u32 i = thread_id() + k * kThreads, row = i / kRow, chunk = i % kRow, t = t0 + row, d = chunk * kVec;
      if (kAll % kThreads != 0 && row >= kKeys) continue;
      const auto to = shared + kKeyChunks + ValueRows::at(row, chunk);
      if constexpr (kValueAddress) {
        const bool inside = t < from.limit && d < P::kValueDim;
        const T* row = value_row(inside ? t : 0, from.value, from.value_row);
        detail::copy_async(to, inside ? row + d : row, inside);
      } else if constexpr (P::kValueDirect == 3) {
        Chunk c = {};
        if (t < from.limit && d < P::kValueDim)
          scaled_elements(p.value_numbers(b, h0, i64(t)) + d, p.value_scale(b, h0, i64(t)), c.x);
        *to = bit_cast<vec16>(c);
      } else {
        Chunk c;
#pragma clang loop unroll(full)
        for (u32 x = 0; x < kVec; ++x)
          c.x[x] = t < from.limit && d + x < P::kValueDim ? T(p.value_at(b, h0, i64(t), i64(d + x))) : T{};
        *to = bit_cast<vec16>(c);
      }
    }
  }
#endif
};

}  // namespace sdx
