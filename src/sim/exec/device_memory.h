// Device memory of all simulated devices: one reserved range of addresses in which a device pointer is a host pointer,
// with a record of every allocation, so that each access of a kernel can be checked.
#pragma once
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <mutex>
#include <shared_mutex>
#include <string>
#include <utility>
#include <vector>

namespace sardonyx::sim {

enum class MemoryKind : std::uint8_t { kDevice, kPinned, kManaged, kRegistered, kCode, kKernarg, kScratch };

/// Which bytes of an allocation have been written. Recorded only if reads of uninitialised memory are checked.
class MemoryShadow {
 public:
  explicit MemoryShadow(std::uint64_t size) : bits_(new std::atomic<std::uint64_t>[size / 64 + 1]()) {}
  static constexpr std::uint64_t kNone = ~0ull;
  void mark(std::uint64_t offset, std::uint64_t size);
  /// Offset of the first byte of the range that was never written, or kNone.
  std::uint64_t firstUnwritten(std::uint64_t offset, std::uint64_t size) const;
  bool written(std::uint64_t offset) const {
    return bits_[offset / 64].load(std::memory_order_relaxed) >> (offset % 64) & 1;
  }

 private:
  std::unique_ptr<std::atomic<std::uint64_t>[]> bits_;
};

struct Allocation {
  std::uint64_t base = 0, size = 0;
  MemoryKind kind = MemoryKind::kDevice;
  int device = 0;
  unsigned flags = 0;
  bool readOnly = false;                                          ///< but for the parts that `writable` lists
  std::vector<std::pair<std::uint64_t, std::uint64_t>> writable;  ///< [first, end)
  bool mayWrite(std::uint64_t address, std::uint64_t bytes) const {
    if (!readOnly) return true;
    for (const auto& [first, last] : writable)
      if (address >= first && address + bytes <= last) return true;
    return false;
  }
  std::shared_ptr<MemoryShadow> shadow;
  std::uint64_t end() const { return base + size; }
};

class DeviceMemory {
 public:
  static DeviceMemory& instance();

  /// Returns 0 when memory is exhausted (`limit` of the device or the reserved range). size 0 gives a distinct address.
  std::uint64_t allocate(std::size_t size, MemoryKind kind, int device, unsigned flags = 0,
                         std::size_t alignment = 256);
  /// False when `address` is not the start of a live allocation.
  bool release(std::uint64_t address);
  /// Host memory that kernels may use from now on (hipHostRegister). False when it overlaps a live allocation.
  bool add(std::uint64_t address, std::size_t size, unsigned flags);
  /// The live allocation that contains `address`, or null.
  std::shared_ptr<const Allocation> find(std::uint64_t address) const;
  /// Why `address` may not be accessed: past the end of X, freed, never allocated.
  std::string describe(std::uint64_t address) const;
  /// Incremented whenever memory is freed: results of find() are valid while it stays the same.
  std::uint64_t generation() const { return generation_.load(std::memory_order_acquire); }
  /// True for addresses that only device allocations may occupy.
  bool inArena(std::uint64_t address) const { return address >= arena_ && address < arenaEnd_; }
  std::uint64_t used(int device) const;
  void setLimit(int device, std::uint64_t bytes);
  /// From now on kernels may write only the range `writable` of the allocation at `base`.
  void setReadOnly(std::uint64_t base, std::vector<std::pair<std::uint64_t, std::uint64_t>> writable);
  /// Device allocations made from now on remember which bytes were written.
  void trackWrites(bool on) { trackWrites_.store(on); }
  /// The host wrote these bytes (`from` null), or copied them from `from`: what is initialised there is now here too.
  void noteHostWrite(std::uint64_t to, std::uint64_t from, std::uint64_t size);

 private:
  DeviceMemory();
  mutable std::shared_mutex mutex_;
  std::map<std::uint64_t, std::shared_ptr<Allocation>> live_;
  /// Base and size of the allocations that were freed last, for messages. The array is allocated once: small records
  /// made over time would fragment the heap.
  std::vector<std::pair<std::uint64_t, std::uint64_t>> freed_;
  std::size_t freedCount_ = 0;
  std::map<int, std::uint64_t> used_, limits_;
  std::uint64_t arena_ = 0, arenaEnd_ = 0, next_ = 0;
  std::atomic<std::uint64_t> generation_{1};
  std::atomic<bool> trackWrites_{false};
};

}  // namespace sardonyx::sim
