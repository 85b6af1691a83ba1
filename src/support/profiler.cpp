#include "support/profiler.h"

#include <dlfcn.h>

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <mutex>

namespace sardonyx {
namespace {

/// What both interfaces have: a function that begins a range, and one that ends the thread's last.
struct RangeFunctions {
  int (*push)(const char*) = nullptr;
  int (*pop)() = nullptr;
  bool complete() const { return push != nullptr && pop != nullptr; }
};

RangeFunctions g_roctx, g_nvtx;
std::atomic<bool> g_listens{false};

RangeFunctions roctx_of(void* library) {
  return {reinterpret_cast<int (*)(const char*)>(dlsym(library, "roctxRangePushA")),
          reinterpret_cast<int (*)()>(dlsym(library, "roctxRangePop"))};
}

bool is_loaded(const char* library) { return dlopen(library, RTLD_NOW | RTLD_NOLOAD) != nullptr; }

/// AMD's profilers and the library of ranges that each records. Only rocprofv3 loads the latter itself.
RangeFunctions find_roctx() {
  if (const RangeFunctions f = roctx_of(RTLD_DEFAULT); f.complete()) return f;
  struct Pair {
    const char *profiler, *ranges;
  };
  constexpr Pair kPairs[] = {{"librocprofiler-sdk.so.1", "librocprofiler-sdk-roctx.so.1"},
                             {"librocprofiler-sdk.so.0", "librocprofiler-sdk-roctx.so.0"},
                             {"librocprofiler64.so.2", "libroctx64.so.4"},
                             {"librocprofiler64.so.1", "libroctx64.so.4"},
                             {"libroctracer64.so.4", "libroctx64.so.4"}};
  for (const Pair& p : kPairs)
    if (is_loaded(p.ranges) || is_loaded(p.profiler))
      if (void* library = dlopen(p.ranges, RTLD_NOW | RTLD_LOCAL))
        if (const RangeFunctions f = roctx_of(library); f.complete()) return f;
  return {};
}

// NVTX: a program hands the tool's library a table of addresses, into which the tool writes its functions. Source: the
// types of NVTX's public headers (nvtxTypes.h, version 3).
constexpr std::uint32_t kCallbacks = 1;    // NVTX_ETID_CALLBACKS
constexpr std::uint32_t kVersionInfo = 3;  // NVTX_ETID_VERSIONINFO
constexpr std::uint32_t kCore = 1;         // NVTX_CB_MODULE_CORE
constexpr unsigned kPush = 9, kPop = 11;   // NVTX_CBID_CORE_RangePushA, RangePop
constexpr unsigned kFunctions = 16;        // NVTX_CBID_CORE_SIZE

using Function = void (*)();

int module_table(std::uint32_t module, Function*** table, unsigned* size) {
  // The tool writes through the entries. Those that are not used have a place too, so that it may write all.
  static Function unused;
  static Function* entries[kFunctions];
  if (module != kCore || table == nullptr) return 0;
  for (Function*& e : entries) e = &unused;
  entries[kPush] = reinterpret_cast<Function*>(&g_nvtx.push);
  entries[kPop] = reinterpret_cast<Function*>(&g_nvtx.pop);
  *table = entries;
  if (size != nullptr) *size = kFunctions;
  return 1;
}

const void* export_table(std::uint32_t id) {
  static const struct {
    std::size_t bytes;
    int (*table)(std::uint32_t, Function***, unsigned*);
  } callbacks = {sizeof(callbacks), module_table};
  static const struct {
    std::size_t bytes;
    std::uint32_t version, reserved;
    void (*set_injection_version)(std::uint32_t);
  } version = {sizeof(version), 3, 0, [](std::uint32_t) {}};
  if (id == kCallbacks) return &callbacks;
  return id == kVersionInfo ? static_cast<const void*>(&version) : nullptr;
}

void find_nvtx(const std::string& path) {
  if (path.empty()) return;
  void* library = dlopen(path.c_str(), RTLD_LAZY);
  if (library == nullptr) return;
  using Start = int (*)(const void* (*)(std::uint32_t));
  const auto start = reinterpret_cast<Start>(dlsym(library, "InitializeInjectionNvtx2"));
  if (start == nullptr || start(export_table) == 0) g_nvtx = {};
}

}  // namespace

void listen_to_profilers(const std::string& nvtx_injection) {
  static std::once_flag once;
  std::call_once(once, [&] {
    g_roctx = find_roctx();
    find_nvtx(nvtx_injection);
    if (!g_nvtx.complete()) g_nvtx = {};
    g_listens = g_roctx.complete() || g_nvtx.complete();
  });
}

bool profiler_listens() { return g_listens.load(std::memory_order_acquire); }

void ProfilerRange::begin(std::string_view name) {
  const std::string text(name);
  if (g_roctx.push != nullptr) g_roctx.push(text.c_str());
  if (g_nvtx.push != nullptr) g_nvtx.push(text.c_str());
}

void ProfilerRange::end() {
  if (g_nvtx.pop != nullptr) g_nvtx.pop();
  if (g_roctx.pop != nullptr) g_roctx.pop();
}

}  // namespace sardonyx
