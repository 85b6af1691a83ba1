// Annotations in kernel sources that become LLVM attributes, because clang's C++ cannot express them.
#pragma once

namespace llvm {
class PassBuilder;
}

namespace sardonyx {

/// Adds a pass to the start of the optimisation pipeline. It turns each __attribute__((annotate("NAME=VALUE"))) of a
/// function into the LLVM attribute NAME="VALUE": clang has attributes for launch bounds (threads per block, blocks per
/// cluster) only in CUDA. Struct parameters of NVIDIA kernels, which are passed by value, become grid constants: their
/// address is then that of the parameter itself, not of a copy. On GPUs every function is inlined.
void add_kernel_attributes(llvm::PassBuilder& builder);

/// Leaves out passes, and runs of passes, that improve none of the kernels that we generate for AMD. Custom kernels may
/// need them.
void skip_idle_passes(llvm::PassBuilder& builder);

}  // namespace sardonyx
