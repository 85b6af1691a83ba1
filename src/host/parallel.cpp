// parallel_for and with_threads on oneTBB.
#include "host/parallel.h"

#include <dlfcn.h>
#include <tbb/info.h>
#include <tbb/parallel_for.h>
#include <tbb/partitioner.h>
#include <tbb/task_arena.h>

#include <algorithm>
#include <exception>
#include <mutex>
#include <thread>
#include <utility>
#include <vector>

namespace sardonyx::host {

namespace {

// Width of the arena that this thread runs in; 0 if it is not in one of ours.
thread_local int arena_threads = 0;
// Whether this thread is inside a parallel_for, so that nested ones run inline.
thread_local bool in_loop = false;

// Whether this thread's loops run in it alone.
thread_local bool alone = false;

// Sets a thread-local variable for a scope.
template <typename T>
class Scoped {
 public:
  Scoped(T& variable, T value) : variable_(variable), before_(std::exchange(variable, value)) {}
  ~Scoped() { variable_ = before_; }
  Scoped(const Scoped&) = delete;
  Scoped& operator=(const Scoped&) = delete;

 private:
  T& variable_;
  T before_;
};

// oneTBB's workers outlive every loop, and may still be returning through this library's code when a plugin host
// unloads it. Like other thread runtimes, the library therefore stays loaded once it has started threads.
void keep_library_loaded() {
  Dl_info here;
  if (::dladdr(reinterpret_cast<const void*>(&keep_library_loaded), &here) != 0 && here.dli_fname != nullptr)
    ::dlopen(here.dli_fname, RTLD_NOW | RTLD_NOLOAD | RTLD_NODELETE);
}

// oneTBB starts at most as many workers as the affinity mask has CPUs, and prints a warning if an arena asks for more.
int possible_threads(int threads) {
  static const int most = tbb::info::default_concurrency();
  return std::clamp(threads, 1, most);
}

struct Arena {
  // All slots of an arena that stays in its thread are reserved for callers, so that no worker joins.
  Arena(int threads, bool alone)
      : threads(threads), alone(alone), arena(threads, alone ? static_cast<unsigned>(threads) : 1u) {}
  int threads;
  bool alone;
  tbb::task_arena arena;
};

// Idle arenas. Every concurrent caller has its own: in a shared one it might find no free slot, and would have to wait
// for a worker.
class Arenas {
 public:
  std::unique_ptr<Arena> take(int threads, bool alone) {
    const std::lock_guard lock(mutex_);
    for (std::size_t k = idle_.size(); k-- > 0;) {
      if (idle_[k]->threads != threads || idle_[k]->alone != alone) continue;
      std::unique_ptr<Arena> found = std::move(idle_[k]);
      idle_.erase(idle_.begin() + static_cast<std::ptrdiff_t>(k));
      return found;
    }
    return std::make_unique<Arena>(threads, alone);
  }
  void give_back(std::unique_ptr<Arena> arena) {
    const std::lock_guard lock(mutex_);
    if (idle_.size() == kMaxIdle) idle_.erase(idle_.begin());
    idle_.push_back(std::move(arena));
  }

 private:
  static constexpr std::size_t kMaxIdle = 32;  // kept for later callers; more concurrent ones make theirs again
  std::mutex mutex_;
  std::vector<std::unique_ptr<Arena>> idle_;
};

// Never destroyed: another thread may still be computing when the process exits.
Arenas& arenas() {
  static Arenas* const all = [] {
    keep_library_loaded();
    return new Arenas;
  }();
  return *all;
}

// Calls body(slot) up to `count` times, on as many threads as get a core, and waits for all calls. `slot` is below
// `threads` and differs between simultaneous calls. The calling thread makes the calls that no worker has begun.
template <typename Body>
void in_threads(int count, int threads, const Body& body) {
#if defined(__SANITIZE_THREAD__)  // ThreadSanitizer does not see how oneTBB's threads wait for one another
  (void)threads;
  std::vector<std::thread> others;
  for (int k = 1; k < count; ++k) others.emplace_back(body, k);
  body(0);
  for (std::thread& t : others) t.join();
#else
  with_threads(threads, [&] {
    tbb::parallel_for(
        0, count, [&](int) { body(tbb::this_task_arena::current_thread_index()); }, tbb::static_partitioner());
  });
#endif
}

}  // namespace

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
  if (threads <= 1 || count <= grain || in_loop || alone) {
    work(context, 0, count);
    return;
  }
  const std::int64_t ranges = (count - 1) / grain + 1;
  const int used = static_cast<int>(std::min<std::int64_t>(threads, ranges));
  Shares shares(count, used);
  std::atomic<bool> failed{false};
  std::exception_ptr error;
  in_threads(used, threads, [&](int slot) {
    const Scoped<bool> inside(in_loop, true);
    const Scoped<int> width(arena_threads, possible_threads(threads));
    std::int64_t begin, end;
    while (!failed.load(std::memory_order_relaxed) && shares.take(slot % used, grain, begin, end)) {
      try {
        work(context, begin, end);
      } catch (...) {
        if (!failed.exchange(true)) error = std::current_exception();
      }
    }
  });
  if (error) std::rethrow_exception(error);
}

bool stay_in_thread(bool stay) { return std::exchange(alone, stay); }

bool stays_in_thread() { return alone; }

int threads_here() { return std::max(1, arena_threads); }

void with_threads(int threads, void (*call)(void* context), void* context) {
  threads = possible_threads(threads);
  if (arena_threads == threads) return call(context);
  // A scope guard rather than a catch, so that exceptions pass through.
  struct Borrowed {
    std::unique_ptr<Arena> arena;
    ~Borrowed() { arenas().give_back(std::move(arena)); }
  } borrowed{arenas().take(threads, alone)};
  borrowed.arena->arena.execute([&] {
    const Scoped<int> width(arena_threads, threads);
    call(context);
  });
}

}  // namespace sardonyx::host
