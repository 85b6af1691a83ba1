// Attention of one new token per sequence, fused with its surroundings in a decoder step: it computes queries and the
// new key from memory (rotary embedding), appends the new key and value to the KV cache, and attends. Each workgroup
// has one group of heads that share keys (grouped-query attention) and a range of these keys. Workgroups never read the
// appended row back: each one whose range contains it recomputes it.
//
// A workgroup has few keys, so memory latency dominates: lanes issue all 16-byte loads of a round of keys and values
// before they use any, and multiply without matrix instructions. kLanes lanes (a team) work on a key. Each team has a
// running softmax of its own. They are merged at the end: teams of a wave by lane exchange, waves through LDS, and on
// chips with clusters kCluster workgroups through the LDS of their first.
//
// P has score or factor, begin, end, sink, out and the related constants as for attention.h, and
//   kDim, kGroup                 elements of a head; heads that share keys
//   query(b, h, d), new_key(b, kv_head, d), new_value(b, kv_head, d)   elements
//   past_key(), past_value()     [batch, kv_heads, past_rows, kDim], the cache before the step
//   key(), value()               [batch, kv_heads, capacity, kDim], the cache after it; may be the same memory
//   start(b)                     the row of the new token
#pragma once
#include "attention_tiles.h"

namespace sdx {

#if defined(__CUDA_ARCH_FEAT_SM90_ALL)
inline constexpr u32 kStepCluster = layout::kStepCluster;
#else
inline constexpr u32 kStepCluster = 1;
#endif

struct AttentionStepSizes {
  u32 keys, heads, splits;  ///< splits of the keys among clusters; if more than one, results go to `partial`
  i64 capacity, past_rows;  ///< rows of the cache after and before the step
  f32* partial;             ///< in the layout that attention_merge() reads
};

#if defined(__CUDA_ARCH_FEAT_SM90_ALL)
namespace detail {
SDX_FN void cluster_arrive() { asm volatile("barrier.cluster.arrive.release;" : : : "memory"); }
SDX_FN void cluster_wait() { asm volatile("barrier.cluster.wait.acquire;" : : : "memory"); }
/// Stores to the LDS of the cluster's first workgroup, at the same offset as `to` has in this one.
SDX_FN void store_in_first(shared_ptr<f32> to, f32 x) {
  u32 at;
  asm volatile("mapa.shared::cluster.u32 %0, %1, 0;" : "=r"(at) : "r"(to));
  asm volatile("st.shared::cluster.f32 [%0], %1;" : : "r"(at), "f"(x) : "memory");
}
}  // namespace detail
#endif

template <class P>
struct AttentionStep {
  using T = typename P::T;
  static constexpr u32 kVec = 16 / sizeof(T), kLanes = P::kDim / kVec, kTeams = kThreads / kLanes, kAhead = 4;
  static constexpr u32 kWaves = kThreads / kWave, kGroup = P::kGroup, kElements = kGroup * P::kDim;
  /// f32 values of a partial result: sums, then for each head the maximum score and the sum of exponentials.
  static constexpr u32 kPart = kElements + 2 * kGroup;
  static_assert(P::kDim % kVec == 0 && (kLanes & (kLanes - 1)) == 0 && kLanes <= kWave);
  struct Vector {
    T x[kVec];
  };

  const P& p;
  const AttentionStepSizes& n;

  /// Merges `count` partial results. Calls f(element, sum, maximum score, total) for each element of this thread.
  template <class F>
  static SDX_FN void combine(detail::shared_ptr<f32> parts, u32 count, F f) {
    for (u32 i = thread_id(); i < kElements; i += kThreads) {
      const u32 g = i / P::kDim;
      f32 top = -inf32();
      for (u32 w = 0; w < count; ++w) top = __builtin_fmaxf(top, parts[w * kPart + kElements + g]);
      const f32 base = top == -inf32() ? 0.0f : top;
      f32 sum = 0, total = 0;
      for (u32 w = 0; w < count; ++w) {
        const f32 scale = detail::fast_exp(parts[w * kPart + kElements + g] - base);
        sum += parts[w * kPart + i] * scale;
        total += parts[w * kPart + kElements + kGroup + g] * scale;
      }
      f(i, sum, top, total);
    }
  }

  /// Merges the results of a wave's teams into `mine`, in LDS.
  static SDX_FN void combine_teams(detail::shared_ptr<f32> mine, f32 (&acc)[kGroup][kVec], const f32 (&top)[kGroup],
                                   f32 (&total)[kGroup]) {
    const u32 thread = thread_id(), d0 = thread % kLanes * kVec;
#pragma clang loop unroll(full)
    for (u32 g = 0; g < kGroup; ++g) {
      f32 m = top[g];
#pragma clang loop unroll(full)
      for (u32 x = kLanes; x < kWave; x *= 2) m = __builtin_fmaxf(m, detail::attention_xor(m, x));
      const f32 scale = detail::fast_exp(top[g] - (m == -inf32() ? 0.0f : m));
      total[g] *= scale;
#pragma clang loop unroll(full)
      for (u32 x = kLanes; x < kWave; x *= 2) total[g] += detail::attention_xor(total[g], x);
#pragma clang loop unroll(full)
      for (u32 e = 0; e < kVec; ++e) {
        acc[g][e] *= scale;
#pragma clang loop unroll(full)
        for (u32 x = kLanes; x < kWave; x *= 2) acc[g][e] += detail::attention_xor(acc[g][e], x);
      }
      if (thread % kWave < kLanes) {
#pragma clang loop unroll(full)
        for (u32 e = 0; e < kVec; ++e) mine[g * P::kDim + d0 + e] = acc[g][e];
        if (d0 == 0) mine[kElements + g] = m, mine[kElements + kGroup + g] = total[g];
      }
    }
  }

  SDX_FN f32 score(i64 b, i64 h, i64 t, f32 x) const {
    if constexpr (P::kPlain != 0)
      return x * p.factor();
    else
      return p.score(b, h, 0, t, x);
  }

  SDX_FN void run(u32 batches) const {
    static SDX_SHARED f32 queries[kElements];
    static SDX_SHARED T fresh[2 * P::kDim];
    static SDX_SHARED f32 parts[kWaves * kPart];
    static SDX_SHARED f32 all[kStepCluster * kPart];
    const u32 kv_heads = n.heads / kGroup, ranges = n.splits * kStepCluster;
    const u32 unit = block_id() / ranges, range = block_id() % ranges;
    const i64 b = unit / kv_heads, head = unit % kv_heads, h0 = head * kGroup;
    const u32 thread = thread_id(), team = thread / kLanes, d0 = thread % kLanes * kVec;
#if defined(__CUDA_ARCH_FEAT_SM90_ALL)
    detail::cluster_arrive();
#endif
    // The range of keys of this workgroup.
    const i64 start = p.start(b);
    i64 low = 0, high = n.keys;
    if constexpr (P::kBounds != 0) {
      low = max(p.begin(b, h0, 0), i64(0));
      high = min(p.end(b, h0, 0), i64(n.keys));
    }
    const i64 own = high > low ? (high - low + ranges - 1) / ranges : 0, first = low + range * own,
              last = min(high, first + own);
    const T* const keys = p.past_key() + ((b * kv_heads + head) * n.past_rows) * P::kDim + d0;
    const T* const values = p.past_value() + ((b * kv_heads + head) * n.past_rows) * P::kDim + d0;
    vec16 key[kAhead], value[kAhead];
    const auto read = [&](i64 from) SDX_LAMBDA {
#pragma clang loop unroll(full)
      for (u32 u = 0; u < kAhead; ++u) {
        const i64 t = from + team + u * kTeams;
        const bool there = t < last && t < n.past_rows && t != start;
        key[u] = vec16{}, value[u] = vec16{};
        if (there) {
          key[u] = *(const vec16*)(keys + t * P::kDim);
          value[u] = *(const vec16*)(values + t * P::kDim);
        }
      }
    };
    read(first);
    // Queries, and the new row, which one workgroup appends.
    for (u32 i = thread; i < kElements; i += kThreads)
      queries[i] = cast<f32>(cast<T>(p.query(b, h0 + i / P::kDim, i % P::kDim)));
    const bool has_fresh = start >= first && start < last;
    if (has_fresh || (range == 0 && !(start >= low && start < high)))
      for (u32 i = thread; i < 2 * P::kDim; i += kThreads) {
        const bool is_value = i >= P::kDim;
        const u32 d = i % P::kDim;
        const T x = cast<T>(is_value ? p.new_value(b, head, d) : p.new_key(b, head, d));
        fresh[i] = x;
        if (start < n.capacity)
          (is_value ? p.value() : p.key())[((b * kv_heads + head) * n.capacity + start) * P::kDim + d] = x;
      }
    lds_barrier();
    f32 query[kGroup][kVec], acc[kGroup][kVec] = {}, top[kGroup], total[kGroup];
#pragma clang loop unroll(full)
    for (u32 g = 0; g < kGroup; ++g) {
      top[g] = -inf32(), total[g] = 0;
#pragma clang loop unroll(full)
      for (u32 e = 0; e < kVec; ++e) query[g][e] = queries[g * P::kDim + d0 + e];
    }
    for (i64 from = first; from < last; from += kAhead * kTeams) {
      if (from != first) read(from);
      f32 scores[kAhead][kGroup];
      Vector v[kAhead];
#pragma clang loop unroll(full)
      for (u32 u = 0; u < kAhead; ++u) {
        const i64 t = from + team + u * kTeams;
        Vector k = bit_cast<Vector>(key[u]);
        v[u] = bit_cast<Vector>(value[u]);
        if (has_fresh && t == start)
#pragma clang loop unroll(full)
          for (u32 e = 0; e < kVec; ++e) k.x[e] = fresh[d0 + e], v[u].x[e] = fresh[P::kDim + d0 + e];
#pragma clang loop unroll(full)
        for (u32 g = 0; g < kGroup; ++g) {
          f32 x = 0;
#pragma clang loop unroll(full)
          for (u32 e = 0; e < kVec; ++e) x = __builtin_fmaf(cast<f32>(k.x[e]), query[g][e], x);
#pragma clang loop unroll(full)
          for (u32 m = 1; m < kLanes; m *= 2) x += detail::attention_xor(x, m);
          scores[u][g] = t < last ? score(b, h0 + g, t, x) : -inf32();
        }
      }
#pragma clang loop unroll(full)
      for (u32 g = 0; g < kGroup; ++g) {
        f32 m = top[g];
#pragma clang loop unroll(full)
        for (u32 u = 0; u < kAhead; ++u) m = __builtin_fmaxf(m, scores[u][g]);
        const f32 base = m == -inf32() ? 0.0f : m, rescale = detail::fast_exp(top[g] - base);
        top[g] = m;
        total[g] *= rescale;
#pragma clang loop unroll(full)
        for (u32 e = 0; e < kVec; ++e) acc[g][e] *= rescale;
#pragma clang loop unroll(full)
        for (u32 u = 0; u < kAhead; ++u) {
          const f32 x = detail::fast_exp(scores[u][g] - base);
          total[g] += x;
#pragma clang loop unroll(full)
          for (u32 e = 0; e < kVec; ++e) acc[g][e] = __builtin_fmaf(x, cast<f32>(v[u].x[e]), acc[g][e]);
        }
      }
    }
    combine_teams((detail::shared_ptr<f32>)parts + thread / kWave * kPart, acc, top, total);
    lds_barrier();
    const auto finish = [&](u32 i, f32 sum, f32 top, f32 total) SDX_LAMBDA {
      const u32 g = i / P::kDim, d = i % P::kDim;
      if (n.splits > 1) {
        f32* const to =
            n.partial + ((b * n.heads + h0 + g) * n.splits + range / kStepCluster) * ((P::kDim + 15) / 16 * 16 + 2);
        to[d] = sum;
        if (d == 0) to[(P::kDim + 15) / 16 * 16] = top, to[(P::kDim + 15) / 16 * 16 + 1] = total;
      } else {
        p.out(b, h0 + g, 0)[d * p.out_step()] =
            p.result(b, h0 + g, 0, d, sum * attention_scale(p, b, h0 + g, top, total));
      }
    };
#if defined(__CUDA_ARCH_FEAT_SM90_ALL)
    const u32 rank = range % kStepCluster;
    detail::cluster_wait();  // all workgroups of the cluster have started, so their LDS exists
    combine((detail::shared_ptr<f32>)parts, kWaves, [&](u32 i, f32 sum, f32 top, f32 total) SDX_LAMBDA {
      const auto to = (detail::shared_ptr<f32>)all + rank * kPart;
      const u32 g = i / P::kDim;
      detail::store_in_first(to + i, sum);
      if (i % P::kDim == 0)
        detail::store_in_first(to + kElements + g, top), detail::store_in_first(to + kElements + kGroup + g, total);
    });
    detail::cluster_arrive();
    detail::cluster_wait();
    if (rank == 0) combine((detail::shared_ptr<f32>)all, kStepCluster, finish);
#else
    combine((detail::shared_ptr<f32>)parts, kWaves, finish);
#endif
    copy_rest(batches * kv_heads, kv_heads);
  }

  /// Copies the cache's other rows, if the cache before and after the step are different memory.
  SDX_FN void copy_rest(i64 heads, i64 kv_heads) const {
    for (int which = 0; which < 2; ++which) {
      const bool is_value = which == 1;
      const T* const from = is_value ? p.past_value() : p.past_key();
      T* const to = is_value ? p.value() : p.key();
      if (from == to) continue;
      for (i64 i = first_thread(); i < heads * n.capacity * kLanes; i += all_threads()) {
        const i64 row = i / kLanes % n.capacity, head = i / kLanes / n.capacity;
        if (row == p.start(head / kv_heads)) continue;
        vec16 x{};
        if (row < n.past_rows) x = *(const vec16*)(from + (head * n.past_rows + row) * P::kDim + i % kLanes * kVec);
        *(vec16*)(to + (head * n.capacity + row) * P::kDim + i % kLanes * kVec) = x;
      }
    }
  }
};

/// Launch: batches * heads / kGroup * splits * kStepCluster workgroups.
template <class P>
SDX_FN void attention_step(const P& p, const AttentionStepSizes& n, u32 batches) {
  AttentionStep<P>{p, n}.run(batches);
}

}  // namespace sdx
