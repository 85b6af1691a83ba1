// Gpu on top of a Driver: what HIP and CUDA have in common. The rest is in hip_gpu.cpp and cuda_gpu.cpp. Private to
// this component.
#pragma once
#include <memory>
#include <string>

#include "device/device.h"
#include "device/driver.h"
#include "support/error.h"

namespace sardonyx {

class DriverGpu : public Gpu {
 public:
  std::shared_ptr<void> allocate(std::size_t bytes) override;
  std::shared_ptr<void> allocate_pinned(std::size_t bytes) override;
  std::shared_ptr<void> create_stream() override;
  std::unique_ptr<GpuEvent> create_event() override;
  void upload(void* to, const void* from, std::size_t bytes, GpuStream stream) override;
  void download(void* to, const void* from, std::size_t bytes, GpuStream stream) override;
  void copy(void* to, const void* from, std::size_t bytes, GpuStream stream) override;
  void launch(const GpuLaunch& launch, GpuStream stream) override;
  std::unique_ptr<GpuGraph> make_graph(std::span<const GpuLaunch> launches) override;
  void synchronize(GpuStream stream) override;
  void synchronize_device() override;
  std::optional<double> estimated_seconds() override;
  std::uint64_t free_memory() override;

  const Driver& driver() const { return driver_; }
  int ordinal() const { return ordinal_; }

  /// Calls `f` with this device current, in destructors that may run when the process ends and the driver is already
  /// unloaded.
  template <typename F>
  void at_the_end(const F& f) noexcept {
    try {
      const Scope scope(*this);
      f();
    } catch (const Error&) {
      return;  // the driver is already unloaded
    }
  }

 protected:
  /// Throws Error(kDevice) if there is no such GPU. `units`: the attribute that is the number of compute units.
  DriverGpu(const Driver& driver, int ordinal, std::string name, int units);

 private:
  std::shared_ptr<void> owned(void* p, int (*release)(void*));

  const Driver& driver_;
  int ordinal_;
};

/// A code object of AMD or NVIDIA, or PTX text.
class DriverModule : public GpuModule {
 public:
  DriverModule(std::shared_ptr<DriverGpu> gpu, const void* code);
  ~DriverModule() override;
  void* function(const char* name) const override;
  bool has(const char* name) const override;
  bool lazy() const override { return false; }
  bool starts_early() const override { return false; }

 private:
  std::shared_ptr<DriverGpu> gpu_;
  void* module_ = nullptr;
};

}  // namespace sardonyx
