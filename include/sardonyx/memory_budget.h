// A limit on the device memory that several models and other users allocate together, and optionally its allocator.
#pragma once
#include <cstddef>
#include <cstdint>
#include <functional>
#include <limits>
#include <map>
#include <memory>
#include <mutex>
#include <utility>

namespace sardonyx {

/// A counter with a limit. Thread-safe.
class MemoryBudget {
 public:
  /// Device memory of at least this size, aligned to 256 bytes, that is freed with its last owner. Throws
  /// Error(kDevice).
  using Source = std::function<std::shared_ptr<void>(std::size_t bytes)>;

  explicit MemoryBudget(std::uint64_t limit) : limit_(limit) {}
  /// Memory comes from an application's allocator instead of the driver's. `limit`: 0 for none.
  MemoryBudget(std::uint64_t limit, Source source)
      : limit_(limit ? limit : std::numeric_limits<std::uint64_t>::max()), source_(std::move(source)) {}
  MemoryBudget(const MemoryBudget&) = delete;
  MemoryBudget& operator=(const MemoryBudget&) = delete;

  /// Returns false and takes nothing if the limit would be exceeded even after idle memory was reclaimed.
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
  /// The allocator; empty: the driver's.
  const Source& source() const { return source_; }
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
  const Source source_;
  std::uint64_t used_ = 0;
  mutable std::mutex mutex_;
  std::mutex reclaimers_mutex_;
  std::map<const void*, std::function<void()>> reclaimers_;
};

}  // namespace sardonyx
