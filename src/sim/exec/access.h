// Checked access of lanes to memory: global (and flat), LDS and scratch. All handlers of memory instructions use these
// functions, so that bounds, races and uninitialised data are checked in one place.
#pragma once
#include <cstdint>

#include "sim/exec/wave.h"

namespace sardonyx::sim {

/// kTransfer: data in flight from memory to LDS; it has arrived when a wait covers the load.
enum class AccessKind : std::uint8_t { kRead, kWrite, kAtomic, kTransfer };

/// Host pointer to `size` bytes of global memory at `address`, or throws Fault. `alignment` 1 where the chip takes any
/// address.
std::uint8_t* globalAccess(Wave& w, int lane, std::uint64_t address, unsigned size, AccessKind kind,
                           unsigned alignment = 1);

/// Host pointer to `size` bytes of the workgroup's LDS at byte `offset`, or throws Fault.
std::uint8_t* ldsAccess(Wave& w, int lane, std::uint32_t offset, unsigned size, AccessKind kind,
                        unsigned alignment = 1);

/// Moves `size` bytes between `data` and a lane's scratch at byte `offset`. Scratch is interleaved by dwords over the
/// lanes.
void scratchRead(Wave& w, int lane, std::uint32_t offset, unsigned size, void* data);
void scratchWrite(Wave& w, int lane, std::uint32_t offset, unsigned size, const void* data);

/// The upper half of a flat address says whether it is in LDS, scratch or global memory.
void flatRead(Wave& w, int lane, std::uint64_t address, unsigned size, void* data);
void flatWrite(Wave& w, int lane, std::uint64_t address, unsigned size, const void* data);

}  // namespace sardonyx::sim
