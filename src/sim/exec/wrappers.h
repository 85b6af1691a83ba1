// DPP, SDWA and dual issue as steps around a handler, so that handlers never see them: the wrapper gathers the permuted
// or selected source into a temporary row, and afterwards merges the result.
#pragma once
#include "sim/isa/inst.h"

namespace sardonyx::sim {

void attachDpp(Inst& inst);
void attachSdwa(Inst& inst);
/// Replaces fn by one that runs both halves, each reading the registers as they were before the instruction.
void attachDual(Inst& inst);

}  // namespace sardonyx::sim
