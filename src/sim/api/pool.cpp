// Stream-ordered allocation and memory pools. Streams run in order on the calling thread, so allocation is immediate.
#include "sim/api/graph.h"
#include "sim/exec/device_memory.h"

using namespace sardonyx::sim;

namespace {

bool isPool(hipMemPool_t p) {
  for (auto& d : Runtime::get().devices)
    if (d->defaultPool.get() == p) return true;
  return Runtime::get().alive(p);
}
Device* at(int ordinal) {
  auto& all = Runtime::get().devices;
  return ordinal >= 0 && static_cast<std::size_t>(ordinal) < all.size() ? all[static_cast<std::size_t>(ordinal)].get()
                                                                        : nullptr;
}
hipError_t allocate(void** p, std::size_t size, int ordinal, hipStream_t stream) {
  ihipStream_t* s = Runtime::get().stream(stream);
  if (!s) return hipErrorContextIsDestroyed;
  if (s->capture != hipStreamCaptureStatusNone) return hipErrorStreamCaptureUnsupported;
  if (!p) return hipErrorInvalidValue;
  if (!size) {
    *p = nullptr;
    return hipSuccess;
  }
  std::uint64_t a = DeviceMemory::instance().allocate(size, MemoryKind::kDevice, ordinal);
  *p = reinterpret_cast<void*>(a);
  if (a) ++Runtime::get().allocations;
  return a ? hipSuccess : hipErrorOutOfMemory;
}

}  // namespace

extern "C" {

hipError_t hipMallocAsync(void** p, size_t size, hipStream_t s) {
  return guarded([&] { return allocate(p, size, device().pool->device, s); });
}
hipError_t hipFreeAsync(void* p, hipStream_t s) {
  return guarded([&] {
    auto a = DeviceMemory::instance().find(reinterpret_cast<std::uint64_t>(p));
    if (!a || a->base != reinterpret_cast<std::uint64_t>(p)) return hipErrorInvalidValue;
    return submit(s, FreeOp{p});
  });
}
hipError_t hipMallocFromPoolAsync(void** p, size_t size, hipMemPool_t pool, hipStream_t s) {
  return guarded([&] { return isPool(pool) ? allocate(p, size, pool->device, s) : hipErrorInvalidValue; });
}
hipError_t hipMemPoolCreate(hipMemPool_t* pool, const hipMemPoolProps* props) {
  return guarded([&] {
    if (!pool || !props || props->allocType != hipMemAllocationTypePinned ||
        props->location.type != hipMemLocationTypeDevice)
      return hipErrorInvalidValue;
    if (!at(props->location.id)) return hipErrorInvalidDevice;
    if (props->handleTypes != hipMemHandleTypeNone) return hipErrorNotSupported;
    auto p = std::make_unique<ihipMemPoolHandle_t>();
    p->device = props->location.id;
    *pool = Runtime::get().add(std::move(p));
    return hipSuccess;
  });
}
hipError_t hipMemPoolDestroy(hipMemPool_t pool) {
  return guarded([&] {
    for (auto& d : Runtime::get().devices)
      if (d->pool == pool) d->pool = d->defaultPool.get();
    return Runtime::get().remove(pool) ? hipSuccess : hipErrorInvalidValue;
  });
}
hipError_t hipDeviceGetDefaultMemPool(hipMemPool_t* pool, int d) {
  return guarded([&] {
    if (!pool) return hipErrorInvalidValue;
    if (!at(d)) return hipErrorInvalidDevice;
    *pool = at(d)->defaultPool.get();
    return hipSuccess;
  });
}
hipError_t hipDeviceGetMemPool(hipMemPool_t* pool, int d) {
  return guarded([&] {
    if (!pool) return hipErrorInvalidValue;
    if (!at(d)) return hipErrorInvalidDevice;
    *pool = at(d)->pool;
    return hipSuccess;
  });
}
hipError_t hipDeviceSetMemPool(int d, hipMemPool_t pool) {
  return guarded([&] {
    if (!at(d)) return hipErrorInvalidDevice;
    if (!isPool(pool) || pool->device != d) return hipErrorInvalidValue;
    at(d)->pool = pool;
    return hipSuccess;
  });
}
hipError_t hipMemPoolTrimTo(hipMemPool_t pool, size_t) {
  return guarded([&] { return isPool(pool) ? hipSuccess : hipErrorInvalidValue; });
}
hipError_t hipMemPoolSetAttribute(hipMemPool_t pool, hipMemPoolAttr a, void* value) {
  return guarded([&] {
    if (!isPool(pool) || !value) return hipErrorInvalidValue;
    switch (a) {
      case hipMemPoolAttrReleaseThreshold:
        pool->releaseThreshold = *static_cast<std::uint64_t*>(value);
        return hipSuccess;
      case hipMemPoolReuseFollowEventDependencies:
      case hipMemPoolReuseAllowOpportunistic:
      case hipMemPoolReuseAllowInternalDependencies:
        pool->reuse[a] = *static_cast<int*>(value);
        return hipSuccess;
      case hipMemPoolAttrReservedMemHigh:
      case hipMemPoolAttrUsedMemHigh:
        return *static_cast<std::uint64_t*>(value) ? hipErrorInvalidValue : hipSuccess;
      default:
        return hipErrorInvalidValue;
    }
  });
}
hipError_t hipMemPoolGetAttribute(hipMemPool_t pool, hipMemPoolAttr a, void* value) {
  return guarded([&] {
    if (!isPool(pool) || !value) return hipErrorInvalidValue;
    switch (a) {
      case hipMemPoolAttrReleaseThreshold:
        *static_cast<std::uint64_t*>(value) = pool->releaseThreshold;
        return hipSuccess;
      case hipMemPoolReuseFollowEventDependencies:
      case hipMemPoolReuseAllowOpportunistic:
      case hipMemPoolReuseAllowInternalDependencies:
        *static_cast<int*>(value) = pool->reuse[a];
        return hipSuccess;
      case hipMemPoolAttrReservedMemCurrent:
      case hipMemPoolAttrReservedMemHigh:
      case hipMemPoolAttrUsedMemCurrent:
      case hipMemPoolAttrUsedMemHigh:
        *static_cast<std::uint64_t*>(value) = DeviceMemory::instance().used(pool->device);
        return hipSuccess;
      default:
        return hipErrorInvalidValue;
    }
  });
}
hipError_t hipMemPoolSetAccess(hipMemPool_t pool, const hipMemAccessDesc* list, size_t count) {
  return guarded([&] { return isPool(pool) && (list || !count) ? hipSuccess : hipErrorInvalidValue; });
}
hipError_t hipMemPoolGetAccess(hipMemAccessFlags* flags, hipMemPool_t pool, hipMemLocation* location) {
  return guarded([&] {
    if (!flags || !isPool(pool) || !location) return hipErrorInvalidValue;
    *flags = hipMemAccessFlagsProtReadWrite;
    return hipSuccess;
  });
}

}  // extern "C"
