// Threads for loops on the host. They are oneTBB's workers, which oneDNN's primitives use too: one set of threads
// serves both, and all sessions of a process. Idle workers spin for some microseconds and then block. The calling
// thread works too and takes over whatever no worker has begun, so a loop never waits for a thread that did not get a
// core.
#pragma once
#include <array>
#include <atomic>
#include <cstdint>
#include <memory>
#include <optional>
#include <type_traits>
#include <utility>

namespace sardonyx::host {

/// Processes items [begin, end).
using RangeFunction = void (*)(void* context, std::int64_t begin, std::int64_t end);

/// Divides items [0, count) among threads. Each thread takes from its own share first, then from the others'. So loops
/// over the same image leave each part of it in the caches of one core, while uneven items, or a thread that another
/// process delays, are balanced. Ranges get smaller towards the end of a share ("guided self-scheduling",
/// Polychronopoulos and Kuck, 1987).
class Shares {
 public:
  Shares(std::int64_t count, int threads);
  /// Takes a range of at least `grain` items for this thread, or fewer at the end of a share. False if nothing is left.
  /// May be called from several threads at once.
  bool take(int thread, std::int64_t grain, std::int64_t& begin, std::int64_t& end);
  /// Takes one item.
  bool take(int thread, std::int64_t& item);

 private:
  struct alignas(64) Next {
    std::atomic<std::int64_t> item{0};
  };
  std::int64_t first(int thread) const { return count_ / threads_ * thread + count_ % threads_ * thread / threads_; }

  std::int64_t count_;
  int threads_;
  std::array<Next, 8> few_;
  std::unique_ptr<Next[]> many_;  ///< if there are more threads than few_ holds
  Next* next_;
};

/// Calls `work` on disjoint ranges that cover [0, count) once, on at most `threads` threads, and returns when all are
/// done. Ranges have at least `grain` items, except the last of a thread's share; see Shares. Runs inline if there is
/// one range or one thread, or inside another parallel_for. May be called from several threads at once, which then
/// share the workers. Rethrows the first exception that `work` throws; ranges not yet begun are then skipped.
void parallel_for(std::int64_t count, std::int64_t grain, int threads, RangeFunction work, void* context);

/// The same for anything that can be called with (begin, end).
template <typename Work>
void parallel_for(std::int64_t count, std::int64_t grain, int threads, Work&& work) {
  using Plain = std::remove_reference_t<Work>;
  parallel_for(
      count, grain, threads,
      [](void* context, std::int64_t begin, std::int64_t end) { (*static_cast<Plain*>(context))(begin, end); },
      const_cast<void*>(static_cast<const void*>(std::addressof(work))));
}

/// Calls `call(context)`. Parallel regions in it, including oneDNN's, use at most `threads` threads, counting the
/// calling one. oneDNN divides work when it creates a primitive, so primitives must be created and run with the same
/// number. Nested calls with the same number cost nothing. Exceptions pass through.
void with_threads(int threads, void (*call)(void* context), void* context);

/// Whether loops that this thread begins, including oneDNN's, run in it alone, divided as for all threads. Returns what
/// was set before.
bool stay_in_thread(bool stay);
/// What was set. Kernels may divide their work as for one thread then, if that changes no result.
bool stays_in_thread();

/// Threads of the with_threads() that the caller is in; 1 outside of one.
int threads_here();

/// The same as with_threads() above for any callable without arguments; returns its result.
template <typename F>
auto with_threads(int threads, F&& f) {
  using Result = std::invoke_result_t<F&>;
  using Plain = std::remove_reference_t<F>;
  if constexpr (std::is_void_v<Result>) {
    with_threads(
        threads, [](void* context) { (*static_cast<Plain*>(context))(); },
        const_cast<void*>(static_cast<const void*>(std::addressof(f))));
  } else {
    std::optional<Result> result;
    with_threads(threads, [&] { result.emplace(f()); });
    return std::move(*result);
  }
}

}  // namespace sardonyx::host
