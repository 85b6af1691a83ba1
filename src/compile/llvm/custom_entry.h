// Modules with a kernel in the dialect of kernels/custom.h: what remains of them is the entry point.
#pragma once

namespace llvm {
class Module;
}

namespace sardonyx {

/// Makes everything but entry points private to the module, so that modules of one source can be linked together, and
/// removes what they do not use. On the host an entry point is a function with the attribute "sdx.entry", and the
/// constant `sdx_waits` becomes whether it can reach a function that waits for other threads of the block. Modules
/// without the dialect's entry points stay as they are.
void isolate_custom_entry(llvm::Module& module);

}  // namespace sardonyx
