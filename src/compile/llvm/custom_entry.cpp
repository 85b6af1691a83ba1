#include "compile/llvm/custom_entry.h"

#include <llvm/IR/Constants.h>
#include <llvm/IR/Module.h>
#include <llvm/Passes/PassBuilder.h>
#include <llvm/Transforms/IPO/GlobalDCE.h>

namespace sardonyx {
namespace {

constexpr const char* kEntry = "sdx.entry";

bool is_used(const llvm::Module& module, const char* function) {
  const llvm::Function* f = module.getFunction(function);
  return f != nullptr && !f->use_empty();
}

}  // namespace

void isolate_custom_entry(llvm::Module& module) {
  const bool gpu = module.getTargetTriple().isAMDGPU() || module.getTargetTriple().isNVPTX();
  // Only the dialect compiles device code with this flag of clang, and only its host code has annotated entries.
  bool custom = false;
  for (const llvm::Function& f : module) custom = custom || f.hasFnAttribute(kEntry);
  if (!custom) return;
  for (llvm::Function& f : module)
    if (!f.isDeclaration() && !f.hasFnAttribute(kEntry)) {
      f.setLinkage(llvm::GlobalValue::InternalLinkage);
      f.setComdat(nullptr);
    }
  for (llvm::GlobalVariable& v : module.globals())
    if (!v.isDeclaration() && !v.hasAppendingLinkage() && !v.getName().starts_with("llvm.")) {
      v.setLinkage(llvm::GlobalValue::InternalLinkage);
      v.setComdat(nullptr);
    }
  llvm::ModuleAnalysisManager unused;
  llvm::ModulePassManager passes;
  passes.addPass(llvm::GlobalDCEPass());
  llvm::PassBuilder builder;
  llvm::LoopAnalysisManager loops;
  llvm::FunctionAnalysisManager functions;
  llvm::CGSCCAnalysisManager components;
  builder.registerModuleAnalyses(unused);
  builder.registerCGSCCAnalyses(components);
  builder.registerFunctionAnalyses(functions);
  builder.registerLoopAnalyses(loops);
  builder.crossRegisterProxies(loops, functions, components, unused);
  passes.run(module, unused);
  if (gpu) return;
  // clang refers to a weak initialiser of each `extern __shared__` array, and there is none.
  for (llvm::Function& f : module)
    if (f.hasExternalWeakLinkage()) f.replaceAllUsesWith(llvm::ConstantPointerNull::get(f.getType()));
  llvm::GlobalVariable* waits = module.getNamedGlobal("sdx_waits");
  if (waits == nullptr) return;
  const bool value = is_used(module, "sdx_block_wait") || is_used(module, "sdx_warp_exchange");
  waits->setInitializer(llvm::ConstantInt::get(waits->getValueType(), value ? 1 : 0));
  waits->setConstant(true);
  waits->setLinkage(llvm::GlobalValue::InternalLinkage);
}

}  // namespace sardonyx
