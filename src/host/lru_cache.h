// A bounded, thread-safe map from a description's bytes to something costly to create.
#pragma once
#include <cstddef>
#include <list>
#include <memory>
#include <mutex>
#include <string>
#include <unordered_map>
#include <utility>

namespace sardonyx::host {

/// Keeps the `capacity` entries that were used last. Callers may keep what they got after it is dropped here.
template <typename Value>
class LruCache {
 public:
  explicit LruCache(std::size_t capacity) : capacity_(capacity) {}

  /// The entry of `key`; if there is none, that of `make()` (a shared_ptr<const Value>; null is returned but not
  /// stored). Two threads may create the same entry at once; the first one is kept.
  template <typename Make>
  std::shared_ptr<const Value> get(const std::string& key, Make&& make) {
    {
      std::lock_guard lock(mutex_);
      if (auto it = index_.find(key); it != index_.end()) {
        entries_.splice(entries_.begin(), entries_, it->second);
        return it->second->second;
      }
    }
    std::shared_ptr<const Value> made = make();
    if (!made) return made;
    std::lock_guard lock(mutex_);
    if (auto it = index_.find(key); it != index_.end()) return it->second->second;
    entries_.emplace_front(key, made);
    index_.emplace(key, entries_.begin());
    if (entries_.size() > capacity_) {
      index_.erase(entries_.back().first);
      entries_.pop_back();
    }
    return made;
  }

  std::size_t size() const {
    std::lock_guard lock(mutex_);
    return entries_.size();
  }

 private:
  using Entry = std::pair<std::string, std::shared_ptr<const Value>>;
  const std::size_t capacity_;
  mutable std::mutex mutex_;
  std::list<Entry> entries_;
  std::unordered_map<std::string, typename std::list<Entry>::iterator> index_;
};

}  // namespace sardonyx::host
