// parallel_for on OpenMP.
#include "host/parallel.h"

#include <algorithm>
#include <exception>
#include <thread>
#include <vector>

// OpenMP's functions, declared here: clang-tidy has no omp.h for GCC's runtime.
extern "C" {
int omp_get_num_procs();
int omp_get_max_threads();
int omp_get_thread_num();
int omp_in_parallel();
void omp_set_num_threads(int threads);
}

namespace sardonyx::host {

namespace {

// Runs body(thread) in so many threads, the caller's among them, and waits for all.
template <typename Body>
void in_threads(int count, const Body& body) {
#if defined(__SANITIZE_THREAD__)  // ThreadSanitizer does not see how OpenMP's threads wait for one another
  std::vector<std::thread> others;
  for (int k = 1; k < count; ++k) others.emplace_back(body, k);
  body(0);
  for (std::thread& t : others) t.join();
#else
#pragma omp parallel num_threads(count)
  body(omp_get_thread_num());
#endif
}

}  // namespace

int available_threads() { return std::max(1, omp_get_num_procs()); }

Shares::Shares(std::int64_t count, int threads) : count_(count), threads_(threads), next_(few_.data()) {
  if (static_cast<std::size_t>(threads) > few_.size()) {
    many_ = std::make_unique<Next[]>(static_cast<std::size_t>(threads));
    next_ = many_.get();
  }
  for (int k = 0; k < threads; ++k) next_[k].item.store(first(k), std::memory_order_relaxed);
}

bool Shares::take(int thread, std::int64_t grain, std::int64_t& begin, std::int64_t& end) {
  for (int k = 0; k < threads_; ++k) {
    const int owner = (thread + k) % threads_;
    const std::int64_t until = first(owner + 1);
    begin = next_[owner].item.load(std::memory_order_relaxed);
    while (begin < until) {
      end = std::min(until, begin + std::max(grain, (until - begin) / (k == 0 ? 2 : 4)));
      if (next_[owner].item.compare_exchange_weak(begin, end, std::memory_order_relaxed)) return true;
    }
  }
  return false;
}

bool Shares::take(int thread, std::int64_t& item) {
  for (int k = 0; k < threads_; ++k) {
    const int owner = (thread + k) % threads_;
    const std::int64_t until = first(owner + 1);
    if (next_[owner].item.load(std::memory_order_relaxed) >= until) continue;
    item = next_[owner].item.fetch_add(1, std::memory_order_relaxed);
    if (item < until) return true;
  }
  return false;
}

void parallel_for(std::int64_t count, std::int64_t grain, int threads, RangeFunction work, void* context) {
  if (count <= 0) return;
  grain = std::max<std::int64_t>(1, grain);
  if (threads <= 1 || count <= grain || omp_in_parallel()) {
    work(context, 0, count);
    return;
  }
  const std::int64_t ranges = (count - 1) / grain + 1;
  const int used = static_cast<int>(std::min<std::int64_t>(threads, ranges));
  Shares shares(count, used);
  std::atomic<bool> failed{false};
  std::exception_ptr error;
  in_threads(used, [&](int thread) {
    std::int64_t begin, end;
    while (!failed.load(std::memory_order_relaxed) && shares.take(thread, grain, begin, end)) {
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
