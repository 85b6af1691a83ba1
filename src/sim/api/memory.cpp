// Memory: allocation, copies, fills and attributes of pointers. Device addresses are host addresses, so copies are
// plain copies.
#include <algorithm>
#include <cstring>

#include "sim/api/graph.h"
#include "sim/exec/device_memory.h"

using namespace sardonyx::sim;

namespace {

std::uint64_t toAddress(const void* p) { return reinterpret_cast<std::uint64_t>(p); }

hipError_t allocate(void** pointer, std::size_t size, MemoryKind kind, unsigned flags = 0) {
  if (!pointer) return hipErrorInvalidValue;
  if (!size) {
    *pointer = nullptr;
    return hipSuccess;
  }
  std::uint64_t a = DeviceMemory::instance().allocate(size, kind, device().ordinal, flags);
  if (!a) return hipErrorOutOfMemory;
  *pointer = reinterpret_cast<void*>(a);
  ++Runtime::get().allocations;
  return hipSuccess;
}
hipError_t release(void* pointer) {
  if (!pointer) return hipSuccess;
  auto a = DeviceMemory::instance().find(toAddress(pointer));
  if (!a || a->base != toAddress(pointer) || a->kind == MemoryKind::kRegistered || a->kind == MemoryKind::kCode)
    return hipErrorInvalidValue;
  finishAll();  // as HIP does
  std::lock_guard lock(Runtime::get().execution);
  return DeviceMemory::instance().release(toAddress(pointer)) ? hipSuccess : hipErrorInvalidValue;
}
bool validKind(hipMemcpyKind kind) {
  return (kind >= hipMemcpyHostToHost && kind <= hipMemcpyDefault) || kind == hipMemcpyDeviceToDeviceNoCU;
}
hipError_t copy(void* to, const void* from, std::size_t size, hipMemcpyKind kind, hipStream_t stream) {
  return guarded(
      [&] { return validKind(kind) ? submit(stream, CopyOp{to, from, size}) : hipErrorInvalidMemcpyDirection; });
}
hipError_t copy2D(void* to, std::size_t toPitch, const void* from, std::size_t fromPitch, std::size_t width,
                  std::size_t height, hipMemcpyKind kind, hipStream_t stream) {
  return guarded([&] {
    if (!validKind(kind)) return hipErrorInvalidMemcpyDirection;
    if (width > toPitch || width > fromPitch) return hipErrorInvalidPitchValue;
    return submit(stream, CopyOp{to, from, width, height, toPitch, fromPitch});
  });
}
/// For calls that return when the copy is done.
hipError_t finished(hipError_t e, hipStream_t stream) {
  if (e != hipSuccess) return e;
  return guarded([&] {
    if (ihipStream_t* s = Runtime::get().stream(stream)) finishStream(*s);
    return hipSuccess;
  });
}
hipError_t fill(void* to, std::uint32_t value, unsigned elementSize, std::size_t count, hipStream_t stream) {
  return guarded([&] { return submit(stream, SetOp{to, value, elementSize, count}); });
}

}  // namespace

extern "C" {

hipError_t hipMalloc(void** p, size_t size) {
  return guarded([&] { return allocate(p, size, MemoryKind::kDevice); });
}
hipError_t hipExtMallocWithFlags(void** p, size_t size, unsigned int flags) {
  return guarded([&] { return allocate(p, size, MemoryKind::kDevice, flags); });
}
hipError_t hipFree(void* p) {
  return guarded([&] { return release(p); });
}
hipError_t hipMallocPitch(void** p, size_t* pitch, size_t width, size_t height) {
  return guarded([&] {
    if (!pitch) return hipErrorInvalidValue;
    *pitch = (width + 255) / 256 * 256;
    if (height && *pitch > ~std::size_t{0} / height) return hipErrorOutOfMemory;
    return allocate(p, *pitch * height, MemoryKind::kDevice);
  });
}
hipError_t hipMemAllocPitch(hipDeviceptr_t* p, size_t* pitch, size_t width, size_t height, unsigned int) {
  return hipMallocPitch(p, pitch, width, height);
}
hipError_t hipHostMalloc(void** p, size_t size, unsigned int flags) {
  return guarded([&] { return allocate(p, size, MemoryKind::kPinned, flags); });
}
hipError_t hipHostAlloc(void** p, size_t size, unsigned int flags) { return hipHostMalloc(p, size, flags); }
hipError_t hipMallocHost(void** p, size_t size) { return hipHostMalloc(p, size, 0); }
hipError_t hipMemAllocHost(void** p, size_t size) { return hipHostMalloc(p, size, 0); }
hipError_t hipHostFree(void* p) {
  return guarded([&] { return release(p); });
}
hipError_t hipFreeHost(void* p) { return hipHostFree(p); }
hipError_t hipHostGetDevicePointer(void** d, void* host, unsigned int) {
  return guarded([&] {
    if (!d || !DeviceMemory::instance().find(toAddress(host))) return hipErrorInvalidValue;
    *d = host;
    return hipSuccess;
  });
}
hipError_t hipHostGetFlags(unsigned int* flags, void* host) {
  return guarded([&] {
    auto a = DeviceMemory::instance().find(toAddress(host));
    if (!flags || !a || (a->kind != MemoryKind::kPinned && a->kind != MemoryKind::kRegistered))
      return hipErrorInvalidValue;
    *flags = a->flags;
    return hipSuccess;
  });
}
hipError_t hipHostRegister(void* host, size_t size, unsigned int flags) {
  return guarded([&] {
    if (!host || !size) return hipErrorInvalidValue;
    return DeviceMemory::instance().add(toAddress(host), size, flags) ? hipSuccess
                                                                      : hipErrorHostMemoryAlreadyRegistered;
  });
}
hipError_t hipHostUnregister(void* host) {
  return guarded([&] {
    auto a = DeviceMemory::instance().find(toAddress(host));
    if (!a || a->kind != MemoryKind::kRegistered || a->base != toAddress(host)) return hipErrorHostMemoryNotRegistered;
    return DeviceMemory::instance().release(toAddress(host)) ? hipSuccess : hipErrorHostMemoryNotRegistered;
  });
}
hipError_t hipMallocManaged(void** p, size_t size, unsigned int flags) {
  return guarded([&] {
    if (flags != hipMemAttachGlobal && flags != hipMemAttachHost) return hipErrorInvalidValue;
    return allocate(p, size, MemoryKind::kManaged, flags);
  });
}
hipError_t hipMemAdvise(const void* p, size_t, hipMemoryAdvise, int) {
  return guarded([&] { return DeviceMemory::instance().find(toAddress(p)) ? hipSuccess : hipErrorInvalidValue; });
}
hipError_t hipMemPrefetchAsync(const void* p, size_t, int, hipStream_t) {
  return guarded([&] { return DeviceMemory::instance().find(toAddress(p)) ? hipSuccess : hipErrorInvalidValue; });
}
hipError_t hipMemGetInfo(size_t* available, size_t* total) {
  return guarded([&] {
    if (!available || !total) return hipErrorInvalidValue;
    *total = device().chip->memoryBytes;
    *available = *total - std::min<std::uint64_t>(*total, DeviceMemory::instance().used(device().ordinal));
    return hipSuccess;
  });
}
hipError_t hipMemPtrGetInfo(void* p, size_t* size) {
  return guarded([&] {
    auto a = DeviceMemory::instance().find(toAddress(p));
    if (!size || !a) return hipErrorInvalidValue;
    *size = a->size;
    return hipSuccess;
  });
}
hipError_t hipMemGetAddressRange(hipDeviceptr_t* base, size_t* size, hipDeviceptr_t p) {
  return guarded([&] {
    auto a = DeviceMemory::instance().find(toAddress(p));
    if (!a) return hipErrorNotFound;
    if (base) *base = reinterpret_cast<void*>(a->base);
    if (size) *size = a->size;
    return hipSuccess;
  });
}
hipError_t hipPointerGetAttributes(hipPointerAttribute_t* attributes, const void* p) {
  return guarded([&] {
    if (!attributes || !p) return hipErrorInvalidValue;
    auto a = DeviceMemory::instance().find(toAddress(p));
    std::memset(attributes, 0, sizeof *attributes);
    if (!a) {
      attributes->type = hipMemoryTypeUnregistered;
      attributes->device = -2;
      attributes->hostPointer = const_cast<void*>(p);
      return hipSuccess;
    }
    bool host = a->kind == MemoryKind::kPinned || a->kind == MemoryKind::kRegistered;
    attributes->type = a->kind == MemoryKind::kManaged ? hipMemoryTypeManaged
                       : host                          ? hipMemoryTypeHost
                                                       : hipMemoryTypeDevice;
    attributes->device = a->device;
    attributes->devicePointer = const_cast<void*>(p);
    attributes->hostPointer = attributes->type == hipMemoryTypeDevice ? nullptr : const_cast<void*>(p);
    attributes->isManaged = a->kind == MemoryKind::kManaged;
    attributes->allocationFlags = a->flags;
    return hipSuccess;
  });
}

hipError_t hipMemcpy(void* to, const void* from, size_t size, hipMemcpyKind kind) {
  return finished(copy(to, from, size, kind, nullptr), nullptr);
}
hipError_t hipMemcpyWithStream(void* to, const void* from, size_t size, hipMemcpyKind kind, hipStream_t s) {
  return finished(copy(to, from, size, kind, s), s);
}
hipError_t hipMemcpyAsync(void* to, const void* from, size_t size, hipMemcpyKind kind, hipStream_t s) {
  return copy(to, from, size, kind, s);
}
hipError_t hipMemcpyHtoD(hipDeviceptr_t to, void* from, size_t size) {
  return finished(copy(to, from, size, hipMemcpyHostToDevice, nullptr), nullptr);
}
hipError_t hipMemcpyDtoH(void* to, hipDeviceptr_t from, size_t size) {
  return finished(copy(to, from, size, hipMemcpyDeviceToHost, nullptr), nullptr);
}
hipError_t hipMemcpyDtoD(hipDeviceptr_t to, hipDeviceptr_t from, size_t size) {
  return finished(copy(to, from, size, hipMemcpyDeviceToDevice, nullptr), nullptr);
}
hipError_t hipMemcpyHtoDAsync(hipDeviceptr_t to, void* from, size_t size, hipStream_t s) {
  return copy(to, from, size, hipMemcpyHostToDevice, s);
}
hipError_t hipMemcpyDtoHAsync(void* to, hipDeviceptr_t from, size_t size, hipStream_t s) {
  return copy(to, from, size, hipMemcpyDeviceToHost, s);
}
hipError_t hipMemcpyDtoDAsync(hipDeviceptr_t to, hipDeviceptr_t from, size_t size, hipStream_t s) {
  return copy(to, from, size, hipMemcpyDeviceToDevice, s);
}
hipError_t hipMemcpyPeer(void* to, int, const void* from, int, size_t size) {
  return finished(copy(to, from, size, hipMemcpyDeviceToDevice, nullptr), nullptr);
}
hipError_t hipMemcpyPeerAsync(void* to, int, const void* from, int, size_t size, hipStream_t s) {
  return copy(to, from, size, hipMemcpyDeviceToDevice, s);
}
hipError_t hipMemcpy2D(void* to, size_t toPitch, const void* from, size_t fromPitch, size_t width, size_t height,
                       hipMemcpyKind kind) {
  return finished(copy2D(to, toPitch, from, fromPitch, width, height, kind, nullptr), nullptr);
}
hipError_t hipMemcpy2DAsync(void* to, size_t toPitch, const void* from, size_t fromPitch, size_t width, size_t height,
                            hipMemcpyKind kind, hipStream_t s) {
  return copy2D(to, toPitch, from, fromPitch, width, height, kind, s);
}
hipError_t hipMemset(void* to, int value, size_t size) {
  return fill(to, static_cast<std::uint32_t>(value), 1, size, nullptr);
}
hipError_t hipMemsetAsync(void* to, int value, size_t size, hipStream_t s) {
  return fill(to, static_cast<std::uint32_t>(value), 1, size, s);
}
hipError_t hipMemsetD8(hipDeviceptr_t to, unsigned char value, size_t count) {
  return fill(to, value, 1, count, nullptr);
}
hipError_t hipMemsetD16(hipDeviceptr_t to, unsigned short value, size_t count) {
  return fill(to, value, 2, count, nullptr);
}
hipError_t hipMemsetD32(hipDeviceptr_t to, int value, size_t count) {
  return fill(to, static_cast<std::uint32_t>(value), 4, count, nullptr);
}
hipError_t hipMemsetD8Async(hipDeviceptr_t to, unsigned char value, size_t count, hipStream_t s) {
  return fill(to, value, 1, count, s);
}
hipError_t hipMemsetD16Async(hipDeviceptr_t to, unsigned short value, size_t count, hipStream_t s) {
  return fill(to, value, 2, count, s);
}
hipError_t hipMemsetD32Async(hipDeviceptr_t to, int value, size_t count, hipStream_t s) {
  return fill(to, static_cast<std::uint32_t>(value), 4, count, s);
}
hipError_t hipMemset2DAsync(void* to, size_t pitch, int value, size_t width, size_t height, hipStream_t s) {
  return guarded([&] { return submit(s, SetOp{to, static_cast<std::uint32_t>(value), 1, width, height, pitch}); });
}
hipError_t hipMemset2D(void* to, size_t pitch, int value, size_t width, size_t height) {
  return hipMemset2DAsync(to, pitch, value, width, height, nullptr);
}

}  // extern "C"
