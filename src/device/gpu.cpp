// See driver_gpu.h.
#include <algorithm>

#include "device/driver_gpu.h"

namespace sardonyx {
namespace {

// The same value in both interfaces.
constexpr unsigned kNonBlockingStream = 1;
constexpr unsigned kEventWithoutTiming = 2;
constexpr unsigned kPinnedForAllDevices = 1;

thread_local Gpu* current_scope = nullptr;

class DriverEvent : public GpuEvent {
 public:
  explicit DriverEvent(std::shared_ptr<DriverGpu> gpu) : gpu_(std::move(gpu)) {
    const Gpu::Scope scope(*gpu_);
    gpu_->driver().require(gpu_->driver().event_create(&event_, kEventWithoutTiming), "making an event");
  }
  ~DriverEvent() override {
    gpu_->at_the_end([&] { gpu_->driver().event_destroy(event_); });
  }
  void record(GpuStream stream) override {
    const Gpu::Scope scope(*gpu_);
    gpu_->driver().require(gpu_->driver().event_record(event_, stream), "recording an event");
  }
  void synchronize() override {
    const Gpu::Scope scope(*gpu_);
    gpu_->driver().require(gpu_->driver().event_synchronize(event_), "a kernel");
  }
  void wait_in(GpuStream stream) override {
    const Gpu::Scope scope(*gpu_);
    gpu_->driver().require(gpu_->driver().stream_wait(stream, event_, 0), "waiting for an event");
  }

 private:
  std::shared_ptr<DriverGpu> gpu_;
  void* event_ = nullptr;
};

}  // namespace

DriverGpu::DriverGpu(const Driver& driver, int ordinal, std::string name, int units)
    : driver_(driver), ordinal_(ordinal) {
  info_.name = std::move(name);
  int count = 0;
  driver_.require(driver_.device_count(&count), "counting devices");
  if (ordinal >= count)
    fail(ErrorKind::kDevice, "{}: there is no such GPU; the driver has {}{}", info_.name, count,
         count > 0 ? "" : driver_.form->advice());
  char text[256] = {};
  driver_.require(driver_.device_name(text, sizeof text - 1, ordinal), "reading a device's name");
  info_.description = text;
  std::size_t memory = 0;
  driver_.require(driver_.total_memory(&memory, ordinal), "reading a device's memory");
  info_.memory = memory;
  driver_.require(driver_.attribute(&info_.units, units, ordinal), "reading an attribute");
}

std::shared_ptr<void> DriverGpu::allocate(std::size_t bytes) {
  const Scope scope(*this);
  void* p = nullptr;
  const int code = driver_.malloc(&p, std::max<std::size_t>(bytes, 1));
  if (code != 0)
    fail(ErrorKind::kDevice, "{}: {} bytes of device memory can't be allocated: {}", info_.name, bytes,
         driver_.error(code));
  return owned(p, driver_.free);
}

std::shared_ptr<void> DriverGpu::allocate_pinned(std::size_t bytes) {
  const Scope scope(*this);
  void* p = nullptr;
  const int code = driver_.malloc_pinned(&p, std::max<std::size_t>(bytes, 1), kPinnedForAllDevices);
  if (code != 0)
    fail(ErrorKind::kDevice, "{}: {} bytes of pinned memory can't be allocated: {}", info_.name, bytes,
         driver_.error(code));
  return owned(p, driver_.free_pinned);
}

std::shared_ptr<void> DriverGpu::create_stream() {
  const Scope scope(*this);
  void* s = nullptr;
  driver_.require(driver_.stream_create(&s, kNonBlockingStream), "making a stream");
  return owned(s, driver_.stream_destroy);
}

void DriverGpu::upload(void* to, const void* from, std::size_t bytes, GpuStream stream) {
  if (bytes == 0) return;
  const Scope scope(*this);
  driver_.require(driver_.upload(to, from, bytes, stream), "a copy to the device");
}

void DriverGpu::download(void* to, const void* from, std::size_t bytes, GpuStream stream) {
  if (bytes == 0) return;
  const Scope scope(*this);
  driver_.require(driver_.download(to, from, bytes, stream), "a copy from the device");
}

void DriverGpu::copy(void* to, const void* from, std::size_t bytes, GpuStream stream) {
  if (bytes == 0) return;
  const Scope scope(*this);
  driver_.require(driver_.copy(to, from, bytes, stream), "a copy on the device");
}

void DriverGpu::launch(const GpuLaunch& l, GpuStream stream) {
  const Scope scope(*this);
  if (l.work) return l.work->give(stream);
  driver_.require(driver_.launch(l.function, l.grid.x, l.grid.y, l.grid.z, l.block.x, l.block.y, l.block.z,
                                 l.shared_bytes, stream, l.arguments, nullptr),
                  "a launch");
}

std::unique_ptr<GpuGraph> DriverGpu::make_graph(std::span<const GpuLaunch> launches) {
  const Scope scope(*this);
  return sardonyx::make_graph(driver_, shared_from_this(), launches);
}

void DriverGpu::synchronize(GpuStream stream) {
  const Scope scope(*this);
  driver_.require(driver_.stream_synchronize(stream), "a kernel");
}

void DriverGpu::synchronize_device() {
  const Scope scope(*this);
  driver_.require(driver_.device_synchronize(), "waiting for the device");
}

std::optional<double> DriverGpu::estimated_seconds() {
  const double us = driver_.simulated_microseconds ? driver_.simulated_microseconds() : -1;
  return us < 0 ? std::optional<double>() : us * 1e-6;
}

std::uint64_t DriverGpu::free_memory() {
  const Scope scope(*this);
  std::size_t available = 0, total = 0;
  driver_.require(driver_.memory_info(&available, &total), "reading free memory");
  return available;
}

std::unique_ptr<GpuEvent> DriverGpu::create_event() {
  return std::make_unique<DriverEvent>(std::static_pointer_cast<DriverGpu>(shared_from_this()));
}

std::shared_ptr<void> DriverGpu::owned(void* p, int (*release)(void*)) {
  return std::shared_ptr<void>(
      p, [self = shared_from_this(), this, release](void* x) { at_the_end([&] { release(x); }); });
}

DriverModule::DriverModule(std::shared_ptr<DriverGpu> gpu, const void* code) : gpu_(std::move(gpu)) {
  const Gpu::Scope scope(*gpu_);
  gpu_->driver().require(gpu_->driver().module_load(&module_, code), "loading compiled code");
}

DriverModule::~DriverModule() {
  gpu_->at_the_end([&] { gpu_->driver().module_unload(module_); });
}

void* DriverModule::function(const char* name) const {
  void* f = nullptr;
  const Gpu::Scope scope(*gpu_);
  gpu_->driver().require(gpu_->driver().module_function(&f, module_, name), name);
  return f;
}

bool DriverModule::has(const char* name) const {
  void* f = nullptr;
  const Gpu::Scope scope(*gpu_);
  return gpu_->driver().module_function(&f, module_, name) == 0;
}

Gpu::Scope::Scope(Gpu& gpu) : gpu_(&gpu), outer_(current_scope) {
  if (outer_ == gpu_) return;
  before_ = gpu.make_current();
  current_scope = gpu_;
}

Gpu::Scope::~Scope() {
  if (outer_ == gpu_) return;
  current_scope = outer_;
  gpu_->restore(before_);
}

std::optional<MemoryHandle> share_memory(Gpu& gpu, void* memory) {
  const auto& g = dynamic_cast<DriverGpu&>(gpu);
  MemoryHandle handle{};
  const Gpu::Scope scope(gpu);
  if (!g.driver().ipc_handle || g.driver().ipc_handle(&handle, memory) != 0) return std::nullopt;
  return handle;
}

std::shared_ptr<void> open_memory(const std::shared_ptr<Gpu>& gpu, const MemoryHandle& handle) {
  constexpr unsigned kEnablePeerAccess = 1;  // hipIpcMemLazyEnablePeerAccess, CU_IPC_MEM_LAZY_ENABLE_PEER_ACCESS
  const auto g = std::dynamic_pointer_cast<DriverGpu>(gpu);
  const Gpu::Scope scope(*gpu);
  void* memory = nullptr;
  if (!g->driver().ipc_open || g->driver().ipc_open(&memory, handle, kEnablePeerAccess) != 0) return nullptr;
  return std::shared_ptr<void>(memory, [g](void* p) { g->at_the_end([&] { g->driver().ipc_close(p); }); });
}

std::shared_ptr<Gpu> make_gpu(const Driver& driver, int ordinal, std::string name) {
  return driver.form->make_gpu(driver, ordinal, std::move(name));
}

}  // namespace sardonyx
