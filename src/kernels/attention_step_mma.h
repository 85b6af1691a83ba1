// The kernel of attention_step.h (which describes it and P) on Hopper's matrix instructions, for caches of 16-bit
// elements. Each workgroup of a cluster finishes a slice of the result.
//
// Nearly all of the time is a chain of waits. Therefore:
// - everything that can be done is done before the wait for the previous launch;
// - a wave waits for no other wave before it has its sums;
// - workgroups send results together with their signal (st.async), because a barrier would need a round trip;
// - with few workgroups, each requests its part of the cache before it knows the length of the sequence. With many,
//   which are bound by memory bandwidth, it does so last;
// - prefetching the cache to L2 before the previous launch has ended gains 0.1 us. Reading it then would gain no more,
//   because queries arrive no earlier: they take two dependent reads, the first of which tells the row of the rotation
//   tables.
//
// Tile j of a wave starts at key 16 * (j * number of all waves + number of this wave), which divides sequences of any
// length evenly among workgroups. The rows of an instruction are keys, or elements of a head, and its 8 columns are
// heads.
//
// Besides what attention_step.h requires, P has
//   Stored      type of the cache's elements: T, or of 8 bits, which are converted (kDim is then a multiple of 32)
//   wait()      after it, the results of earlier launches may be read
//   kAppends    if 0, there is no new row: start, new_key, new_value, key and value are not called, and all keys are
//   those of the cache
//   kKeyStride, kValueStride   0, or keys lie in pages of a multiple of 16 rows: key_page(b, h, t) and
//   value_page(b, h, t) are the addresses of row t, and rows of a page are so many elements apart. h is a query's head
//   here. If kAppends, slots()[b] is the row of the caches in which b's new row is stored; it is not if the cache has
//   no such row. past_key, past_value, key and value are then the caches before and after the step, of cache_rows()
//   rows
#pragma once
#include "attention_step_bytes.h"

#if defined(__CUDA_ARCH_FEAT_SM90_ALL)
namespace sdx {

/// kCluster: workgroups that share the keys of a sequence, 1 to 8.
template <class P, u32 kCluster>
struct AttentionStepMma {
  using T = typename P::T;
  using Stored = typename P::Stored;
  static constexpr bool kConverts = sizeof(Stored) == 1;
  static constexpr u32 kDim = P::kDim, kGroup = P::kGroup, kElements = kGroup * kDim, kWaves = kThreads / kWave;
  static constexpr layout::StepMmaLayout kLayout{kDim, kGroup, kCluster, P::kAppends != 0, P::kKeyStride != 0};
  static constexpr u32 kTile = kLayout.kTile, kChunks = kLayout.chunks(), kSlice = kElements / kCluster;
  static constexpr bool kPaged = P::kKeyStride != 0;
  static_assert(sizeof(T) == 2 && kDim % (kConverts ? 32 : 16) == 0 && !(kConverts && P::kAppends) && kGroup <= 8 &&
                kElements % kCluster == 0 && !(kPaged && kConverts));
  using Rows = detail::SharedRows<int(kChunks), false>;
  /// Whether workgroups request keys before they know the length of the sequence.
  static constexpr bool kEarly = kCluster == layout::kStepCluster;
  // Memory of a wave: keys and values of a tile, later its sums and each head's sum of exponentials. There are two
  // tiles (double buffering) where memory bandwidth is the limit; where latency is, in steps of 8 sequences with 512
  // tokens each, two tiles took 0.7 us longer than one.
  static constexpr u32 kBuffers = kLayout.buffers(), kTileVectors = kLayout.tile_vectors(),
                       kWaveVectors = kLayout.warp_vectors();
  static_assert(kTileVectors == kTile * Rows::kPitch && kWaves == u32(kLayout.kWarps));
  static constexpr u32 kHalf = kThreads / 2;
  static constexpr u32 kPitch = kLayout.padded_dim();  // stride of a head's sums, padded against bank conflicts
  static_assert(kGroup * (kPitch + 1) * 4 <= kWaveVectors * 16);
  // Stride of a query, padded so that the 8 rows of a column of chunks lie in different banks.
  static constexpr u32 kQueryPitch = kLayout.padded_dim();
  static constexpr u32 kQueriesAt = kLayout.queries_at(), kFreshAt = kLayout.new_row_at(), kAccAt = kLayout.acc_at(),
                       kStatisticsAt = kLayout.statistics_at(), kTopsAt = kLayout.maxima_at(),
                       kBarrierAt = kLayout.barrier_at(), kBytes = kLayout.bytes();

  P& p;
  const AttentionStepSizes& n;

  template <class U>
  static SDX_FN detail::shared_ptr<U> lds(u32 at) {
    return (detail::shared_ptr<U>)((detail::shared_ptr<u8>)dynamic_lds + at);
  }

  /// The sequence and the heads of a workgroup.
  struct Unit {
    i64 b, head;  ///< head: of keys
    i64 row0;     ///< the first row of its keys in a cache without pages
  };

  /// Issues the loads of the keys and values from `first` on, below `end`.
  SDX_FN void fetch(const Unit& unit, u32 first, u32 end, detail::shared_ptr<vec16> to) const {
    const T *keys, *values;
    if constexpr (kPaged) {  // a tile lies in one page
      const i64 t = first < end ? first : 0, h = unit.head * kGroup;
      keys = p.key_page(unit.b, h, t), values = p.value_page(unit.b, h, t);
    } else {
      keys = p.past_key() + unit.row0 * kDim, values = p.past_value() + unit.row0 * kDim;
    }
#pragma clang loop unroll(full)
    for (u32 i = 0; i < kDim / 16; ++i) {
      const u32 at = i * kWave + thread_id() % kWave, row = at / kChunks, chunk = at % kChunks;
      const bool there = first + row < end;
      const u32 place = Rows::at(row, chunk);
      if constexpr (kPaged) {
        detail::copy_async(to + place, keys + row * u32(P::kKeyStride) + chunk * 8, there);
        detail::copy_async(to + kTileVectors + place, values + row * u32(P::kValueStride) + chunk * 8, there);
      } else {
        const u64 from = u64(there ? first + row : 0) * kDim + chunk * 8;
        detail::copy_async(to + place, keys + from, there);
        detail::copy_async(to + kTileVectors + place, values + from, there);
      }
    }
  }

  using Held = StepBytes<T, Stored, kConverts ? kDim : 32, Rows, kTileVectors>;
  SDX_FN Held fetch_bytes(i64 row0, u32 first, u32 end) const {
    return Held::fetch(p.past_key() + row0 * kDim, p.past_value() + row0 * kDim, first, end);
  }

  /// Prefetches to L2 what fetch() will load. May be called before the previous launch has ended: nothing is read into
  /// registers or LDS, and `end` is at most the cache's capacity, so all addresses are valid.
  SDX_FN void fetch_tile_to_l2(i64 row0, u32 first, u32 end) const {
    constexpr u32 kLine = 128 / sizeof(Stored), kLines = (kDim + kLine - 1) / kLine;
    const u32 lane = thread_id() % kWave, row = first + lane % kTile;
    const Stored* const from = (lane < kTile ? p.past_key() : p.past_value()) + (row0 + row) * kDim;
    if (row < end)
#pragma clang loop unroll(full)
      for (u32 i = 0; i < kLines; ++i) fetch_to_l2(from + i * kLine);
  }

  SDX_FN f32 score(i64 b, i64 h, i64 t, f32 x) const {
    if constexpr (P::kPlain != 0)
      return x * p.factor();
    else
      return p.score(b, h, 0, t, x);
  }

  /// Half of the threads compute queries, the others the new row, so that both wait for memory at the same time;
  /// whether this workgroup needs the new row is known only later. A thread computes two elements of a query that are
  /// usually rotated together, so both are read once.
  SDX_FN void make_operands(i64 b, i64 head) const {
    const u32 thread = thread_id();
    const auto queries = lds<T>(kQueriesAt), fresh = lds<T>(kFreshAt);
    constexpr u32 kPair = kDim / 2;
    const i64 h0 = head * kGroup;
    if (thread < kHalf)
      for (u32 i = thread; i < kElements / 2; i += kHalf) {
        const u32 g = i / kPair, d = i % kPair;
        const T x = cast<T>(p.query(b, h0 + g, d)), y = cast<T>(p.query(b, h0 + g, d + kPair));
        queries[g * kQueryPitch + d] = x;
        queries[g * kQueryPitch + d + kPair] = y;
      }
    else if constexpr (P::kAppends != 0)
      for (u32 i = thread - kHalf; i < 2 * kDim; i += kHalf) {
        const u32 d = i % kDim;
        fresh[i] = cast<T>(i >= kDim ? p.new_value(b, head, d) : p.new_key(b, head, d));
      }
  }

  /// Computes the scores of the keys from `first` on, and adds their products with the values.
  SDX_FN void multiply_tile(detail::shared_ptr<vec16> tile, const u32 (&query)[kDim / 16][2], i64 b, i64 h0, u32 first,
                            u32 low, u32 high, f32 (&acc)[kDim / 16][4], f32 (&top)[2], f32 (&total)[2]) const {
    const u32 lane = thread_id() % kWave, column = lane / 4, pair = lane % 4;
    f32 x[4] = {};
#pragma clang loop unroll(full)
    for (u32 s = 0; s < kDim / 16; ++s) {
      u32 k[4];
      detail::load_matrices<false>((const detail::shared16*)(tile + Rows::at(lane % 16, s * 2 + lane / 16)), k);
      detail::mma<T>(k[0], k[1], k[2], k[3], query[s][0], query[s][1], x[0], x[1], x[2], x[3]);
    }
    u32 weights[2];  // probabilities as an operand of the second GEMM, by head
    f32 scale[2], base[2];
#pragma clang loop unroll(full)
    for (u32 e = 0; e < 2; ++e) {
      f32 m = top[e];
#pragma clang loop unroll(full)
      for (u32 r = 0; r < 2; ++r) {
        const u32 t = first + r * 8 + column;
        f32& y = x[r * 2 + e];
        // Columns past the last head are zeros; do not pass them to the model's score function.
        y = t >= low && t < high && pair * 2 + e < kGroup ? score(b, h0 + pair * 2 + e, t, y) : -inf32();
        m = __builtin_fmaxf(m, y);
      }
#pragma clang loop unroll(full)
      for (u32 other = 4; other < kWave; other *= 2) m = __builtin_fmaxf(m, detail::attention_xor(m, other));
      base[e] = m == -inf32() ? 0.0f : m;
      scale[e] = detail::fast_exp(top[e] - base[e]);
      top[e] = m;
      total[e] *= scale[e];
    }
#pragma clang loop unroll(full)
    for (u32 r = 0; r < 2; ++r) {
      const f32 w0 = detail::fast_exp(x[r * 2] - base[0]), w1 = detail::fast_exp(x[r * 2 + 1] - base[1]);
      total[0] += w0;
      total[1] += w1;
      weights[r] = detail::transposed(detail::pack2<T>(w0, w1));
    }
#pragma clang loop unroll(full)
    for (u32 s = 0; s < kDim / 16; ++s) {
#pragma clang loop unroll(full)
      for (u32 e = 0; e < 4; ++e) acc[s][e] *= scale[e % 2];
      u32 v[4];
      const u32 row = lane % 8 + lane / 16 * 8, chunk = s * 2 + lane / 8 % 2;
      detail::load_matrices<true>((const detail::shared16*)(tile + kTileVectors + Rows::at(row, chunk)), v);
      detail::mma<T>(v[0], v[1], v[2], v[3], weights[0], weights[1], acc[s][0], acc[s][1], acc[s][2], acc[s][3]);
    }
  }

  /// Stores the sums of the workgroup's waves, relative to a common maximum for each head, over their tiles.
  SDX_FN void exchange_acc(detail::shared_ptr<vec16> tile, const f32 (&acc)[kDim / 16][4], f32 (&top)[2],
                           f32 (&total)[2]) const {
    const u32 wave = tma_detail::same(thread_id() / kWave), lane = thread_id() % kWave, column = lane / 4,
              pair = lane % 4;
    const auto part = (detail::shared_ptr<f32>)tile, tops = lds<f32>(kTopsAt);
#pragma clang loop unroll(full)
    for (u32 e = 0; e < 2; ++e) {
      if (column == 0) tops[(pair * 2 + e) * kWaves + wave] = top[e];
#pragma clang loop unroll(full)
      for (u32 other = 4; other < kWave; other *= 2) total[e] += detail::attention_xor(total[e], other);
    }
    lds_barrier();
#pragma clang loop unroll(full)
    for (u32 e = 0; e < 2; ++e) {
      const u32 g = pair * 2 + e;
      const f32 own = top[e];
#pragma clang loop unroll(full)
      for (u32 w = 0; w < kWaves; ++w) top[e] = __builtin_fmaxf(top[e], tops[g * kWaves + w]);
      const f32 scale = detail::fast_exp(own - (top[e] == -inf32() ? 0.0f : top[e]));
      if (g >= kGroup) continue;
#pragma clang loop unroll(full)
      for (u32 s = 0; s < kDim / 16; ++s) {
        part[g * kPitch + s * 16 + column] = acc[s][e] * scale;
        part[g * kPitch + s * 16 + column + 8] = acc[s][2 + e] * scale;
      }
      if (column == 0) part[kGroup * kPitch + g] = total[e] * scale;
    }
    lds_barrier();
  }

  /// Each workgroup of the cluster computes a slice of the result from the partial results of all of them.
  template <class SumOf, class TopOf, class TotalOf, class Finish>
  static SDX_FN void combine_cluster(u32 barrier, u32 rank, SumOf sum_of, TopOf top_of, TotalOf total_of,
                                     Finish finish) {
    using namespace tma_detail;
    const u32 thread = thread_id();
    const auto all = lds<f32>(kAccAt), statistics = lds<f32>(kStatisticsAt);
    cluster_wait();  // all workgroups of the cluster have started, so their LDS and barriers exist
    for (u32 i = thread; i < kElements; i += kThreads) {
      const u32 g = i / kDim, owner = i / kSlice;
      detail::store_there(in_workgroup(shared_address(all + rank * kSlice + i % kSlice), owner), sum_of(i),
                          in_workgroup(barrier, owner));
      if (i % kDim < kCluster) {
        const u32 other = i % kDim, there = in_workgroup(barrier, other);
        const auto to = statistics + (rank * kGroup + g) * 2;
        detail::store_there(in_workgroup(shared_address(to), other), top_of(g), there);
        detail::store_there(in_workgroup(shared_address(to + 1), other), total_of(g), there);
      }
    }
    for (u32 j = thread; j < kSlice || j == 0; j += kThreads) {
      detail::wait_for_cluster(barrier);
      const u32 i = rank * kSlice + j, g = i / kDim;
      f32 m = -inf32(), sum = 0, total = 0;
#pragma clang loop unroll(full)
      for (u32 w = 0; w < kCluster; ++w) m = __builtin_fmaxf(m, statistics[(w * kGroup + g) * 2]);
      const f32 base = m == -inf32() ? 0.0f : m;
#pragma clang loop unroll(full)
      for (u32 w = 0; w < kCluster; ++w) {
        const f32 scale = detail::fast_exp(statistics[(w * kGroup + g) * 2] - base);
        sum += all[w * kSlice + j] * scale;
        total += statistics[(w * kGroup + g) * 2 + 1] * scale;
      }
      finish(i, sum, m, total);
    }
  }

  /// Stores the new row in the caches; one workgroup does.
  SDX_FN void append_row(i64 b, i64 head, u32 kv_heads, i64 at) const {
    const auto fresh = lds<T>(kFreshAt);
    i64 row = at, rows = n.capacity;
    if constexpr (kPaged) row = p.slots()[b], rows = p.cache_rows();
    if (thread_id() < kHalf || u64(row) >= u64(rows)) return;
    for (u32 i = thread_id() - kHalf; i < 2 * kDim; i += kHalf) {
      const bool value = i >= kDim;
      i64 to = ((b * kv_heads + head) * n.capacity + at) * kDim;
      if constexpr (kPaged) to = row * (value ? P::kValueStride : P::kKeyStride) + head * kDim;
      (value ? p.value() : p.key())[to + i % kDim] = fresh[i];
    }
  }

  /// Copies the rows that are not new, if the caches after the step are different memory. That is the rare case: each
  /// row is looked for among the new ones.
  SDX_FN void copy_other_pages(u32 batches) const {
    const i64* const slots = p.slots();
    const i64 rows = p.cache_rows();
    const T *const keys = p.past_key(), *const values = p.past_value();
    T *const to_keys = p.key(), *const to_values = p.value();
    if (keys == to_keys && values == to_values) return;
    for (i64 row = block_id(); row < rows; row += all_threads() / kThreads) {
      bool other = true;
      for (u32 b = 0; b < batches; ++b) other = other && slots[b] != row;
      if (!other) continue;
      for (i64 e = thread_id(); e < P::kKeyStride; e += kThreads)
        to_keys[row * P::kKeyStride + e] = keys[row * P::kKeyStride + e];
      for (i64 e = thread_id(); e < P::kValueStride; e += kThreads)
        to_values[row * P::kValueStride + e] = values[row * P::kValueStride + e];
    }
  }

  /// Whether a tile belongs to a wave of this workgroup.
  SDX_FN bool owns(u32 tile, u32 range, u32 ranges) const {
    return n.splits == 1 ? tile % kCluster == range : tile % ranges == range;
  }

  SDX_FN void attend(u32 kv_heads) const {
    using namespace tma_detail;
    const u32 ranges = n.splits * kCluster;
    const u32 unit = block_id() / ranges, range = block_id() % ranges, rank = range % kCluster;
    const i64 b = unit / kv_heads, head = unit % kv_heads, h0 = head * kGroup;
    const u32 thread = thread_id(), wave = same(thread / kWave), lane = thread % kWave;
    const u32 barrier = shared_address(lds<u8>(kBarrierAt));
    if constexpr (kCluster > 1) {
      if (thread == 0) {
        init_barrier(barrier, 1);
        publish_barriers();
        expect_bytes(barrier, (kElements + kCluster * kGroup * 2) * 4);
      }
      cluster_arrive();
    }
    const auto tile = lds<vec16>(wave * kWaveVectors * 16);
    const Unit own{b, head, (b * kv_heads + head) * n.past_rows};
    u32 first = kTile * (wave * ranges + range);
    const u32 past_rows = u32(min(n.past_rows, i64(n.keys)));  // later rows do not exist yet
    if constexpr (!kPaged) fetch_tile_to_l2(own.row0, first, past_rows);
    p.wait();
    if constexpr (kEarly) start_next_launch();
    i64 at = -1;
    if constexpr (P::kAppends != 0) at = p.start(b);
    u32 low = 0, high = n.keys;
    if constexpr (P::kBounds != 0) {
      low = u32(min(max(p.begin(b, h0, 0), i64(0)), i64(n.keys)));
      high = u32(max(min(p.end(b, h0, 0), i64(n.keys)), i64(0)));
    }
    const u32 skipped = kEarly ? 0 : low / kTile;  // tiles
    first += kTile * skipped;
    Held held;
    const auto request = [&](u32 end) SDX_LAMBDA {
      if constexpr (kConverts)
        held = fetch_bytes(own.row0, first, end);
      else
        fetch(own, first, end, tile);
      detail::copies_begun();
    };
    if constexpr (kEarly) request(past_rows);
    const auto queries = lds<T>(kQueriesAt), fresh = lds<T>(kFreshAt);
    make_operands(b, head);
    const bool has_fresh = at >= low && at < high;
    const u32 start = has_fresh ? u32(at) : ~0u;
    if constexpr (!kEarly) request(min(high, past_rows));
    if constexpr (P::kAppends != 0) {
      if (has_fresh ? owns(start / kTile - skipped, range, ranges) : range == 0) append_row(b, head, kv_heads, at);
    }
    lds_barrier();

    const u32 column = lane / 4, pair = lane % 4;  // of an operand lane: the head, and which two of eight elements
    u32 query[kDim / 16][2];
#pragma clang loop unroll(full)
    for (u32 s = 0; s < kDim / 16; ++s)
#pragma clang loop unroll(full)
      for (u32 e = 0; e < 2; ++e)
        query[s][e] = column < kGroup
                          ? *(detail::shared_ptr<u32>)(queries + column * kQueryPitch + s * 16 + e * 8 + pair * 2)
                          : 0;
    // Of a result, a lane holds heads 2 * pair and 2 * pair + 1, and keys (or elements) `column` and `column` + 8.
    f32 acc[kDim / 16][4] = {}, top[2] = {-inf32(), -inf32()}, total[2] = {};
    const auto first_tile = tile;
    constexpr u32 kNext = kBuffers == 2 && !kConverts ? 2 * kTileVectors : 0;
    const u32 round = kTile * kWaves * ranges, requested = first;
    for (u32 now = 0; first < high; first += round, now ^= kNext) {
      const auto tile = first_tile + now;
      if constexpr (kConverts) {
        const u32 next = first + round;
        detail::attention_wave_sync();
        held.place(tile);
        held = fetch_bytes(own.row0, next, next + kTile > low ? min(high, past_rows) : 0);
      } else if constexpr (kBuffers == 2) {
        const u32 next = first + round;
        detail::attention_wave_sync();
        if (next < high && next + kTile > low) fetch(own, next, min(high, past_rows), first_tile + (now ^ kNext));
        detail::copies_begun();
      }
      if (first + kTile <= low) continue;  // (tiles before `low` were requested before `low` was known)
      if (!kConverts && kBuffers == 1 && first != requested) {
        detail::copies_arrived();
        detail::attention_wave_sync();
        if constexpr (!kConverts) fetch(own, first, min(high, past_rows), tile);
      }
      if constexpr (kBuffers == 2 && !kConverts)
        detail::copies_but_last_arrived();
      else
        detail::copies_arrived();
      detail::attention_wave_sync();
      // Insert the new row; zero the values of keys outside the sequence, which may be NaN in memory.
      if (!kConverts && start - first < kTile)
        for (u32 c = lane; c < 2 * kChunks; c += kWave)
          tile[(c < kChunks ? 0 : kTileVectors) + Rows::at(start - first, c % kChunks)] =
              ((detail::shared_ptr<vec16>)fresh)[c];
      if (first < low || first + kTile > high)
        for (u32 c = lane; c < kTile * kChunks; c += kWave) {
          const u32 t = first + c / kChunks;
          if (t < low || t >= high) tile[kTileVectors + Rows::at(c / kChunks, c % kChunks)] = vec16{};
        }
      detail::attention_wave_sync();

      multiply_tile(tile, query, b, h0, first, low, high, acc, top, total);
    }
    detail::copies_arrived();
    detail::attention_wave_sync();
    exchange_acc(tile, acc, top, total);
    const auto tops = lds<f32>(kTopsAt);
    const auto of_waves = [&](u32 at) SDX_LAMBDA {
      f32 x = 0;
#pragma clang loop unroll(full)
      for (u32 w = 0; w < kWaves; ++w) x += lds<f32>(w * kWaveVectors * 16)[at];
      return x;
    };
    const auto sum_of = [&](u32 i) SDX_LAMBDA { return of_waves(i / kDim * kPitch + i % kDim); };
    const auto total_of = [&](u32 g) SDX_LAMBDA { return of_waves(kGroup * kPitch + g); };
    const auto top_of = [&](u32 g) SDX_LAMBDA {
      f32 x = tops[g * kWaves];
#pragma clang loop unroll(full)
      for (u32 w = 1; w < kWaves; ++w) x = __builtin_fmaxf(x, tops[g * kWaves + w]);
      return x;
    };

    const auto finish = [&](u32 i, f32 sum, f32 top, f32 total) SDX_LAMBDA {
      const u32 g = i / kDim, d = i % kDim;
      if (n.splits > 1) {
        f32* const to = after_wait(n.partial) + ((b * n.heads + h0 + g) * n.splits + range / kCluster) * (kDim + 2);
        to[d] = sum;
        if (d == 0) to[kDim] = top, to[kDim + 1] = total;
      } else {
        p.out(b, h0 + g, 0)[d * p.out_step()] =
            p.result(b, h0 + g, 0, d, sum * attention_scale(p, b, h0 + g, top, total));
      }
    };
    if constexpr (kCluster == 1) {
      for (u32 i = thread; i < kElements; i += kThreads) finish(i, sum_of(i), top_of(i / kDim), total_of(i / kDim));
    } else {
      combine_cluster(barrier, rank, sum_of, top_of, total_of, finish);
    }
  }

  SDX_FN void run(u32 batches) const {
    const u32 kv_heads = n.heads / kGroup;
    attend(kv_heads);
    if constexpr (P::kAppends != 0 && kPaged)
      copy_other_pages(batches);
    else if constexpr (P::kAppends != 0)
      AttentionStep<P>{p, n}.copy_rest(batches * kv_heads, kv_heads);
  }
};

/// Launch: batches * heads / kGroup * splits * kCluster workgroups, with kBytes of LDS.
template <class P, u32 kCluster, u32 kBytes>
SDX_FN void attention_step_mma(P& p, const AttentionStepSizes& n, u32 batches) {
  using Step = AttentionStepMma<P, kCluster>;
  static_assert(Step::kBytes <= kBytes);
  Step{p, n}.run(batches);
}

}  // namespace sdx
#endif
