// Memory for ONNX Runtime: allocators over arenas, and copies between devices.
#pragma once
#include <memory>
#include <string>
#include <vector>

#include "ep/arena.h"
#include "ep/ort.h"
#include "ep/provider_device.h"
#include "options/provider_options.h"
#include "sardonyx/memory_budget.h"

namespace sardonyx::ep {

/// The application's functions. A thrown Error(kDevice) says that they could not allocate.
MemoryBudget::Source external_source(const ExternalMemory& external);

/// An allocator of device memory or of pinned host memory. `id`: the device id in ONNX Runtime.
class Allocator : public OrtAllocator {
 public:
  Allocator(const Ort& ort, const std::shared_ptr<ProviderDevice>& device, int id, bool pinned,
            const ArenaOptions& options, const ExternalMemory& external, Log log);
  ~Allocator();
  Arena& arena() { return arena_; }

 private:
  static void* do_alloc(OrtAllocator* self, std::size_t bytes);
  static OrtStatus* do_stats(const OrtAllocator* self, OrtKeyValuePairs** out) noexcept;

  const Ort& ort_;
  std::shared_ptr<ProviderDevice> device_;
  OrtMemoryInfo* info_ = nullptr;
  Log log_;
  Arena arena_;
};

/// The reason of this thread's last failed allocation; "" if none failed. ONNX Runtime itself sees only a null pointer.
const std::string& last_allocation_failure();

/// ONNX Runtime's description of a device's memory; release it with ReleaseMemoryInfo.
OrtMemoryInfo* memory_info(const Ort& ort, int id, bool pinned);

/// Copies between host memory and the memory of all devices.
class DataTransfer : public OrtDataTransferImpl {
 public:
  DataTransfer(const Ort& ort, std::vector<std::shared_ptr<ProviderDevice>> devices);

 private:
  static bool can_copy(const OrtDataTransferImpl* self, const OrtMemoryDevice* from,
                       const OrtMemoryDevice* to) noexcept;
  static OrtStatus* copy(OrtDataTransferImpl* self, const OrtValue** from, OrtValue** to, OrtSyncStream** streams,
                         std::size_t count) noexcept;
  /// The device that the memory belongs to; null for host memory.
  ProviderDevice* device_of(const OrtValue* v, const void* data) const;

  const Ort& ort_;
  std::vector<std::shared_ptr<ProviderDevice>> devices_;
};

}  // namespace sardonyx::ep
