// TopK of few long rows on GPUs, of which most elements are wanted: an element's place is the number of elements before
// it. That takes n * n comparisons, which all workgroups share; sorting a row would occupy one. Of the keys see
// routines_topk.h.
#pragma once
#include "routines_topk_wave.h"

namespace sdx {

static SDX_SHARED u32 topk_places[layout::kRankedItems];

/// Each workgroup finds the places of kRankedItems neighbouring elements of a row, whose keys all threads have in
/// registers.
template <bool Largest, class T>
SDX_FN void routine_topk_ranks(const T* x, T* values, i64* indices, i64 rows, i64 n, i64 inner, i64 k) {
  constexpr u32 kItems = layout::kRankedItems;
  using U = decltype(topk_key<Largest>(T{}));
  const i64 groups = (n + kItems - 1) / kItems;
  for (i64 q = block_id(); q < rows * groups; q += block_count()) {
    const i64 r = q / groups;
    const u32 first = u32(q % groups) * kItems, count = u32(n);
    const T* row = topk_row(x, r, n, inner);
    U own[kItems];
    u32 before[kItems] = {};
#pragma clang loop unroll(full)
    for (u32 e = 0; e < kItems; ++e) own[e] = topk_key<Largest>(row[min(first + e, count - 1) * inner]);
    if (thread_id() < kItems) topk_places[thread_id()] = 0;
    for (u32 j = thread_id(); j < count; j += kThreads) {
      const U key = topk_key<Largest>(row[j * inner]);
#pragma clang loop unroll(full)
      for (u32 e = 0; e < kItems; ++e) before[e] += j < first + e ? key <= own[e] : key < own[e];
    }
    barrier();
#pragma clang loop unroll(full)
    for (u32 e = 0; e < kItems; ++e) {
      const u32 of_wave = reduce_lanes(before[e], kWave, [](u32 a, u32 b) { return a + b; });
      if (thread_id() % kWave == 0)
        __scoped_atomic_fetch_add((u32*)topk_places + e, of_wave, __ATOMIC_RELAXED, __MEMORY_SCOPE_WRKGRP);
    }
    barrier();
    if (const u32 e = thread_id(); e < kItems && first + e < count && topk_places[e] < k) {
      const i64 to = r / inner * k * inner + r % inner + topk_places[e] * inner;
      values[to] = row[(first + e) * inner];
      indices[to] = first + e;
    }
    barrier();
  }
}

}  // namespace sdx
