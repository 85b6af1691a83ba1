// The library's two entry points and the factory behind them; see factory.h.
#include "ep/factory.h"

#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cstdlib>
#include <cstring>

#include "ep/compiled_group.h"
#include "ep/ep_context.h"
#include "ep/process_wide.h"
#include "ep/provider.h"
#include "ep/stream.h"
#include "options/provider_variables.h"
#include "sardonyx/sardonyx.h"

namespace sardonyx::ep {
namespace {

constexpr char kVendor[] = "AMD";

constinit std::atomic<int> factories = 0;

std::map<std::string, std::string> entries(const Ort& ort, const OrtKeyValuePairs* pairs) {
  const char* const* keys = nullptr;
  const char* const* values = nullptr;
  std::size_t n = 0;
  ort->GetKeyValuePairs(pairs, &keys, &values, &n);
  std::map<std::string, std::string> out;
  for (std::size_t k = 0; k < n; ++k) out[keys[k]] = values[k];
  return out;
}

Factory* self_of(const OrtEpFactory* f) { return static_cast<Factory*>(const_cast<OrtEpFactory*>(f)); }

}  // namespace

Factory::Factory(const OrtApiBase* base, const OrtLogger* logger, const std::string& names)
    : OrtEpFactory{}, ort_(base), log_(ort_, logger) {
  std::vector<std::string> problems;
  try {
    devices_ = find_devices(names, problems);
  } catch (const Error& e) {
    problems.push_back(e.what());
  }
  if (devices_.empty()) {
    std::string reasons;
    for (const std::string& p : problems) reasons += "; " + p;
    log_.warn(
        "no device is offered: no AMD GPU can be used{}. With SARDONYX_DEVICE=host in the environment before the "
        "library is registered, the provider runs on the CPU",
        reasons);
  }
  ort_version_supported = 23;
  GetName = [](const OrtEpFactory*) noexcept -> const char* { return kProvider; };
  GetVendor = [](const OrtEpFactory*) noexcept -> const char* { return kVendor; };
  GetVendorId = [](const OrtEpFactory*) noexcept -> std::uint32_t { return kAmd; };
  GetVersion = [](const OrtEpFactory*) noexcept -> const char* { return SARDONYX_VERSION; };
  GetSupportedDevices = [](OrtEpFactory* f, const OrtHardwareDevice* const* hardware, std::size_t count,
                           OrtEpDevice** out, std::size_t capacity, std::size_t* n) noexcept -> OrtStatus* {
    return self_of(f)->ort_.guarded([&] { self_of(f)->supported(hardware, count, out, capacity, n); });
  };
  CreateEp = [](OrtEpFactory* f, const OrtHardwareDevice* const*, const OrtKeyValuePairs* const* metadata,
                std::size_t count, const OrtSessionOptions* options, const OrtLogger* logger,
                OrtEp** ep) noexcept -> OrtStatus* {
    return self_of(f)->ort_.guarded([&] { *ep = self_of(f)->create(metadata, count, options, logger); });
  };
  ReleaseEp = [](OrtEpFactory*, OrtEp* ep) noexcept { delete static_cast<Provider*>(ep); };
  ValidateCompiledModelCompatibilityInfo = [](OrtEpFactory* f, const OrtHardwareDevice* const*, std::size_t,
                                              const char* info,
                                              OrtCompiledModelCompatibility* out) noexcept -> OrtStatus* {
    return self_of(f)->ort_.guarded([&] { *out = compatibility(info ? info : "", self_of(f)->devices_); });
  };
  CreateAllocator = [](OrtEpFactory* f, const OrtMemoryInfo* info, const OrtKeyValuePairs*,
                       OrtAllocator** out) noexcept -> OrtStatus* {
    return self_of(f)->ort_.guarded([&] { *out = self_of(f)->allocator(info); });
  };
  ReleaseAllocator = [](OrtEpFactory*, OrtAllocator* a) noexcept { delete static_cast<Allocator*>(a); };
  CreateDataTransfer = [](OrtEpFactory* f, OrtDataTransferImpl** out) noexcept -> OrtStatus* {
    return self_of(f)->ort_.guarded([&] { *out = new DataTransfer(self_of(f)->ort_, self_of(f)->devices_); });
  };
  IsStreamAware = [](const OrtEpFactory* f) noexcept {
    const auto& devices = self_of(f)->devices_;
    return std::any_of(devices.begin(), devices.end(), [](const auto& c) { return !c->is_host(); });
  };
  CreateSyncStreamForDevice = [](OrtEpFactory* f, const OrtMemoryDevice* d, const OrtKeyValuePairs*,
                                 OrtSyncStreamImpl** out) noexcept -> OrtStatus* {
    const Ort& ort = self_of(f)->ort_;
    return ort.guarded([&] {
      *out = nullptr;
      for (const auto& c : self_of(f)->devices_)
        if (static_cast<std::uint32_t>(c->id()) == ort.ep().MemoryDevice_GetDeviceId(d))
          *out = new Stream(ort, c, nullptr);
    });
  };
}

Factory::~Factory() {
  for (OrtMemoryInfo* i : infos_) ort_->ReleaseMemoryInfo(i);
  for (OrtHardwareDevice* d : virtual_) ort_.later()->ReleaseHardwareDevice(d);
}

// ONNX Runtime pairs a provider's device with hardware that it found: the k-th AMD GPU for the k-th device. Where it
// finds none (containers, Instinct cards without display nodes, the host in place of a GPU), the device is paired with
// a virtual GPU, or with the CPU before 1.24.
const OrtHardwareDevice* Factory::hardware_of(const ProviderDevice& device, const OrtHardwareDevice* const* hardware,
                                              std::size_t count) {
  const OrtHardwareDevice* cpu = nullptr;
  int gpus = 0;
  for (std::size_t k = 0; k < count; ++k) {
    const OrtHardwareDeviceType type = ort_->HardwareDevice_Type(hardware[k]);
    if (type == OrtHardwareDeviceType_CPU && !cpu) cpu = hardware[k];
    if (type == OrtHardwareDeviceType_GPU && ort_->HardwareDevice_VendorId(hardware[k]) == kAmd &&
        gpus++ == device.id() && device.is_card())
      return hardware[k];
  }
  if (!ort_.later()) return cpu;
  OrtKeyValuePairs* metadata = nullptr;
  ort_->CreateKeyValuePairs(&metadata);
  ort_->AddKeyValuePair(metadata, "Description", device.info().description.c_str());
  OrtHardwareDevice* made = nullptr;
  OrtStatus* s = ort_.later()->CreateHardwareDevice(OrtHardwareDeviceType_GPU, kAmd,
                                                    static_cast<std::uint32_t>(device.id()), kVendor, metadata, &made);
  ort_->ReleaseKeyValuePairs(metadata);
  ort_.require(s);
  virtual_.push_back(made);
  return made;
}

void Factory::supported(const OrtHardwareDevice* const* hardware, std::size_t count, OrtEpDevice** out,
                        std::size_t capacity, std::size_t* n) {
  *n = 0;
  for (const auto& device : devices_) {
    if (*n >= capacity) {
      log_.warn("ONNX Runtime accepts at most {} devices; {} and later ones are not offered", capacity,
                device->info().name);
      break;
    }
    const OrtHardwareDevice* found = hardware_of(*device, hardware, count);
    if (!found) fail(ErrorKind::kDevice, "ONNX Runtime found no device at all, not even the CPU");
    OrtKeyValuePairs* metadata = nullptr;
    ort_->CreateKeyValuePairs(&metadata);
    ort_->AddKeyValuePair(metadata, "device", device->info().name.c_str());
    ort_->AddKeyValuePair(metadata, "device_id", std::to_string(device->id()).c_str());
    ort_->AddKeyValuePair(metadata, "architecture",
                          device->info().target.substr(0, device->info().target.find(' ')).c_str());
    ort_->AddKeyValuePair(metadata, "description", device->info().description.c_str());
    OrtEpDevice* ep = nullptr;
    OrtStatus* s = ort_.ep().CreateEpDevice(this, found, metadata, nullptr, &ep);
    ort_->ReleaseKeyValuePairs(metadata);
    ort_.require(s);
    for (const bool pinned : {false, true}) {
      infos_.push_back(memory_info(ort_, device->id(), pinned));
      ort_.require(ort_.ep().EpDevice_AddAllocatorInfo(ep, infos_.back()));
    }
    out[(*n)++] = ep;
  }
}

std::shared_ptr<ProviderDevice> Factory::device_of(const OrtMemoryInfo* info) const {
  int id = 0;
  ort_.require(ort_->MemoryInfoGetId(info, &id));
  for (const auto& c : devices_)
    if (c->id() == id) return c;
  fail(ErrorKind::kInvalidArgument, "there is no device {}", id);
}

OrtAllocator* Factory::allocator(const OrtMemoryInfo* info) {
  const bool pinned = ort_->MemoryInfoGetDeviceMemType(info) == OrtDeviceMemoryType_HOST_ACCESSIBLE;
  const auto device = device_of(info);
  return new Allocator(ort_, device, device->id(), pinned, ArenaOptions{}, ExternalMemory{}, log_);
}

OrtEp* Factory::create(const OrtKeyValuePairs* const* metadata, std::size_t count, const OrtSessionOptions* options,
                       const OrtLogger* logger) {
  OrtKeyValuePairs* pairs = nullptr;
  ort_.require(ort_->GetSessionOptionsConfigEntries(options, &pairs));
  const std::map<std::string, std::string> config = entries(ort_, pairs);
  ort_->ReleaseKeyValuePairs(pairs);
  const Log log(ort_, logger);
  ProviderRemarks remarks;
  ProviderOptions p = read_provider_options(config, migraphx_variables(environ), user_cache_directory(), remarks);
  for (const std::string& n : remarks.notes) log.info("{}", n);
  for (const std::string& w : remarks.warnings) log.warn("{}", w);
  // One budget for tensors, weights and temporaries; sessions with a limit or memory of the application's do not share
  // groups.
  if (p.external.allocate && p.external.free)
    p.compile.device_memory_budget = std::make_shared<MemoryBudget>(p.gpu_mem_limit, external_source(p.external));
  else if (p.gpu_mem_limit)
    p.compile.device_memory_budget = std::make_shared<MemoryBudget>(p.gpu_mem_limit);
  // The session's device: the first that was passed to it, or the one among them that device_id names.
  std::vector<std::shared_ptr<ProviderDevice>> offered;
  for (std::size_t k = 0; k < count; ++k) {
    const auto m = metadata[k] ? entries(ort_, metadata[k]) : std::map<std::string, std::string>();
    const auto it = m.find("device_id");
    for (const auto& c : devices_)
      if (it != m.end() && std::to_string(c->id()) == it->second) offered.push_back(c);
  }
  if (offered.empty()) offered = devices_;
  if (offered.empty()) fail(ErrorKind::kDevice, "there is no device to run on");
  std::shared_ptr<ProviderDevice> device = offered.front();
  if (p.device_id >= 0) {
    device = nullptr;
    for (const auto& c : devices_)
      if (c->id() == p.device_id) device = c;
    if (!device)
      fail(ErrorKind::kInvalidArgument, "option device_id: there is no device {}, only {}", p.device_id,
           devices_.size());
  }
  if (!p.device.empty()) device = device_named(p.device, device->id());
  check_options(model_options(p, *device), device->is_host() ? "host" : device->info().target);
  return new Provider(ort_, log, std::move(p), std::move(device));
}

}  // namespace sardonyx::ep

extern "C" {

__attribute__((visibility("default"))) OrtStatus* CreateEpFactories(const char* registered_name, const OrtApiBase* base,
                                                                    const OrtLogger* logger, OrtEpFactory** factories,
                                                                    size_t capacity, size_t* count) {
  *count = 0;
  const OrtApi* api = base->GetApi(22);
  try {
    if (capacity < 1)
      return api->CreateStatus(ORT_INVALID_ARGUMENT, "AMDGPUExecutionProvider: the array has no space for a factory");
    const char* devices = std::getenv("SARDONYX_DEVICE");
    factories[0] = new sardonyx::ep::Factory(base, logger, devices ? devices : "");
    *count = 1;
    ++sardonyx::ep::factories;
    return nullptr;
  } catch (const std::exception& e) {
    return api ? api->CreateStatus(ORT_EP_FAIL, e.what()) : nullptr;
  }
}

__attribute__((visibility("default"))) OrtStatus* ReleaseEpFactory(OrtEpFactory* factory) {
  delete static_cast<sardonyx::ep::Factory*>(factory);
  if (--sardonyx::ep::factories == 0) sardonyx::ep::process_wide_objects.release();
  return nullptr;
}
}
