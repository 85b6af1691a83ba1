// The devices that the provider offers to ONNX Runtime: AMD GPUs, the simulated GPU, or the host in place of a GPU.
// Also the table that maps addresses to the device whose memory they are.
#pragma once
#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <mutex>
#include <shared_mutex>
#include <string>
#include <vector>

#include "device/device.h"
#include "sardonyx/device.h"

namespace sardonyx::ep {

inline constexpr std::uint32_t kAmd = 0x1002;       ///< PCI vendor id
inline constexpr char kMemoryName[] = "Hip";        ///< allocator name of device memory; onnxruntime-genai asks for it
inline constexpr char kPinnedName[] = "HipPinned";  ///< allocator name of pinned host memory

class ProviderDevice {
 public:
  ProviderDevice(DeviceInfo info, int id);

  const DeviceInfo& info() const { return info_; }
  /// The device id in ONNX Runtime: 0, 1, ... in the order in which devices are offered.
  int id() const { return id_; }
  bool is_host() const { return !gpu_; }
  /// Whether it is a card that the operating system may know too.
  bool is_card() const { return gpu_ && !gpu_->info().simulated; }

  /// Device memory, aligned to 256 bytes.
  std::shared_ptr<void> allocate(std::size_t bytes);
  /// Pinned host memory.
  std::shared_ptr<void> allocate_pinned(std::size_t bytes);
  /// Synchronous without a stream; with one, ordered in the stream.
  void copy(void* to, bool to_device, const void* from, bool from_device, std::size_t bytes, void* stream);
  /// Null on the host, where every call is synchronous.
  std::shared_ptr<void> create_stream();
  void synchronize(void* stream);
  /// Null on the host.
  std::unique_ptr<GpuEvent> create_event();

 private:
  DeviceInfo info_;
  int id_;
  Device device_;
  std::shared_ptr<Gpu> gpu_;  ///< null: the host
};

/// The devices named in `wanted` ("host", "hip:1,hip:3", "sim:gfx1100"); all AMD GPUs if it is empty. `problems`
/// receives why a driver offers none, for the log. Throws Error for a device that cannot be opened.
std::vector<std::shared_ptr<ProviderDevice>> find_devices(const std::string& wanted,
                                                          std::vector<std::string>& problems);
/// The device with this name and id; the same object each time.
std::shared_ptr<ProviderDevice> device_named(const std::string& name, int id);

/// Address ranges handed out by the provider's allocators, with the device that each belongs to.
class Addresses {
 public:
  static Addresses& instance();
  void add(const void* begin, std::size_t bytes, ProviderDevice* device);
  void remove(const void* begin);
  /// Null for memory that these allocators did not hand out.
  ProviderDevice* find(const void* p) const;

 private:
  struct Range {
    std::size_t bytes;
    ProviderDevice* device;
  };
  mutable std::shared_mutex mutex_;
  std::map<const std::byte*, Range> ranges_;
};

}  // namespace sardonyx::ep
