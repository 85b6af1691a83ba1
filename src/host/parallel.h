// Threads for loops on the host, on the OpenMP runtime that oneDNN uses too, so that one set of threads serves both.
#pragma once
#include <cstdint>
#include <memory>
#include <type_traits>

namespace sardonyx::host {

/// Does the work of items [begin, end).
using RangeFunction = void (*)(void* context, std::int64_t begin, std::int64_t end);

/// CPUs that this process may run on.
int available_threads();

/// Calls `work` on disjoint ranges that cover [0, count) once, on at most `threads` threads, and returns when all are
/// done. Ranges hold at least `grain` items, but for the last; idle threads take the next range, so uneven items
/// balance. Runs inline when there is one range or one thread, or inside another parallel_for. Any number of
/// threads may call it at once; each caller has its own helpers. The first exception that `work` throws is thrown
/// again here; ranges not yet begun are then skipped.
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

/// While it lives, parallel regions that the calling thread starts, oneDNN's included, use `threads` threads.
class ThreadLimit {
 public:
  explicit ThreadLimit(int threads);
  ~ThreadLimit();
  ThreadLimit(const ThreadLimit&) = delete;
  ThreadLimit& operator=(const ThreadLimit&) = delete;

 private:
  int before_;
};

}  // namespace sardonyx::host
