// Modules, functions and their attributes, and the code that clang's host side registers at start-up.
#include <cstring>
#include <fstream>
#include <sstream>

#include "sim/api/graph.h"
#include "support/error.h"

using namespace sardonyx::sim;

namespace {

/// A __hip_fatbin of the process: a bundle that is loaded for a device when it is first used there.
struct FatBinary {
  const void* image = nullptr;
  std::map<int, std::unique_ptr<ihipModule_t>> modules;  ///< by device
  std::vector<const void*> symbols;                      ///< host symbols registered for it
};
struct Registered {
  FatBinary* binary = nullptr;
  std::string name;
  std::size_t size = 0;      ///< of a variable
  void** managed = nullptr;  ///< where a managed variable's pointer lives
};
struct Registry {
  std::recursive_mutex mutex;
  std::map<FatBinary*, std::unique_ptr<FatBinary>> binaries;
  std::map<const void*, Registered> functions, variables;
};
Registry& registry() {
  static Registry* r = new Registry;
  return *r;
}

ihipModule_t* moduleOf(FatBinary& b) {
  auto& slot = b.modules[device().ordinal];
  if (!slot) {
    std::size_t size = imageSize(b.image);
    if (!size)
      sardonyx::fail(sardonyx::ErrorKind::kInvalidArgument,
                     "the registered device code is neither an ELF file nor a bundle");
    slot = loadModule({static_cast<const char*>(b.image), size});
  }
  return slot.get();
}

hipError_t load(hipModule_t* module, std::string_view image) {
  if (!module) return hipErrorInvalidValue;
  try {
    *module = Runtime::get().add(loadModule(image));
    return hipSuccess;
  } catch (const sardonyx::Error& e) {
    Runtime::get().lastFailure = e.what();
    bool other = std::strstr(e.what(), "no code for") || std::strstr(e.what(), "the device is");
    return other ? hipErrorNoBinaryForGpu : hipErrorInvalidImage;
  }
}

hipError_t functionAttribute(int* value, hipFunction_attribute a, const Kernel& k) {
  switch (a) {
    case HIP_FUNC_ATTRIBUTE_MAX_THREADS_PER_BLOCK:
      *value = static_cast<int>(k.maxWorkgroup);
      break;
    case HIP_FUNC_ATTRIBUTE_SHARED_SIZE_BYTES:
      *value = static_cast<int>(k.groupBytes);
      break;
    case HIP_FUNC_ATTRIBUTE_CONST_SIZE_BYTES:
      *value = 0;
      break;
    case HIP_FUNC_ATTRIBUTE_LOCAL_SIZE_BYTES:
      *value = static_cast<int>(k.privateBytes);
      break;
    case HIP_FUNC_ATTRIBUTE_NUM_REGS:
      *value = k.vgprs;
      break;
    case HIP_FUNC_ATTRIBUTE_PTX_VERSION:
      *value = 0;
      break;
    case HIP_FUNC_ATTRIBUTE_BINARY_VERSION:
      *value = 0;
      break;
    case HIP_FUNC_ATTRIBUTE_CACHE_MODE_CA:
      *value = 0;
      break;
    case HIP_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES:
      *value = device().chip->ldsBytes - static_cast<int>(k.groupBytes);
      break;
    case HIP_FUNC_ATTRIBUTE_PREFERRED_SHARED_MEMORY_CARVEOUT:
      *value = 0;
      break;
    default:
      return hipErrorInvalidValue;
  }
  return hipSuccess;
}

}  // namespace

namespace sardonyx::sim {

std::unique_ptr<ihipModule_t> loadModule(std::string_view image) {
  auto m = std::make_unique<ihipModule_t>();
  m->device = device().ordinal;
  const Chip& chip = *device().chip;
  if (isOffloadBundle(image))
    m->object = std::make_unique<CodeObject>(extractFromBundle(image, chip), chip, m->device);
  else
    m->object = std::make_unique<CodeObject>(image, chip, m->device);
  return m;
}

hipFunction_t findFunction(ihipModule_t& module, const std::string& name) {
  std::lock_guard lock(Runtime::get().mutex);
  auto& slot = module.functions[name];
  if (!slot) {
    const Kernel* k = module.object->kernel(name);
    if (!k) {
      module.functions.erase(name);
      return nullptr;
    }
    slot = std::make_unique<ihipModuleSymbol_t>();
    slot->kernel = k;
    slot->device = module.device;
  }
  return slot.get();
}

hipFunction_t functionOfSymbol(const void* symbol) {
  Registry& r = registry();
  std::lock_guard lock(r.mutex);
  auto it = r.functions.find(symbol);
  return it == r.functions.end() ? nullptr : findFunction(*moduleOf(*it->second.binary), it->second.name);
}

bool variableOfSymbol(const void* symbol, void** address, std::size_t* size) {
  Registry& r = registry();
  std::lock_guard lock(r.mutex);
  auto it = r.variables.find(symbol);
  if (it == r.variables.end()) return false;
  const DeviceSymbol* s = moduleOf(*it->second.binary)->object->symbol(it->second.name);
  if (!s) return false;
  *address = reinterpret_cast<void*>(s->address);
  *size = s->size;
  return true;
}

}  // namespace sardonyx::sim

extern "C" {

hipError_t hipModuleLoadData(hipModule_t* module, const void* image) {
  return guarded([&] {
    if (!image) return hipErrorInvalidValue;
    std::size_t size = imageSize(image);
    if (!size) return hipErrorInvalidImage;
    return load(module, {static_cast<const char*>(image), size});
  });
}
hipError_t hipModuleLoadDataEx(hipModule_t* module, const void* image, unsigned int, hipJitOption*, void**) {
  return hipModuleLoadData(module, image);
}
hipError_t hipModuleLoad(hipModule_t* module, const char* file) {
  return guarded([&] {
    if (!module || !file) return hipErrorInvalidValue;
    std::ifstream in(file, std::ios::binary);
    if (!in) return hipErrorFileNotFound;
    std::stringstream text;
    text << in.rdbuf();
    return load(module, text.str());
  });
}
hipError_t hipModuleUnload(hipModule_t module) {
  return guarded([&] {
    finishAll();
    std::lock_guard lock(Runtime::get().execution);
    Runtime::get().repeated.clear();  // its keys name kernels by address
    return Runtime::get().remove(module) ? hipSuccess : hipErrorInvalidHandle;
  });
}
hipError_t hipModuleGetFunction(hipFunction_t* function, hipModule_t module, const char* name) {
  return guarded([&] {
    if (!function || !name) return hipErrorInvalidValue;
    if (!Runtime::get().alive(module)) return hipErrorInvalidHandle;
    *function = findFunction(*module, name);
    return *function ? hipSuccess : hipErrorNotFound;
  });
}
hipError_t hipModuleGetGlobal(hipDeviceptr_t* p, size_t* size, hipModule_t module, const char* name) {
  return guarded([&] {
    if (!name) return hipErrorInvalidValue;
    if (!Runtime::get().alive(module)) return hipErrorInvalidHandle;
    const DeviceSymbol* s = module->object->symbol(name);
    if (!s) return hipErrorNotFound;
    if (p) *p = reinterpret_cast<void*>(s->address);
    if (size) *size = s->size;
    return hipSuccess;
  });
}
hipError_t hipFuncGetAttribute(int* value, hipFunction_attribute a, hipFunction_t f) {
  return guarded([&] {
    if (!value) return hipErrorInvalidValue;
    return f ? functionAttribute(value, a, *f->kernel) : hipErrorInvalidDeviceFunction;
  });
}
hipError_t hipFuncGetAttributes(hipFuncAttributes* out, const void* symbol) {
  return guarded([&] {
    if (!out) return hipErrorInvalidValue;
    hipFunction_t f = functionOfSymbol(symbol);
    if (!f) return hipErrorInvalidDeviceFunction;
    const Kernel& k = *f->kernel;
    *out = {};
    out->localSizeBytes = k.privateBytes;
    out->sharedSizeBytes = k.groupBytes;
    out->maxThreadsPerBlock = static_cast<int>(k.maxWorkgroup);
    out->numRegs = k.vgprs;
    out->maxDynamicSharedSizeBytes = device().chip->ldsBytes - static_cast<int>(k.groupBytes);
    return hipSuccess;
  });
}
hipError_t hipFuncSetAttribute(const void* symbol, hipFuncAttribute a, int value) {
  return guarded([&] {
    if (a != hipFuncAttributeMaxDynamicSharedMemorySize && a != hipFuncAttributePreferredSharedMemoryCarveout)
      return hipErrorInvalidValue;
    if (!functionOfSymbol(symbol)) return hipErrorInvalidDeviceFunction;
    return a == hipFuncAttributeMaxDynamicSharedMemorySize && value > device().chip->ldsBytes ? hipErrorInvalidValue
                                                                                              : hipSuccess;
  });
}
hipError_t hipFuncSetCacheConfig(const void*, hipFuncCache_t) {
  return guarded([] { return hipSuccess; });
}
hipError_t hipGetFuncBySymbol(hipFunction_t* f, const void* symbol) {
  return guarded([&] {
    if (!f) return hipErrorInvalidValue;
    *f = functionOfSymbol(symbol);
    return *f ? hipSuccess : hipErrorInvalidDeviceFunction;
  });
}
hipError_t hipGetSymbolAddress(void** p, const void* symbol) {
  return guarded([&] {
    std::size_t size;
    return p && variableOfSymbol(symbol, p, &size) ? hipSuccess : hipErrorInvalidSymbol;
  });
}
hipError_t hipGetSymbolSize(size_t* size, const void* symbol) {
  return guarded([&] {
    void* p;
    return size && variableOfSymbol(symbol, &p, size) ? hipSuccess : hipErrorInvalidSymbol;
  });
}
hipError_t hipMemcpyToSymbolAsync(const void* symbol, const void* source, size_t size, size_t offset,
                                  hipMemcpyKind kind, hipStream_t s) {
  void* p;
  std::size_t have = 0;
  hipError_t e = guarded([&] { return variableOfSymbol(symbol, &p, &have) ? hipSuccess : hipErrorInvalidSymbol; });
  if (e != hipSuccess) return e;
  if (offset > have || size > have - offset) return lastError() = hipErrorInvalidValue;
  return hipMemcpyAsync(static_cast<char*>(p) + offset, source, size, kind, s);
}
hipError_t hipMemcpyFromSymbolAsync(void* to, const void* symbol, size_t size, size_t offset, hipMemcpyKind kind,
                                    hipStream_t s) {
  void* p;
  std::size_t have = 0;
  hipError_t e = guarded([&] { return variableOfSymbol(symbol, &p, &have) ? hipSuccess : hipErrorInvalidSymbol; });
  if (e != hipSuccess) return e;
  if (offset > have || size > have - offset) return lastError() = hipErrorInvalidValue;
  return hipMemcpyAsync(to, static_cast<char*>(p) + offset, size, kind, s);
}
hipError_t hipMemcpyToSymbol(const void* symbol, const void* source, size_t size, size_t offset, hipMemcpyKind kind) {
  return hipMemcpyToSymbolAsync(symbol, source, size, offset, kind, nullptr);
}
hipError_t hipMemcpyFromSymbol(void* to, const void* symbol, size_t size, size_t offset, hipMemcpyKind kind) {
  return hipMemcpyFromSymbolAsync(to, symbol, size, offset, kind, nullptr);
}

// Called by code that clang emits into every HIP host object. Layouts: clang's CGCUDANV output.
#pragma GCC visibility push(default)
void** __hipRegisterFatBinary(const void* data) {
  struct Wrapper {
    unsigned magic, version;
    const void* binary;
    void* unused;
  };
  auto* w = static_cast<const Wrapper*>(data);
  if (!w || w->magic != 0x48495046) return nullptr;  // "HIPF"
  auto b = std::make_unique<FatBinary>();
  b->image = w->binary;
  FatBinary* p = b.get();
  Registry& r = registry();
  std::lock_guard lock(r.mutex);
  r.binaries[p] = std::move(b);
  return reinterpret_cast<void**>(p);
}
void __hipRegisterFunction(void** handle, const void* hostFunction, char*, const char* deviceName, unsigned, void*,
                           void*, dim3*, dim3*, int*) {
  auto* b = reinterpret_cast<FatBinary*>(handle);
  if (!b) return;
  Registry& r = registry();
  std::lock_guard lock(r.mutex);
  r.functions[hostFunction] = {b, deviceName};
  b->symbols.push_back(hostFunction);
}
void __hipRegisterVar(void** handle, void* variable, char*, char* deviceName, int, size_t size, int, int) {
  auto* b = reinterpret_cast<FatBinary*>(handle);
  if (!b) return;
  Registry& r = registry();
  std::lock_guard lock(r.mutex);
  r.variables[variable] = {b, deviceName, size};
  b->symbols.push_back(variable);
}
void __hipUnregisterFatBinary(void** handle) {
  auto* b = reinterpret_cast<FatBinary*>(handle);
  Registry& r = registry();
  std::lock_guard lock(r.mutex);
  auto it = r.binaries.find(b);
  if (it == r.binaries.end()) return;
  for (const void* s : b->symbols) {
    r.functions.erase(s);
    r.variables.erase(s);
  }
  r.binaries.erase(it);
}
#pragma GCC visibility pop

}  // extern "C"
