// Describes this machine's CPU in LLVM's terms.
#pragma once
#include <string>

namespace sardonyx {

/// "ARCH CPU FEATURES" as in Target::arch: "x86_64 znver4 +avx,+avx2,-avx512f...". Features that the operating system
/// does not support are off. Throws Error(kUnsupported) on architectures other than x86-64 and AArch64.
std::string detect_host_cpu();

}  // namespace sardonyx
