// Splitting a range over threads.
#pragma once
#include <omp.h>

#include <algorithm>
#include <cstdint>

namespace sardonyx {

/// Calls f(begin, end) for a partition of [0, n) into pieces of at least `grain`, on up to `threads` threads of the OpenMP pool that the gemm
/// library uses as well. Runs in the caller when one piece is enough. f must not throw.
template <typename F>
void parallel_for(std::int64_t n, std::int64_t grain, int threads, F&& f) {
  const std::int64_t pieces = std::min<std::int64_t>((n + grain - 1) / grain, static_cast<std::int64_t>(threads) * 4);
  if (pieces <= 1 || threads <= 1) {
    f(std::int64_t{0}, n);
    return;
  }
  const int team = static_cast<int>(std::min<std::int64_t>(pieces, threads));
#pragma omp parallel for schedule(dynamic, 1) num_threads(team)
  for (std::int64_t k = 0; k < pieces; ++k) f(n * k / pieces, n * (k + 1) / pieces);
}

}  // namespace sardonyx
