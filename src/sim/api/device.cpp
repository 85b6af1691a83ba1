// Devices: selection, properties, attributes, limits, peers and contexts.
#include <algorithm>
#include <cstdio>
#include <cstring>

#include "sim/api/attributes.h"
#include "sim/api/runtime.h"
#include "sim/exec/device_memory.h"

using namespace sardonyx::sim;

namespace {

Device* at(int ordinal) {
  auto& all = Runtime::get().devices;
  return ordinal >= 0 && static_cast<std::size_t>(ordinal) < all.size() ? all[static_cast<std::size_t>(ordinal)].get()
                                                                        : nullptr;
}

hipDeviceProp_t propertiesOf(const Device& d) {
  const Chip& c = *d.chip;
  hipDeviceProp_t p;
  std::memset(&p, 0, sizeof p);
  std::snprintf(p.name, sizeof p.name, "%s", c.marketing.c_str());
  std::snprintf(p.gcnArchName, sizeof p.gcnArchName, "%s", c.archName.c_str());
  std::snprintf(p.uuid.bytes, sizeof p.uuid.bytes, "sim-%s-%d", c.name.c_str(), d.ordinal);
  p.totalGlobalMem = c.memoryBytes;
  p.sharedMemPerBlock = p.sharedMemPerMultiprocessor = p.maxSharedMemoryPerMultiProcessor = p.sharedMemPerBlockOptin =
      static_cast<std::size_t>(c.ldsBytes);
  p.regsPerBlock = p.regsPerMultiprocessor = c.registersPerCu;
  p.warpSize = c.waveSize;
  p.memPitch = 2147483647;
  p.maxThreadsPerBlock = 1024;
  for (int i = 0; i < 3; ++i) p.maxThreadsDim[i] = 1024;
  p.maxGridSize[0] = 2147483647;
  p.maxGridSize[1] = p.maxGridSize[2] = 65536;
  p.clockRate = c.clockKhz;
  p.totalConstMem = 2147483647;
  p.major = c.major;
  p.minor = c.minor;
  p.textureAlignment = 256;
  p.texturePitchAlignment = 256;
  p.multiProcessorCount = c.computeUnits;
  p.canMapHostMemory = p.concurrentKernels = p.unifiedAddressing = p.managedMemory = p.hostRegisterSupported = 1;
  p.cooperativeLaunch = p.memoryPoolsSupported = p.streamPrioritiesSupported = 1;
  p.pciBusID = d.ordinal + 1;
  p.asyncEngineCount = 1;
  p.memoryClockRate = c.memoryClockKhz;
  p.memoryBusWidth = c.memoryBusBits;
  p.l2CacheSize = c.l2Bytes;
  p.maxThreadsPerMultiProcessor = c.maxWavesPerCu * c.waveSize;
  p.maxBlocksPerMultiProcessor = c.maxWavesPerCu;
  p.clockInstructionRate = 100000;
  p.arch.hasGlobalInt32Atomics = p.arch.hasGlobalFloatAtomicExch = p.arch.hasSharedInt32Atomics = 1;
  p.arch.hasSharedFloatAtomicExch = p.arch.hasFloatAtomicAdd = p.arch.hasGlobalInt64Atomics =
      p.arch.hasSharedInt64Atomics = 1;
  p.arch.hasDoubles = p.arch.hasWarpVote = p.arch.hasWarpBallot = p.arch.hasWarpShuffle = p.arch.has3dGrid = 1;
  p.isLargeBar = 1;
  return p;
}

thread_local std::vector<hipCtx_t> contextStack;

hipError_t useContext(hipCtx_t c) {
  for (auto& d : Runtime::get().devices)
    if (d->context.get() == c) {
      currentDevice() = d->ordinal;
      return hipSuccess;
    }
  return hipErrorInvalidContext;
}

}  // namespace

extern "C" {

hipError_t hipGetDeviceCount(int* count) {
  if (!count) return lastError() = hipErrorInvalidValue;
  *count = static_cast<int>(Runtime::get().devices.size());
  return *count ? hipSuccess : lastError() = hipErrorNoDevice;
}
hipError_t hipSetDevice(int d) {
  return guarded([&] {
    if (!at(d)) return hipErrorInvalidDevice;
    currentDevice() = d;
    return hipSuccess;
  });
}
hipError_t hipGetDevice(int* d) {
  return guarded([&] {
    if (!d) return hipErrorInvalidValue;
    *d = device().ordinal;
    return hipSuccess;
  });
}
hipError_t hipDeviceGet(hipDevice_t* d, int ordinal) {
  return guarded([&] {
    if (!d) return hipErrorInvalidValue;
    if (!at(ordinal)) return hipErrorInvalidDevice;
    *d = ordinal;
    return hipSuccess;
  });
}
hipError_t hipDeviceGetName(char* name, int length, hipDevice_t d) {
  return guarded([&] {
    if (!name || length <= 0) return hipErrorInvalidValue;
    if (!at(d)) return hipErrorInvalidDevice;
    std::snprintf(name, static_cast<std::size_t>(length), "%s", at(d)->chip->marketing.c_str());
    return hipSuccess;
  });
}
hipError_t hipDeviceGetUuid(hipUUID* uuid, hipDevice_t d) {
  return guarded([&] {
    if (!uuid) return hipErrorInvalidValue;
    if (!at(d)) return hipErrorInvalidDevice;
    *uuid = propertiesOf(*at(d)).uuid;
    return hipSuccess;
  });
}
hipError_t hipDeviceTotalMem(size_t* bytes, hipDevice_t d) {
  return guarded([&] {
    if (!bytes) return hipErrorInvalidValue;
    if (!at(d)) return hipErrorInvalidDevice;
    *bytes = at(d)->chip->memoryBytes;
    return hipSuccess;
  });
}
hipError_t hipDeviceComputeCapability(int* major, int* minor, hipDevice_t d) {
  return guarded([&] {
    if (!major || !minor) return hipErrorInvalidValue;
    if (!at(d)) return hipErrorInvalidDevice;
    *major = at(d)->chip->major;
    *minor = at(d)->chip->minor;
    return hipSuccess;
  });
}
hipError_t hipDeviceGetAttribute(int* value, hipDeviceAttribute_t a, int d) {
  return guarded([&] {
    if (!value) return hipErrorInvalidValue;
    return at(d) ? deviceAttribute(propertiesOf(*at(d)), a, value) : hipErrorInvalidDevice;
  });
}
hipError_t hipGetDeviceProperties(hipDeviceProp_t* p, int d) {
  return guarded([&] {
    if (!p) return hipErrorInvalidValue;
    if (!at(d)) return hipErrorInvalidDevice;
    *p = propertiesOf(*at(d));
    return hipSuccess;
  });
}
hipError_t hipDeviceGetPCIBusId(char* id, int length, int d) {
  return guarded([&] {
    if (!id || length < 13) return hipErrorInvalidValue;
    if (!at(d)) return hipErrorInvalidDevice;
    std::snprintf(id, static_cast<std::size_t>(length), "0000:%02x:00.0", d + 1);
    return hipSuccess;
  });
}
hipError_t hipDeviceGetByPCIBusId(int* d, const char* id) {
  return guarded([&] {
    unsigned domain, bus, slot, function;
    if (!d || !id || std::sscanf(id, "%x:%x:%x.%x", &domain, &bus, &slot, &function) != 4) return hipErrorInvalidValue;
    if (domain || slot || function || !at(static_cast<int>(bus) - 1)) return hipErrorInvalidDevice;
    *d = static_cast<int>(bus) - 1;
    return hipSuccess;
  });
}
hipError_t hipDeviceReset() {
  return guarded([] { return hipSuccess; });
}
hipError_t hipSetDeviceFlags(unsigned) {
  return guarded([] { return hipSuccess; });
}
hipError_t hipGetDeviceFlags(unsigned* flags) {
  return guarded([&] {
    if (!flags) return hipErrorInvalidValue;
    *flags = hipDeviceScheduleAuto;
    return hipSuccess;
  });
}
hipError_t hipDeviceSetLimit(enum hipLimit_t limit, size_t value) {
  return guarded([&] {
    if (limit != hipLimitStackSize) return hipErrorUnsupportedLimit;
    if (value > (128u << 10)) return hipErrorInvalidValue;
    device().stackLimit = value;
    return hipSuccess;
  });
}
hipError_t hipDeviceGetLimit(size_t* value, enum hipLimit_t limit) {
  return guarded([&] {
    if (!value) return hipErrorInvalidValue;
    if (limit != hipLimitStackSize) return hipErrorUnsupportedLimit;
    *value = device().stackLimit;
    return hipSuccess;
  });
}
hipError_t hipDeviceGetStreamPriorityRange(int* least, int* greatest) {
  return guarded([&] {
    if (least) *least = 1;
    if (greatest) *greatest = -1;
    return hipSuccess;
  });
}
hipError_t hipDeviceCanAccessPeer(int* can, int d, int peer) {
  return guarded([&] {
    if (!can) return hipErrorInvalidValue;
    if (!at(d) || !at(peer)) return hipErrorInvalidDevice;
    *can = d != peer;
    return hipSuccess;
  });
}
hipError_t hipDeviceEnablePeerAccess(int peer, unsigned int flags) {
  return guarded([&] {
    if (!at(peer) || peer == device().ordinal) return hipErrorInvalidDevice;
    return flags ? hipErrorInvalidValue : hipSuccess;
  });
}
hipError_t hipDeviceDisablePeerAccess(int peer) {
  return guarded([&] { return at(peer) ? hipSuccess : hipErrorInvalidDevice; });
}
hipError_t hipDeviceGetP2PAttribute(int* value, hipDeviceP2PAttr a, int source, int destination) {
  return guarded([&] {
    if (!value) return hipErrorInvalidValue;
    if (!at(source) || !at(destination) || source == destination) return hipErrorInvalidDevice;
    *value = a == hipDevP2PAttrAccessSupported || a == hipDevP2PAttrNativeAtomicSupported;
    return hipSuccess;
  });
}

hipError_t hipCtxCreate(hipCtx_t* c, unsigned int, hipDevice_t d) {
  return guarded([&] {
    if (!c) return hipErrorInvalidValue;
    if (!at(d)) return hipErrorInvalidDevice;
    *c = at(d)->context.get();
    contextStack.push_back(*c);
    currentDevice() = d;
    return hipSuccess;
  });
}
hipError_t hipCtxDestroy(hipCtx_t c) {
  return guarded([&] { return c ? hipSuccess : hipErrorInvalidValue; });
}
hipError_t hipCtxPushCurrent(hipCtx_t c) {
  return guarded([&] {
    hipCtx_t old = device().context.get();
    hipError_t e = useContext(c);
    if (e == hipSuccess) contextStack.push_back(old);
    return e;
  });
}
hipError_t hipCtxPopCurrent(hipCtx_t* c) {
  return guarded([&] {
    if (contextStack.empty()) return hipErrorInvalidContext;
    if (c) *c = device().context.get();
    hipError_t e = useContext(contextStack.back());
    contextStack.pop_back();
    return e;
  });
}
hipError_t hipCtxSetCurrent(hipCtx_t c) {
  return guarded([&] { return c ? useContext(c) : hipSuccess; });
}
hipError_t hipCtxGetCurrent(hipCtx_t* c) {
  return guarded([&] {
    if (!c) return hipErrorInvalidValue;
    *c = device().context.get();
    return hipSuccess;
  });
}
hipError_t hipCtxGetDevice(hipDevice_t* d) { return hipGetDevice(d); }
hipError_t hipDevicePrimaryCtxRetain(hipCtx_t* c, hipDevice_t d) {
  return guarded([&] {
    if (!c) return hipErrorInvalidValue;
    if (!at(d)) return hipErrorInvalidDevice;
    *c = at(d)->context.get();
    return hipSuccess;
  });
}
hipError_t hipDevicePrimaryCtxRelease(hipDevice_t d) {
  return guarded([&] { return at(d) ? hipSuccess : hipErrorInvalidDevice; });
}
hipError_t hipDevicePrimaryCtxReset(hipDevice_t d) { return hipDevicePrimaryCtxRelease(d); }
hipError_t hipDevicePrimaryCtxGetState(hipDevice_t d, unsigned int* flags, int* active) {
  return guarded([&] {
    if (!flags || !active) return hipErrorInvalidValue;
    if (!at(d)) return hipErrorInvalidDevice;
    *flags = 0;
    *active = 1;
    return hipSuccess;
  });
}
hipError_t hipDevicePrimaryCtxSetFlags(hipDevice_t d, unsigned int) { return hipDevicePrimaryCtxRelease(d); }

}  // extern "C"
