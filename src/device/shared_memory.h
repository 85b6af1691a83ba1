// A card's memory in several processes: a handle that another process of the same machine opens.
#pragma once
#include <array>
#include <cstddef>
#include <memory>
#include <optional>

#include "device/device.h"

namespace sardonyx {

/// CUipcMemHandle.
struct MemoryHandle {
  std::array<std::byte, 64> bytes;
};

/// A handle of memory that Gpu::allocate gave; none where the driver has no such handles that we use (NVIDIA's alone
/// does: what AMD's cards write to another's memory is seen there in time only in memory of another kind).
std::optional<MemoryHandle> share_memory(Gpu& gpu, void* memory);
/// The memory, as `gpu` sees it, which may be another card than the one that has it. Not for the process that made the
/// handle. Null where the cards don't reach each other.
std::shared_ptr<void> open_memory(const std::shared_ptr<Gpu>& gpu, const MemoryHandle& handle);

}  // namespace sardonyx
