// The C++ interface's Device: a GPU, or the host's memory.
#include "sardonyx/device.h"

#include <unistd.h>

#include <cstring>

#include "api/host_info.h"
#include "device/memory.h"
#include "sardonyx/sardonyx.h"
#include "support/error.h"

namespace sardonyx {

struct Device::Impl {
  std::shared_ptr<Gpu> gpu;  // null: the host
};

Device Device::open(const std::string& name) {
  auto impl = std::make_shared<Impl>();
  if (name != "host") impl->gpu = open_gpu(name);
  return Device(std::move(impl));
}

DeviceInfo Device::info() const {
  if (!impl_->gpu) return host_info();
  const GpuInfo& g = impl_->gpu->info();
  return {g.name, g.description, g.target, g.units, g.memory};
}

std::shared_ptr<void> Device::allocate(std::size_t bytes) const {
  if (impl_->gpu) return impl_->gpu->allocate(bytes);
  const Tensor t = Tensor::allocate(DType::kUInt8, {static_cast<std::int64_t>(bytes)});
  return t.owner;
}

std::shared_ptr<void> Device::allocate_pinned(std::size_t bytes) const {
  return impl_->gpu ? impl_->gpu->allocate_pinned(bytes) : allocate(bytes);
}

std::shared_ptr<void> Device::create_stream() const { return impl_->gpu ? impl_->gpu->create_stream() : nullptr; }

void Device::copy(void* to, const void* from, std::size_t bytes, CopyKind kind, void* stream) const {
  if (bytes == 0) return;
  if (!impl_->gpu) {
    std::memcpy(to, from, bytes);
    return;
  }
  Gpu& g = *impl_->gpu;
  const std::shared_ptr<void> own = stream ? nullptr : g.create_stream();
  void* const s = stream ? stream : own.get();
  if (kind == CopyKind::kToDevice)
    stream ? g.upload(to, from, bytes, s) : GpuTransfers(impl_->gpu).upload(to, from, bytes, s);
  else if (kind == CopyKind::kToHost)
    stream ? g.download(to, from, bytes, s) : GpuTransfers(impl_->gpu).download(to, from, bytes, s);
  else
    g.copy(to, from, bytes, s);
  if (!stream) g.synchronize(s);
}

void Device::synchronize(void* stream) const {
  if (impl_->gpu) impl_->gpu->synchronize(stream);
}

std::uint64_t Device::free_memory() const {
  if (impl_->gpu) return impl_->gpu->free_memory();
  return static_cast<std::uint64_t>(::sysconf(_SC_AVPHYS_PAGES)) * static_cast<std::uint64_t>(::sysconf(_SC_PAGESIZE));
}

}  // namespace sardonyx
