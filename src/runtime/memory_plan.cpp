#include "runtime/memory_plan.h"

#include <algorithm>
#include <cstdint>
#include <map>
#include <numeric>
#include <random>

namespace sardonyx {

namespace {

constexpr std::size_t kMostWork = 1000000;  // pairs of buffers that a plan compares, about: a few milliseconds

// Places each buffer, in this order, in the smallest gap between already placed ones that are alive at the same time.
std::size_t place(const std::vector<Lifetime>& lives, const std::vector<std::size_t>& order,
                  std::vector<std::size_t>& offsets, std::size_t alignment) {
  auto rounded = [&](std::size_t n) { return (n + alignment - 1) / alignment * alignment; };
  offsets.assign(lives.size(), 0);
  std::vector<std::size_t> placed;  // sorted by offset
  std::size_t total = 0;
  for (std::size_t k : order) {
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

}  // namespace

std::size_t plan_memory(const std::vector<Lifetime>& lives, std::vector<std::size_t>& offsets, std::size_t alignment) {
  const auto sorted = [&](auto&& key) {
    std::vector<std::size_t> order(lives.size());
    std::iota(order.begin(), order.end(), std::size_t{0});
    std::stable_sort(order.begin(), order.end(), [&](std::size_t a, std::size_t b) { return key(a) > key(b); });
    return order;
  };
  const auto steps = [&](std::size_t k) {
    return static_cast<double>(std::min(lives[k].last, 1 << 30)) - static_cast<double>(lives[k].first) + 1;
  };
  std::vector<std::size_t> best = sorted([&](std::size_t k) { return lives[k].bytes; });
  std::size_t total = place(lives, best, offsets, alignment);
  const std::size_t least = most_alive(lives);
  const auto attempt = [&](const std::vector<std::size_t>& order) {
    if (total <= least + least / 50) return;
    std::vector<std::size_t> other;
    const std::size_t t = place(lives, order, other, alignment);
    if (t >= total) return;
    total = t;
    offsets = std::move(other);
    best = order;
  };
  attempt(sorted([&](std::size_t k) { return static_cast<double>(lives[k].bytes) * steps(k); }));
  attempt(sorted([&](std::size_t k) { return steps(k); }));
  attempt(sorted([&](std::size_t k) { return -lives[k].first; }));
  // Then repeatedly move the buffer that ends highest to the front.
  std::vector<std::size_t> order = sorted([&](std::size_t k) { return lives[k].bytes; }), at = offsets;
  const std::size_t n = std::max<std::size_t>(lives.size(), 1);
  for (std::size_t tries = std::min<std::size_t>(32, kMostWork / (n * n)); tries > 0; --tries) {
    if (total <= least + least / 50) break;
    const auto highest = std::max_element(order.begin(), order.end(), [&](std::size_t a, std::size_t b) {
      return at[a] + lives[a].bytes < at[b] + lives[b].bytes;
    });
    std::rotate(order.begin(), highest, highest + 1);
    const std::size_t t = place(lives, order, at, alignment);
    if (t >= total) continue;
    total = t;
    offsets = at;
    best = order;
  }
  // If much is still wasted, improve the best order by random moves of one buffer, every other time of one that ends
  // beyond the wished size. A move is kept unless more bytes lie beyond that size. (Comparing only the arena's size
  // would not work: deep networks waste memory in each layer, and the arena shrinks only when the last of them is
  // improved.)
  const std::size_t wished = least + least / 20;
  const auto beyond = [&](const std::vector<std::size_t>& offset) {
    std::size_t sum = 0;
    for (std::size_t k = 0; k < lives.size(); ++k)
      sum += offset[k] + lives[k].bytes - std::min(offset[k] + lives[k].bytes, wished);
    return sum;
  };
  std::minstd_rand random;  // NOLINT: seeded alike, so that plans are reproducible
  std::size_t excess = beyond(offsets);
  std::vector<std::size_t> current = offsets;
  for (std::size_t tries = std::min<std::size_t>(1000, 8 * kMostWork / (n * n)); tries > 0; --tries) {
    if (total <= least + least / 10) break;
    order = best;
    std::vector<std::size_t> high;
    for (std::size_t k = 0; k < n; ++k)
      if (current[order[k]] + lives[order[k]].bytes > wished) high.push_back(k);
    if (high.empty()) break;  // only alignment is wasted
    const auto from = static_cast<std::ptrdiff_t>(tries % 2 == 0 ? random() % n : high[random() % high.size()]);
    const auto to = static_cast<std::ptrdiff_t>(random() % n);
    if (from < to)
      std::rotate(order.begin() + from, order.begin() + from + 1, order.begin() + to + 1);
    else
      std::rotate(order.begin() + to, order.begin() + from, order.begin() + from + 1);
    const std::size_t t = place(lives, order, at, alignment);
    const std::size_t e = beyond(at);
    if (e > excess) continue;
    excess = e;
    best = order;
    current = at;
    if (t >= total) continue;
    total = t;
    offsets = at;
  }
  return total;
}

std::size_t most_alive(const std::vector<Lifetime>& lives) {
  std::map<int, std::int64_t> change;  // bytes, by step
  for (const Lifetime& l : lives) {
    change[l.first] += static_cast<std::int64_t>(l.bytes);
    if (l.last < INT32_MAX) change[std::max(l.first, l.last) + 1] -= static_cast<std::int64_t>(l.bytes);
  }
  std::int64_t now = 0, most = 0;
  for (const auto& [step, bytes] : change) most = std::max(most, now += bytes);
  return static_cast<std::size_t>(most);
}

}  // namespace sardonyx
