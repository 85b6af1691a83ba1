// See hwreg.h. Numbers: the ISA documents' tables of hardware registers ("S_GETREG_B32", per generation).
#include "sim/ops/hwreg.h"

#include "sim/exec/fault.h"
#include "sim/exec/launch.h"

namespace sardonyx::sim {
namespace {

/// Where the workgroup would run: spread over the compute units in order.
std::uint32_t computeUnit(const Wave& w) {
  return static_cast<std::uint32_t>(w.group->flat % static_cast<unsigned>(w.chip->computeUnits));
}

std::uint32_t status(const Wave& w) {
  return (w.scc ? 1u : 0u) | (w.exec() == 0 ? 1u << 9 : 0u) | (w.vcc() == 0 ? 1u << 10 : 0u) |
         (w.group->waves.size() > 1 ? 1u << 11 : 0u) | 1u << 16;
}

}  // namespace

std::uint64_t cycleCounter(const Wave& w) {
  // Grows by four a scheduling turn; enough for code that measures time or seeds with it.
  return realtimeClock() * static_cast<std::uint64_t>(w.chip->clockKhz) / 100000;
}

std::uint32_t readHwreg(const Wave& w, unsigned id) {
  std::uint32_t cu = computeUnit(w), simd = static_cast<std::uint32_t>(w.id) & 3,
                slot = static_cast<std::uint32_t>(w.id) >> 2;
  bool gfx9 = w.chip->gen == Gen::kGfx9;
  switch (id) {
    case 1:
      return w.mode;
    case 2:
      return status(w);
    case 3:
      if (w.chip->gen != Gen::kGfx12) return 0;  // TRAPSTS: no exceptions
      break;
    case 4:
      if (gfx9) return slot | simd << 4 | (cu & 15) << 8 | (cu / 16 & 1) << 12 | (cu / 32 & 7) << 13;  // HW_ID
      if (w.chip->gen == Gen::kGfx12) return status(w);                                                // STATE_PRIV
      break;
    case 5:
      return gfx9 ? static_cast<std::uint32_t>(w.vgprs / 4 - 1) << 8
                  : static_cast<std::uint32_t>(w.vgprs / 8 - 1) << 12;
    case 6:
      return static_cast<std::uint32_t>(w.group->lds.size() + 511) / 512 << 12;  // LDS_ALLOC: size in 512-byte units
    case 7:
      return 0;  // IB_STS: nothing outstanding
    case 15:
      return static_cast<std::uint32_t>(kPrivateAperture >> 48) | static_cast<std::uint32_t>(kSharedAperture >> 48)
                                                                      << 16;
    case 20:
      if (gfx9 && w.chip->architectedFlatScratch) return cu % static_cast<unsigned>(w.chip->xccCount);  // XCC_ID
      return static_cast<std::uint32_t>(w.scratchBase);
    case 21:
      if (!gfx9) return static_cast<std::uint32_t>(w.scratchBase >> 32);
      break;
    case 23:
      if (!gfx9) return slot | simd << 8 | (cu & 15) << 10 | (cu / 16 & 1) << 16 | (cu / 32 & 7) << 18;  // HW_ID1
      break;
    case 24:
      if (!gfx9) return 0;  // HW_ID2: queue, pipe, micro engine and virtual machine 0
      break;
    case 26:
      return 0;  // SCHED_MODE
    case 29:
      if (!gfx9) return static_cast<std::uint32_t>(cycleCounter(w)) & (w.chip->gen == Gen::kGfx12 ? ~0u : 0xfffffu);
      break;
    case 30:
      if (w.chip->gen == Gen::kGfx12) return static_cast<std::uint32_t>(cycleCounter(w) >> 32);
      break;
    default:
      break;
  }
  throw Fault("hardware register " + std::to_string(id) + " is not available to a kernel on this chip");
}

void writeHwreg(Wave& w, unsigned id, std::uint32_t value) {
  if (id == 1) {
    w.mode = value;
  } else if (id == 20 || id == 21) {
    // FLAT_SCR_LO and FLAT_SCR_HI, which gfx10's kernels set up themselves. Scratch instructions use the wave's own.
    bool settable = w.chip->gen == Gen::kGfx10;
    if (!settable || value != static_cast<std::uint32_t>(w.scratchBase >> (id == 20 ? 0 : 32)))
      throw Fault(settable ? "FLAT_SCRATCH is set to memory that is not this wave's scratch"
                           : "hardware register " + std::to_string(id) + " cannot be written by a kernel on this chip");
  } else if (id != 3 && id != 26) {  // TRAPSTS and SCHED_MODE: accepted, without effect on results
    throw Fault("hardware register " + std::to_string(id) + " cannot be written by a kernel on this chip");
  }
}

}  // namespace sardonyx::sim
