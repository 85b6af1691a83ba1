// Shares a card's memory between processes: a handle that another process on the same machine opens.
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

/// A handle of memory from Gpu::allocate. Empty if the driver has no suitable handles. Only NVIDIA's are: on AMD, what
/// a card writes to another card's memory becomes visible in time only in a different kind of memory.
std::optional<MemoryHandle> share_memory(Gpu& gpu, void* memory);
/// The memory, mapped for `gpu`, which may be another card than the one that owns it. Must not be called by the process
/// that made the handle. Null if the cards cannot access each other's memory.
std::shared_ptr<void> open_memory(const std::shared_ptr<Gpu>& gpu, const MemoryHandle& handle);

}  // namespace sardonyx
