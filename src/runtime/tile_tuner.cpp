#include "runtime/tile_tuner.h"

#include <algorithm>
#include <chrono>

namespace sardonyx {
namespace {

constexpr double kTimed = 5e-4;    // minimum seconds of launches between two waits, so that the wait is negligible
constexpr int kMaxLaunches = 200;  // at most, between two waits

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
  if (const std::optional<double> before = gpu.estimated_seconds()) {  // every launch takes the same
    gpu.launch(launch, stream);
    gpu.synchronize(stream);
    return std::max(*gpu.estimated_seconds() - *before, 1e-9);
  }
  seconds(1);  // warms up: loads code and fills caches
  const int few = std::clamp(static_cast<int>(kTimed / std::max(seconds(2) / 2, 1e-7)), 2, kMaxLaunches);
  // The difference of two numbers of launches cancels fixed costs. Takes minima before the difference: a difference of
  // disturbed times could be too small, and the minimum of several differences would pick that.
  double one = 1e9, two = 1e9;
  for (int k = 0; k < 3; ++k) {
    one = std::min(one, seconds(few));
    two = std::min(two, seconds(2 * few));
  }
  return std::max(two > one ? (two - one) / few : two / (2 * few), 1e-9);
}

}  // namespace sardonyx
