// Device attributes: which field of the device's properties each one is.
#include "sim/api/attributes.h"

#include <algorithm>
#include <iterator>

namespace sardonyx::sim {
namespace {

struct IntField {
  hipDeviceAttribute_t attribute;
  int hipDeviceProp_t::* field;
};
constexpr IntField kIntFields[] = {
    {hipDeviceAttributeAsyncEngineCount, &hipDeviceProp_t::asyncEngineCount},
    {hipDeviceAttributeClockRate, &hipDeviceProp_t::clockRate},
    {hipDeviceAttributeClockInstructionRate, &hipDeviceProp_t::clockInstructionRate},
    {hipDeviceAttributeComputeCapabilityMajor, &hipDeviceProp_t::major},
    {hipDeviceAttributeComputeCapabilityMinor, &hipDeviceProp_t::minor},
    {hipDeviceAttributeL2CacheSize, &hipDeviceProp_t::l2CacheSize},
    {hipDeviceAttributeMaxBlocksPerMultiProcessor, &hipDeviceProp_t::maxBlocksPerMultiProcessor},
    {hipDeviceAttributeMaxThreadsPerBlock, &hipDeviceProp_t::maxThreadsPerBlock},
    {hipDeviceAttributeMaxThreadsPerMultiProcessor, &hipDeviceProp_t::maxThreadsPerMultiProcessor},
    {hipDeviceAttributeMemoryBusWidth, &hipDeviceProp_t::memoryBusWidth},
    {hipDeviceAttributeMemoryClockRate, &hipDeviceProp_t::memoryClockRate},
    {hipDeviceAttributeMultiprocessorCount, &hipDeviceProp_t::multiProcessorCount},
    {hipDeviceAttributePhysicalMultiProcessorCount, &hipDeviceProp_t::multiProcessorCount},
    {hipDeviceAttributePciBusId, &hipDeviceProp_t::pciBusID},
    {hipDeviceAttributePciDeviceId, &hipDeviceProp_t::pciDeviceID},
    {hipDeviceAttributePciDomainID, &hipDeviceProp_t::pciDomainID},
    {hipDeviceAttributeMaxRegistersPerBlock, &hipDeviceProp_t::regsPerBlock},
    {hipDeviceAttributeMaxRegistersPerMultiprocessor, &hipDeviceProp_t::regsPerMultiprocessor},
    {hipDeviceAttributeWarpSize, &hipDeviceProp_t::warpSize},
};

struct SizeField {
  hipDeviceAttribute_t attribute;
  std::size_t hipDeviceProp_t::* field;
};
/// Clipped to the range of int.
constexpr SizeField kSizeFields[] = {
    {hipDeviceAttributeMaxPitch, &hipDeviceProp_t::memPitch},
    {hipDeviceAttributeMaxSharedMemoryPerBlock, &hipDeviceProp_t::sharedMemPerBlock},
    {hipDeviceAttributeSharedMemPerBlockOptin, &hipDeviceProp_t::sharedMemPerBlockOptin},
    {hipDeviceAttributeSharedMemPerMultiprocessor, &hipDeviceProp_t::sharedMemPerMultiprocessor},
    {hipDeviceAttributeMaxSharedMemoryPerMultiprocessor, &hipDeviceProp_t::maxSharedMemoryPerMultiProcessor},
    {hipDeviceAttributeTextureAlignment, &hipDeviceProp_t::textureAlignment},
    {hipDeviceAttributeTexturePitchAlignment, &hipDeviceProp_t::texturePitchAlignment},
    {hipDeviceAttributeTotalConstantMemory, &hipDeviceProp_t::totalConstMem},
    {hipDeviceAttributeTotalGlobalMem, &hipDeviceProp_t::totalGlobalMem},
};

struct ArrayField {
  hipDeviceAttribute_t attribute;
  int (hipDeviceProp_t::*field)[3];
  int index;
};
constexpr ArrayField kArrayFields[] = {
    {hipDeviceAttributeMaxBlockDimX, &hipDeviceProp_t::maxThreadsDim, 0},
    {hipDeviceAttributeMaxBlockDimY, &hipDeviceProp_t::maxThreadsDim, 1},
    {hipDeviceAttributeMaxBlockDimZ, &hipDeviceProp_t::maxThreadsDim, 2},
    {hipDeviceAttributeMaxGridDimX, &hipDeviceProp_t::maxGridSize, 0},
    {hipDeviceAttributeMaxGridDimY, &hipDeviceProp_t::maxGridSize, 1},
    {hipDeviceAttributeMaxGridDimZ, &hipDeviceProp_t::maxGridSize, 2},
};

struct Constant {
  hipDeviceAttribute_t attribute;
  int value;
};
constexpr Constant kConstants[] = {
    {hipDeviceAttributeWallClockRate, 100000},
    {hipDeviceAttributeCanMapHostMemory, 1},
    {hipDeviceAttributeConcurrentKernels, 1},
    {hipDeviceAttributeCooperativeLaunch, 1},
    {hipDeviceAttributeManagedMemory, 1},
    {hipDeviceAttributeConcurrentManagedAccess, 1},
    {hipDeviceAttributeHostRegisterSupported, 1},
    {hipDeviceAttributeStreamPrioritiesSupported, 1},
    {hipDeviceAttributeUnifiedAddressing, 1},
    {hipDeviceAttributeMemoryPoolsSupported, 1},
    {hipDeviceAttributeIsLargeBar, 1},
    {hipDeviceAttributeFineGrainSupport, 1},
    // Features that the simulated device does not have.
    {hipDeviceAttributeEccEnabled, 0},
    {hipDeviceAttributeAccessPolicyMaxWindowSize, 0},
    {hipDeviceAttributeComputeMode, 0},
    {hipDeviceAttributeCanUseHostPointerForRegisteredMem, 0},
    {hipDeviceAttributeComputePreemptionSupported, 0},
    {hipDeviceAttributeCooperativeMultiDeviceLaunch, 0},
    {hipDeviceAttributeDeviceOverlap, 0},
    {hipDeviceAttributeDirectManagedMemAccessFromHost, 0},
    {hipDeviceAttributeGlobalL1CacheSupported, 0},
    {hipDeviceAttributeHostNativeAtomicSupported, 0},
    {hipDeviceAttributeIntegrated, 0},
    {hipDeviceAttributeIsMultiGpuBoard, 0},
    {hipDeviceAttributeKernelExecTimeout, 0},
    {hipDeviceAttributeLocalL1CacheSupported, 0},
    {hipDeviceAttributePageableMemoryAccess, 0},
    {hipDeviceAttributePageableMemoryAccessUsesHostPageTables, 0},
    {hipDeviceAttributeReservedSharedMemPerBlock, 0},
    {hipDeviceAttributeTccDriver, 0},
    {hipDeviceAttributeImageSupport, 0},
    {hipDeviceAttributeVirtualMemoryManagementSupported, 0},
    {hipDeviceAttributeMemoryPoolSupportedHandleTypes, 0},
    {hipDeviceAttributeCanUseStreamWaitValue, 0},
    {hipDeviceAttributeAsicRevision, 0},
    {hipDeviceAttributePersistingL2CacheMaxSize, 0},
    {hipDeviceAttributeMultiGpuBoardGroupID, 0},
    {hipDeviceAttributeSingleToDoublePrecisionPerfRatio, 0},
};

/// The row for an attribute, or null.
template <class T, std::size_t N>
const T* row_of(const T (&rows)[N], hipDeviceAttribute_t a) {
  const T* at = std::find_if(std::begin(rows), std::end(rows), [&](const T& r) { return r.attribute == a; });
  return at == std::end(rows) ? nullptr : at;
}

}  // namespace

hipError_t deviceAttribute(const hipDeviceProp_t& p, hipDeviceAttribute_t a, int* value) {
  if (const IntField* i = row_of(kIntFields, a))
    *value = p.*i->field;
  else if (const SizeField* s = row_of(kSizeFields, a))
    *value = static_cast<int>(std::min<std::size_t>(p.*s->field, 2147483647));
  else if (const ArrayField* x = row_of(kArrayFields, a))
    *value = (p.*x->field)[x->index];
  else if (const Constant* c = row_of(kConstants, a))
    *value = c->value;
  else
    return hipErrorInvalidValue;
  return hipSuccess;
}

}  // namespace sardonyx::sim
