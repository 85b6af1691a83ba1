// parallel_for on OpenMP.
#include "host/parallel.h"

#include <algorithm>
#include <atomic>
#include <exception>
#include <thread>
#include <vector>

// OpenMP's functions, declared here: clang-tidy has no omp.h for GCC's runtime.
extern "C" {
int omp_get_num_procs();
int omp_get_max_threads();
int omp_in_parallel();
void omp_set_num_threads(int threads);
}

namespace sardonyx::host {

namespace {

// Runs `body` in so many threads, the caller's among them, and waits for all.
template <typename Body>
void in_threads(int count, const Body& body) {
#if defined(__SANITIZE_THREAD__)  // ThreadSanitizer does not see how OpenMP's threads wait for one another
  std::vector<std::thread> others;
  for (int k = 1; k < count; ++k) others.emplace_back(body);
  body();
  for (std::thread& t : others) t.join();
#else
#pragma omp parallel num_threads(count)
  body();
#endif
}

}  // namespace

int available_threads() { return std::max(1, omp_get_num_procs()); }

void parallel_for(std::int64_t count, std::int64_t grain, int threads, RangeFunction work, void* context) {
  if (count <= 0) return;
  grain = std::max<std::int64_t>(1, grain);
  if (threads <= 1 || count <= grain || omp_in_parallel()) {
    work(context, 0, count);
    return;
  }
  // Ranges get smaller towards the end ("guided self-scheduling", Polychronopoulos and Kuck, 1987): large ones keep
  // neighbours together, small ones balance uneven items and a thread that another process holds up.
  std::atomic<std::int64_t> next{0};
  const auto take = [&](std::int64_t& begin, std::int64_t& end) {
    begin = next.load(std::memory_order_relaxed);
    do {
      if (begin >= count) return false;
      end = std::min(count, begin + std::max(grain, (count - begin) / (2 * threads)));
    } while (!next.compare_exchange_weak(begin, end, std::memory_order_relaxed));
    return true;
  };
  std::atomic<bool> failed{false};
  std::exception_ptr error;
  const std::int64_t ranges = (count - 1) / grain + 1;
  in_threads(static_cast<int>(std::min<std::int64_t>(threads, ranges)), [&] {
    std::int64_t begin, end;
    while (!failed.load(std::memory_order_relaxed) && take(begin, end)) {
      try {
        work(context, begin, end);
      } catch (...) {
        if (!failed.exchange(true)) error = std::current_exception();
      }
    }
  });
  if (error) std::rethrow_exception(error);
}

ThreadLimit::ThreadLimit(int threads) : before_(omp_get_max_threads()) {
  if (threads != before_) omp_set_num_threads(std::max(1, threads));
}

ThreadLimit::~ThreadLimit() {
  if (omp_get_max_threads() != before_) omp_set_num_threads(before_);
}

}  // namespace sardonyx::host
