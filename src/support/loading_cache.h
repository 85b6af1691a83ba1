// A bounded cache of values that take long to make, for many threads.
#pragma once
#include <cstddef>
#include <cstdint>
#include <exception>
#include <future>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <utility>
#include <vector>

namespace sardonyx {

/// Values by key. The first thread that asks for a key makes its value; threads that ask for the same key meanwhile
/// wait for it. No lock is held while a value is made, so threads with other keys go on. When there are more than
/// `capacity` values, the least recently used one is dropped; its users keep it alive.
template <typename Value>
class LoadingCache {
 public:
  using Pointer = std::shared_ptr<Value>;
  /// `capacity`: at least 1. Values that are being made do not count.
  explicit LoadingCache(std::size_t capacity) : capacity_(capacity) {}

  /// The value of `key`, from `make()` if it is not there. What make() throws, every thread that waits for it throws,
  /// and the next call tries again. make() must not ask for the same key.
  template <typename Make>
  Pointer get(const std::string& key, Make&& make) {
    std::promise<Pointer> promise;
    std::shared_future<Pointer> made_elsewhere;
    {
      const std::lock_guard lock(mutex_);
      const auto [it, fresh] = entries_.try_emplace(key);
      it->second.last_use = ++clock_;
      if (fresh)
        it->second.value = promise.get_future().share();
      else
        made_elsewhere = it->second.value;
    }
    if (made_elsewhere.valid()) return made_elsewhere.get();
    try {
      Pointer value = make();
      {
        const std::lock_guard lock(mutex_);
        Entry& entry = entries_.at(key);
        entry.made = value;
        entry.last_use = ++clock_;
        drop_least_recent();
      }
      promise.set_value(value);
      return value;
    } catch (...) {
      {
        const std::lock_guard lock(mutex_);
        entries_.erase(key);
      }
      promise.set_exception(std::current_exception());
      throw;
    }
  }

  /// The value of `key`; null if there is none, or while it is being made. Counts as a use.
  Pointer find(const std::string& key) {
    const std::lock_guard lock(mutex_);
    const auto it = entries_.find(key);
    if (it == entries_.end()) return nullptr;
    it->second.last_use = ++clock_;
    return it->second.made;
  }

  /// All values, without those that are being made.
  std::vector<Pointer> values() const {
    const std::lock_guard lock(mutex_);
    std::vector<Pointer> out;
    for (const auto& [key, entry] : entries_)
      if (entry.made) out.push_back(entry.made);
    return out;
  }

 private:
  struct Entry {
    std::shared_future<Pointer> value;
    Pointer made;  ///< null while it is being made
    std::uint64_t last_use = 0;
  };

  // A scan, because making a value takes far longer.
  void drop_least_recent() {
    std::size_t count = 0;
    auto oldest = entries_.end();
    for (auto it = entries_.begin(); it != entries_.end(); ++it) {
      if (!it->second.made) continue;
      ++count;
      if (oldest == entries_.end() || it->second.last_use < oldest->second.last_use) oldest = it;
    }
    if (count > capacity_) entries_.erase(oldest);
  }

  const std::size_t capacity_;
  mutable std::mutex mutex_;  // guards what follows
  std::map<std::string, Entry> entries_;
  std::uint64_t clock_ = 0;  ///< counts uses
};

}  // namespace sardonyx
