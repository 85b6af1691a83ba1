// Cycles of matrix instructions.
#pragma once
#include <string_view>

#include "sim/isa/chip.h"
#include "sim/isa/inst.h"

namespace sardonyx::sim::timing {

/// Cycles of the matrix pipe for the instruction of this name whose result has `dwords` registers.
int matrixCycles(std::string_view name, int dwords, const Chip& chip, int waveSize, const Inst& in);

}  // namespace sardonyx::sim::timing
