// Independent tasks on a few threads, for work of milliseconds and more: compiling, checksums. Loops of
// kernels have host/parallel.h.
#pragma once
#include <algorithm>
#include <atomic>
#include <cstddef>
#include <exception>
#include <thread>
#include <vector>

namespace sardonyx {

/// Calls f(k) for 0 <= k < count on up to `threads` threads (at least one, the caller's among them), started in order
/// as threads become free. If calls throw, tasks that have not started are skipped, and the exception of the lowest
/// k is rethrown.
template <typename F>
void run_tasks(std::size_t count, int threads, F&& f) {
  std::vector<std::exception_ptr> errors(count);
  std::atomic<std::size_t> next = 0;
  std::atomic<bool> failed = false;
  const auto run = [&] {
    // Tasks are started in order, so all tasks before a failing one have run when the loop ends.
    for (std::size_t k; !failed && (k = next++) < count;) {
      try {
        f(k);
      } catch (...) {
        errors[k] = std::current_exception();
        failed = true;
      }
    }
  };
  {
    std::vector<std::jthread> helpers;
    const std::size_t wanted = std::min(count, static_cast<std::size_t>(std::max(threads, 1)));
    for (std::size_t t = 1; t < wanted; ++t) helpers.emplace_back(run);
    run();
  }
  for (const std::exception_ptr& e : errors)
    if (e) std::rethrow_exception(e);
}

}  // namespace sardonyx
