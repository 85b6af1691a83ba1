// What LLVM keeps once per process: its targets and its handler of fatal errors.
#pragma once
#include <functional>

namespace sardonyx {

/// Registers the four back ends (X86, AArch64, AMDGPU, NVPTX) and the handler of fatal errors, once per process.
void initialize_llvm();

/// Runs `work` on a thread of its own with a deep stack (clang recurses over nested expressions) and waits for it.
/// Rethrows what it throws. A fatal error of LLVM inside (for example an instruction that the back end cannot select),
/// which would end the process, becomes Error(kCompile); what `work` had allocated then is lost.
void run_guarded(const std::function<void()>& work);

}  // namespace sardonyx
