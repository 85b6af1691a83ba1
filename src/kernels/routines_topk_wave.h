// TopK of short rows on GPUs, one wave each; of the keys see routines_topk.h.
#pragma once
#include "routines_topk.h"

namespace sdx {

/// Minima of a wave's keys among which it looks for a limit, and the items within that limit that it can sort.
inline constexpr u32 kMinima = 64, kSortedInWave = 128;
static SDX_SHARED u64 topk_wave_items[kThreads / kWave][kSortedInWave];

/// The lane's number. The compiler does not move what depends on it out of loops, where registers would keep it.
SDX_FN u32 fresh_lane() {
  u32 lane = thread_id() % kWave;
#if defined(__NVPTX__)
  asm volatile("" : "+r"(lane));
#endif
  return lane;
}

/// Keys of a row's elements that one lane of a wave has, as hold_row() loads them. Indices follow from their places:
/// registers hold the keys only.
template <class U, int R, u32 V>
struct LaneKeys {
  U key[R];
  u32 n, last;  ///< elements of the row; where the last pack begins, if packs may overlap

  /// Where slot i of a lane begins its pack, and the index of its element.
  static SDX_FN u32 pack(u32 i, u32 lane) { return (i / V * kWave + lane) * V; }
  SDX_FN u32 index(u32 i, u32 lane) const { return min(pack(i, lane), last) + i % V; }
  SDX_FN bool inside(u32 i, u32 lane) const { return index(i, lane) >= pack(i, lane) && index(i, lane) < n; }
  SDX_FN bool takes(u32 i, u32 lane, Limit<U> limit) const {
    return inside(i, lane) && limit.takes(key[i], index(i, lane));
  }

  SDX_FN u32 count(Limit<U> limit) const {
    const u32 lane = fresh_lane();
    u32 own = 0;
#pragma clang loop unroll(full)
    for (u32 i = 0; i < R; ++i) own += takes(i, lane, limit);
    return reduce_lanes(own, kWave, [](u32 a, u32 b) { return a + b; });
  }

  /// A key that at least k <= 32 elements (or all) do not exceed, and few more: the k-th of kMinima minima.
  SDX_FN U loose_limit(u32 k, u32 bits) const {
    constexpr u32 each = kMinima / kWave;
    U least[each];
#pragma clang loop unroll(full)
    for (u32 j = 0; j < each; ++j) {
      least[j] = ~U(0);
#pragma clang loop unroll(full)
      for (u32 i = j; i < R; i += each) least[j] = min(least[j], key[i]);
    }
    U found = 0;
    for (U bit = U(1) << (bits - 1); bit; bit >>= 1) {
      u32 below = 0;
#pragma clang loop unroll(full)
      for (u32 j = 0; j < each; ++j) below += u32(__builtin_popcountll(lanes_where(least[j] < (found | bit))));
      if (below < k) found |= bit;
    }
    return found;
  }

  /// The limit that exactly k elements are within: bits of the key, then those of the index.
  SDX_FN Limit<U> exact_limit(u32 k, u32 bits) const {
    Limit<U> limit = {0, 0};
#pragma clang loop unroll(disable)
    for (U bit = U(1) << (bits - 1); bit; bit >>= 1)
      if (count({(limit.key | bit) - 1, ~0u}) < k) limit.key |= bit;
#pragma clang loop unroll(disable)
    for (u32 bit = u32(layout::kTopkRow) >> 1; bit; bit >>= 1)
      if (count({limit.key, (limit.index | bit) - 1}) < k) limit.index |= bit;
    return limit;
  }

  /// Appends what takes(i, lane) says to a list in LDS; returns how many there are, of which a list has the first
  /// `fits`.
  template <class Takes, class P>
  SDX_FN u32 collect(Takes takes, P list, u32 fits) const {
    const u32 lane = fresh_lane();
    u32 at = 0;
#pragma clang loop unroll(full)
    for (u32 i = 0; i < R; ++i) {
      const bool taken = takes(i, lane);
      const u64 lanes = lanes_where(taken);
      const u32 to = at + u32(__builtin_popcountll(lanes & ((u64(1) << lane) - 1)));
      if (taken && to < fits) list[to] = item_of(key[i], index(i, lane));
      at += u32(__builtin_popcountll(lanes));
    }
    return at;
  }
};

template <bool Largest, int R, class T>
SDX_FN auto lane_keys(const T* row, i64 inner, u32 n) {
  using U = decltype(topk_key<Largest>(T{}));
  constexpr u32 most = 16 / sizeof(T), V = R % most == 0 ? most : R % 4 == 0 && most >= 4 ? 4 : R % 2 == 0 ? 2 : 1;
  const bool packed = inner == 1 && n >= V && aligned(row) && (n % V == 0 || kPackAlignment<T, V> == sizeof(T));
  LaneKeys<U, R, V> x;
  const u32 lane = fresh_lane();
  x.n = n, x.last = packed ? n - V : ~0u;
  Pack<T, V> packs[R / V];
#pragma clang loop unroll(full)
  for (u32 c = 0; c < R / V; ++c) {
    if (packed) {
      packs[c] = load_pack<V>(row + x.index(c * V, lane));  // the last pack may overlap with the one before
    } else {
#pragma clang loop unroll(full)
      for (u32 l = 0; l < V; ++l) packs[c][l] = to_bits(row[i64(min(x.index(c * V + l, lane), n - 1)) * inner]);
    }
  }
  loads_in_flight();
#pragma clang loop unroll(full)
  for (u32 i = 0; i < R; ++i)
    x.key[i] = x.inside(i, lane) ? topk_key<Largest>(from_bits<T>(packs[i / V][i % V])) : U(~U(0));
  return x;
}

/// One wave per row of n <= Most elements, of which it takes k <= kTopkInWave: those within a limit are sorted.
template <bool Largest, int Most, class T>
SDX_FN void routine_topk_waves(const T* x, T* values, i64* indices, i64 rows, i64 n, i64 inner, i64 k) {
  const u32 wave = thread_id() / kWave;
  auto& list = topk_wave_items[wave];
  for (i64 r = block_id() * (kThreads / kWave) + wave; r < rows; r += i64(block_count()) * (kThreads / kWave)) {
    const T* row = topk_row(x, r, n, inner);
    const auto held = lane_keys<Largest, Most / kWave>(row, inner, u32(n));
    const auto loose = held.loose_limit(u32(k), kKeyBits<T>);
    u32 count = kSortedInWave + 1;
    if (loose != decltype(loose)(~0u))  // what is no element has this key
      count = held.collect([&](u32 i, u32) { return held.key[i] <= loose; }, list, kSortedInWave);
    if (count > kSortedInWave) {
      const auto limit = held.exact_limit(u32(k), kKeyBits<T>);
      wave_barrier();
      count = held.collect([&](u32 i, u32 lane) { return held.takes(i, lane, limit); }, list, kSortedInWave);
    }
    wave_barrier();
    const i64 to = r / inner * k * inner + r % inner;
    for (u32 i = thread_id() % kWave; i < count; i += kWave) {  // an item's rank is the number of those before it
      const u64 own = list[i];
      u32 rank = 0;
#pragma clang loop unroll_count(8)
      for (u32 j = 0; j < count; ++j) rank += u64(list[j]) < own;
      if (rank >= k) continue;
      const i64 index = item_index(own);
      values[to + rank * inner] = row[index * inner];
      indices[to + rank * inner] = index;
    }
    wave_barrier();
  }
}

}  // namespace sdx
