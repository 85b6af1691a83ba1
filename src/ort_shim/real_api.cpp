#include "ort_shim/real_api.h"

#include <dlfcn.h>
#include <link.h>

#include <algorithm>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <mutex>
#include <string>
#include <string_view>

namespace sardonyx::ort_shim {
namespace {

constexpr char kProvider[] = "AMDGPUExecutionProvider";
constexpr char kPlugin[] = "libamdgpu-ep.so";

// The environment is one object for the whole process, with a count of its users. Ours keeps it alive between the
// registration of the plugin and the application's first session.
struct Environment {
  std::mutex mutex;
  OrtEnv* held = nullptr;
};
Environment& environment() {
  static Environment e;
  return e;
}

std::string plugin_path() {
  Dl_info info{};
  if (!::dladdr(reinterpret_cast<void*>(&real_base), &info) || !info.dli_fname) return kPlugin;
  const std::string self = info.dli_fname;
  const std::size_t slash = self.rfind('/');
  return slash == std::string::npos ? kPlugin : self.substr(0, slash + 1) + kPlugin;
}

OrtStatus* find_devices(OrtEnv* env, std::string_view wanted_id, const OrtEpDevice*& found, bool& any) {
  const OrtApi& api = real_api();
  const OrtEpDevice* const* devices = nullptr;
  std::size_t count = 0;
  if (OrtStatus* s = api.GetEpDevices(env, &devices, &count)) return s;
  for (std::size_t k = 0; k < count; ++k) {
    if (std::string_view(api.EpDevice_EpName(devices[k])) != kProvider) continue;
    any = true;
    const char* id = api.GetKeyValue(api.EpDevice_EpMetadata(devices[k]), "device_id");
    if (!found && (wanted_id.empty() || (id && wanted_id == id))) found = devices[k];
  }
  return nullptr;
}

const OrtApiBase* find_base() {
  using GetBase = const OrtApiBase* (*)();
  auto get = reinterpret_cast<GetBase>(::dlsym(RTLD_NEXT, "OrtGetApiBase"));
  for (const char* name : {"libonnxruntime.so.1", "libonnxruntime.so"})
    if (!get)
      if (void* library = ::dlopen(name, RTLD_NOW)) get = reinterpret_cast<GetBase>(::dlsym(library, "OrtGetApiBase"));
  return get ? get() : nullptr;
}

}  // namespace

const OrtApiBase& real_base() {
  static const OrtApiBase* base = find_base();
  if (!base) {
    std::fprintf(stderr,
                 "libsardonyx_onnxruntime.so: no libonnxruntime.so is loaded after it; install ONNX Runtime 1.23 or "
                 "later, and put its folder into LD_LIBRARY_PATH\n");
    std::abort();
  }
  return *base;
}

const OrtApi& real_api() {
  static const OrtApi* api = real_base().GetApi(ORT_API_VERSION);
  if (!api) {
    std::fprintf(stderr, "libsardonyx_onnxruntime.so: ONNX Runtime %s is too old; 1.%d or later is needed\n",
                 real_base().GetVersionString(), ORT_API_VERSION);
    std::abort();
  }
  return *api;
}

std::size_t readable_bytes(const void* p, std::size_t wanted) {
  struct Search {
    std::uintptr_t at;
    std::size_t bytes;
  } search{reinterpret_cast<std::uintptr_t>(p), 0};
  ::dl_iterate_phdr(
      [](dl_phdr_info* info, std::size_t, void* data) {
        auto* s = static_cast<Search*>(data);
        for (int k = 0; k < info->dlpi_phnum; ++k) {
          const auto& header = info->dlpi_phdr[k];
          const std::uintptr_t begin = info->dlpi_addr + header.p_vaddr, end = begin + header.p_memsz;
          if (header.p_type == PT_LOAD && begin <= s->at && s->at < end) s->bytes = end - s->at;
        }
        return s->bytes ? 1 : 0;
      },
      &search);
  return std::min(search.bytes, wanted);
}

OrtStatus* append_amdgpu(OrtSessionOptions* session, const char* const* keys, const char* const* values,
                         std::size_t count) {
  const OrtApi& api = real_api();
  Environment& e = environment();
  const std::lock_guard lock(e.mutex);
  if (!e.held)
    if (OrtStatus* s = api.CreateEnv(ORT_LOGGING_LEVEL_WARNING, "sardonyx", &e.held)) return s;
  std::string_view wanted_id;
  for (std::size_t k = 0; k < count; ++k)
    if (std::string_view(keys[k]) == "device_id") wanted_id = values[k];
  const OrtEpDevice* device = nullptr;
  bool any = false;
  if (OrtStatus* s = find_devices(e.held, wanted_id, device, any)) return s;
  if (!any) {
    if (OrtStatus* s = api.RegisterExecutionProviderLibrary(e.held, kProvider, plugin_path().c_str())) return s;
    if (OrtStatus* s = find_devices(e.held, wanted_id, device, any)) return s;
  }
  if (!device) {
    const std::string message =
        any ? "AMDGPUExecutionProvider: there is no device " + std::string(wanted_id)
            : "AMDGPUExecutionProvider: no AMD GPU can be used; the log says why. SARDONYX_DEVICE=host in the "
              "environment runs on the CPU";
    return api.CreateStatus(ORT_EP_FAIL, message.c_str());
  }
  return api.SessionOptionsAppendExecutionProvider_V2(session, e.held, &device, 1, keys, values, count);
}

void release_environment() {
  Environment& e = environment();
  const std::lock_guard lock(e.mutex);
  if (e.held) real_api().ReleaseEnv(e.held);
  e.held = nullptr;
}

}  // namespace sardonyx::ort_shim
