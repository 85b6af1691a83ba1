// LLVM's disassembler of one AMD chip.
#pragma once
#include <llvm/ADT/ArrayRef.h>
#include <llvm/MC/MCAsmInfo.h>
#include <llvm/MC/MCContext.h>
#include <llvm/MC/MCDisassembler/MCDisassembler.h>
#include <llvm/MC/MCInst.h>
#include <llvm/MC/MCInstrInfo.h>
#include <llvm/MC/MCRegisterInfo.h>
#include <llvm/MC/MCSubtargetInfo.h>

#include <cstdint>
#include <functional>
#include <memory>
#include <string>

namespace sardonyx {

class AmdDisassembler {
 public:
  explicit AmdDisassembler(const std::string& chip);

  /// Calls `f` with the instructions of `code`, in order, and with null for words that are none (padding, data).
  void each(llvm::ArrayRef<std::uint8_t> code, const std::function<void(const llvm::MCInst*)>& f) const;
  const llvm::MCInstrDesc& description(const llvm::MCInst& inst) const { return instructions_->get(inst.getOpcode()); }
  /// LLVM's name of the instruction, for example "V_MFMA_F32_16X16X32_F16_gfx940_acd".
  llvm::StringRef name(const llvm::MCInst& inst) const { return instructions_->getName(inst.getOpcode()); }
  /// LLVM's name of a register, for example "AGPR4_AGPR5" for two in sequence.
  llvm::StringRef register_name(llvm::MCRegister r) const { return registers_->getName(r); }

 private:
  std::unique_ptr<llvm::MCRegisterInfo> registers_;
  std::unique_ptr<llvm::MCAsmInfo> assembly_;
  std::unique_ptr<llvm::MCInstrInfo> instructions_;
  std::unique_ptr<llvm::MCSubtargetInfo> subtarget_;
  std::unique_ptr<llvm::MCContext> context_;
  std::unique_ptr<llvm::MCDisassembler> disassembler_;
};

}  // namespace sardonyx
