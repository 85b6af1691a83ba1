#include "compile/llvm/custom_entry.h"

#include <llvm/Analysis/ValueTracking.h>
#include <llvm/IR/Constants.h>
#include <llvm/IR/IRBuilder.h>
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

/// Lanes of a warp execute together, and sources from before __syncwarp() rely on it: through volatile pointers to
/// shared memory each lane reads what others have stored in the statement before. On the host, where lanes are fibers,
/// all of them wait before and after such a store.
void step_by_stores(llvm::Module& module) {
  llvm::SmallVector<llvm::StoreInst*> stores;
  for (llvm::Function& f : module)
    for (llvm::BasicBlock& block : f)
      for (llvm::Instruction& i : block)
        if (auto* store = llvm::dyn_cast<llvm::StoreInst>(&i);
            store != nullptr && store->isVolatile() &&
            !llvm::isa<llvm::AllocaInst>(llvm::getUnderlyingObject(store->getPointerOperand())))
          stores.push_back(store);
  if (stores.empty()) return;
  llvm::IRBuilder<> builder(module.getContext());
  llvm::Type *word = builder.getInt32Ty(), *wide = builder.getInt64Ty();
  // Of kernels/custom_warp.h: for lanes in this call, without a value.
  llvm::FunctionCallee wait =
      module.getOrInsertFunction("sdx_warp_exchange", wide, word, wide, word, word, builder.getPtrTy());
  llvm::cast<llvm::Function>(wait.getCallee())->setConvergent();
  for (llvm::StoreInst* store : stores) {
    llvm::BasicBlock& entry = store->getFunction()->getEntryBlock();
    builder.SetInsertPoint(&entry, entry.begin());
    llvm::Value* lanes = builder.CreateAlloca(wide);
    const auto add = [&](llvm::Instruction* at) {
      builder.SetInsertPoint(at);
      builder
          .CreateCall(wait, {builder.getInt32(0), builder.getInt64(0), builder.getInt32(0), builder.getInt32(1), lanes})
          ->setConvergent();
    };
    add(store);
    add(store->getNextNode());
  }
}

}  // namespace

void isolate_custom_entry(llvm::Module& module) {
  const bool gpu = module.getTargetTriple().isAMDGPU() || module.getTargetTriple().isNVPTX();
  // Only the dialect compiles device code with this flag of clang, and only its host code has annotated entries.
  bool custom = false;
  for (const llvm::Function& f : module) custom = custom || f.hasFnAttribute(kEntry);
  if (!custom) return;
  if (!gpu) step_by_stores(module);
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
