// AMD GPUs through HIP, and simulated ones.
#include <cctype>
#include <string_view>
#include <vector>

#include "device/advice.h"
#include "device/driver_gpu.h"

namespace sardonyx {
namespace {

constexpr int kUnits = 63;  // hipDeviceAttributeMultiprocessorCount

class HipGpu : public DriverGpu {
 public:
  HipGpu(const Driver& driver, int ordinal, std::string name) : DriverGpu(driver, ordinal, std::move(name), kUnits) {
    info_.target = target();
    info_.api = GpuApi::kHip;
    info_.simulated = driver.simulated_microseconds != nullptr;
  }

  std::shared_ptr<GpuModule> load(const std::string& code, PtxAssembler) override {
    return std::make_shared<DriverModule>(std::static_pointer_cast<DriverGpu>(shared_from_this()), code.c_str());
  }
  void reserve_shared(void*, std::uint32_t) override {}  // launches may use all of LDS
  void allow_large_cluster(void*) override {}            // there are none
  TensorMap tensor_map(const TensorMapInfo&, void*) override {
    fail(ErrorKind::kInternal, "internal error: {}: AMD's GPUs have no tensor maps", info_.name);
  }

 protected:
  Current make_current() override {
    Current before;
    driver().get_device(&before.device);
    if (before.device != ordinal()) driver().require(driver().set_device(ordinal()), "choosing a device");
    return before;
  }
  void restore(const Current& before) noexcept override {
    if (before.device != ordinal()) driver().set_device(before.device);
  }

 private:
  // The architecture is a string in hipDeviceProp_t, whose layout differs between versions of ROCm, so it is searched
  // for: "gfx90a:sramecc+:xnack-".
  std::string target() const {
    std::vector<char> properties(16384);
    driver().require(driver().properties(properties.data(), ordinal()), "reading a device's properties");
    const std::string_view all(properties.data(), properties.size());
    // The card's name may contain "gfx" as well; we look for "gfx" followed by digits.
    for (std::size_t at = all.find("gfx"); at != std::string_view::npos; at = all.find("gfx", at + 1)) {
      std::size_t end = at + 3;
      while (end < all.size() && std::isalnum(static_cast<unsigned char>(all[end]))) ++end;
      if (end > at + 5 && std::isdigit(static_cast<unsigned char>(all[at + 3])))
        return std::string(all.substr(at, end - at));
    }
    fail(ErrorKind::kDevice, "{}: the driver does not report the GPU's architecture", info_.name);
  }
};

/// hipKernelNodeParams.
struct HipNode {
  unsigned block[3];
  void** extra;
  void* function;
  unsigned grid[3];
  void** arguments;
  unsigned shared_bytes;
};

class HipForm : public DriverForm {
 public:
  std::shared_ptr<Gpu> make_gpu(const Driver& driver, int ordinal, std::string name) const override {
    return std::make_shared<HipGpu>(driver, ordinal, std::move(name));
  }
  std::string advice() const override { return amd_advice(); }
  int with_node(const GpuLaunch& l, const std::function<int(const void*)>& use) const override {
    const HipNode n = {{l.block.x, l.block.y, l.block.z}, nullptr,     l.function,
                       {l.grid.x, l.grid.y, l.grid.z},    l.arguments, l.shared_bytes};
    return use(&n);
  }
};

}  // namespace

const DriverForm& hip_form() {
  static const HipForm form;
  return form;
}

}  // namespace sardonyx
