#include "support/background.h"

#include <pthread.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <condition_variable>
#include <cstdlib>
#include <exception>
#include <list>
#include <memory>
#include <mutex>
#include <new>
#include <thread>
#include <utility>

#include "support/cpu_count.h"

namespace sardonyx {

struct BackgroundTexts::Item {
  enum class State { kWaiting, kRunning, kReady, kFailed };
  std::shared_ptr<Make> make;  ///< null once it has been called to the end
  State state = State::kWaiting;
  bool in_background = false;  ///< only the background is making it
  std::string text{};
  std::exception_ptr error{};
  bool finished() const { return state == State::kReady || state == State::kFailed; }
};

namespace {

using Lock = std::unique_lock<std::mutex>;

constexpr int kNiceness = 10;  // of background threads: a tenth of the weight of others
constexpr int kMostRegistrations = 4;
/// How long a text that somebody needs is left to a background thread, which may hardly run on a busy machine.
constexpr std::chrono::milliseconds kPatience{500};

}  // namespace

/// The process's background threads. It is never destroyed.
struct BackgroundPool {
  using Item = BackgroundTexts::Item;

  std::mutex mutex;  // guards everything here, and all objects in `lists`
  std::condition_variable changed;
  std::list<BackgroundTexts*> lists;
  std::list<std::thread> threads, ended;
  int running = 0, pauses = 0;
  int registrations = 0;  ///< of stop()
  bool stopped = false;

  static BackgroundPool& get() {
    static BackgroundPool& pool = make();
    return pool;
  }

  static BackgroundPool& make() {
    auto* pool = new BackgroundPool;
    pthread_atfork([] { get().before_fork(); }, [] { get().mutex.unlock(); }, [] { get().in_child(); });
    std::atexit(stop);
    return *pool;
  }

  // Code that runs in the background has objects of static storage duration, which are destroyed when the process ends.
  static void stop() {
    BackgroundPool& pool = get();
    std::list<std::thread> all;
    {
      const std::lock_guard lock(pool.mutex);
      pool.stopped = true;
      all.splice(all.end(), pool.threads);
      all.splice(all.end(), pool.ended);
    }
    pool.changed.notify_all();
    for (std::thread& t : all) t.join();
  }

  void before_fork() {
    Lock lock(mutex);
    changed.wait(lock, [&] { return running == 0; });
    lock.release();
  }

  // The threads do not exist here, and others that made texts do not either.
  void in_child() {
    new (&mutex) std::mutex;
    new (&changed) std::condition_variable;
    new std::list<std::thread>(std::move(threads));  // their handles can be neither joined nor destroyed
    new std::list<std::thread>(std::move(ended));
    threads.clear();
    ended.clear();
    pauses = 0;
    for (BackgroundTexts* l : lists) {
      l->next_ = 0;
      for (Item& item : l->items_)
        if (item.state == Item::State::kRunning) item.state = Item::State::kWaiting;
    }
  }

  void add_threads(int wanted) {
    for (std::thread& t : ended) t.join();
    ended.clear();
    const auto most = static_cast<std::size_t>(std::clamp(cpu_count() - 1, 1, std::max(wanted, 1)));
    try {
      while (!stopped && threads.size() < most) {
        threads.emplace_back();
        auto self = std::prev(threads.end());
        *self = std::thread([this, self] { work(self); });
      }
    } catch (const std::system_error&) {
      threads.pop_back();  // no threads: texts are made when they are needed
    }
  }

  BackgroundTexts* next_list() {
    for (BackgroundTexts* l : lists) {
      while (l->next_ < l->items_.size() && l->items_[l->next_].state != Item::State::kWaiting) ++l->next_;
      if (l->next_ < l->items_.size() && l->running_ < l->limit_) return l;
    }
    return nullptr;
  }

  void work(std::list<std::thread>::iterator self) {
    const auto id = static_cast<id_t>(::syscall(SYS_gettid));
    ::setpriority(PRIO_PROCESS, id, ::getpriority(PRIO_PROCESS, id) + kNiceness);
    Lock lock(mutex);
    bool registered = false;
    while (!stopped) {
      BackgroundTexts* list = pauses == 0 ? next_list() : nullptr;
      if (!list && pauses == 0) break;
      if (!list) {
        changed.wait(lock);
        continue;
      }
      Item& item = list->items_[list->next_];
      item.state = Item::State::kRunning;
      item.in_background = true;
      const std::shared_ptr<BackgroundTexts::Make> make = item.make;
      ++running, ++list->running_;
      lock.unlock();
      list->run(item, *make, true);
      lock.lock();
      --running, --list->running_;
      // Functions at exit are called in reverse order: before the destructors of what the first text has created.
      // A few times: which text creates the last of them is not known, and each registration takes memory.
      if (!std::exchange(registered, true) && registrations < kMostRegistrations) ++registrations, std::atexit(stop);
      changed.notify_all();
    }
    if (!stopped) ended.splice(ended.end(), threads, self);
  }
};

BackgroundTexts::BackgroundTexts(std::vector<Make> makers, std::function<void()> when_done)
    : items_(makers.size()), when_done_(std::move(when_done)), unfinished_(makers.size()) {
  for (std::size_t k = 0; k < makers.size(); ++k) items_[k].make = std::make_shared<Make>(std::move(makers[k]));
}

BackgroundTexts::~BackgroundTexts() {
  BackgroundPool& pool = BackgroundPool::get();
  Lock lock(pool.mutex);
  pool.lists.remove(this);
  pool.changed.wait(lock, [&] { return running_ == 0; });
}

void BackgroundTexts::start(int threads) {
  BackgroundPool& pool = BackgroundPool::get();
  const Lock lock(pool.mutex);
  if (unfinished_ == 0 || limit_ > 0) return;
  limit_ = std::max(threads, 1);
  pool.lists.push_back(this);
  pool.add_threads(limit_);
  pool.changed.notify_all();
}

std::size_t BackgroundTexts::size() const { return items_.size(); }

void BackgroundTexts::run(Item& item, const Make& make, bool in_background) {
  std::string text;
  std::exception_ptr error;
  try {
    text = make();
  } catch (...) {
    error = std::current_exception();
  }
  BackgroundPool& pool = BackgroundPool::get();
  bool last = false;
  {
    const Lock lock(pool.mutex);
    if (!item.finished()) {
      item.text = std::move(text);
      item.error = error;
      item.state = error ? Item::State::kFailed : Item::State::kReady;
      item.make.reset();
      if (!error) ++counts_.ready;
      if (!error && !in_background) ++counts_.on_demand;
      last = --unfinished_ == 0;
    }
  }
  pool.changed.notify_all();
  if (last && when_done_) when_done_();
}

const std::string& BackgroundTexts::get(std::size_t k) {
  BackgroundPool& pool = BackgroundPool::get();
  Item& item = items_.at(k);
  const auto finished = [&] { return item.finished(); };
  Lock lock(pool.mutex);
  if (!finished()) {
    ++pool.pauses;
    if (item.state == Item::State::kRunning && item.in_background) pool.changed.wait_for(lock, kPatience, finished);
    if (item.state == Item::State::kWaiting || (item.state == Item::State::kRunning && item.in_background)) {
      item.state = Item::State::kRunning;
      item.in_background = false;
      const std::shared_ptr<Make> make = item.make;
      lock.unlock();
      run(item, *make, false);
      lock.lock();
    }
    pool.changed.wait(lock, finished);
    if (--pool.pauses == 0) pool.changed.notify_all();
  }
  if (item.error) std::rethrow_exception(item.error);
  return item.text;
}

bool BackgroundTexts::ready(std::size_t k) const {
  const Lock lock(BackgroundPool::get().mutex);
  return items_.at(k).state == Item::State::kReady;
}

BackgroundTexts::Counts BackgroundTexts::counts() const {
  const Lock lock(BackgroundPool::get().mutex);
  return counts_;
}

bool BackgroundTexts::done() const {
  const Lock lock(BackgroundPool::get().mutex);
  return unfinished_ == 0;
}

BackgroundTexts::Pause::Pause() {
  const Lock lock(BackgroundPool::get().mutex);
  ++BackgroundPool::get().pauses;
}

BackgroundTexts::Pause::~Pause() {
  BackgroundPool& pool = BackgroundPool::get();
  {
    const Lock lock(pool.mutex);
    --pool.pauses;
  }
  pool.changed.notify_all();
}

}  // namespace sardonyx
