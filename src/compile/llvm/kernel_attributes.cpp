#include "compile/llvm/kernel_attributes.h"

#include <llvm/ADT/DenseMap.h>
#include <llvm/ADT/STLExtras.h>
#include <llvm/IR/Constants.h>
#include <llvm/IR/InstIterator.h>
#include <llvm/IR/Module.h>
#include <llvm/IR/PassInstrumentation.h>
#include <llvm/Passes/PassBuilder.h>

#include "compile/llvm/custom_entry.h"
#include "target/chip.h"

namespace sardonyx {
namespace {

constexpr const char* kAnnotations = "llvm.global.annotations";

void attribute_from(const llvm::ConstantStruct& annotation) {
  auto* function = llvm::dyn_cast<llvm::Function>(annotation.getOperand(0)->stripPointerCasts());
  const auto* global = llvm::dyn_cast<llvm::GlobalVariable>(annotation.getOperand(1)->stripPointerCasts());
  if (function == nullptr || global == nullptr || !global->hasInitializer()) return;
  const auto* text = llvm::dyn_cast<llvm::ConstantDataSequential>(global->getInitializer());
  if (text == nullptr || !text->isCString()) return;
  const auto [name, value] = text->getAsCString().split('=');
  function->addFnAttr(name, value);
}

// A called function receives arrays in memory, so sums would be moved from registers to memory and back. SDX_FN forces
// inlining of functions, but not of lambdas, and the inliner would call long ones.
void inline_all(llvm::Module& module) {
  if (!module.getTargetTriple().isAMDGPU() && !module.getTargetTriple().isNVPTX()) return;
  for (llvm::Function& f : module)
    if (!f.isDeclaration() && f.hasLocalLinkage() && !f.hasFnAttribute(llvm::Attribute::NoInline))
      f.addFnAttr(llvm::Attribute::AlwaysInline);
}

// Firmware of CDNA can put the first arguments into scalar registers (AMDGPU usage guide of LLVM, "Preloaded
// Kernel Arguments"): a wave then does not begin with a load from memory. Firmware without this runs instructions that
// load them, which LLVM puts before the kernel.
void preload_arguments(llvm::Function& f) {
  constexpr unsigned kWords = 14;  // of the 16 scalar registers, two have the address of the arguments
  if (f.getCallingConv() != llvm::CallingConv::AMDGPU_KERNEL) return;
  const Chip* chip = find_chip(f.getFnAttribute("target-cpu").getValueAsString());
  if (chip == nullptr || !chip->has(Feature::kPreloadsArguments)) return;
  const llvm::DataLayout& layout = f.getParent()->getDataLayout();
  unsigned words = 0;
  for (llvm::Argument& a : f.args()) {
    const std::uint64_t bytes = layout.getTypeAllocSize(a.getType());
    if (a.hasByRefAttr() || bytes % 4 != 0 || words + bytes / 4 > kWords) return;
    words += static_cast<unsigned>(bytes / 4);
    a.addAttr(llvm::Attribute::InReg);
  }
}

/// Whether it multiplies matrices and computes no exponentials: arithmetic of attention is worth packing.
bool is_plain_gemm(const llvm::Function& f) {
  bool matrices = false;
  for (const llvm::Instruction& i : llvm::instructions(f)) {
    const auto* call = llvm::dyn_cast<llvm::CallBase>(&i);
    const llvm::Function* called = call ? call->getCalledFunction() : nullptr;
    if (called == nullptr) continue;
    const llvm::StringRef name = called->getName();
    if (name.starts_with("llvm.amdgcn.exp2") || name.starts_with("llvm.exp2")) return false;
    matrices |= name.starts_with("llvm.amdgcn.mfma") || name.starts_with("llvm.amdgcn.wmma");
  }
  return matrices;
}

/// Whether superword-level parallelism may be of use: RDNA packs elements of up to 16 bits only, and GEMMs already
/// load and store vectors. Searching for it takes a tenth of the time of compiling a GEMM.
bool may_pack(const llvm::Function& f) {
  const Chip* chip = find_chip(f.getFnAttribute("target-cpu").getValueAsString());
  if (f.getParent()->getTargetTriple().isAMDGPU() && is_plain_gemm(f)) return false;
  if (!f.getParent()->getTargetTriple().isAMDGPU() || chip == nullptr || chip->wave != 32) return true;
  const auto narrow = [](const llvm::Type* type) {
    const unsigned bits = type->getScalarSizeInBits();
    return bits == 8 || bits == 16;
  };
  for (const llvm::Instruction& i : llvm::instructions(f)) {
    if (narrow(i.getType())) return true;
    for (const llvm::Use& operand : i.operands())
      if (narrow(operand->getType())) return true;
  }
  return false;
}

/// Whether a pass finds nothing to change in kernels that we generate: every store is read, and their loops are neither
/// copies nor fills of memory. These passes take 4 % of the time of compiling.
bool is_idle(llvm::StringRef pass) {
  constexpr llvm::StringRef kIdle[] = {"LoopIdiomRecognizePass",           "DSEPass",  "GlobalOptPass",
                                       "CalledValuePropagationPass",       "BDCEPass", "Float2IntPass",
                                       "AMDGPUUniformIntrinsicCombinePass"};
  return llvm::is_contained(kIdle, pass);
}

/// Which of the eight runs of InstCombine a kernel needs: of those after full unrolling, every other one finds what is
/// left.
class CombineRuns {
 public:
  bool wants(llvm::StringRef pass, const llvm::Any& ir) {
    inlined_ |= pass == "InlinerPass";
    const auto* f = llvm::any_cast<const llvm::Function*>(&ir);
    if (!inlined_ || pass != "InstCombinePass" || f == nullptr) return true;
    const int run = ++runs_[*f];
    return run != 4 && run != 6;
  }

 private:
  bool inlined_ = false;
  llvm::DenseMap<const llvm::Function*, int> runs_;  // since functions were inlined
};

struct KernelAttributes : llvm::PassInfoMixin<KernelAttributes> {
  llvm::PreservedAnalyses run(llvm::Module& module, llvm::ModuleAnalysisManager&) {
    if (llvm::GlobalVariable* all = module.getNamedGlobal(kAnnotations)) {
      if (const auto* list = llvm::dyn_cast<llvm::ConstantArray>(all->getInitializer()))
        for (const llvm::Use& annotation : list->operands())
          if (const auto* a = llvm::dyn_cast<llvm::ConstantStruct>(annotation.get())) attribute_from(*a);
      all->eraseFromParent();  // NVPTX requires a declaration before a global that names a function
    }
    isolate_custom_entry(module);
    inline_all(module);
    for (llvm::Function& f : module) {
      preload_arguments(f);
      if (f.getCallingConv() == llvm::CallingConv::PTX_Kernel)
        for (llvm::Argument& a : f.args())
          if (a.hasByValAttr()) a.addAttr(llvm::Attribute::get(module.getContext(), "nvvm.grid_constant"));
    }
    return llvm::PreservedAnalyses::none();
  }
  static bool isRequired() { return true; }  // runs without optimisation too
};

}  // namespace

void skip_idle_passes(llvm::PassBuilder& builder) {
  if (llvm::PassInstrumentationCallbacks* passes = builder.getPassInstrumentationCallbacks())
    passes->registerShouldRunOptionalPassCallback(
        [combines = CombineRuns()](llvm::StringRef pass, llvm::Any ir) mutable {
          return !is_idle(pass) && combines.wants(pass, ir);
        });
}

void add_kernel_attributes(llvm::PassBuilder& builder) {
  if (llvm::PassInstrumentationCallbacks* passes = builder.getPassInstrumentationCallbacks())
    passes->registerShouldRunOptionalPassCallback([](llvm::StringRef pass, llvm::Any ir) {
      if (pass != "SLPVectorizerPass" && pass != "GVNPass") return true;
      const auto* f = llvm::any_cast<const llvm::Function*>(&ir);
      // The loads of a plain GEMM are all different, so that numbering their values finds nothing.
      return f == nullptr || (pass == "GVNPass" ? !is_plain_gemm(**f) : may_pack(**f));
    });
  builder.registerPipelineStartEPCallback(
      [](llvm::ModulePassManager& passes, llvm::OptimizationLevel) { passes.addPass(KernelAttributes()); });
}

}  // namespace sardonyx
