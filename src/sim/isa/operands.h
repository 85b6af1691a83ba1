// Turns LLVM's MCInst into Inst: the part of decoding that knows which operand is which.
#pragma once
#include <string>
#include <string_view>
#include <vector>

#include "sim/isa/chip.h"
#include "sim/isa/inst.h"

namespace llvm {
class MCInst;
class MCInstrDesc;
}  // namespace llvm

namespace sardonyx::sim {

struct OperandContext {
  const Chip* chip;
  int waveSize;
  const std::vector<Operand>* registers;  ///< by LLVM register number
  unsigned vcc, vccLo;                    ///< LLVM's numbers of VCC and VCC_LO
  std::string_view opcodeName;            ///< LLVM's name: "V_DUAL_ADD_F32_e32_X_MOV_B32_e32_gfx11"
  std::string_view mnemonic;              ///< without encoding suffix
};

/// Fills operands, modifiers and immediates of `out` (raw, size and pc are already set). Returns false for an operand
/// form that is not known.
///
/// What the sources mean, by format:
///   kSalu, kValu, kVop3p  in the order of the assembly; implicit VCC reads are appended (carry-in, cndmask's mask)
///   kSmem      0 base, 1 offset register (or none), 2 data of stores;          imm: byte offset
///   kFlat, kGlobal, kScratch   0 vector address, 1 data, 2 scalar address;      imm: byte offset
///   kBuffer    0 vector address, 1 data, 2 resource, 3 scalar offset;           imm: byte offset;
///              imm2: kOffen, kIdxen, kTyped with the format in [15:8]
///   kDs        0 address, 1 data, 2 second data;                                imm, imm2: offsets as encoded
/// Destinations: 0 vector or scalar result, 1 carry or mask result (implicit VCC is appended).
bool fillOperands(const llvm::MCInst& inst, const llvm::MCInstrDesc& desc, const OperandContext& context, Inst& out);

constexpr std::int32_t kOffen = 1, kIdxen = 2, kTyped = 4;

/// Mnemonic of the first or second half of a dual-issue instruction, from LLVM's opcode name.
std::string dualMnemonic(std::string_view opcodeName, bool second);

}  // namespace sardonyx::sim
