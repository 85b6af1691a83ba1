// What is done to PTX text behind clang.
#pragma once
#include <string>
#include <string_view>

namespace sardonyx {

/// There is no linker for PTX: a function without a body would only be found when a driver loads the text. Throws
/// Error(kCompile) with its name.
void check_ptx(std::string_view ptx);

/// What a kernel demands of its launches becomes directives of its head: clang has them for CUDA's language only, so
/// that sources say it in a comment in assembly (see kernels/gpu.h).
std::string with_launch_bounds(const std::string& ptx);

/// Lets each kernel be started while the launch before it still runs ("programmatic dependent launch"; sm_90 and
/// later): it first lets the next launch do the same, then waits until the one before is done and what it wrote is seen.
/// Both come before all else, in the text rather than in the source: the compiler may move loads of memory that a kernel
/// does not write over any statement.
std::string with_early_start(const std::string& ptx);

}  // namespace sardonyx
