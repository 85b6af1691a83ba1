// Scatter, appending to KV caches and NonZero on GPUs.
#pragma once
#include "routines.h"
#include "routines_input.h"

namespace sdx {

/// Copies n elements.
template <class T>
SDX_FN void routine_copy(const T* x, T* y, i64 n) {
  constexpr int V = 16 / sizeof(T);
  i64 done = 0;
  if (aligned(x) && aligned(y)) {
    for (i64 k = first_thread(); k < n / V; k += all_threads()) store_pack<V>(y + k * V, load_pack<V>(x + k * V));
    done = n / V * V;
  }
  for (i64 k = done + first_thread(); k < n; k += all_threads()) y[k] = x[k];
}

/// The same, and clears `last`, of m elements.
template <class T>
SDX_FN void routine_copy_and_clear(const T* x, T* y, u32* last, i64 n, i64 m) {
  for (i64 k = first_thread(); k < m; k += all_threads()) last[k] = 0;
  routine_copy(x, y, n);
}

/// last[row]: 1 + the number of the last update of this row, or 0 if there is none.
template <class R>
SDX_FN void routine_scatter_last(R rows, u32* last, i64 m, i64 n) {
  for (i64 k = first_thread(); k < m; k += all_threads())
    if (const i64 row = read_element(rows, k); row >= 0 && row < n)
      __scoped_atomic_fetch_max(last + row, u32(k) + 1, __ATOMIC_RELAXED, __MEMORY_SCOPE_DEVICE);
}
/// N elements at a time.
template <int N, class R, class X, class T>
SDX_FN void scatter_store(R rows, const u32* last, X updates, T* y, i64 m, i64 n, i64 inner) {
  const i64 packs = inner / N;
  for (i64 p = first_thread(); p < m * packs; p += all_threads()) {
    i64 k = p;
    const i64 e = take_digit(k, packs) * N, row = read_element(rows, k);
    if (row >= 0 && row < n && last[row] == u32(k) + 1)
      store_pack<N>(y + row * inner + e, read_pack<N>(updates, k * inner + e));
  }
}
/// Rows and updates: pointers, or Computed.
template <class R, class X, class T>
SDX_FN void routine_scatter_store(R rows, const u32* last, X updates, T* y, i64 m, i64 n, i64 inner) {
  constexpr int V = 16 / sizeof(T);
  if (inner % V == 0 && has_packs<V>(updates) && aligned(y))
    scatter_store<V>(rows, last, updates, y, m, n, inner);
  else
    scatter_store<1>(rows, last, updates, y, m, n, inner);
}

/// Appends rows from starts[b] on to a cache [batch, heads, capacity, size]. If `past` is different memory, [batch,
/// heads, past_rows, size], the other rows are copied from there, followed by zeros. N elements at a time.
template <int N, class T>
SDX_FN void append_rows(const i64* starts, const T* x, const T* past, T* y, i64 batch, i64 heads, i64 capacity,
                        i64 size, i64 fresh, i64 past_rows, i64 stride, i64 offset) {
  const i64 packs = size / N;
  for (i64 p = first_thread(); p < batch * fresh * heads * packs; p += all_threads()) {
    i64 q = p;
    const i64 e = take_digit(q, packs) * N, h = take_digit(q, heads), token = q, next = take_digit(q, fresh), b = q;
    const i64 row = starts[b] + next;
    if (row >= 0 && row < capacity)
      store_pack<N>(y + ((b * heads + h) * capacity + row) * size + e,
                    load_pack<N>(x + token * stride + offset + h * size + e));
  }
  if (past == y) return;
  for (i64 p = first_thread(); p < batch * heads * capacity * packs; p += all_threads()) {
    i64 q = p;
    const i64 e = take_digit(q, packs) * N, row = take_digit(q, capacity), head = q;
    take_digit(q, heads);
    const i64 start = starts[q];
    if (row >= start && row < start + fresh) continue;
    Pack<T, N> v{};
    if (row < past_rows) v = load_pack<N>(past + (head * past_rows + row) * size + e);
    store_pack<N>(y + (head * capacity + row) * size + e, v);
  }
}

template <class T>
SDX_FN void routine_append(const i64* starts, const T* x, const T* past, T* y, i64 batch, i64 heads, i64 capacity,
                           i64 size, i64 fresh, i64 past_rows, i64 stride, i64 offset) {
  constexpr int V = 16 / sizeof(T);
  if (size % V == 0 && stride % V == 0 && offset % V == 0 && aligned(x) && aligned(past) && aligned(y))
    append_rows<V>(starts, x, past, y, batch, heads, capacity, size, fresh, past_rows, stride, offset);
  else
    append_rows<1>(starts, x, past, y, batch, heads, capacity, size, fresh, past_rows, stride, offset);
}

/// Replaces rows of `size` elements of a cache by new ones, whose elements begin at n * stride + offset; see
/// routines/scatter.cpp. Slots are distinct. N elements at a time.
template <int N, class T>
SDX_FN void store_rows(const i64* slots, const T* x, T* y, i64 fresh, i64 size, i64 rows, i64 stride, i64 offset) {
  const i64 packs = size / N;
  for (i64 p = first_thread(); p < fresh * packs; p += all_threads()) {
    i64 n = p;
    const i64 e = take_digit(n, packs) * N, slot = slots[n];
    if (slot >= 0 && slot < rows) store_pack<N>(y + slot * size + e, load_pack<N>(x + n * stride + offset + e));
  }
}

/// Copies the other rows, if `past` is different memory. That is the rare case: each row is looked for among the slots,
/// so that one launch suffices.
template <class T>
SDX_FN void copy_other_rows(const i64* slots, const T* past, T* y, i64 fresh, i64 size, i64 rows) {
  if (past == y) return;
  for (i64 row = block_id(); row < rows; row += all_threads() / kThreads) {
    bool other = true;
    for (i64 n = 0; n < fresh; ++n) other = other && slots[n] != row;
    if (other)
      for (i64 e = thread_id(); e < size; e += kThreads) y[row * size + e] = past[row * size + e];
  }
}

template <class T>
SDX_FN void routine_append_rows(const i64* slots, const T* x, const T* past, T* y, i64 fresh, i64 size, i64 rows,
                                i64 stride, i64 offset) {
  constexpr int V = 16 / sizeof(T);
  copy_other_rows(slots, past, y, fresh, size, rows);
  if (size % V == 0 && stride % V == 0 && offset % V == 0 && aligned(x) && aligned(y))
    store_rows<V>(slots, x, y, fresh, size, rows, stride, offset);
  else
    store_rows<1>(slots, x, y, fresh, size, rows, stride, offset);
}

inline constexpr i64 kMostOwners = layout::kMostOwners;
static SDX_SHARED i64 owner_next[kMostOwners];

/// In one workgroup: groups rows by owner in blocks, see routines/scatter.cpp. Each thread has some of the owners and
/// scans all rows.
SDX_FN void routine_group(const i64* owner, i64* position, i64* source, i64* owners, i64 n, i64 count, i64 rows,
                          i64 blocks) {
  for (i64 k = thread_id(); k < blocks * rows; k += kThreads) source[k] = -1;
  i64 front = 0, last = 0;
  for (i64 first = 0; first < count; first += kThreads) {
    const i64 e = first + thread_id();
    i64 own = 0, total;
    if (e < count)
      for (i64 k = 0; k < n; ++k) own += owner[k] == e;
    own = (own + rows - 1) / rows;
    const i64 begin = front + scan_counts(own, total);
    front += total;
    if (e < count) owner_next[e] = begin * rows;
    for (i64 k = begin; k < min(begin + own, blocks); ++k) owners[k] = e;
    last = max(last, reduce_team(own > 0 ? e : i64(0), kThreads, [](i64 a, i64 b) { return max(a, b); }));
  }
  for (i64 k = front + thread_id(); k < blocks; k += kThreads) owners[k] = last;
  barrier();
  for (i64 e = thread_id(); e < count; e += kThreads) {
    i64 at = owner_next[e];
    for (i64 k = 0; k < n; ++k) {
      if (owner[k] != e) continue;
      position[k] = at;
      if (at < blocks * rows) source[at] = k;
      ++at;
    }
  }
}

template <int Reduction, class T>
SDX_FN T scatter_combine(T a, T b) {
  if constexpr (is_same<T, f64> || is_same<T, f32> || is_small_float<T>) {
    using C = select_type<is_same<T, f64>, f64, f32>;
    const C x = cast<C>(a), y = cast<C>(b);
    if constexpr (Reduction == 1) return cast<T>(x + y);
    if constexpr (Reduction == 2) return cast<T>(x * y);
    if constexpr (Reduction == 3) return x != x || (!(y != y) && !(y < x)) ? a : b;
    return x != x || (!(y != y) && !(x < y)) ? a : b;
  } else {
    if constexpr (Reduction == 1) return T(a + b);
    if constexpr (Reduction == 2) return T(u64(a) * u64(b));
    if constexpr (Reduction == 3) return b < a ? b : a;
    return a < b ? b : a;
  }
}

/// Elements that one instruction adds to memory, or 0. Other updates are compare-and-swap.
template <class T>
inline constexpr u32 kAddedAtOnce =
#if defined(__CUDA_ARCH_FEAT_SM90_ALL)
    is_same<T, f32> || is_same<T, f16> || is_same<T, bf16> ? 16 / sizeof(T) :
#endif
                                                           sizeof(T) >= 4;

#if defined(__CUDA_ARCH_FEAT_SM90_ALL)
template <class T>
SDX_FN void atomic_add_16_bytes(T* to, const void* from) {
  const auto p = (__attribute__((address_space(1))) T*)to;
  u32 w[4];
  __builtin_memcpy(w, from, 16);
#define SDX_ADD(Type)                                                        \
  asm volatile("red.relaxed.gpu.global.add." Type " [%0], {%1, %2, %3, %4};" \
               :                                                             \
               : "l"(p), "r"(w[0]), "r"(w[1]), "r"(w[2]), "r"(w[3])          \
               : "memory")
  if constexpr (is_same<T, f16>)
    SDX_ADD("noftz.v4.f16x2");
  else if constexpr (is_same<T, bf16>)
    SDX_ADD("noftz.v4.bf16x2");
  else
    SDX_ADD("v4.f32");
#undef SDX_ADD
}
#endif

template <u32 N, class T>
SDX_FN void atomic_add(T* to, Pack<T, N> x) {
  if constexpr (N > 1) {
#if defined(__CUDA_ARCH_FEAT_SM90_ALL)
    atomic_add_16_bytes(to, &x);
#endif
  } else {
#if defined(__AMDGCN__) && !defined(SDX_NO_FLOAT_ATOMICS)
    // CDNA 2's instruction does not change memory that the host caches, where results may be.
    [[clang::atomic(no_remote_memory, no_fine_grained_memory, ignore_denormal_mode)]]
#endif
    {
      __scoped_atomic_fetch_add(to, from_bits<T>(x[0]), __ATOMIC_RELAXED, __MEMORY_SCOPE_DEVICE);
    }
  }
}

/// The N elements of a word (or one longer one) combined with those of x.
template <int Reduction, class T, u32 N>
SDX_FN void atomic_combine(T* to, Pack<T, N> x) {
  using W = select_type<sizeof(T) == 8, u64, u32>;
  const u64 in_word = u64(to) % sizeof(W);
  W* word = (W*)(u64(to) - in_word);
  const u32 first = u32(in_word) * 8;
  constexpr W mask = W(~W(0)) >> (8 * (sizeof(W) - sizeof(T)));
  W old = __scoped_atomic_load_n(word, __ATOMIC_RELAXED, __MEMORY_SCOPE_DEVICE), next;
  do {
    next = old;
#pragma clang loop unroll(full)
    for (u32 l = 0; l < N; ++l) {
      const u32 shift = N == 1 ? first : l * 8 * sizeof(T);
      const T before = bit_cast<T>(unsigned_of<T>(old >> shift & mask));
      const W bits = bit_cast<unsigned_of<T>>(scatter_combine<Reduction>(before, from_bits<T>(x[l])));
      next = (next & ~(mask << shift)) | bits << shift;
    }
  } while (!__scoped_atomic_compare_exchange_n(word, &old, next, false, __ATOMIC_RELAXED, __ATOMIC_RELAXED,
                                               __MEMORY_SCOPE_DEVICE));
}

/// y[row] combined with each update. Elements of less than 32 bits are updated through the word that contains them; N
/// at a time share it.
template <int Reduction, u32 N, class R, class X, class T>
SDX_FN void combine_packs(R rows, X updates, T* y, i64 m, i64 n, i64 inner) {
  const i64 packs = inner / N;
  for (i64 p = first_thread(); p < m * packs; p += all_threads()) {
    i64 k = p;
    const i64 e = take_digit(k, packs) * N, row = read_element(rows, k);
    if (row < 0 || row >= n) continue;
    const auto x = read_pack<N>(updates, k * inner + e);
    if constexpr (Reduction == 1 && (N == kAddedAtOnce<T> || (N == 1 && sizeof(T) >= 4)))
      atomic_add<N>(y + row * inner + e, x);
    else
      atomic_combine<Reduction, T, N>(y + row * inner + e, x);
  }
}
/// Rows and updates: pointers, or Computed.
template <int Reduction, class R, class X, class T>
SDX_FN void routine_scatter_combine(R rows, X updates, T* y, i64 m, i64 n, i64 inner) {
  constexpr u32 V = Reduction == 1 && kAddedAtOnce<T> > 0 ? kAddedAtOnce<T> : sizeof(T) < 4 ? 4 / sizeof(T) : 1;
  if (V > 1 && inner % V == 0 && has_packs<V>(updates) && aligned(y))
    combine_packs<Reduction, V>(rows, updates, y, m, n, inner);
  else
    combine_packs<Reduction, 1>(rows, updates, y, m, n, inner);
}

// NonZero in three launches: the number in each chunk, where each chunk's results begin, the results.
inline constexpr i64 kFlagsPerThread = layout::kFlagsPerThread, kFlagsPerBlock = kFlagsPerThread * kThreads;

SDX_FN void routine_count(const u8* flags, i64* counts, i64 n, i64 chunks) {
  for (i64 c = block_id(); c < chunks; c += block_count()) {
    i64 sum = 0;
    for (i64 k = c * kFlagsPerBlock + thread_id(); k < min(n, (c + 1) * kFlagsPerBlock); k += kThreads)
      sum += flags[k] != 0;
    sum = reduce_team(sum, kThreads, [](i64 a, i64 b) { return a + b; });
    if (thread_id() == 0) counts[c] = sum;
  }
}
/// In one workgroup: replaces each number by the sum of those before it; `sum` receives the sum of all.
SDX_FN void routine_offsets(i64* counts, i64* sum, i64 chunks) {
  i64 before = 0;
  for (i64 c = 0; c < chunks; c += kThreads) {
    const i64 k = c + thread_id();
    i64 total;
    const i64 front = scan_counts(k < chunks ? counts[k] : 0, total);
    if (k < chunks) counts[k] = before + front;
    before += total;
  }
  if (thread_id() == 0) *sum = before;
}
/// Each wave has neighbouring flags, its lanes those next to one another, so that stores are too.
SDX_FN void routine_positions(const u8* flags, const i64* offsets, i64* out, i64 n, i64 chunks) {
  constexpr u32 turns = kFlagsPerThread;
  const u32 lane = thread_id() % kWave, wave = thread_id() / kWave;
  for (i64 c = block_id(); c < chunks; c += block_count()) {
    const i64 first = c * kFlagsPerBlock + wave * (turns * kWave) + lane;
    u8 flag[turns];
#pragma clang loop unroll(full)
    for (u32 r = 0; r < turns; ++r) flag[r] = flags[min(first + r * kWave, n - 1)];
    loads_in_flight();
    u64 where[turns];
    i64 sum = 0, total;
#pragma clang loop unroll(full)
    for (u32 r = 0; r < turns; ++r) {
      where[r] = lanes_where(flag[r] != 0 && first + r * kWave < n);
      sum += __builtin_popcountll(where[r]);
    }
    i64 at = offsets[c] + from_lane(scan_counts(lane == 0 ? sum : 0, total), 0);
#pragma clang loop unroll(full)
    for (u32 r = 0; r < turns; ++r) {
      if (where[r] >> lane & 1) out[at + __builtin_popcountll(where[r] & ((u64(1) << lane) - 1))] = first + r * kWave;
      at += __builtin_popcountll(where[r]);
    }
  }
}

}  // namespace sdx
