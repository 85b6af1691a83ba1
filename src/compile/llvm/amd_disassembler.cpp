#include "compile/llvm/amd_disassembler.h"

#include <llvm/MC/MCTargetOptions.h>
#include <llvm/MC/TargetRegistry.h>
#include <llvm/Support/TargetSelect.h>
#include <llvm/Support/raw_ostream.h>

#include <algorithm>
#include <mutex>

#include "compile/llvm/llvm_process.h"
#include "support/error.h"

extern "C" void LLVMInitializeAMDGPUDisassembler();

namespace sardonyx {

AmdDisassembler::AmdDisassembler(const std::string& chip) {
  static std::once_flag once;
  initialize_llvm();
  std::call_once(once, [] { LLVMInitializeAMDGPUDisassembler(); });
  const llvm::Triple triple("amdgcn-amd-amdhsa");
  std::string error;
  const llvm::Target* target = llvm::TargetRegistry::lookupTarget(triple, error);
  check(target != nullptr, "{}", error);
  registers_.reset(target->createMCRegInfo(triple));
  assembly_.reset(target->createMCAsmInfo(*registers_, triple, llvm::MCTargetOptions()));
  instructions_.reset(target->createMCInstrInfo());
  subtarget_.reset(target->createMCSubtargetInfo(triple, chip, ""));
  context_ = std::make_unique<llvm::MCContext>(triple, assembly_.get(), registers_.get(), subtarget_.get());
  disassembler_.reset(target->createMCDisassembler(*subtarget_, *context_));
  check(disassembler_ != nullptr, "no disassembler for {}", chip);
}

void AmdDisassembler::each(llvm::ArrayRef<std::uint8_t> code, const std::function<void(const llvm::MCInst*)>& f) const {
  for (std::uint64_t at = 0; at < code.size();) {
    llvm::MCInst inst;
    std::uint64_t size = 0;
    if (disassembler_->getInstruction(inst, size, code.slice(at), at, llvm::nulls()) == llvm::MCDisassembler::Success) {
      f(&inst);
      at += std::max<std::uint64_t>(size, 4);
    } else {
      f(nullptr);
      at += 4;
    }
  }
}

}  // namespace sardonyx
