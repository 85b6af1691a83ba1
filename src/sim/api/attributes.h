// Device attributes (hipDeviceGetAttribute).
#pragma once
#include "sim/api/runtime.h"

namespace sardonyx::sim {

/// Writes the attribute of a device with these properties; hipErrorInvalidValue for one that is not known.
hipError_t deviceAttribute(const hipDeviceProp_t& properties, hipDeviceAttribute_t attribute, int* value);

}  // namespace sardonyx::sim
