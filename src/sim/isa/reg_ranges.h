// Which registers an instruction reads and writes, for the checks around execution (never-written registers, missing
// waits).
#pragma once
#include "sim/isa/inst.h"

namespace sardonyx::sim {

/// Fills reads[] and writes[] from the operands (and from the second half of a dual-issue instruction).
void fillRanges(Inst& inst, int waveSize);

}  // namespace sardonyx::sim
