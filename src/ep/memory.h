// Memory for ONNX Runtime: allocators over arenas, and copies between devices.
#pragma once
#include <memory>
#include <string>
#include <vector>

#include "ep/arena.h"
#include "ep/ort.h"
#include "ep/provider_device.h"

namespace sardonyx::ep {

/// Functions of the application that give the device's memory, as ROCm's provider takes them; 0: none.
struct ExternalMemory {
  std::uintptr_t allocate = 0, free = 0, empty_cache = 0;
};

/// An allocator of a device's memory (or of pinned memory). `id`: as which device ONNX Runtime knows the device.
class Allocator : public OrtAllocator {
 public:
  Allocator(const Ort& ort, std::shared_ptr<ProviderDevice> device, int id, bool pinned, const ArenaOptions& options,
            const ExternalMemory& external, Log log);
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

/// Why an allocation of this thread's gave nothing; "" if none did. ONNX Runtime goes on with a null pointer.
const std::string& last_allocation_failure();

/// What describes a device's memory to ONNX Runtime; release it with ReleaseMemoryInfo.
OrtMemoryInfo* memory_info(const Ort& ort, int id, bool pinned);

/// Copies between the devices' memory and the host's, for all devices.
class DataTransfer : public OrtDataTransferImpl {
 public:
  DataTransfer(const Ort& ort, std::vector<std::shared_ptr<ProviderDevice>> devices);

 private:
  static bool can_copy(const OrtDataTransferImpl* self, const OrtMemoryDevice* from,
                       const OrtMemoryDevice* to) noexcept;
  static OrtStatus* copy(OrtDataTransferImpl* self, const OrtValue** from, OrtValue** to, OrtSyncStream** streams,
                         std::size_t count) noexcept;
  /// The device whose memory this is; null for the host's.
  ProviderDevice* device_of(const OrtValue* v, const void* data) const;

  const Ort& ort_;
  std::vector<std::shared_ptr<ProviderDevice>> devices_;
};

}  // namespace sardonyx::ep
