// How a model uses a GPU's memory: a counter with an optional limit, a pool of reusable blocks, and copies between the
// host and the device.
#pragma once
#include <atomic>
#include <cstdint>
#include <memory>
#include <vector>

#include "device/device.h"
#include "sardonyx/memory_budget.h"

namespace sardonyx {

/// Allocates and counts memory of one GPU. Thread-safe.
class DeviceMemory : public std::enable_shared_from_this<DeviceMemory> {
 public:
  /// `limit`: bytes, 0 for no limit. `budget`: a limit shared with other models; may be null.
  explicit DeviceMemory(std::shared_ptr<Gpu> gpu, std::uint64_t limit = 0,
                        std::shared_ptr<MemoryBudget> budget = nullptr)
      : gpu_(std::move(gpu)), limit_(limit), budget_(std::move(budget)) {}
  Gpu& gpu() const { return *gpu_; }
  const std::shared_ptr<Gpu>& shared_gpu() const { return gpu_; }

  /// As Gpu::allocate. Throws Error(kDevice) if the limit would be exceeded.
  std::shared_ptr<void> allocate(std::size_t bytes);
  /// Bytes in use now, and the peak.
  std::uint64_t used() const { return used_; }
  std::uint64_t peak() const { return peak_; }

 private:
  void take(std::uint64_t bytes);
  void give_back(std::uint64_t bytes);

  std::shared_ptr<Gpu> gpu_;
  std::uint64_t limit_;
  std::shared_ptr<MemoryBudget> budget_;
  std::atomic<std::uint64_t> used_ = 0, peak_ = 0;
};

/// Reuses freed blocks at once, and therefore serves the work of one stream only. A block may outlive the pool's other
/// owners. Not thread-safe.
class MemoryPool : public std::enable_shared_from_this<MemoryPool> {
 public:
  explicit MemoryPool(std::shared_ptr<DeviceMemory> memory) : memory_(std::move(memory)) {}
  std::shared_ptr<void> allocate(std::size_t bytes);
  /// Returns free blocks to the device.
  void trim() { free_.clear(); }

 private:
  struct Block {
    std::size_t size;
    std::shared_ptr<void> memory;
  };
  std::shared_ptr<DeviceMemory> memory_;
  std::vector<Block> free_;
};

/// Copies between pageable host memory and a GPU through pinned memory. Serves one stream at a time.
class GpuTransfers {
 public:
  explicit GpuTransfers(std::shared_ptr<Gpu> gpu) : gpu_(std::move(gpu)) {}
  /// Enqueued in the stream's order; `from` may be reused when it returns.
  void upload(void* to, const void* from, std::size_t bytes, GpuStream stream);
  /// Waits for the stream's work; the bytes have arrived when it returns.
  void download(void* to, const void* from, std::size_t bytes, GpuStream stream);

 private:
  struct Chunk {
    std::shared_ptr<void> memory;
    std::size_t size = 0, used = 0;
    std::unique_ptr<GpuEvent> done;  // end of the copies from this chunk
  };
  /// Pinned memory of `bytes` (at most kChunk) that no copy in flight reads. Switches to the other chunk when one is
  /// full.
  char* reserve(std::size_t bytes, GpuStream stream);

  std::shared_ptr<Gpu> gpu_;
  Chunk chunks_[2];
  int current_ = 0;
};

}  // namespace sardonyx
