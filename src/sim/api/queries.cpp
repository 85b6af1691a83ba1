// Queries other than those of devices and memory: functions by name, names of kernels, further forms of occupancy,
// attributes of single pointers, and settings without effect here.
#include <dlfcn.h>

#include <cstring>

#include "sim/api/graph.h"
#include "sim/exec/device_memory.h"

using namespace sardonyx::sim;

extern "C" {

hipError_t hipGetProcAddress(const char* symbol, void** function, int, uint64_t,
                             hipDriverProcAddressQueryResult* status) {
  return guarded([&] {
    if (!symbol || !function) return hipErrorInvalidValue;
    *function = nullptr;
    // This library's own functions only, whatever else the process has loaded.
    Dl_info self;
    if (std::strncmp(symbol, "hip", 3) == 0 && dladdr(reinterpret_cast<void*>(&hipInit), &self))
      if (void* handle = dlopen(self.dli_fname, RTLD_LAZY | RTLD_NOLOAD)) {
        *function =
            dlsym(handle, std::strcmp(symbol, "hipGetDeviceProperties") ? symbol : "hipGetDevicePropertiesR0600");
        dlclose(handle);
      }
    if (status) *status = *function ? HIP_GET_PROC_ADDRESS_SUCCESS : HIP_GET_PROC_ADDRESS_SYMBOL_NOT_FOUND;
    return *function ? hipSuccess : hipErrorNotFound;
  });
}

const char* hipKernelNameRef(hipFunction_t f) { return f ? f->kernel->name.c_str() : nullptr; }
const char* hipKernelNameRefByPtr(const void* symbol, hipStream_t) {
  hipFunction_t f = nullptr;
  return hipGetFuncBySymbol(&f, symbol) == hipSuccess ? hipKernelNameRef(f) : nullptr;
}
int hipGetStreamDeviceId(hipStream_t stream) {
  ihipStream_t* s = Runtime::get().stream(stream);
  return s ? s->device : -1;
}

hipError_t hipOccupancyMaxPotentialBlockSize(int* grid, int* block, const void* symbol, size_t lds, int limit) {
  hipFunction_t f = nullptr;
  hipError_t e = hipGetFuncBySymbol(&f, symbol);
  return e == hipSuccess ? hipModuleOccupancyMaxPotentialBlockSize(grid, block, f, lds, limit) : e;
}
hipError_t hipOccupancyMaxActiveBlocksPerMultiprocessorWithFlags(int* blocks, const void* symbol, int size, size_t lds,
                                                                 unsigned int) {
  return hipOccupancyMaxActiveBlocksPerMultiprocessor(blocks, symbol, size, lds);
}
hipError_t hipModuleOccupancyMaxActiveBlocksPerMultiprocessorWithFlags(int* blocks, hipFunction_t f, int size,
                                                                       size_t lds, unsigned int) {
  return hipModuleOccupancyMaxActiveBlocksPerMultiprocessor(blocks, f, size, lds);
}
hipError_t hipModuleOccupancyMaxPotentialBlockSizeWithFlags(int* grid, int* block, hipFunction_t f, size_t lds,
                                                            int limit, unsigned int) {
  return hipModuleOccupancyMaxPotentialBlockSize(grid, block, f, lds, limit);
}

hipError_t hipExtLaunchKernel(const void* symbol, dim3 grid, dim3 block, void** arguments, size_t shared,
                              hipStream_t stream, hipEvent_t start, hipEvent_t stop, int) {
  if (start)
    if (hipError_t e = hipEventRecord(start, stream); e != hipSuccess) return e;
  hipError_t e = hipLaunchKernel(symbol, grid, block, arguments, shared, stream);
  if (e == hipSuccess && stop) e = hipEventRecord(stop, stream);
  return e;
}
hipError_t hipEventRecordWithFlags(hipEvent_t event, hipStream_t stream, unsigned int) {
  return hipEventRecord(event, stream);
}

hipError_t hipPointerGetAttribute(void* data, hipPointer_attribute attribute, hipDeviceptr_t p) {
  if (!data) return lastError() = hipErrorInvalidValue;
  hipPointerAttribute_t all;
  if (hipError_t e = hipPointerGetAttributes(&all, p); e != hipSuccess) return e;
  if (all.type == hipMemoryTypeUnregistered) return lastError() = hipErrorInvalidValue;
  return guarded([&] {
    auto a = DeviceMemory::instance().find(reinterpret_cast<std::uint64_t>(p));
    switch (attribute) {
      case HIP_POINTER_ATTRIBUTE_MEMORY_TYPE:
        *static_cast<unsigned*>(data) = all.type;
        return hipSuccess;
      case HIP_POINTER_ATTRIBUTE_DEVICE_POINTER:
        *static_cast<void**>(data) = all.devicePointer;
        return hipSuccess;
      case HIP_POINTER_ATTRIBUTE_HOST_POINTER:
        if (!all.hostPointer) return hipErrorInvalidValue;
        *static_cast<void**>(data) = all.hostPointer;
        return hipSuccess;
      case HIP_POINTER_ATTRIBUTE_IS_MANAGED:
        *static_cast<bool*>(data) = all.isManaged;
        return hipSuccess;
      case HIP_POINTER_ATTRIBUTE_DEVICE_ORDINAL:
        *static_cast<int*>(data) = all.device;
        return hipSuccess;
      case HIP_POINTER_ATTRIBUTE_RANGE_START_ADDR:
        *static_cast<void**>(data) = reinterpret_cast<void*>(a->base);
        return hipSuccess;
      case HIP_POINTER_ATTRIBUTE_RANGE_SIZE:
        *static_cast<std::size_t*>(data) = a->size;
        return hipSuccess;
      default:
        return hipErrorNotSupported;
    }
  });
}

// Caches and shared-memory banks have no settings on these chips.
hipError_t hipDeviceGetCacheConfig(hipFuncCache_t* config) {
  if (!config) return lastError() = hipErrorInvalidValue;
  *config = hipFuncCachePreferNone;
  return hipSuccess;
}
hipError_t hipDeviceSetCacheConfig(hipFuncCache_t) { return hipSuccess; }
hipError_t hipDeviceGetSharedMemConfig(hipSharedMemConfig* config) {
  if (!config) return lastError() = hipErrorInvalidValue;
  *config = hipSharedMemBankSizeFourByte;
  return hipSuccess;
}
hipError_t hipDeviceSetSharedMemConfig(hipSharedMemConfig) { return hipSuccess; }
hipError_t hipFuncSetSharedMemConfig(const void*, hipSharedMemConfig) { return hipSuccess; }
hipError_t hipProfilerStart() { return hipSuccess; }
hipError_t hipProfilerStop() { return hipSuccess; }

hipError_t hipChooseDevice(int* chosen, const hipDeviceProp_t* wanted) {
  return guarded([&] {
    if (!chosen || !wanted) return hipErrorInvalidValue;
    int count = 0;
    if (hipError_t e = hipGetDeviceCount(&count); e != hipSuccess) return e;
    *chosen = 0;
    for (int d = count - 1; d >= 0; --d) {
      hipDeviceProp_t p;
      if (hipError_t e = hipGetDeviceProperties(&p, d); e != hipSuccess) return e;
      if (p.major >= wanted->major && p.totalGlobalMem >= wanted->totalGlobalMem &&
          p.multiProcessorCount >= wanted->multiProcessorCount)
        *chosen = d;
    }
    return hipSuccess;
  });
}

}  // extern "C"
