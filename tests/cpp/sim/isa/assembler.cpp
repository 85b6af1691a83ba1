// See assembler.h.
#include "assembler.h"

#include <gtest/gtest.h>
#include <llvm/MC/MCAsmInfo.h>
#include <llvm/MC/MCCodeEmitter.h>
#include <llvm/MC/MCContext.h>
#include <llvm/MC/MCFixup.h>
#include <llvm/MC/MCInstrInfo.h>
#include <llvm/MC/MCObjectFileInfo.h>
#include <llvm/MC/MCParser/MCAsmParser.h>
#include <llvm/MC/MCParser/MCTargetAsmParser.h>
#include <llvm/MC/MCRegisterInfo.h>
#include <llvm/MC/MCStreamer.h>
#include <llvm/MC/MCSubtargetInfo.h>
#include <llvm/MC/MCTargetOptions.h>
#include <llvm/MC/TargetRegistry.h>
#include <llvm/Support/SourceMgr.h>
#include <llvm/Support/TargetSelect.h>

#include <memory>
#include <regex>

namespace {

/// Keeps the encoding of each instruction; ignores everything else.
class Collector : public llvm::MCStreamer {
 public:
  Collector(llvm::MCContext& context, llvm::MCCodeEmitter& emitter) : MCStreamer(context), emitter_(emitter) {}
  void emitInstruction(const llvm::MCInst& inst, const llvm::MCSubtargetInfo& subtarget) override {
    llvm::SmallVector<char, 16> bytes;
    llvm::SmallVector<llvm::MCFixup, 2> fixups;
    emitter_.encodeInstruction(inst, bytes, fixups, subtarget);
    code.insert(code.end(), bytes.begin(), bytes.end());
  }
  bool emitSymbolAttribute(llvm::MCSymbol*, llvm::MCSymbolAttr) override { return true; }
  void emitCommonSymbol(llvm::MCSymbol*, std::uint64_t, llvm::Align) override {}
  std::vector<std::uint8_t> code;

 private:
  llvm::MCCodeEmitter& emitter_;
};

void reportError(const llvm::SMDiagnostic& d, void* into) {
  auto* text = static_cast<std::string*>(into);
  *text += d.getMessage().str() + ": " + d.getLineContents().str() + "\n";
}

}  // namespace

std::vector<std::uint8_t> assemble(const std::string& chip, int waveSize, const std::string& text) {
  static const bool initialised = [] {
    LLVMInitializeAMDGPUTargetInfo();
    LLVMInitializeAMDGPUTargetMC();
    LLVMInitializeAMDGPUAsmParser();
    return true;
  }();
  (void)initialised;
  llvm::Triple triple("amdgcn-amd-amdhsa");
  std::string error;
  const llvm::Target* target = llvm::TargetRegistry::lookupTarget(triple, error);
  if (!target) {
    ADD_FAILURE() << error;
    return {};
  }
  llvm::MCTargetOptions options;
  std::unique_ptr<llvm::MCRegisterInfo> registers(target->createMCRegInfo(triple));
  std::unique_ptr<llvm::MCAsmInfo> asmInfo(target->createMCAsmInfo(*registers, triple, options));
  std::unique_ptr<llvm::MCInstrInfo> instructions(target->createMCInstrInfo());
  std::string features = chip.compare(0, 4, "gfx9") == 0 ? ""
                         : waveSize == 32                ? "+wavefrontsize32"
                                                         : "+wavefrontsize64,-wavefrontsize32";
  // LLVM accepts operands either as halves of registers (v1.l) or as registers whose lower half is meant (v1).
  static const std::regex half(R"(v\d+\.[lh])");
  if (std::regex_search(text, half)) features += ",+real-true16";
  std::unique_ptr<llvm::MCSubtargetInfo> subtarget(target->createMCSubtargetInfo(triple, chip, features));
  llvm::SourceMgr sources;
  std::string messages;
  sources.setDiagHandler(reportError, &messages);
  sources.AddNewSourceBuffer(llvm::MemoryBuffer::getMemBufferCopy(text), llvm::SMLoc());
  llvm::MCContext context(triple, asmInfo.get(), registers.get(), subtarget.get(), &sources);
  llvm::MCObjectFileInfo objectInfo;
  objectInfo.initMCObjectFileInfo(context, true);
  context.setObjectFileInfo(&objectInfo);
  std::unique_ptr<llvm::MCCodeEmitter> emitter(target->createMCCodeEmitter(*instructions, context));
  Collector collector(context, *emitter);
  target->createNullTargetStreamer(collector);
  std::unique_ptr<llvm::MCAsmParser> parser(llvm::createMCAsmParser(sources, context, collector, *asmInfo));
  std::unique_ptr<llvm::MCTargetAsmParser> targetParser(
      target->createMCAsmParser(*subtarget, *parser, *instructions, options));
  parser->setTargetParser(*targetParser);
  if (parser->Run(false)) {
    ADD_FAILURE() << chip << ": " << messages << " in\n" << text;
    return {};
  }
  return collector.code;
}
