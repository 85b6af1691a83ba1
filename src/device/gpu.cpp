// Gpu over a Driver.
#include <algorithm>
#include <array>
#include <atomic>
#include <cctype>
#include <map>
#include <mutex>
#include <string_view>

#include "device/advice.h"
#include "device/device.h"
#include "device/driver.h"
#include "device/ptx_kernels.h"
#include "support/error.h"
#include "support/warning.h"
#include "target/chip.h"

namespace sardonyx {
namespace {

// Numbers of the two interfaces.
constexpr int kCudaUnits = 16, kCudaMajor = 75, kCudaMinor = 76;
constexpr int kHipUnits = 63;
constexpr int kCudaMaxDynamicShared = 8;      // a function's attribute
constexpr unsigned kNonBlockingStream = 1;    // in both
constexpr unsigned kEventWithoutTiming = 2;   // in both
constexpr unsigned kPinnedForAllDevices = 1;  // in both
constexpr std::uint32_t kSharedWithoutAsking = 48 << 10;

thread_local Gpu* current_scope = nullptr;

class DriverGpu : public Gpu {
 public:
  DriverGpu(const Driver& driver, int ordinal, std::string name) : driver_(driver), ordinal_(ordinal) {
    info_.name = std::move(name);
    int count = 0;
    driver_.require(driver_.device_count(&count), "counting devices");
    if (ordinal >= count)
      fail(ErrorKind::kDevice, "{}: there is no such card; the driver has {}{}", info_.name, count,
           count > 0         ? ""
           : driver_.is_cuda ? nvidia_advice()
                             : amd_advice());
    char text[256] = {};
    driver_.require(driver_.device_name(text, sizeof text - 1, ordinal), "reading a device's name");
    info_.description = text;
    std::size_t memory = 0;
    driver_.require(driver_.total_memory(&memory, ordinal), "reading a device's memory");
    info_.memory = memory;
    driver_.require(driver_.attribute(&info_.units, driver_.is_cuda ? kCudaUnits : kHipUnits, ordinal),
                    "reading an attribute");
    if (driver_.is_cuda) {
      int major = 0, minor = 0;
      driver_.require(driver_.attribute(&major, kCudaMajor, ordinal), "reading an attribute");
      driver_.require(driver_.attribute(&minor, kCudaMinor, ordinal), "reading an attribute");
      const Chip* chip = nvidia_chip(major, minor);
      if (!chip) fail(ErrorKind::kDevice, "{}: compute capability {}.{} is older than 8.0", info_.name, major, minor);
      // The driver compiles PTX for whatever later chip the card has.
      info_.target = chip->name;
      chip_ = chip->has(Feature::kExactChip) ? info_.target : fmt::format("sm_{}{}", major, minor);
      driver_.require(driver_.version(&cuda_), "reading the driver's version");
      if (const int wanted = chip->floors.cuda; cuda_ < wanted)
        fail(ErrorKind::kDevice,
             "{}: the driver is for CUDA {}.{}, and this card needs {}.{} or newer: install a newer one", info_.name,
             cuda_ / 1000, cuda_ % 1000 / 10, wanted / 1000, wanted % 1000 / 10);
      driver_.require(driver_.retain_context(&context_, ordinal), "making a context");
    } else {
      info_.target = hip_target();
    }
  }

  GpuApi api() const override { return driver_.is_cuda ? GpuApi::kCuda : GpuApi::kHip; }
  std::shared_ptr<void> allocate(std::size_t bytes) override {
    const Scope scope(*this);
    void* p = nullptr;
    const int code = driver_.malloc(&p, std::max<std::size_t>(bytes, 1));
    if (code != 0)
      fail(ErrorKind::kDevice, "{}: {} bytes of device memory can't be allocated: {}", info_.name, bytes,
           driver_.error(code));
    return owned(p, driver_.free);
  }
  std::shared_ptr<void> allocate_pinned(std::size_t bytes) override {
    const Scope scope(*this);
    void* p = nullptr;
    const int code = driver_.malloc_pinned(&p, std::max<std::size_t>(bytes, 1), kPinnedForAllDevices);
    if (code != 0)
      fail(ErrorKind::kDevice, "{}: {} bytes of pinned memory can't be allocated: {}", info_.name, bytes,
           driver_.error(code));
    return owned(p, driver_.free_pinned);
  }
  std::shared_ptr<void> create_stream() override {
    const Scope scope(*this);
    void* s = nullptr;
    driver_.require(driver_.stream_create(&s, kNonBlockingStream), "making a stream");
    return owned(s, driver_.stream_destroy);
  }
  std::unique_ptr<GpuEvent> create_event() override;

  void upload(void* to, const void* from, std::size_t bytes, GpuStream stream) override {
    if (bytes == 0) return;
    const Scope scope(*this);
    driver_.require(driver_.upload(to, from, bytes, stream), "a copy to the device");
  }
  void download(void* to, const void* from, std::size_t bytes, GpuStream stream) override {
    if (bytes == 0) return;
    const Scope scope(*this);
    driver_.require(driver_.download(to, from, bytes, stream), "a copy from the device");
  }
  void copy(void* to, const void* from, std::size_t bytes, GpuStream stream) override {
    if (bytes == 0) return;
    const Scope scope(*this);
    driver_.require(driver_.copy(to, from, bytes, stream), "a copy on the device");
  }

  std::shared_ptr<GpuModule> load(const std::string& code, PtxAssembler assembler) override;

  void reserve_shared(void* function, std::uint32_t bytes) override {
    if (!driver_.is_cuda || bytes <= kSharedWithoutAsking) return;
    const Scope scope(*this);
    driver_.require(driver_.set_function_attribute(function, kCudaMaxDynamicShared, static_cast<int>(bytes)),
                    "reserving shared memory");
  }
  TensorMap tensor_map(const TensorMapInfo& info, void* address) override {
    // Numbers of cuda.h.
    constexpr int kTwoBytes = 1, kNotInterleaved = 0, kSwizzle64 = 2, kSwizzle128 = 3, kPromote128 = 2,
                  kOutsideIsZero = 0;
    if (!driver_.encode_tensor_map || !driver_.encode_windows_map)
      fail(ErrorKind::kDevice, "{}: the driver has no tensor maps: install one for CUDA 12.0 or newer", info_.name);
    std::array<std::uint32_t, TensorMapInfo::kMaxRank> steps;
    steps.fill(1);
    const int swizzle = info.box[0] * 2 > 64 ? kSwizzle128 : kSwizzle64;
    TensorMap map;
    if (info.windows) {
      check(info.rank == 4, "windows over {} dims", info.rank);
      steps[1] = info.steps[0];
      steps[2] = info.steps[1];
      driver_.require(driver_.encode_windows_map(map.bits.data(), kTwoBytes, static_cast<unsigned>(info.rank), address,
                                                 info.dims.data(), info.strides.data() + 1, info.lower.data(),
                                                 info.upper.data(), info.box[0], info.box[1], steps.data(),
                                                 kNotInterleaved, swizzle, kPromote128, kOutsideIsZero),
                      "making a tensor map of images");
      return map;
    }
    driver_.require(driver_.encode_tensor_map(map.bits.data(), kTwoBytes, static_cast<unsigned>(info.rank), address,
                                              info.dims.data(), info.strides.data() + 1, info.box.data(), steps.data(),
                                              kNotInterleaved, swizzle, kPromote128, kOutsideIsZero),
                    "making a tensor map");
    return map;
  }
  void launch(const GpuLaunch& l, GpuStream stream) override {
    const Scope scope(*this);
    if (l.work) return l.work->give(stream);
    driver_.require(driver_.launch(l.function, l.grid.x, l.grid.y, l.grid.z, l.block.x, l.block.y, l.block.z,
                                   l.shared_bytes, stream, l.arguments, nullptr),
                    "a launch");
  }
  std::unique_ptr<GpuGraph> make_graph(std::span<const GpuLaunch> launches) override {
    const Scope scope(*this);
    return sardonyx::make_graph(driver_, shared_from_this(), launches);
  }
  void synchronize(GpuStream stream) override {
    const Scope scope(*this);
    driver_.require(driver_.stream_synchronize(stream), "a kernel");
  }
  std::uint64_t free_memory() override {
    const Scope scope(*this);
    std::size_t available = 0, total = 0;
    driver_.require(driver_.memory_info(&available, &total), "reading free memory");
    return available;
  }

  const Driver& driver() const { return driver_; }
  /// Of NVIDIA's cards: what machine code is for, and the driver's version of CUDA.
  const std::string& chip() const { return chip_; }
  int cuda() const { return cuda_; }

  /// Calls `f` with this device current, when it may be that the process ends and the driver is gone.
  template <typename F>
  void at_the_end(const F& f) noexcept {
    try {
      const Scope scope(*this);
      f();
    } catch (const Error&) {
      return;  // the driver is gone
    }
  }

 protected:
  Current make_current() override {
    Current before;
    if (driver_.is_cuda) {
      driver_.get_context(&before.context);
      if (before.context != context_) driver_.require(driver_.set_context(context_), "choosing a device");
    } else {
      driver_.get_device(&before.device);
      if (before.device != ordinal_) driver_.require(driver_.set_device(ordinal_), "choosing a device");
    }
    return before;
  }
  void restore(const Current& before) noexcept override {
    if (driver_.is_cuda) {
      if (before.context != context_) driver_.set_context(before.context);
    } else if (before.device != ordinal_) {
      driver_.set_device(before.device);
    }
  }

 private:
  std::shared_ptr<void> owned(void* p, int (*release)(void*)) {
    return std::shared_ptr<void>(
        p, [self = shared_from_this(), this, release](void* x) { at_the_end([&] { release(x); }); });
  }

  // The architecture is text somewhere in hipDeviceProp_t, whose layout differs between versions of ROCm:
  // "gfx90a:sramecc+:xnack-".
  std::string hip_target() const {
    std::vector<char> properties(16384);
    driver_.require(driver_.properties(properties.data(), ordinal_), "reading a device's properties");
    const std::string_view all(properties.data(), properties.size());
    // Its name may say "gfx" as well; what counts is "gfx" with digits.
    for (std::size_t at = all.find("gfx"); at != std::string_view::npos; at = all.find("gfx", at + 1)) {
      std::size_t end = at + 3;
      while (end < all.size() && std::isalnum(static_cast<unsigned char>(all[end]))) ++end;
      if (end > at + 5 && std::isdigit(static_cast<unsigned char>(all[at + 3])))
        return std::string(all.substr(at, end - at));
    }
    fail(ErrorKind::kDevice, "{}: the driver does not say which architecture the card has", info_.name);
  }

  const Driver& driver_;
  int ordinal_;
  void* context_ = nullptr;
  std::string chip_;
  int cuda_ = 0;
};

class DriverModule : public GpuModule {
 public:
  /// `code`: a code object of AMD's or NVIDIA's.
  DriverModule(std::shared_ptr<DriverGpu> gpu, const void* code) : gpu_(std::move(gpu)) {
    const Gpu::Scope scope(*gpu_);
    gpu_->driver().require(gpu_->driver().module_load(&module_, code), "loading compiled code");
  }
  ~DriverModule() override {
    gpu_->at_the_end([&] { gpu_->driver().module_unload(module_); });
  }
  void* function(const char* name) const override {
    void* f = nullptr;
    const Gpu::Scope scope(*gpu_);
    gpu_->driver().require(gpu_->driver().module_function(&f, module_, name), name);
    return f;
  }
  bool has(const char* name) const override {
    void* f = nullptr;
    const Gpu::Scope scope(*gpu_);
    return gpu_->driver().module_function(&f, module_, name) == 0;
  }
  bool lazy() const override { return false; }
  bool starts_early() const override { return false; }

 private:
  std::shared_ptr<DriverGpu> gpu_;
  void* module_ = nullptr;
};

/// PTX. A large kernel takes a tenth of a second, and the driver compiles one at a time. So each kernel is made when it
/// is first asked for: of a program's kernels, sizes choose few. An assembler works on as many as are asked for. (The
/// driver's linker, cuLinkAddData, compiles on several threads, but as relocatable code: it ignores setmaxnreg, and
/// kernels that count on it spill.)
class PtxModule : public GpuModule {
 public:
  PtxModule(std::shared_ptr<DriverGpu> gpu, const std::string& ptx, PtxAssembler assembler)
      : gpu_(std::move(gpu)), assembler_(std::move(assembler)), kernels_(ptx), starts_early_(kernels_.wait()) {
    for (const std::string& name : kernels_.names()) loaded_[name];
  }
  void* function(const char* name) const override {
    const auto at = loaded_.find(name);
    if (at == loaded_.end()) fail(ErrorKind::kDevice, "{}: the compiled code has no kernel of this name", name);
    Loaded& l = at->second;
    std::call_once(l.once, [&] { l.module = load(kernels_.text_of(name)); });
    return l.module->function(name);
  }
  bool has(const char* name) const override { return loaded_.count(name) > 0; }
  bool lazy() const override { return true; }
  bool starts_early() const override { return starts_early_; }

 private:
  struct Loaded {
    std::once_flag once;
    std::unique_ptr<DriverModule> module;
  };
  std::unique_ptr<DriverModule> load(const std::string& ptx) const {
    static std::atomic<bool> refused = false;
    const auto code = assembler_ && !refused ? assembler_(ptx, gpu_->chip(), gpu_->cuda()) : std::nullopt;
    try {
      if (code) return std::make_unique<DriverModule>(gpu_, code->c_str());
    } catch (const Error& e) {
      if (!refused.exchange(true))
        warn(fmt::format("what NVIDIA's assembler makes is not used, the driver compiles kernels: {}", e.what()));
    }
    return std::make_unique<DriverModule>(gpu_, ptx.c_str());
  }

  std::shared_ptr<DriverGpu> gpu_;
  PtxAssembler assembler_;
  PtxKernels kernels_;
  bool starts_early_;
  mutable std::map<std::string, Loaded, std::less<>> loaded_;  ///< of each kernel
};

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

std::shared_ptr<GpuModule> DriverGpu::load(const std::string& code, PtxAssembler assembler) {
  auto gpu = std::static_pointer_cast<DriverGpu>(shared_from_this());
  if (driver_.is_cuda) return std::make_shared<PtxModule>(std::move(gpu), code, std::move(assembler));
  return std::make_shared<DriverModule>(std::move(gpu), code.c_str());
}

std::unique_ptr<GpuEvent> DriverGpu::create_event() {
  return std::make_unique<DriverEvent>(std::static_pointer_cast<DriverGpu>(shared_from_this()));
}

}  // namespace

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
  constexpr unsigned kEnablePeerAccess = 1;
  const auto g = std::dynamic_pointer_cast<DriverGpu>(gpu);
  const Gpu::Scope scope(*gpu);
  void* memory = nullptr;
  if (!g->driver().ipc_open || g->driver().ipc_open(&memory, handle, kEnablePeerAccess) != 0) return nullptr;
  return std::shared_ptr<void>(memory, [g](void* p) { g->at_the_end([&] { g->driver().ipc_close(p); }); });
}

std::shared_ptr<Gpu> make_gpu(const Driver& driver, int ordinal, std::string name) {
  return std::make_shared<DriverGpu>(driver, ordinal, std::move(name));
}

}  // namespace sardonyx
