// What this machine's CPU is, in LLVM's words.
#pragma once
#include <string>

namespace sardonyx {

/// "ARCH CPU FEATURES" as Target::arch has it: "x86_64 znver4 +avx,+avx2,-avx512f...". Features that the CPU has but
/// the operating system does not save are off. Throws Error(kUnsupported) on architectures other than x86-64 and
/// AArch64.
std::string detect_host_cpu();

}  // namespace sardonyx
