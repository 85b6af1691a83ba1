// Only for a library with LLVM linked in (SARDONYX_STATIC_LLVM): symbols that LLVM's archives refer to and that we
// leave out, which saves 60 MB. lld registers every target of LLVM; we need four, and the functions of the others do
// nothing here. Polly, which Debian's clang includes, is off by default.
#include <llvm/Config/llvm-config.h>
#include <llvm/Plugins/PassPlugin.h>

#define SARDONYX_NO_TARGET(name)             \
  extern "C" {                               \
  void LLVMInitialize##name##TargetInfo() {} \
  void LLVMInitialize##name##Target() {}     \
  void LLVMInitialize##name##TargetMC() {}   \
  void LLVMInitialize##name##AsmPrinter() {} \
  void LLVMInitialize##name##AsmParser() {}  \
  }
SARDONYX_NO_TARGET(ARM)
SARDONYX_NO_TARGET(AVR)
SARDONYX_NO_TARGET(BPF)
SARDONYX_NO_TARGET(Hexagon)
SARDONYX_NO_TARGET(Lanai)
SARDONYX_NO_TARGET(LoongArch)
SARDONYX_NO_TARGET(M68k)
SARDONYX_NO_TARGET(MSP430)
SARDONYX_NO_TARGET(Mips)
SARDONYX_NO_TARGET(PowerPC)
SARDONYX_NO_TARGET(RISCV)
SARDONYX_NO_TARGET(SPIRV)
SARDONYX_NO_TARGET(Sparc)
SARDONYX_NO_TARGET(SystemZ)
SARDONYX_NO_TARGET(VE)
SARDONYX_NO_TARGET(WebAssembly)
SARDONYX_NO_TARGET(XCore)
SARDONYX_NO_TARGET(Xtensa)

llvm::PassPluginLibraryInfo getPollyPluginInfo() {
  return {LLVM_PLUGIN_API_VERSION, "Polly", LLVM_VERSION_STRING, [](llvm::PassBuilder&) {}};
}
