// LLVM's physical registers as operands of ours.
#pragma once
#include <vector>

#include "sim/isa/inst.h"

namespace llvm {
class MCRegisterInfo;
}

namespace sardonyx::sim {

/// One operand for every register number of LLVM's AMDGPU target; RegFile::kNone for registers that no instruction of
/// the supported chips can name.
std::vector<Operand> mapRegisters(const llvm::MCRegisterInfo& registers);

}  // namespace sardonyx::sim
