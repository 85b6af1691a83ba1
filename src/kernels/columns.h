// Reductions by teams of threads that divide a column, and have several neighbouring columns each.
#pragma once
#include "gpu.h"

namespace sdx {

template <class T, int V>
static SDX_SHARED T column_scratch[kThreads * V];

#if defined(__AMDGCN__)
/// Combines N pairs of values with the lane whose number differs in bit h, and so on: each lane keeps half of the
/// values, so that V values take V exchanges instead of V for each bit. Leaves `left` values, from number `first` on;
/// returns the first bit that is left.
template <int N, class T, int V, class F>
SDX_FN u32 halve_columns(T (&x)[V], u32 h, u32& first, u32& left, F combine) {
  if constexpr (N >= 1)
    if (h < kWave) {
      const bool high = (thread_id() & h) != 0;
#pragma clang loop unroll(full)
      for (int l = 0; l < N; ++l) {
        const T sent = high ? x[l] : x[l + N], kept = high ? x[l + N] : x[l];
        x[l] = combine(kept, from_lane_xor(sent, h));
      }
      first += high ? u32(N) : 0u;
      left = u32(N);
      return halve_columns<N / 2>(x, h * 2, first, left, combine);
    }
  return h;
}
#endif

/// The same as reduce_team() for teams whose threads are kThreads / team apart, with V values each.
template <class T, int V, class F>
SDX_FN void reduce_columns(T (&x)[V], u32 team, F combine) {
  const u32 width = kThreads / team, in_wave = width < kWave ? width : kWave;
  const u32 id = thread_id(), waves = kThreads / kWave, rows = team < waves ? team : waves;
#if defined(__AMDGCN__)
  u32 first = 0, left = V, h = halve_columns<V / 2>(x, width, first, left, combine);
  const u32 distinct = h < kWave ? h : kWave;
  for (; h < kWave; h *= 2)
#pragma clang loop unroll(full)
    for (int l = 0; l < V; ++l)
      if (u32(l) < left) x[l] = combine(x[l], from_lane_xor(x[l], h));
  if (id % kWave < distinct)
#pragma clang loop unroll(full)
    for (int l = 0; l < V; ++l)
      if (u32(l) < left) column_scratch<T, V>[(id / kWave * in_wave + id % in_wave) * V + first + l] = x[l];
#else
  for (u32 h = width; h < kWave; h *= 2)
#pragma clang loop unroll(full)
    for (int l = 0; l < V; ++l) x[l] = combine(x[l], from_lane_xor(x[l], h));
  if (id % kWave < in_wave)
#pragma clang loop unroll(full)
    for (int l = 0; l < V; ++l) column_scratch<T, V>[(id / kWave * in_wave + id % kWave) * V + l] = x[l];
#endif
  barrier();
#pragma clang loop unroll(full)
  for (int l = 0; l < V; ++l) x[l] = column_scratch<T, V>[id % width * V + l];
  for (u32 k = 1; k < rows; ++k)
#pragma clang loop unroll(full)
    for (int l = 0; l < V; ++l) x[l] = combine(x[l], T(column_scratch<T, V>[(id % width + k * width) * V + l]));
  barrier();
}

}  // namespace sdx
