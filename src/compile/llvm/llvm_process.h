// LLVM's global state: its targets and its handler of fatal errors.
#pragma once
#include <functional>

namespace sardonyx {

/// Registers the four back ends (X86, AArch64, AMDGPU, NVPTX) and the handler of fatal errors, once per process.
void initialize_llvm();

/// Runs `work` on a new thread with a large stack (clang recurses over nested expressions) and waits for it. Rethrows
/// its exceptions. A fatal error of LLVM, for example an instruction that the back end cannot select, would end the
/// process; here it becomes Error(kCompile), and the memory of `work` is leaked.
void run_guarded(const std::function<void()>& work);

}  // namespace sardonyx
