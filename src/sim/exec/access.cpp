// See access.h.
#include "sim/exec/access.h"

#include <fmt/format.h>

#include <algorithm>

#include "sim/exec/checks.h"
#include "sim/exec/device_memory.h"
#include "sim/exec/fault.h"
#include "sim/exec/memory_checks.h"
#include "sim/timing/record.h"

namespace sardonyx::sim {
namespace {

const char* verb(AccessKind kind) {
  return kind == AccessKind::kRead ? "read" : kind == AccessKind::kWrite ? "write" : "atomic";
}

/// Allocations this thread used last. A hit needs no lock; a release anywhere invalidates all entries.
struct Cache {
  std::uint64_t generation = 0;
  std::shared_ptr<const Allocation> entry[4];
  int next = 0;
};
thread_local Cache cache;

void count(AccessKind kind, unsigned size, std::uint64_t& read, std::uint64_t& written) {
  if (kind == AccessKind::kRead || kind == AccessKind::kAtomic) read += size;
  if (kind != AccessKind::kRead) written += size;
}

const Allocation* lookUp(std::uint64_t address, unsigned size) {
  std::uint64_t generation = DeviceMemory::instance().generation();
  if (cache.generation != generation) {
    for (auto& e : cache.entry) e.reset();
    cache.generation = generation;
  }
  for (const auto& e : cache.entry)
    if (e && address - e->base < e->size && size <= e->end() - address) return e.get();
  auto found = DeviceMemory::instance().find(address);
  if (!found || size > found->end() - address) return nullptr;
  auto& slot = cache.entry[cache.next++ & 3];
  slot = std::move(found);
  return slot.get();
}

}  // namespace

namespace {
/// The lane's data to store must be written, all of it.
void requireStored(const Wave& w, int lane) {
  if (lane >= 0 && w.checks->storeUndefinedAny >> lane & 1)
    throw Fault("the data to store comes from a register that was never written in this lane", lane);
}
}  // namespace

std::uint8_t* globalAccess(Wave& w, int lane, std::uint64_t address, unsigned size, AccessKind kind,
                           unsigned alignment) {
  const Allocation* a = lookUp(address, size);
  if (!a) [[unlikely]] {
    if (address < 4096)
      throw Fault(fmt::format("{} of {} bytes through a null pointer", verb(kind), size), lane, address);
    auto start = DeviceMemory::instance().find(address);
    std::uint64_t bad = start ? start->end() : address;
    throw Fault(
        fmt::format("{} of {} bytes out of bounds: {}", verb(kind), size, DeviceMemory::instance().describe(bad)), lane,
        address);
  }
  if (kind != AccessKind::kRead && a->readOnly && !a->mayWrite(address, size)) [[unlikely]]
    throw Fault(fmt::format("{} of {} bytes to read-only memory (code or constants)", verb(kind), size), lane, address);
  if (address & (alignment - 1)) [[unlikely]]
    throw Fault(fmt::format("{} of {} bytes is not aligned to {}", verb(kind), size, alignment), lane, address);
  if (w.watchGlobal) [[unlikely]] {
    if (w.traffic) count(kind, size, w.traffic->globalRead, w.traffic->globalWritten);
    if (w.recorder) w.recorder->global(address, size, kind);
    if (kind != AccessKind::kRead) requireStored(w, lane);
    checkGlobal(w, *a, lane, address, size, kind);
  }
  return reinterpret_cast<std::uint8_t*>(address);
}

std::uint8_t* ldsAccess(Wave& w, int lane, std::uint32_t offset, unsigned size, AccessKind kind, unsigned alignment) {
  std::size_t bytes = w.group->lds.size();
  if (offset > bytes || size > bytes - offset) [[unlikely]]
    throw Fault(fmt::format("LDS {} of {} bytes out of bounds: the workgroup has {} bytes", verb(kind), size, bytes),
                lane, offset);
  if (offset & (alignment - 1)) [[unlikely]]
    throw Fault(fmt::format("LDS {} of {} bytes is not aligned to {}", verb(kind), size, alignment), lane, offset);
  if (w.traffic) [[unlikely]]
    count(kind, size, w.traffic->ldsRead, w.traffic->ldsWritten);
  if (w.recorder) [[unlikely]]
    w.recorder->lds(lane, offset, size);
  if (w.checks->storeUndefinedAny && kind != AccessKind::kRead) [[unlikely]]
    requireStored(w, lane);
  if (!w.group->transfers.empty()) [[unlikely]]
    checkLdsTransfers(w, lane, offset, size, kind);
  if (w.group->shadow) checkLds(w, lane, offset, size, kind);
  return w.group->lds.data() + offset;
}

namespace {
void scratchBounds(const Wave& w, int lane, std::uint32_t offset, unsigned size, AccessKind kind) {
  if (offset > w.scratchBytes || size > w.scratchBytes - offset)
    throw Fault(
        fmt::format("scratch {} of {} bytes out of bounds: a lane has {} bytes", verb(kind), size, w.scratchBytes),
        lane, offset);
}
std::uint8_t* scratchByte(const Wave& w, int lane, std::uint32_t offset) {
  std::uint64_t dword = offset >> 2;
  return reinterpret_cast<std::uint8_t*>(w.scratchBase + dword * 4 * w.lanes + static_cast<std::uint64_t>(lane) * 4 +
                                         (offset & 3));
}
void recordScratch(Wave& w, int lane, std::uint32_t offset, unsigned size, AccessKind kind) {
  for (unsigned i = 0; i < size; i += 4)
    w.recorder->global(reinterpret_cast<std::uint64_t>(scratchByte(w, lane, offset + i)), std::min(size - i, 4u), kind);
}
}  // namespace

void scratchRead(Wave& w, int lane, std::uint32_t offset, unsigned size, void* data) {
  scratchBounds(w, lane, offset, size, AccessKind::kRead);
  if (w.traffic) w.traffic->scratchRead += size;
  if (w.recorder) recordScratch(w, lane, offset, size, AccessKind::kRead);
  if (!w.scratchWritten.empty()) {
    const std::uint8_t* written = &w.scratchWritten[static_cast<std::size_t>(lane) * w.scratchBytes + offset];
    for (unsigned i = 0; i < size; ++i)
      if (!written[i]) w.checks->loadUndefined[i / 4] |= 1ull << lane;
  }
  auto* to = static_cast<std::uint8_t*>(data);
  if ((offset & 3) == 0 && (size & 3) == 0)
    for (unsigned i = 0; i < size; i += 4) std::memcpy(to + i, scratchByte(w, lane, offset + i), 4);
  else
    for (unsigned i = 0; i < size; ++i) to[i] = *scratchByte(w, lane, offset + i);
}

void scratchWrite(Wave& w, int lane, std::uint32_t offset, unsigned size, const void* data) {
  scratchBounds(w, lane, offset, size, AccessKind::kWrite);
  if (w.traffic) w.traffic->scratchWritten += size;
  if (w.recorder) recordScratch(w, lane, offset, size, AccessKind::kWrite);
  if (!w.scratchWritten.empty()) {
    std::uint8_t* written = &w.scratchWritten[static_cast<std::size_t>(lane) * w.scratchBytes + offset];
    for (unsigned i = 0; i < size; ++i) written[i] = !(w.checks->storeUndefined[i / 4] >> lane & 1);
  }
  auto* from = static_cast<const std::uint8_t*>(data);
  if ((offset & 3) == 0 && (size & 3) == 0)
    for (unsigned i = 0; i < size; i += 4) std::memcpy(scratchByte(w, lane, offset + i), from + i, 4);
  else
    for (unsigned i = 0; i < size; ++i) *scratchByte(w, lane, offset + i) = from[i];
}

void flatRead(Wave& w, int lane, std::uint64_t address, unsigned size, void* data) {
  std::uint64_t aperture = address & kApertureMask;
  auto low = static_cast<std::uint32_t>(address);
  if (aperture == kPrivateAperture) return scratchRead(w, lane, low, size, data);
  const std::uint8_t* from = aperture == kSharedAperture ? ldsAccess(w, lane, low, size, AccessKind::kRead)
                                                         : globalAccess(w, lane, address, size, AccessKind::kRead);
  std::memcpy(data, from, size);
}

void flatWrite(Wave& w, int lane, std::uint64_t address, unsigned size, const void* data) {
  std::uint64_t aperture = address & kApertureMask;
  auto low = static_cast<std::uint32_t>(address);
  if (aperture == kPrivateAperture) return scratchWrite(w, lane, low, size, data);
  std::uint8_t* to = aperture == kSharedAperture ? ldsAccess(w, lane, low, size, AccessKind::kWrite)
                                                 : globalAccess(w, lane, address, size, AccessKind::kWrite);
  std::memcpy(to, data, size);
}

}  // namespace sardonyx::sim
