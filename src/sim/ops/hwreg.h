// Hardware registers as s_getreg and s_setreg see them, and the clocks.
#pragma once
#include <cstdint>

#include "sim/exec/wave.h"

namespace sardonyx::sim {

/// Throws Fault for a register that the chip does not have, or that kernels may not use.
std::uint32_t readHwreg(const Wave& w, unsigned id);
void writeHwreg(Wave& w, unsigned id, std::uint32_t value);

/// The constant 100 MHz clock, and a cycle count of the wave that grows with each executed instruction.
std::uint64_t realtimeClock();
std::uint64_t cycleCounter(const Wave& w);

}  // namespace sardonyx::sim
