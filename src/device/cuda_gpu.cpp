// NVIDIA's GPUs through the CUDA driver: contexts, kernels compiled from PTX on first use, tensor maps.
#include <array>
#include <atomic>
#include <map>
#include <mutex>

#include "device/advice.h"
#include "device/driver_gpu.h"
#include "device/ptx_kernels.h"
#include "support/warning.h"
#include "target/chip.h"

namespace sardonyx {
namespace {

// CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT, _COMPUTE_CAPABILITY_MAJOR, _MINOR;
// CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES.
constexpr int kUnits = 16, kMajor = 75, kMinor = 76, kMaxDynamicShared = 8, kNonPortableCluster = 14;

class CudaGpu : public DriverGpu {
 public:
  CudaGpu(const Driver& driver, int ordinal, std::string name) : DriverGpu(driver, ordinal, std::move(name), kUnits) {
    info_.api = GpuApi::kCuda;
    int major = 0, minor = 0;
    driver.require(driver.attribute(&major, kMajor, ordinal), "reading an attribute");
    driver.require(driver.attribute(&minor, kMinor, ordinal), "reading an attribute");
    row_ = nvidia_chip(major, minor);
    if (!row_) fail(ErrorKind::kDevice, "{}: compute capability {}.{} is older than 8.0", info_.name, major, minor);
    // The driver compiles PTX for the card's own chip, which may be newer than those in the table.
    info_.target = row_->name;
    chip_ = row_->has(Feature::kExactChip) ? info_.target : fmt::format("sm_{}{}", major, minor);
    driver.require(driver.version(&cuda_), "reading the driver's version");
    if (const int wanted = row_->floors.cuda; cuda_ < wanted)
      fail(ErrorKind::kDevice,
           "{}: the driver is for CUDA {}.{}, and this GPU needs {}.{} or newer: install a newer driver", info_.name,
           cuda_ / 1000, cuda_ % 1000 / 10, wanted / 1000, wanted % 1000 / 10);
    driver.require(driver.retain_context(&context_, ordinal), "making a context");
  }

  std::shared_ptr<GpuModule> load(const std::string& code, PtxAssembler assembler) override;
  void reserve_shared(void* function, std::uint32_t bytes) override {
    if (bytes <= static_cast<std::uint32_t>(row_->lds.without_asking)) return;
    const Scope scope(*this);
    driver().require(driver().set_function_attribute(function, kMaxDynamicShared, static_cast<int>(bytes)),
                     "reserving shared memory");
  }
  void allow_large_cluster(void* function) override {
    const Scope scope(*this);
    driver().require(driver().set_function_attribute(function, kNonPortableCluster, 1), "allowing large clusters");
  }
  TensorMap tensor_map(const TensorMapInfo& info, void* address) override {
    // Constants of cuda.h.
    constexpr int kOneByte = 0, kTwoBytes = 1, kNotInterleaved = 0, kSwizzle64 = 2, kSwizzle128 = 3, kPromote128 = 2,
                  kOutsideIsZero = 0;
    if (!driver().encode_tensor_map || !driver().encode_windows_map)
      fail(ErrorKind::kDevice, "{}: the driver has no tensor maps: install one for CUDA 12.0 or newer", info_.name);
    std::array<std::uint32_t, TensorMapInfo::kMaxRank> steps;
    steps.fill(1);
    const int swizzle = info.box[0] * info.bytes > 64 ? kSwizzle128 : kSwizzle64;
    const int type = info.bytes == 1 ? kOneByte : kTwoBytes;
    TensorMap map;
    // The driver asks for a context, and kernels that run when a program is loaded have set none.
    const Scope scope(*this);
    if (info.windows) {
      check(info.rank == 4, "windows over {} dims", info.rank);
      steps[1] = info.steps[0];
      steps[2] = info.steps[1];
      driver().require(driver().encode_windows_map(map.bits.data(), type, static_cast<unsigned>(info.rank), address,
                                                   info.dims.data(), info.strides.data() + 1, info.lower.data(),
                                                   info.upper.data(), info.box[0], info.box[1], steps.data(),
                                                   kNotInterleaved, swizzle, kPromote128, kOutsideIsZero),
                       "making a tensor map of images");
      return map;
    }
    driver().require(driver().encode_tensor_map(map.bits.data(), type, static_cast<unsigned>(info.rank), address,
                                                info.dims.data(), info.strides.data() + 1, info.box.data(),
                                                steps.data(), kNotInterleaved, swizzle, kPromote128, kOutsideIsZero),
                     "making a tensor map");
    return map;
  }

  /// The target of machine code, and the version of CUDA that the driver supports.
  const std::string& chip() const { return chip_; }
  int cuda() const { return cuda_; }

 protected:
  Current make_current() override {
    Current before;
    driver().get_context(&before.context);
    if (before.context != context_) driver().require(driver().set_context(context_), "choosing a device");
    return before;
  }
  void restore(const Current& before) noexcept override {
    if (before.context != context_) driver().set_context(before.context);
  }

 private:
  void* context_ = nullptr;
  const Chip* row_ = nullptr;
  std::string chip_;
  int cuda_ = 0;
};

/// PTX. A large kernel takes the driver a tenth of a second, and it compiles one at a time. So each kernel is compiled
/// when it is first used: sizes need only some of a program's kernels. An assembler compiles several in parallel. (The
/// driver's linker, cuLinkAddData, also uses several threads, but compiles relocatable code: it ignores setmaxnreg, and
/// kernels that rely on it spill.)
class PtxModule : public GpuModule {
 public:
  PtxModule(std::shared_ptr<CudaGpu> gpu, const std::string& ptx, PtxAssembler assembler)
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

  std::shared_ptr<CudaGpu> gpu_;
  PtxAssembler assembler_;
  PtxKernels kernels_;
  bool starts_early_;
  mutable std::map<std::string, Loaded, std::less<>> loaded_;  ///< by kernel
};

std::shared_ptr<GpuModule> CudaGpu::load(const std::string& code, PtxAssembler assembler) {
  return std::make_shared<PtxModule>(std::static_pointer_cast<CudaGpu>(shared_from_this()), code, std::move(assembler));
}

/// CUDA_KERNEL_NODE_PARAMS, first version.
struct CudaNode {
  void* function;
  unsigned grid[3], block[3];
  unsigned shared_bytes;
  void** arguments;
  void** extra;
};

class CudaForm : public DriverForm {
 public:
  std::shared_ptr<Gpu> make_gpu(const Driver& driver, int ordinal, std::string name) const override {
    return std::make_shared<CudaGpu>(driver, ordinal, std::move(name));
  }
  std::string advice() const override { return nvidia_advice(); }
  int with_node(const GpuLaunch& l, const std::function<int(const void*)>& use) const override {
    const CudaNode n = {
        l.function, {l.grid.x, l.grid.y, l.grid.z}, {l.block.x, l.block.y, l.block.z}, l.shared_bytes, l.arguments,
        nullptr};
    return use(&n);
  }
};

}  // namespace

const DriverForm& cuda_form() {
  static const CudaForm form;
  return form;
}

}  // namespace sardonyx
