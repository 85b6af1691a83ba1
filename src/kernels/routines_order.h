// Unique on GPUs.
#pragma once
#include "routines.h"

namespace sdx {

// Unique: sorts the positions of rows.
inline constexpr i64 kChunk = layout::kSortChunk;
static SDX_SHARED u32 shared_order[kChunk];

/// Whether row a of m elements comes before row b; equal rows keep the order of their positions.
template <class T>
SDX_FN i32 compare_rows(const T* x, i64 m, u32 a, u32 b) {
  for (i64 j = 0; j < m; ++j) {
    const auto p = ordered_bits(x[a * m + j]), q = ordered_bits(x[b * m + j]);
    if (p != q) return p < q ? -1 : 1;
  }
  return 0;
}
template <class T>
SDX_FN bool row_before(const T* x, i64 m, u32 a, u32 b) {
  const i32 c = compare_rows(x, m, a, b);
  return c < 0 || (c == 0 && a < b);
}

/// Sorts each block of kChunk positions of 0, 1, ... n - 1.
template <class T>
SDX_FN void routine_sort_chunks(const T* x, u32* order, i64 n, i64 m) {
  for (i64 c = i64(block_id()) * kChunk; c < n; c += i64(block_count()) * kChunk) {
    const i64 count = min(kChunk, n - c);
    barrier();
    for (i64 k = thread_id(); k < count; k += kThreads) shared_order[k] = u32(c + k);
    sort_workgroup<u32>((u32*)shared_order, count, [&](u32 a, u32 b) { return row_before(x, m, a, b); });
    for (i64 k = thread_id(); k < count; k += kThreads) order[c + k] = shared_order[k];
  }
}

/// Step `number` of the rest of the sort. For sizes 2 kChunk, 4 kChunk, ...: one launch per distance larger than
/// kChunk, then one for all smaller distances, in shared memory.
template <class T>
SDX_FN void routine_sort_merge(const T* x, u32* order, i64 n, i64 m, i64 number) {
  i64 size = 2 * kChunk, steps = 1;  // steps of this size outside of shared memory
  while (number > steps) {
    number -= steps + 1;
    size *= 2;
    ++steps;
  }
  if (number < steps) {
    const i64 distance = number == 0 ? 0 : size >> (number + 1);
    i64 pairs = 1;
    while (2 * pairs < n) pairs *= 2;
    for (i64 k = first_thread(); k < pairs; k += all_threads())
      sort_step<i64>(
          k, size, distance, n, [&](i64 a, i64 b) { return row_before(x, m, order[a], order[b]); },
          [&](i64 a, i64 b) {
            const u32 e = order[a];
            order[a] = order[b];
            order[b] = e;
          });
    return;
  }
  auto* shared = (u32*)shared_order;
  for (i64 c = i64(block_id()) * kChunk; c < n; c += i64(block_count()) * kChunk) {
    const i64 count = min(kChunk, n - c);
    barrier();
    for (i64 k = thread_id(); k < count; k += kThreads) shared[k] = order[c + k];
    for (i64 d = kChunk / 2; d >= 1; d /= 2) {
      barrier();
      for (i64 k = thread_id(); k < kChunk / 2; k += kThreads)
        sort_step<i64>(
            k, kChunk, d, count, [&](i64 a, i64 b) { return row_before(x, m, shared[a], shared[b]); },
            [&](i64 a, i64 b) {
              const u32 e = shared[a];
              shared[a] = u32(shared[b]);
              shared[b] = e;
            });
    }
    barrier();
    for (i64 k = thread_id(); k < count; k += kThreads) order[c + k] = shared[k];
  }
}

/// In one workgroup: numbers the distinct rows in sorted order. `number`: memory for 2 n + 1 numbers.
template <bool Sorted, class T>
SDX_FN void routine_kinds(const T* x, const u32* order, i64* first, i64* inverse, i64* counts, i64* count, i64* number,
                          i64 n, i64 m) {
  i64 kinds = 0;
  for (i64 c = 0; c < n; c += kThreads) {
    const i64 k = c + thread_id();
    const bool head = k < n && (k == 0 || compare_rows(x, m, order[k - 1], order[k]) != 0);
    i64 total;
    const i64 kind = kinds + scan_counts(head, total) + head - 1;
    kinds += total;
    if (k < n) inverse[order[k]] = kind;
    if (head) {
      first[kind] = order[k];
      counts[kind] = k;  // for now, where this value begins
    }
  }
  if (thread_id() == 0) *count = kinds;
  barrier();
  // Counts are the differences of where values begin.
  for (i64 c = 0; c < kinds; c += kThreads) {
    const i64 k = c + thread_id();
    const i64 size = k < kinds ? (k + 1 < kinds ? counts[k + 1] : n) - counts[k] : 0;
    barrier();
    if (k < kinds) counts[k] = size;
    barrier();
  }
  if constexpr (!Sorted) {
    // Renumbers by first appearance: counts, for each first row of its value, how many such rows precede it.
    i64 seen = 0;
    for (i64 c = 0; c < n; c += kThreads) {
      const i64 r = c + thread_id();
      const bool head = r < n && first[inverse[r]] == r;
      i64 total;
      const i64 rank = seen + scan_counts(head, total);
      seen += total;
      if (head) number[inverse[r]] = rank;
    }
    barrier();
    for (i64 r = thread_id(); r < n; r += kThreads) inverse[r] = number[inverse[r]];
    // Permutes `first` and `counts` to the new order through the rest of `number`.
    for (i32 which = 0; which < 2; ++which) {
      i64* list = which == 0 ? first : counts;
      barrier();
      for (i64 k = thread_id(); k < kinds; k += kThreads) number[n + 1 + number[k]] = list[k];
      barrier();
      for (i64 k = thread_id(); k < kinds; k += kThreads) list[k] = number[n + 1 + k];
    }
  }
}

}  // namespace sdx
