// Runs the waves of workgroups.
#pragma once
#include <cstdint>
#include <memory>

#include "sim/exec/launch.h"
#include "sim/exec/wave.h"

namespace sardonyx::sim {

/// Creates workgroup `index` of a launch with all registers set as the kernel descriptor asks. `scratch` is the device
/// address of the scratch memory of all waves.
std::unique_ptr<Workgroup> startWorkgroup(Launch& launch, std::uint64_t index, std::uint64_t scratch);
/// Bytes of scratch one workgroup of this launch needs.
std::uint64_t scratchBytes(const Launch& launch);

enum class GroupState { kFinished, kStalled };

/// Runs waves in turn until the workgroup ends or its time slice does (it may be waiting for another workgroup).
/// Throws Fault with the complete message.
GroupState runWorkgroup(Launch& launch, Workgroup& group, std::vector<std::uint64_t>* counts);

}  // namespace sardonyx::sim
