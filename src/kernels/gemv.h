// GEMM of few rows (matrix-vector): waves instead of workgroups compute columns, and the lanes of a wave divide K.
#pragma once
#include "gemm_split_k.h"

namespace sdx {

/// Each wave computes Columns columns of up to Rows rows; its lanes divide K. With Waves > 1, so many waves of a
/// workgroup divide it too. Launch: ceil(m / Rows) * ceil(n / (Columns * 256 / kWave / Waves)) * batches workgroups.
template <int Rows, int Columns, int Waves, class P>
SDX_FN void gemv(const P& p) {
  using namespace gemm_detail;
  using T = typename P::T;
  using M = Matrix<T>;
  using Acc = typename M::Acc;
  constexpr u32 V = M::kVec, kWaves = kThreads / kWave, kGroups = kWaves / Waves, kColumns = Columns * kGroups;
  static_assert(P::kAccessA != Access::kAcross && P::kAccessB != Access::kAcross && (!P::kPairs || Columns % 2 == 0));
  const u32 wave = uniform(thread_id() / kWave), lane = thread_id() % kWave;
  const u32 group = wave / Waves, share = wave % Waves;
  const u32 tiles_n = (p.n + kColumns - 1) / kColumns, tiles_m = (p.m + Rows - 1) / Rows;
  const u32 id = block_id(), z = id / (tiles_m * tiles_n), rest = id % (tiles_m * tiles_n);
  const u32 row = rest / tiles_n * Rows, col = (rest % tiles_n * kGroups + group) * Columns;

  auto fetch = [&](bool is_a, u32 at, u32 extent, u32 k) {
    vec16 x = {};
    if (is_a ? P::kAccessA == Access::kVector : P::kAccessB == Access::kVector) {
      bool inside = at < extent && k < p.k;
      const u32 r = at < extent ? at : extent - 1, c = k < p.k ? k : 0;
      const T* from = nullptr;
      if constexpr (P::kAccessA == Access::kVector)
        if (is_a) from = p.a(z, r, c, inside);
      if constexpr (P::kAccessB == Access::kVector)
        if (!is_a) from = p.b(z, r, c, inside);
      const vec16 y = load16(from);
      x = inside ? y : vec16{};
    } else if (at < extent && k < p.k) {
      T e[V] = {};
      if constexpr (P::kAccessA == Access::kElements)
        if (is_a) p.a_elements(z, at, k, e);
      if constexpr (P::kAccessB == Access::kElements)
        if (!is_a) p.b_elements(z, at, k, e);
      __builtin_memcpy(&x, e, 16);
    }
    return x;
  };
  Acc acc[Rows][Columns] = {};
  constexpr u32 kStride = V * kWave * Waves;
  constexpr int kAhead = Columns * Rows <= 4 ? 4 / Columns : 1;  // vectors in flight
  for (u32 k = (share * kWave + lane) * V; k < p.k; k += kStride * kAhead) {
    vec16 y[kAhead][Columns], x[kAhead][Rows];
#pragma clang loop unroll(full)
    for (int h = 0; h < kAhead; ++h) {
#pragma clang loop unroll(full)
      for (int c = 0; c < Columns; ++c) y[h][c] = fetch(false, col + c, p.n, k + h * kStride);
#pragma clang loop unroll(full)
      for (int r = 0; r < Rows; ++r) x[h][r] = fetch(true, row + r, p.m, k + h * kStride);
    }
#pragma clang loop unroll(full)
    for (int h = 0; h < kAhead; ++h)
#pragma clang loop unroll(full)
      for (int c = 0; c < Columns; ++c)
#pragma clang loop unroll(full)
        for (int r = 0; r < Rows; ++r) {
          if constexpr (is_int<T>)
            acc[r][c] = detail::dot16_int<T>(x[h][r], y[h][c], acc[r][c]);
          else
            acc[r][c] = detail::dot16<T>(x[h][r], y[h][c], acc[r][c]);
        }
  }
#pragma clang loop unroll(full)
  for (int r = 0; r < Rows; ++r)
#pragma clang loop unroll(full)
    for (int c = 0; c < Columns; ++c)
#pragma clang loop unroll(full)
      for (u32 d = kWave / 2; d > 0; d /= 2) acc[r][c] += from_lane_xor(acc[r][c], d);
  if constexpr (Waves > 1) {
    static SDX_SHARED Acc parts[kWaves * Rows * Columns];
    if (lane == 0)
#pragma clang loop unroll(full)
      for (int r = 0; r < Rows; ++r)
#pragma clang loop unroll(full)
        for (int c = 0; c < Columns; ++c) parts[(wave * Rows + r) * Columns + c] = acc[r][c];
    lds_barrier();
#pragma clang loop unroll(full)
    for (int r = 0; r < Rows; ++r)
#pragma clang loop unroll(full)
      for (int c = 0; c < Columns; ++c) {
        Acc all = 0;
#pragma clang loop unroll(full)
        for (int w = 0; w < Waves; ++w) all += parts[((group * Waves + w) * Rows + r) * Columns + c];
        acc[r][c] = all;
      }
  }
  // Lane i stores result i.
  if (share != 0) return;
  constexpr int kEach = P::kPairs ? 2 : 1;
#pragma clang loop unroll(full)
  for (int r = 0; r < Rows; ++r)
#pragma clang loop unroll(full)
    for (int c = 0; c < Columns; c += kEach)
      if (lane == u32(r * Columns + c) && row + r < p.m && col + c < p.n)
        store_columns<kEach>(p, z, row + r, col + c, &acc[r][c]);
}

}  // namespace sdx
