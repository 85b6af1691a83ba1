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

namespace sardonyx::sim {

enum class MemoryKind : std::uint8_t { kDevice, kPinned, kManaged, kRegistered, kCode, kKernarg, kScratch };

/// State beside the contents, kept only when a check needs it.
struct MemoryShadow;

struct Allocation {
  std::uint64_t base = 0, size = 0;
  MemoryKind kind = MemoryKind::kDevice;
  int device = 0;
  unsigned flags = 0;
  bool readOnly = false;
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
  /// Grows whenever an allocation disappears; caches of find() compare it.
  std::uint64_t generation() const { return generation_.load(std::memory_order_acquire); }
  /// True for addresses that only device allocations may occupy.
  bool inArena(std::uint64_t address) const { return address >= arena_ && address < arenaEnd_; }
  std::uint64_t used(int device) const;
  void setLimit(int device, std::uint64_t bytes);
  void setReadOnly(std::uint64_t base);

 private:
  DeviceMemory();
  mutable std::shared_mutex mutex_;
  std::map<std::uint64_t, std::shared_ptr<Allocation>> live_;
  std::map<std::uint64_t, std::uint64_t> freed_;  // base to size, for messages
  std::map<int, std::uint64_t> used_, limits_;
  std::uint64_t arena_ = 0, arenaEnd_ = 0, next_ = 0;
  std::atomic<std::uint64_t> generation_{1};
};

}  // namespace sardonyx::sim
