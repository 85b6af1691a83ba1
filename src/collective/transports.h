// How a group exchanges tensors.
#pragma once
#include <memory>

#include "collective/group.h"
#include "device/device.h"
#include "sardonyx/communicator.h"

namespace sardonyx {

/// Through shared host memory. `gpu`: null for the host. Tensors of a card are copied to the host and back; each call
/// waits for the stream.
std::shared_ptr<Communicator> shared_memory_communicator(std::unique_ptr<Group> group, std::shared_ptr<Gpu> gpu);

/// Through NCCL or RCCL (for NVIDIA or AMD). Throws Error.
std::shared_ptr<Communicator> library_communicator(std::unique_ptr<Group> group, std::shared_ptr<Gpu> gpu,
                                                   const GroupOptions& options);

}  // namespace sardonyx
