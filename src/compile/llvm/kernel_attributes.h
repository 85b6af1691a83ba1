// What sources say of kernels that clang's C++ has no words for, as LLVM's attributes.
#pragma once

namespace llvm {
class PassBuilder;
}

namespace sardonyx {

/// Adds a pass to the start of the optimisation pipeline. Of each function it makes an LLVM attribute NAME="VALUE" from
/// each __attribute__((annotate("NAME=VALUE"))): clang has attributes of launches (threads of a block, blocks of a
/// cluster) in CUDA's language only. Struct parameters of NVIDIA's kernels, which are passed by value, become grid
/// constants: their address is then that of the parameter itself, not of a copy. On GPUs every function is inlined.
void add_kernel_attributes(llvm::PassBuilder& builder);

}  // namespace sardonyx
