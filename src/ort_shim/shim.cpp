// A library that is loaded before ONNX Runtime's: the C API with the functions of AMD's MIGraphX and ROCm providers,
// which stock packages refuse, run by AMDGPUExecutionProvider. All others are ONNX Runtime's own.
#include <algorithm>
#include <array>
#include <atomic>
#include <cstdlib>
#include <cstring>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <string_view>
#include <vector>

#include "ort_shim/option_structs.h"
#include "ort_shim/real_api.h"

namespace sardonyx::ort_shim {
namespace {

constexpr std::array<const char*, 3> kNames = {"MIGraphXExecutionProvider", "ROCMExecutionProvider",
                                               "AMDGPUExecutionProvider"};
// OrtMIGraphXProviderOptions has had its fields since this version; it was smaller, in another order, before.
constexpr std::uint32_t kFirstVersion = 22;
// More than all functions of a version to come; what a caller's version lacks it does not call.
constexpr std::size_t kApiBytes = 1024 * sizeof(void*);

std::atomic<std::uint32_t> oldest_caller = UINT32_MAX;

// No exception leaves a C function; std::bad_alloc is the only one that can occur here.
template <typename F>
OrtStatus* guarded(F&& f) noexcept {
  try {
    return f();
  } catch (const std::exception& e) {
    return real_api().CreateStatus(ORT_FAIL, e.what());
  }
}

OrtStatus* refuse(const std::string& message) { return real_api().CreateStatus(ORT_INVALID_ARGUMENT, message.c_str()); }

OrtStatus* append(OrtSessionOptions* session, const NamesAndValues& options) {
  std::vector<const char*> keys, values;
  for (const auto& [name, value] : options) {
    keys.push_back(name.c_str());
    values.push_back(value.c_str());
  }
  return append_amdgpu(session, keys.data(), values.data(), keys.size());
}

OrtStatus* ORT_API_CALL append_migraphx(OrtSessionOptions* session, const OrtMIGraphXProviderOptions* o) noexcept {
  return guarded([&] {
    if (!session || !o) return refuse("SessionOptionsAppendExecutionProvider_MIGraphX: a null pointer");
    if (oldest_caller < kFirstVersion)
      return refuse(
          "SessionOptionsAppendExecutionProvider_MIGraphX: the program was built with headers of ONNX Runtime before "
          "1.22, whose OrtMIGraphXProviderOptions differs; build it again with newer ones");
    return append(session, names_and_values(*o));
  });
}

OrtStatus* ORT_API_CALL append_rocm(OrtSessionOptions* session, const OrtROCMProviderOptions* o) noexcept {
  return guarded([&] {
    if (!session || !o) return refuse("SessionOptionsAppendExecutionProvider_ROCM: a null pointer");
    return append(session, names_and_values(*o));
  });
}

OrtStatus* ORT_API_CALL append_by_name(OrtSessionOptions* session, const char* name, const char* const* keys,
                                       const char* const* values, std::size_t count) noexcept {
  const std::string_view n = name ? name : "";
  if (session && (n == "MIGraphX" || n == "ROCM" || n == kNames[0] || n == kNames[1]))
    return guarded([&] { return append_amdgpu(session, keys, values, count); });
  return real_api().SessionOptionsAppendExecutionProvider(session, name, keys, values, count);
}

OrtStatus* ORT_API_CALL create_rocm_options(OrtROCMProviderOptions** out) noexcept {
  return guarded([&]() -> OrtStatus* {
    if (!out) return refuse("CreateROCMProviderOptions: a null pointer");
    *out = new OrtROCMProviderOptions{};
    return nullptr;
  });
}

OrtStatus* ORT_API_CALL update_rocm_options(OrtROCMProviderOptions* o, const char* const* keys,
                                            const char* const* values, std::size_t count) noexcept {
  return guarded([&]() -> OrtStatus* {
    if (!o || (count && (!keys || !values))) return refuse("UpdateROCMProviderOptions: a null pointer");
    for (std::size_t k = 0; k < count; ++k)
      if (!keys[k] || !values[k] || !set_field(*o, keys[k], values[k]))
        return refuse("UpdateROCMProviderOptions: there is no option '" + std::string(keys[k] ? keys[k] : "") +
                      "' with the value '" + (values[k] ? values[k] : "") + "'; docs/options.md lists all");
    return nullptr;
  });
}

OrtStatus* ORT_API_CALL rocm_options_text(const OrtROCMProviderOptions* o, OrtAllocator* allocator,
                                          char** out) noexcept {
  return guarded([&]() -> OrtStatus* {
    if (!o || !allocator || !out) return refuse("GetROCMProviderOptionsAsString: a null pointer");
    std::string text;
    for (const auto& [name, value] : names_and_values(*o)) text += (text.empty() ? "" : ";") + name + "=" + value;
    *out = static_cast<char*>(allocator->Alloc(allocator, text.size() + 1));
    if (!*out) return refuse("GetROCMProviderOptionsAsString: no memory");
    std::memcpy(*out, text.c_str(), text.size() + 1);
    return nullptr;
  });
}

void ORT_API_CALL release_rocm_options(OrtROCMProviderOptions* o) noexcept { delete o; }

void ORT_API_CALL release_env(OrtEnv* env) noexcept {
  release_environment();
  real_api().ReleaseEnv(env);
}

void free_names(char** names, int count) {
  for (int k = 0; k < count; ++k) std::free(names[k]);
  std::free(static_cast<void*>(names));
}

OrtStatus* ORT_API_CALL release_names(char** names, int count) noexcept {
  free_names(names, count);
  return nullptr;
}

OrtStatus* ORT_API_CALL available_providers(char*** out, int* count) noexcept {
  return guarded([&]() -> OrtStatus* {
    char** theirs = nullptr;
    int n = 0;
    if (OrtStatus* s = real_api().GetAvailableProviders(&theirs, &n)) return s;
    std::vector<std::string> names(kNames.begin(), kNames.end());
    for (int k = 0; k < n; ++k)
      if (std::find(kNames.begin(), kNames.end(), std::string_view(theirs[k])) == kNames.end())
        names.emplace_back(theirs[k]);
    if (OrtStatus* s = real_api().ReleaseAvailableProviders(theirs, n)) return s;
    auto** list = static_cast<char**>(std::calloc(names.size(), sizeof(char*)));
    if (!list) return refuse("GetAvailableProviders: no memory");
    for (std::size_t k = 0; k < names.size(); ++k) list[k] = ::strdup(names[k].c_str());
    *out = list;
    *count = static_cast<int>(names.size());
    return nullptr;
  });
}

void replace_functions(OrtApi& api) {
  api.SessionOptionsAppendExecutionProvider_MIGraphX = append_migraphx;
  api.SessionOptionsAppendExecutionProvider_ROCM = append_rocm;
  api.SessionOptionsAppendExecutionProvider = append_by_name;
  api.CreateROCMProviderOptions = create_rocm_options;
  api.UpdateROCMProviderOptions = update_rocm_options;
  api.GetROCMProviderOptionsAsString = rocm_options_text;
  api.ReleaseROCMProviderOptions = release_rocm_options;
  api.ReleaseEnv = release_env;
  api.GetAvailableProviders = available_providers;
  api.ReleaseAvailableProviders = release_names;
}

// A copy of ONNX Runtime's table of functions, with ours. The table is as long as the runtime's version says, which
// this library need not know: the bytes after it in the runtime's file are copied too, and never called.
const OrtApi* api_for(std::uint32_t version) noexcept {
  const OrtApi* theirs = real_base().GetApi(version);
  if (!theirs || !&real_api()) return theirs;
  std::uint32_t oldest = oldest_caller;
  while (version < oldest && !oldest_caller.compare_exchange_weak(oldest, version)) {
  }
  static std::mutex mutex;
  static std::map<const OrtApi*, std::unique_ptr<std::byte[]>> copies;
  const std::lock_guard lock(mutex);
  std::unique_ptr<std::byte[]>& copy = copies[theirs];
  if (!copy) {
    copy = std::make_unique<std::byte[]>(kApiBytes);
    std::memcpy(copy.get(), theirs, readable_bytes(theirs, kApiBytes));
    replace_functions(*reinterpret_cast<OrtApi*>(copy.get()));
  }
  return reinterpret_cast<const OrtApi*>(copy.get());
}

}  // namespace
}  // namespace sardonyx::ort_shim

extern "C" {

__attribute__((visibility("default"))) const OrtApiBase* ORT_API_CALL OrtGetApiBase(void) NO_EXCEPTION {
  static const OrtApiBase base = {
      [](std::uint32_t version) noexcept -> const OrtApi* { return sardonyx::ort_shim::api_for(version); },
      []() noexcept -> const char* { return sardonyx::ort_shim::real_base().GetVersionString(); }};
  return &base;
}

__attribute__((visibility("default"))) OrtStatus* ORT_API_CALL
OrtSessionOptionsAppendExecutionProvider_MIGraphX(OrtSessionOptions* options, int device_id) NO_EXCEPTION {
  return sardonyx::ort_shim::guarded(
      [&] { return sardonyx::ort_shim::append(options, {{"device_id", std::to_string(device_id)}}); });
}

__attribute__((visibility("default"))) OrtStatus* ORT_API_CALL
OrtSessionOptionsAppendExecutionProvider_ROCM(OrtSessionOptions* options, int device_id) NO_EXCEPTION {
  return sardonyx::ort_shim::guarded(
      [&] { return sardonyx::ort_shim::append(options, {{"device_id", std::to_string(device_id)}}); });
}

// As ONNX Runtime's page about the ROCm provider spells it. No header declares it.
__attribute__((visibility("default"))) OrtStatus* ORT_API_CALL
OrtSessionOptionsAppendExecutionProvider_ROCm(OrtSessionOptions* options, int device_id) NO_EXCEPTION;
OrtStatus* ORT_API_CALL OrtSessionOptionsAppendExecutionProvider_ROCm(OrtSessionOptions* options,
                                                                      int device_id) NO_EXCEPTION {
  return OrtSessionOptionsAppendExecutionProvider_ROCM(options, device_id);
}
}
