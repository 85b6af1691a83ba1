// TopK on GPUs. Keys are unsigned numbers whose smallest are wanted; of equal keys, those with the lowest indices.
#pragma once
#include "routines.h"

namespace sdx {

/// A key with its index, as one number where that has 64 bits. Items of a row are distinct.
struct LongItem {
  u64 key;
  u64 index;
};
template <class U>
using Item = select_type<sizeof(U) == 8, LongItem, u64>;
SDX_FN u64 item_of(u32 key, u32 index) { return u64(key) << 32 | index; }
SDX_FN LongItem item_of(u64 key, u32 index) { return {key, index}; }
SDX_FN u32 item_index(u64 e) { return u32(e); }
SDX_FN u32 item_index(LongItem e) { return u32(e.index); }
SDX_FN u32 item_key(u64 e) { return u32(e >> 32); }
SDX_FN u64 item_key(LongItem e) { return e.key; }
SDX_FN bool item_before(u64 a, u64 b) { return a < b; }
SDX_FN bool item_before(LongItem a, LongItem b) { return a.key < b.key || (a.key == b.key && a.index < b.index); }
/// One of two items. A conditional expression of structs would select an address, and keep both in scratch memory.
SDX_FN u64 item_if(bool first, u64 a, u64 b) { return first ? a : b; }
SDX_FN LongItem item_if(bool first, LongItem a, LongItem b) {
  return {first ? a.key : b.key, first ? a.index : b.index};
}

/// Bits of a key. Floats of 16 bits have keys of 16: half as many to search.
template <class T>
inline constexpr u32 kKeyBits = is_small_float<T> ? 16 : 8 * sizeof(decltype(ordered_bits(T{})));

template <bool Largest, class T>
SDX_FN auto topk_key(T x) {
  if constexpr (is_small_float<T>) {
    static_assert(sizeof(T) == 2);
    constexpr u32 infinity = is_same<T, f16> ? 0x7c00 : 0x7f80;
    const u32 bits = bit_cast<u16>(x), size = bits & 0x7fff;
    const u32 up = size == 0 ? 0x8000 : bits >> 15 ? bits ^ 0xffff : bits | 0x8000;
    const u32 key = size > infinity ? 0xffff : up;  // as ordered_bits()
    return Largest ? key ^ 0xffff : key;
  } else {
    const auto key = ordered_bits(x);
    return decltype(key)(Largest ? ~key : key);
  }
}

inline constexpr u32 kSortedInShared = layout::kSortedInShared;
/// Up to `Fits` items that are sorted.
template <class E, u32 Fits>
static SDX_SHARED E topk_items[Fits];
static SDX_SHARED u32 topk_histogram[256];
static SDX_SHARED u64 topk_bounds[kThreads / 32];
static SDX_SHARED u64 topk_choice[3];
static SDX_SHARED u32 topk_filled[1];

/// R keys of each of `threads` threads and their indices, with index ~0 where there is none.
template <class U, int R>
struct Held {
  U key[R];
  u32 index[R];
};

/// Of a row of n elements, `thread` gets R: runs of V neighbours, `threads` runs apart.
template <bool Largest, int R, class T>
SDX_FN auto hold_row(const T* row, i64 inner, u32 n, u32 thread, u32 threads) {
  using U = decltype(topk_key<Largest>(T{}));
  constexpr u32 most = 16 / sizeof(T), V = R % most == 0 ? most : R % 4 == 0 && most >= 4 ? 4 : R % 2 == 0 ? 2 : 1;
  Held<U, R> x;
  Pack<T, V> packs[R / V];
  const bool packed = inner == 1 && n >= V && aligned(row) && (n % V == 0 || kPackAlignment<T, V> == sizeof(T));
#pragma clang loop unroll(full)
  for (u32 c = 0; c < R / V; ++c) {
    const u32 at = (c * threads + thread) * V;
    if (packed) {
      packs[c] = load_pack<V>(row + min(at, n - V));  // the last pack may overlap with the one before
    } else {
#pragma clang loop unroll(full)
      for (u32 l = 0; l < V; ++l) packs[c][l] = to_bits(row[i64(min(at + l, n - 1)) * inner]);
    }
  }
  loads_in_flight();
#pragma clang loop unroll(full)
  for (u32 c = 0; c < R / V; ++c) {
    const u32 at = (c * threads + thread) * V, from = packed ? min(at, n - V) : at;
#pragma clang loop unroll(full)
    for (u32 l = 0; l < V; ++l) {
      const bool inside = from + l >= at && from + l < n;
      x.key[c * V + l] = inside ? topk_key<Largest>(from_bits<T>(packs[c][l])) : U(~U(0));
      x.index[c * V + l] = inside ? from + l : ~0u;
    }
  }
  return x;
}

/// The same of a list of items, one at a time. The list consists of sorted parts: each wave gets some of every part.
template <int R, class U>
SDX_FN Held<U, R> hold_items(const Item<U>* list, u32 n) {
  const u32 first = thread_id() % kWave * (kThreads / kWave) + thread_id() / kWave;
  Held<U, R> x;
  Item<U> items[R];
#pragma clang loop unroll(full)
  for (u32 c = 0; c < R; ++c) items[c] = list[min(c * kThreads + first, n - 1)];
  loads_in_flight();
#pragma clang loop unroll(full)
  for (u32 c = 0; c < R; ++c) {
    const bool inside = c * kThreads + first < n;
    x.key[c] = inside ? item_key(items[c]) : U(~U(0));
    x.index[c] = inside ? item_index(items[c]) : ~0u;
  }
  return x;
}

/// Which items are taken: those whose key is below `key`, and of those that equal it, the ones up to `index`.
template <class U>
struct Limit {
  U key;
  u32 index;
  SDX_FN bool takes(U k, u32 i) const { return k < key || (k == key && i <= index); }
};

/// The k-th smallest of a wave's keys, 1 <= k <= kWave: its bits, from the highest one.
template <class U>
SDX_FN U kth_in_wave(U key, u32 k, u32 bits) {
  U found = 0;
  for (U bit = U(1) << (bits - 1); bit; bit >>= 1)
    if (u32(__builtin_popcountll(lanes_where(key < (found | bit)))) < k) found |= bit;
  return found;
}

/// A key that at least k of the workgroup's items do not exceed, and few do: each wave finds its share of the k among
/// the smallest keys of its lanes.
template <class U, class Each>
SDX_FN U loose_limit(Each each, u32 k, u32 bits) {
  constexpr u32 waves = kThreads / kWave;
  U least = ~U(0);
  each([&](U key, u32) { least = min(least, key); });
  const U bound = kth_in_wave(least, (k + waves - 1) / waves, bits);
  if (thread_id() % kWave == 0) topk_bounds[thread_id() / kWave] = bound;
  barrier();
  U limit = U(topk_bounds[0]);
#pragma clang loop unroll(full)
  for (u32 w = 1; w < waves; ++w) limit = max(limit, U(topk_bounds[w]));
  return limit;
}

/// 8 more bits of the k-th smallest number: of 256 counts, the one in which the k-th is. Returns its place; k becomes
/// the k-th's rank there, `all` whether all of that place are wanted.
SDX_FN u32 choose_digit(u64& k, bool& all) {
  barrier();
  u32 total;
  const u32 here = topk_histogram[thread_id()];
  const u32 before = scan_workgroup<u32>(here, 0, [](u32 a, u32 b) { return a + b; }, total);
  if (before < k && k <= u64(before) + here) {
    topk_choice[0] = thread_id();
    topk_choice[1] = k - before;
    topk_choice[2] = k - before == here;
  }
  barrier();
  k = topk_choice[1];
  all = topk_choice[2] != 0;
  return u32(topk_choice[0]);
}

/// The limit that exactly k items are within, by counting 8 bits at a time: those of keys, then those of indices.
/// each(f) calls f(key, index) for all items.
template <class U, class Each>
SDX_FN Limit<U> exact_limit(Each each, u64 k, u32 bits) {
  U prefix = 0, known = 0;
  u32 index = 0, index_known = 0;
  bool all = false;
#pragma clang loop unroll(disable)
  for (i32 shift = i32(bits) + 24; shift >= 0 && !all; shift -= 8) {
    const bool of_key = shift >= 32;
    topk_histogram[thread_id()] = 0;
    barrier();
    each([&](U key, u32 i) {
      if ((key & known) != prefix || (i & index_known) != index) return;
      const u32 digit = of_key ? u32(key >> (shift - 32)) : i >> shift;
      __scoped_atomic_fetch_add((u32*)topk_histogram + (digit & 255), 1u, __ATOMIC_RELAXED, __MEMORY_SCOPE_WRKGRP);
    });
    const u32 digit = choose_digit(k, all);
    if (of_key) {
      prefix |= U(digit) << (shift - 32);
      known |= U(255) << (shift - 32);
    } else {
      index |= digit << shift;
      index_known |= 255u << shift;
    }
  }
  return {U(prefix | (~known & U(~U(0) >> (8 * sizeof(U) - bits)))), index | ~index_known};
}

/// Appends the taken items to a list, in any order; those that do not fit are only counted. Returns the count.
template <class U, class Each, class Takes, class P>
SDX_FN u32 collect(Each each, Takes takes, P list, u32 fits) {
  barrier();
  if (thread_id() == 0) topk_filled[0] = 0;
  barrier();
  each([&](U key, u32 index) {
    if (!takes(key, index)) return;
    const u32 at = __scoped_atomic_fetch_add((u32*)topk_filled, 1u, __ATOMIC_RELAXED, __MEMORY_SCOPE_WRKGRP);
    if (at < fits) list[at] = item_of(key, index);
  });
  barrier();
  return topk_filled[0];
}

/// Sorts 2 N kThreads items in shared memory; see sort_pair(). Each thread has N pairs, without branches that loads
/// would wait at. Steps whose pairs are near need no barrier of the workgroup, because a wave has them.
template <class I, u32 N, class P>
SDX_FN void sort_pairs(P& list) {
#pragma clang loop unroll(disable)
  for (u32 size = 2; size <= 2 * N * kThreads; size *= 2)
#pragma clang loop unroll(disable)
    for (u32 d = size; d >= 1;) {
      u32 low[N], high[N];
      I a[N], b[N];
#pragma clang loop unroll(full)
      for (u32 c = 0; c < N; ++c) {
        sort_pair<u32>(c * kThreads + thread_id(), size, d == size ? 0 : d, low[c], high[c]);
        a[c] = list[low[c]];
        b[c] = list[high[c]];
      }
#pragma clang loop unroll(full)
      for (u32 c = 0; c < N; ++c) {
        const bool swap = item_before(b[c], a[c]);
        list[low[c]] = item_if(swap, b[c], a[c]);
        list[high[c]] = item_if(swap, a[c], b[c]);
      }
      const u32 span = d == size ? size : 2 * d;  // elements in which a step's pairs lie
      d = d == size ? size / 4 : d / 2;
      const u32 next = d == 0 ? 2 * size : 2 * d;
      if (span <= 2 * kWave && next <= 2 * kWave)
        wave_barrier();
      else
        barrier();
    }
}

/// Calls store(rank, item) for the first k of `count` items in shared memory, in order.
template <class U, u32 Fits, class Store>
SDX_FN void store_sorted(u32 count, u32 k, Store store) {
  auto& list = topk_items<Item<U>, Fits>;
  if (count <= kThreads) {  // an item's rank is the number of those before it
    if (thread_id() < count) {
      const Item<U> own = list[thread_id()];
      u32 rank = 0;
#pragma clang loop unroll_count(8)
      for (u32 j = 0; j < count; ++j) rank += item_before(Item<U>(list[j]), own);
      if (rank < k) store(rank, own);
    }
    return;
  }
  if constexpr (Fits > kThreads) {
    static_assert(Fits == 8 * kThreads || Fits == 16 * kThreads);
    u32 all = 2 * kThreads;
    while (all < count) all *= 2;
    for (u32 j = count + thread_id(); j < all; j += kThreads) list[j] = item_of(U(~U(0)), ~0u);
    barrier();
    if (all == 2 * kThreads)
      sort_pairs<Item<U>, 1>(list);
    else if (all == 4 * kThreads)
      sort_pairs<Item<U>, 2>(list);
    else if (all == 8 * kThreads)
      sort_pairs<Item<U>, 4>(list);
    else if constexpr (Fits > 8 * kThreads)
      sort_pairs<Item<U>, 8>(list);
    for (u32 j = thread_id(); j < k; j += kThreads) store(j, Item<U>(list[j]));
  }
}

/// Up to so many, the k first are found by a loose limit.
inline constexpr u32 kFew = 128;

/// The first k <= n of n items, where k <= Fits: those within a limit are sorted. A list of more items than threads
/// would take long to sort, so the limit is exact if a loose one lets as many through. If all are wanted, their indices
/// are 0 to n - 1, and there is nothing to select.
template <class U, u32 Fits, class Each, class Store>
SDX_FN void find_first(Each each, u32 n, u32 k, u32 bits, Store store) {
  if (k == n) {
    each([&](U key, u32 index) { topk_items<Item<U>, Fits>[index] = item_of(key, index); });
    barrier();
    store_sorted<U, Fits>(n, k, store);
    barrier();
    return;
  }
  const u32 fits = k <= kThreads ? kThreads : Fits;
  Limit<U> limit = {U(~U(0)), ~0u};
  bool exact = n > kThreads && k > kFew;
  if (n > kThreads && !exact) limit.key = loose_limit<U>(each, k, bits);
  u32 count;
#pragma clang loop unroll(disable)
  for (;;) {
    if (exact) limit = exact_limit<U>(each, k, bits);
    const auto takes = [&](U key, u32 index) { return limit.takes(key, index); };
    count = collect<U>(each, takes, topk_items<Item<U>, Fits>, fits);
    if (count <= fits) break;
    exact = true;
  }
  store_sorted<U, Fits>(count, k, store);
  barrier();
}

template <u32 Fits, class U, int R, class Store>
SDX_FN void first_of_held(const Held<U, R>& x, u32 n, u32 k, u32 bits, Store store) {
  const auto each = [&](auto f) {
#pragma clang loop unroll(full)
    for (u32 i = 0; i < R; ++i)
      if (x.index[i] != ~0u) f(x.key[i], x.index[i]);
  };
  find_first<U, Fits>(each, n, k, bits, store);
}

/// For items that get(j) loads each time. `spread`: as hold_items() has them.
template <class U, class Get>
SDX_FN auto each_loaded(Get get, u32 n, bool spread) {
  return [=](auto f) {
    constexpr u32 ahead = 4;
    const u32 own = spread ? thread_id() % kWave * (kThreads / kWave) + thread_id() / kWave : thread_id();
#pragma clang loop unroll(disable)
    for (u32 first = own; first < n; first += ahead * kThreads) {
      Item<U> items[ahead];
#pragma clang loop unroll(full)
      for (u32 c = 0; c < ahead; ++c) items[c] = get(min(first + c * kThreads, n - 1));
      loads_in_flight();
#pragma clang loop unroll(full)
      for (u32 c = 0; c < ahead; ++c)
        if (first + c * kThreads < n) f(item_key(items[c]), item_index(items[c]));
    }
  };
}

template <class T>
SDX_FN const T* topk_row(const T* x, i64 r, i64 n, i64 inner) {
  return x + r / inner * n * inner + r % inner;
}

/// First of two launches: of each part of `part` elements of a row, the first k as items. A row has (parts - 1) * k
/// and those of the last part, which may have fewer elements. R: elements of a thread, if registers have a part, or 0.
template <bool Largest, int R, u32 Fits, class T>
SDX_FN void routine_topk_parts(const T* x, u64* workspace, i64 rows, i64 n, i64 inner, i64 k, i64 part) {
  using U = decltype(topk_key<Largest>(T{}));
  const i64 parts = (n + part - 1) / part, each = (parts - 1) * k + min(k, n - (parts - 1) * part);
  for (i64 b = block_id(); b < rows * parts; b += block_count()) {
    const i64 r = b / parts, p = b % parts;
    const T* row = topk_row(x, r, n, inner) + p * part * inner;
    const u32 first = u32(p * part), size = u32(min(part, n - p * part)), wanted = u32(min(k, i64(size)));
    auto* list = (Item<U>*)workspace + r * each + p * k;
    const auto store = [&](u32 at, Item<U> e) { list[at] = item_of(item_key(e), item_index(e) + first); };
    if constexpr (R > 0) {
      first_of_held<Fits>(hold_row<Largest, R>(row, inner, size, thread_id(), kThreads), size, wanted, kKeyBits<T>,
                          store);
    } else {
      const auto get = [=](u32 j) { return item_of(topk_key<Largest>(row[j * inner]), j); };
      find_first<U, Fits>(each_loaded<U>(get, size, false), size, wanted, kKeyBits<T>, store);
    }
  }
}

/// Stores results of one row.
template <class U, class T>
SDX_FN auto topk_store(const T* row, T* values, i64* indices, i64 to, i64 inner) {
  return [=](u32 rank, Item<U> e) {
    const i64 index = item_index(e);
    values[to + rank * inner] = row[index * inner];
    indices[to + rank * inner] = index;
  };
}

/// One workgroup per row of n <= R kThreads elements with stride `inner`, k <= Fits.
template <bool Largest, int R, u32 Fits, class T>
SDX_FN void routine_topk_rows(const T* x, T* values, i64* indices, i64 rows, i64 n, i64 inner, i64 k) {
  using U = decltype(topk_key<Largest>(T{}));
  for (i64 r = block_id(); r < rows; r += block_count()) {
    const T* row = topk_row(x, r, n, inner);
    const auto store = topk_store<U>(row, values, indices, r / inner * k * inner + r % inner, inner);
    first_of_held<Fits>(hold_row<Largest, R>(row, inner, u32(n), thread_id(), kThreads), u32(n), u32(k), kKeyBits<T>,
                        store);
  }
}

/// The same for any n. With several parts it takes the items that the launch before found, which registers have if
/// Held. If k exceeds Fits (`Big`: it may), results are sorted in `workspace`.
template <bool Largest, u32 Fits, bool Held, bool Big, class T>
SDX_FN void routine_topk(const T* x, T* values, i64* indices, u64* workspace, i64 rows, i64 n, i64 inner, i64 k,
                         i64 part) {
  using U = decltype(topk_key<Largest>(T{}));
  constexpr u32 bits = kKeyBits<T>;
  const i64 parts = (n + part - 1) / part, items = (parts - 1) * k + min(k, n - (parts - 1) * part);
  for (i64 r = block_id(); r < rows; r += block_count()) {
    const T* row = topk_row(x, r, n, inner);
    const auto store = topk_store<U>(row, values, indices, r / inner * k * inner + r % inner, inner);
    const auto* list = (const Item<U>*)workspace + r * items;
    if constexpr (Held) {
      first_of_held<Fits>(hold_items<8, U>(list, u32(items)), u32(items), u32(k), bits, store);
    } else {
      const auto get = [=](u32 j) -> Item<U> {
        if (parts > 1) return list[j];
        return item_of(topk_key<Largest>(row[j * inner]), j);
      };
      const u32 count = u32(parts > 1 ? items : n);
      const auto each = each_loaded<U>(get, count, parts > 1);
      if (!Big || k <= Fits) {
        find_first<U, Fits>(each, count, u32(k), bits, store);
      } else {
        auto* sorted = (Item<U>*)workspace + r * k;
        const Limit<U> limit = k < n ? exact_limit<U>(each, u64(k), bits) : Limit<U>{U(~U(0)), ~0u};
        collect<U>(each, [&](U key, u32 index) { return limit.takes(key, index); }, sorted, u32(k));
        sort_workgroup<Item<U>>(sorted, k, [](Item<U> a, Item<U> b) { return item_before(a, b); });
        for (i64 j = thread_id(); j < k; j += kThreads) store(u32(j), sorted[j]);
        barrier();
      }
    }
  }
}

}  // namespace sdx
