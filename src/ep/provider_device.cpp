// Devices and their memory; see provider_device.h.
#include "ep/provider_device.h"

#include <cstring>
#include <sstream>

#include "ep/process_wide.h"
#include "sardonyx/sardonyx.h"
#include "support/error.h"

namespace sardonyx::ep {
namespace {

struct ProviderDevices {
  std::mutex mutex;
  std::map<std::pair<std::string, int>, std::shared_ptr<ProviderDevice>> by_name_and_id;
};

}  // namespace

ProviderDevice::ProviderDevice(DeviceInfo info, int id)
    : info_(std::move(info)), id_(id), device_(Device::open(info_.name)) {
  if (is_gpu_name(info_.name)) gpu_ = open_gpu(info_.name);
}

std::shared_ptr<void> ProviderDevice::allocate(std::size_t bytes) { return device_.allocate(bytes); }
std::shared_ptr<void> ProviderDevice::allocate_pinned(std::size_t bytes) { return device_.allocate_pinned(bytes); }

void ProviderDevice::copy(void* to, bool to_device, const void* from, bool from_device, std::size_t bytes,
                          void* stream) {
  if (bytes == 0) return;
  if (!gpu_ || (!to_device && !from_device)) {
    std::memmove(to, from, bytes);
    return;
  }
  const CopyKind kind = !from_device ? CopyKind::kToDevice : to_device ? CopyKind::kOnDevice : CopyKind::kToHost;
  device_.copy(to, from, bytes, kind, stream);
}

std::shared_ptr<void> ProviderDevice::create_stream() { return device_.create_stream(); }
void ProviderDevice::synchronize(void* stream) {
  if (gpu_) device_.synchronize(stream);
}
std::unique_ptr<GpuEvent> ProviderDevice::create_event() { return gpu_ ? gpu_->create_event() : nullptr; }

std::shared_ptr<ProviderDevice> device_named(const std::string& name, int id) {
  ProviderDevices& devices = process_wide<ProviderDevices>();
  const std::lock_guard lock(devices.mutex);
  std::shared_ptr<ProviderDevice>& c = devices.by_name_and_id[{name, id}];
  if (c) return c;
  DeviceInfo info = Device::open(name).info();
  info.name = name;
  c = std::make_shared<ProviderDevice>(std::move(info), id);
  return c;
}

std::vector<std::shared_ptr<ProviderDevice>> find_devices(const std::string& wanted,
                                                          std::vector<std::string>& problems) {
  std::vector<std::shared_ptr<ProviderDevice>> out;
  if (!wanted.empty()) {
    std::istringstream list(wanted);
    for (std::string name; std::getline(list, name, ',');)
      out.push_back(device_named(name, static_cast<int>(out.size())));
    return out;
  }
  for (const GpuInfo& g : list_gpus(&problems))
    if (g.api == GpuApi::kHip) out.push_back(device_named(g.name, static_cast<int>(out.size())));
  return out;
}

Addresses& Addresses::instance() { return process_wide<Addresses>(); }

void Addresses::add(const void* begin, std::size_t bytes, ProviderDevice* device) {
  const std::unique_lock lock(mutex_);
  ranges_[static_cast<const std::byte*>(begin)] = {bytes, device};
}

void Addresses::remove(const void* begin) {
  const std::unique_lock lock(mutex_);
  ranges_.erase(static_cast<const std::byte*>(begin));
}

ProviderDevice* Addresses::find(const void* p) const {
  const auto* b = static_cast<const std::byte*>(p);
  const std::shared_lock lock(mutex_);
  auto it = ranges_.upper_bound(b);
  if (it == ranges_.begin()) return nullptr;
  --it;
  return b < it->first + it->second.bytes ? it->second.device : nullptr;
}

}  // namespace sardonyx::ep
