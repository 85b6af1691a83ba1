// Copies and fills of two and three dimensions given by structures. Arrays (texture memory) do not exist here:
// structures that name one are refused with hipErrorNotSupported.
#include "sim/api/graph.h"
#include "sim/exec/device_memory.h"

using namespace sardonyx::sim;

namespace {

const char* at(const void* base, std::size_t pitch, std::size_t slice, std::size_t x, std::size_t y, std::size_t z) {
  return static_cast<const char*>(base) + z * slice + y * pitch + x;
}

hipError_t parsed(const hipMemcpy3DParms* p, CopyOp& op) {
  if (!p) return hipErrorInvalidValue;
  if (p->srcArray || p->dstArray) return hipErrorNotSupported;
  if (!p->srcPtr.ptr || !p->dstPtr.ptr || p->kind < hipMemcpyHostToHost || p->kind > hipMemcpyDefault)
    return hipErrorInvalidValue;
  op.width = p->extent.width, op.height = p->extent.height, op.depth = p->extent.depth;
  op.sourcePitch = p->srcPtr.pitch, op.destinationPitch = p->dstPtr.pitch;
  op.sourceSlice = p->srcPtr.pitch * p->srcPtr.ysize, op.destinationSlice = p->dstPtr.pitch * p->dstPtr.ysize;
  op.source = at(p->srcPtr.ptr, op.sourcePitch, op.sourceSlice, p->srcPos.x, p->srcPos.y, p->srcPos.z);
  op.destination = const_cast<char*>(
      at(p->dstPtr.ptr, op.destinationPitch, op.destinationSlice, p->dstPos.x, p->dstPos.y, p->dstPos.z));
  return hipSuccess;
}

/// Host or device pointer that a memory type of the driver-style structures selects.
hipError_t chosen(hipMemoryType type, const void* host, const void* device, const void*& out) {
  switch (type) {
    case hipMemoryTypeHost:
      out = host;
      break;
    case hipMemoryTypeDevice:
    case hipMemoryTypeManaged:
    case hipMemoryTypeUnified:
      out = device;
      break;
    case hipMemoryTypeArray:
      return hipErrorNotSupported;
    default:
      return hipErrorInvalidValue;
  }
  return out ? hipSuccess : hipErrorInvalidValue;
}

hipError_t parsed(const HIP_MEMCPY3D* p, CopyOp& op) {
  if (!p) return hipErrorInvalidValue;
  const void *from = nullptr, *to = nullptr;
  if (hipError_t e = chosen(p->srcMemoryType, p->srcHost, p->srcDevice, from); e != hipSuccess) return e;
  if (hipError_t e = chosen(p->dstMemoryType, p->dstHost, p->dstDevice, to); e != hipSuccess) return e;
  op.width = p->WidthInBytes, op.height = p->Height, op.depth = p->Depth;
  op.sourcePitch = p->srcPitch ? p->srcPitch : p->srcXInBytes + p->WidthInBytes;
  op.destinationPitch = p->dstPitch ? p->dstPitch : p->dstXInBytes + p->WidthInBytes;
  op.sourceSlice = op.sourcePitch * (p->srcHeight ? p->srcHeight : p->srcY + p->Height);
  op.destinationSlice = op.destinationPitch * (p->dstHeight ? p->dstHeight : p->dstY + p->Height);
  op.source = at(from, op.sourcePitch, op.sourceSlice, p->srcXInBytes, p->srcY, p->srcZ);
  op.destination =
      const_cast<char*>(at(to, op.destinationPitch, op.destinationSlice, p->dstXInBytes, p->dstY, p->dstZ));
  return hipSuccess;
}

HIP_MEMCPY3D asThreeDimensional(const hip_Memcpy2D& p) {
  HIP_MEMCPY3D out = {};
  out.srcXInBytes = p.srcXInBytes, out.srcY = p.srcY, out.srcMemoryType = p.srcMemoryType, out.srcHost = p.srcHost;
  out.srcDevice = p.srcDevice, out.srcPitch = p.srcPitch, out.dstXInBytes = p.dstXInBytes, out.dstY = p.dstY;
  out.dstMemoryType = p.dstMemoryType, out.dstHost = p.dstHost, out.dstDevice = p.dstDevice, out.dstPitch = p.dstPitch;
  out.WidthInBytes = p.WidthInBytes, out.Height = p.Height, out.Depth = 1;
  return out;
}

/// `waits`: for calls that return when the copy is done.
template <class T>
hipError_t copy(const T* p, hipStream_t s, bool waits = false) {
  return guarded([&] {
    CopyOp op;
    hipError_t e = parsed(p, op);
    if (e == hipSuccess) e = submit(s, op);
    if (e == hipSuccess && waits) finishStream(*Runtime::get().stream(s));
    return e;
  });
}

}  // namespace

extern "C" {

hipError_t hipMemcpy3D(const hipMemcpy3DParms* p) { return copy(p, nullptr, true); }
hipError_t hipMemcpy3DAsync(const hipMemcpy3DParms* p, hipStream_t s) { return copy(p, s); }
hipError_t hipDrvMemcpy3D(const HIP_MEMCPY3D* p) { return copy(p, nullptr, true); }
hipError_t hipDrvMemcpy3DAsync(const HIP_MEMCPY3D* p, hipStream_t s) { return copy(p, s); }
hipError_t hipMemcpyParam2DAsync(const hip_Memcpy2D* p, hipStream_t s) {
  if (!p) return lastError() = hipErrorInvalidValue;
  HIP_MEMCPY3D wide = asThreeDimensional(*p);
  return copy(&wide, s);
}
hipError_t hipMemcpyParam2D(const hip_Memcpy2D* p) {
  if (!p) return lastError() = hipErrorInvalidValue;
  HIP_MEMCPY3D wide = asThreeDimensional(*p);
  return copy(&wide, nullptr, true);
}
hipError_t hipDrvMemcpy2DUnaligned(const hip_Memcpy2D* p) { return hipMemcpyParam2D(p); }

hipError_t hipMalloc3D(hipPitchedPtr* p, hipExtent extent) {
  if (!p) return lastError() = hipErrorInvalidValue;
  if (extent.depth && extent.height > ~std::size_t{0} / extent.depth) return lastError() = hipErrorOutOfMemory;
  p->xsize = extent.width;
  p->ysize = extent.height;
  return hipMallocPitch(&p->ptr, &p->pitch, extent.width, extent.height * extent.depth);
}
hipError_t hipMemset3DAsync(hipPitchedPtr p, int value, hipExtent extent, hipStream_t s) {
  return guarded([&] {
    if (!p.ptr) return hipErrorInvalidValue;
    for (std::size_t z = 0; z < extent.depth; ++z) {
      char* slice = static_cast<char*>(p.ptr) + z * p.pitch * p.ysize;
      hipError_t e =
          submit(s, SetOp{slice, static_cast<std::uint32_t>(value), 1, extent.width, extent.height, p.pitch});
      if (e != hipSuccess) return e;
    }
    return hipSuccess;
  });
}
hipError_t hipMemset3D(hipPitchedPtr p, int value, hipExtent extent) {
  return hipMemset3DAsync(p, value, extent, nullptr);
}

hipError_t hipGraphAddMemcpyNode(hipGraphNode_t* node, hipGraph_t graph, const hipGraphNode_t* dependencies,
                                 size_t count, const hipMemcpy3DParms* p) {
  return guarded([&] {
    CopyOp op;
    hipError_t e = parsed(p, op);
    return e == hipSuccess ? addNode(node, graph, dependencies, count, op) : e;
  });
}
hipError_t hipGraphExecMemcpyNodeSetParams(hipGraphExec_t executable, hipGraphNode_t node, hipMemcpy3DParms* p) {
  return guarded([&] {
    CopyOp op;
    hipGraphNode* n = counterpart<CopyOp>(executable, node);
    hipError_t e = n ? parsed(p, op) : hipErrorInvalidValue;
    if (e == hipSuccess) n->operation = op;
    return e;
  });
}

}  // extern "C"
