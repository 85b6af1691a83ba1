#include "program/memory_plan.h"

#include <algorithm>
#include <cstdint>
#include <numeric>

namespace sardonyx {

std::size_t plan_memory(const std::vector<Lifetime>& lives, std::vector<std::size_t>& offsets, std::size_t alignment) {
  auto rounded = [&](std::size_t n) { return (n + alignment - 1) / alignment * alignment; };
  offsets.assign(lives.size(), 0);
  std::vector<std::size_t> by_size(lives.size());
  std::iota(by_size.begin(), by_size.end(), std::size_t{0});
  std::stable_sort(by_size.begin(), by_size.end(),
                   [&](std::size_t a, std::size_t b) { return lives[a].bytes > lives[b].bytes; });
  std::vector<std::size_t> placed;  // sorted by offset
  std::size_t total = 0;
  for (std::size_t k : by_size) {
    const std::size_t need = rounded(lives[k].bytes);
    std::size_t at = 0, best = SIZE_MAX, best_gap = SIZE_MAX;
    for (std::size_t j : placed) {
      if (lives[j].last < lives[k].first || lives[k].last < lives[j].first) continue;
      if (offsets[j] > at && offsets[j] - at >= need && offsets[j] - at < best_gap) {
        best = at;
        best_gap = offsets[j] - at;
      }
      at = std::max(at, offsets[j] + rounded(lives[j].bytes));
    }
    offsets[k] = best == SIZE_MAX ? at : best;
    total = std::max(total, offsets[k] + need);
    placed.insert(std::upper_bound(placed.begin(), placed.end(), k,
                                   [&](std::size_t a, std::size_t b) { return offsets[a] < offsets[b]; }),
                  k);
  }
  return total;
}

}  // namespace sardonyx
