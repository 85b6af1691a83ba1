// Attention: the kernels' entry points. See attention_kernel.h.
#pragma once
#include "attention_direct.h"
#if defined(__AMDGCN__)
#include "attention_short.h"
#endif
#if defined(__NVPTX__)
#include "attention_short_mma.h"
#endif
#if defined(__CUDA_ARCH_FEAT_SM90_ALL)
#include "attention_wgmma.h"
#endif

namespace sdx {

/// Launch: batch * units * tiles * splits workgroups, or any number from kMostBlocks (gpu.h) on.
template <class P, int kForm>
SDX_FN void attention(const P& p, const AttentionSizes& n, u32 batches) {
  using Kernel = AttentionOf<P, kForm>;
  static SDX_SHARED vec16 shared[Kernel::kShared];
  u32 thread = thread_id();
  const u32 wave = uniform(thread / kWave);
  const u32 units = n.heads / n.heads_per_unit, rows = n.heads_per_unit * n.queries,
            tiles = (rows + Kernel::C::kRows - 1) / Kernel::C::kRows, count = batches * units * tiles * n.splits;
  for (u32 item = block_id(); item < count; item += late_block_count()) {
    u32 rest = item, tile, split, unit, batch;
    split = rest % n.splits, rest /= n.splits;
    if constexpr (P::kBounds != 0) {  // with causal masks the last rows have the most keys: start them first
      tile = tiles - 1 - rest / (batches * units), rest %= batches * units;
      unit = rest % units, batch = rest / units;
    } else {
      tile = rest % tiles, rest /= tiles;
      unit = rest % units, batch = rest / units;
    }
    if constexpr (Kernel::kToLds) hide(thread);  // keeps addresses of lanes out of registers outside of this loop
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
    if (!has_more(count)) break;
  }
}

/// Merges the partial results of all splits. rows: batch * heads * queries.
template <class P>
SDX_FN void attention_merge(const P& p, const AttentionSizes& n, i64 rows) {
  constexpr u32 kDv = (P::kValueDim + 15) / 16 * 16;
  for (i64 row = block_id(); row < rows; row += late_block_count()) {
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
      p.out(b, h, s)[d * p.out_step()] = p.result(b, h, s, d, sum * scale);
    }
    if (!has_more(u64(rows))) break;
  }
}

}  // namespace sdx
