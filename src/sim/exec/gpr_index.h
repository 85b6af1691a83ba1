// gfx9's GPR indexing: while the mode is on, M0 shifts the vector registers of every vector instruction.
#pragma once
#include <memory>

#include "sim/exec/wave.h"

namespace sardonyx::sim {

/// `in` with the operands that M0[15:12] names (sources 0 to 2, destination) moved by M0[7:0], or nullptr when it is no
/// vector instruction. Throws Fault for forms in which the mode has no meaning (DPP, SDWA).
std::unique_ptr<Inst> withGprIndex(const Inst& in, const Wave& w);

}  // namespace sardonyx::sim
