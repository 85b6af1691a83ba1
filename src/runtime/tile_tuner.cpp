#include "runtime/tile_tuner.h"

#include <algorithm>
#include <chrono>

#include "support/error.h"

namespace sardonyx {
namespace {

constexpr double kTimed = 5e-4;  // seconds of launches between two waits: long beside what a wait costs
constexpr int kMaxLaunches = 200;

}  // namespace

double time_launch(Gpu& gpu, const GpuLaunch& launch, GpuStream stream) {
  using Clock = std::chrono::steady_clock;
  const auto seconds = [&](int launches) {
    const auto start = Clock::now();
    for (int k = 0; k < launches; ++k) gpu.launch(launch, stream);
    gpu.synchronize(stream);
    return std::chrono::duration<double>(Clock::now() - start).count();
  };
  gpu.synchronize(stream);
  seconds(1);  // brings code and data near
  const int few = std::clamp(static_cast<int>(kTimed / std::max(seconds(2) / 2, 1e-7)), 2, kMaxLaunches);
  // The difference is of launches alone. Of the times that nothing disturbed: a difference from a time that was would
  // be too small, and the smallest of several differences more so.
  double one = 1e9, two = 1e9;
  for (int k = 0; k < 3; ++k) {
    one = std::min(one, seconds(few));
    two = std::min(two, seconds(2 * few));
  }
  return std::max(two > one ? (two - one) / few : two / (2 * few), 1e-9);
}

std::vector<std::size_t> tilings_by_cost(const TileLaunchStep& step, const TileSizes& s, int units) {
  std::vector<std::size_t> left, order;
  for (std::size_t k = 0; k < step.tilings.size(); ++k)
    if (can_compute(step.tilings[k], s.batches, s.m, s.n)) left.push_back(k);
  while (!left.empty()) {
    std::vector<GpuTiling> tilings;
    for (const std::size_t k : left) tilings.push_back(step.tilings[k]);
    const auto at = static_cast<std::ptrdiff_t>(choose_tiling(tilings, s.batches, s.m, s.n, s.k, units));
    order.push_back(left[static_cast<std::size_t>(at)]);
    left.erase(left.begin() + at);
  }
  return order;
}

std::size_t chosen_tiling(const TileLaunchStep& t, const TileSizes& s, const std::vector<std::string>& names,
                          int units) {
  for (const TileLaunchStep::Tuned& x : t.tuned) {
    if (x.batches != s.batches || x.m != s.m || x.n != s.n || x.k != s.k) continue;
    if (x.library.empty()) return static_cast<std::size_t>(x.tiling);
    // Of a library that is not here, or of another version, there is no candidate of this name.
    const auto at = std::find(names.begin(), names.end(), x.library);
    if (at != names.end()) return static_cast<std::size_t>(at - names.begin());
  }
  return choose_tiling(t.tilings, s.batches, s.m, s.n, s.k, units);
}

std::size_t chosen_form(const AttentionLaunchStep& a, const SymbolValues& symbols) {
  const auto eval = [&](const Expr& e) { return evaluate(e, symbols); };
  const TileSizes s{eval(a.batches), eval(a.m), eval(a.n), eval(a.k)};
  for (const TileLaunchStep::Tuned& x : a.tuned) {
    const auto form = static_cast<std::size_t>(x.tiling);
    if (x.batches == s.batches && x.m == s.m && x.n == s.n && x.k == s.k && eval(a.forms[form].applies) != 0)
      return form;
  }
  const std::int64_t form = eval(a.rule);
  check(form >= 0 && form < static_cast<std::int64_t>(a.forms.size()), "attention has {} forms, not number {}",
        a.forms.size(), form);
  return static_cast<std::size_t>(form);
}

}  // namespace sardonyx
