// Gpu over a Driver.
#include <algorithm>
#include <cctype>
#include <charconv>
#include <cstring>
#include <map>
#include <mutex>

#include "device/device.h"
#include "device/driver.h"
#include "support/error.h"

namespace sardonyx {
namespace {

// Attribute numbers of the two interfaces.
constexpr int kCudaUnits = 16, kCudaMajor = 75, kCudaMinor = 76;
constexpr int kHipUnits = 63;

class DriverGpu : public Gpu {
 public:
  DriverGpu(const Driver& driver, int ordinal, std::string name) : driver_(driver), ordinal_(ordinal) {
    info_.name = std::move(name);
    int count = 0;
    driver_.require(driver_.device_count(&count), "counting devices");
    if (ordinal >= count) fail(ErrorKind::kDevice, "{}: there is no such card; the driver has {}", info_.name, count);
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
      if (major < 8)
        fail(ErrorKind::kDevice, "{}: compute capability {}.{} is older than 8.0", info_.name, major, minor);
      info_.target = major >= 9 ? "sm_90" : "sm_80";  // PTX is compiled further by the driver
      driver_.require(driver_.retain_context(&context_, ordinal), "making a context");
    } else {
      info_.target = hip_target();
    }
  }

  std::shared_ptr<void> allocate(std::size_t bytes) override {
    make_current();
    void* p = nullptr;
    const int code = driver_.malloc(&p, std::max<std::size_t>(bytes, 1));
    if (code != 0)
      fail(ErrorKind::kDevice, "{}: {} bytes of device memory can't be allocated: {}", info_.name, bytes,
           driver_.error(code));
    return std::shared_ptr<void>(p, [self = shared_from_this(), this](void* memory) {
      try {
        make_current();
      } catch (const Error&) {  // the process ends, the driver is gone
        return;
      }
      driver_.free(memory);
    });
  }

  void upload(void* to, const void* from, std::size_t bytes) override {
    if (bytes == 0) return;
    make_current();
    driver_.require(driver_.upload(to, from, bytes), "a copy to the device");
  }
  void download(void* to, const void* from, std::size_t bytes) override {
    if (bytes == 0) return;
    make_current();
    driver_.require(driver_.download(to, from, bytes), "a copy from the device");
  }
  void copy(void* to, const void* from, std::size_t bytes) override {
    if (bytes == 0) return;
    make_current();
    driver_.require(driver_.copy(to, from, bytes, nullptr), "a copy on the device");
  }

  std::shared_ptr<GpuModule> load(const std::string& code) override;

  void launch(void* function, std::uint32_t blocks, std::uint32_t threads, void** arguments) override {
    make_current();
    driver_.require(driver_.launch(function, blocks, 1, 1, threads, 1, 1, 0, nullptr, arguments, nullptr), "a launch");
  }
  void synchronize() override {
    make_current();
    driver_.require(driver_.synchronize(), "a kernel");
  }
  std::uint64_t free_memory() override {
    make_current();
    std::size_t available = 0, total = 0;
    driver_.require(driver_.memory_info(&available, &total), "reading free memory");
    return available;
  }

  void make_current() {
    if (driver_.is_cuda)
      driver_.require(driver_.set_context(context_), "choosing a device");
    else
      driver_.require(driver_.set_device(ordinal_), "choosing a device");
  }
  const Driver& driver() const { return driver_; }

 private:
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
};

class DriverModule : public GpuModule {
 public:
  DriverModule(std::shared_ptr<DriverGpu> gpu, const std::string& code) : gpu_(std::move(gpu)) {
    gpu_->make_current();
    gpu_->driver().require(gpu_->driver().module_load(&module_, code.c_str()), "loading compiled code");
  }
  ~DriverModule() override {
    try {
      gpu_->make_current();
      gpu_->driver().module_unload(module_);
    } catch (const Error&) {  // the driver is gone
    }
  }
  void* function(const char* name) const override {
    void* f = nullptr;
    gpu_->make_current();
    gpu_->driver().require(gpu_->driver().module_function(&f, module_, name), name);
    return f;
  }

 private:
  std::shared_ptr<DriverGpu> gpu_;
  void* module_ = nullptr;
};

std::shared_ptr<GpuModule> DriverGpu::load(const std::string& code) {
  return std::make_shared<DriverModule>(std::static_pointer_cast<DriverGpu>(shared_from_this()), code);
}

struct Name {
  std::string kind, rest;
};

Name split(std::string_view name) {
  const std::size_t colon = std::min(name.find(':'), name.size());
  return {std::string(name.substr(0, colon)), std::string(name.substr(std::min(colon + 1, name.size())))};
}

}  // namespace

bool is_gpu_name(std::string_view name) {
  const Name n = split(name);
  return n.kind == "hip" || n.kind == "cuda" || n.kind == "sim";
}

std::shared_ptr<Gpu> open_gpu(const std::string& name) {
  static std::mutex mutex;
  static std::map<std::string, std::shared_ptr<Gpu>> open;
  const Name n = split(name);
  int ordinal = 0;
  const bool sim = n.kind == "sim";
  if (sim) {
    const auto chip = std::find(sim_chips().begin(), sim_chips().end(), n.rest);
    ordinal = chip == sim_chips().end() ? -1 : static_cast<int>(chip - sim_chips().begin());
    if (ordinal < 0)
      fail(ErrorKind::kInvalidArgument, "no chip '{}' can be simulated; there are {}", n.rest,
           fmt::join(sim_chips(), ", "));
  } else if (!n.rest.empty()) {
    const auto [end, error] = std::from_chars(n.rest.data(), n.rest.data() + n.rest.size(), ordinal);
    if (error != std::errc() || *end != 0 || ordinal < 0) ordinal = -1;
  }
  if (!is_gpu_name(name) || ordinal < 0)
    fail(ErrorKind::kInvalidArgument,
         "no device is called '{}'; there are host, hip, hip:1, cuda, cuda:1, sim:gfx942 and the like", name);
  const std::string full = sim ? name : n.kind + ":" + std::to_string(ordinal);
  const std::lock_guard lock(mutex);
  std::shared_ptr<Gpu>& gpu = open[full];
  if (!gpu)
    gpu = std::make_shared<DriverGpu>(sim               ? sim_driver()
                                      : n.kind == "hip" ? hip_driver()
                                                        : cuda_driver(),
                                      ordinal, full);
  return gpu;
}

std::vector<GpuInfo> list_gpus(std::vector<std::string>* problems) {
  std::vector<GpuInfo> found;
  for (const char* kind : {"hip", "cuda"}) {
    try {
      const Driver& d = std::strcmp(kind, "hip") == 0 ? hip_driver() : cuda_driver();
      int count = 0;
      d.require(d.device_count(&count), "counting devices");
      for (int k = 0; k < count; ++k) {
        try {
          found.push_back(open_gpu(fmt::format("{}:{}", kind, k))->info());
        } catch (const Error& e) {
          if (problems) problems->push_back(e.what());
        }
      }
    } catch (const Error& e) {
      if (problems) problems->push_back(e.what());
    }
  }
  return found;
}

}  // namespace sardonyx
