// A limit on the bytes of a device's memory that several models and other users allocate together.
#pragma once
#include <cstdint>
#include <functional>
#include <map>
#include <mutex>

namespace sardonyx {

/// A counter with a limit. Thread-safe.
class MemoryBudget {
 public:
  explicit MemoryBudget(std::uint64_t limit) : limit_(limit) {}
  MemoryBudget(const MemoryBudget&) = delete;
  MemoryBudget& operator=(const MemoryBudget&) = delete;

  /// False, and nothing taken, if that would exceed the limit even after idle memory was reclaimed.
  bool take(std::uint64_t bytes) {
    if (try_take(bytes)) return true;
    reclaim();
    return try_take(bytes);
  }
  /// The same without reclaiming idle memory of others.
  bool try_take(std::uint64_t bytes) {
    const std::lock_guard lock(mutex_);
    if (bytes > limit_ - used_) return false;
    used_ += bytes;
    return true;
  }
  void give_back(std::uint64_t bytes) {
    const std::lock_guard lock(mutex_);
    used_ -= bytes;
  }
  std::uint64_t limit() const { return limit_; }
  std::uint64_t used() const {
    const std::lock_guard lock(mutex_);
    return used_;
  }

  /// `give`: called on any thread if the budget is short, to free idle memory. Must not call take().
  void add_reclaimer(const void* who, std::function<void()> give) {
    const std::lock_guard lock(reclaimers_mutex_);
    reclaimers_[who] = std::move(give);
  }
  /// When it returns, the function is not running and will not be called again.
  void remove_reclaimer(const void* who) {
    const std::lock_guard lock(reclaimers_mutex_);
    reclaimers_.erase(who);
  }

 private:
  void reclaim() {
    const std::lock_guard lock(reclaimers_mutex_);
    for (const auto& [who, give] : reclaimers_) give();
  }

  const std::uint64_t limit_;
  std::uint64_t used_ = 0;
  mutable std::mutex mutex_;
  std::mutex reclaimers_mutex_;
  std::map<const void*, std::function<void()>> reclaimers_;
};

}  // namespace sardonyx
