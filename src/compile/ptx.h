// What is done to PTX text behind clang.
#pragma once
#include <string>
#include <string_view>

namespace sardonyx {

/// There is no linker for PTX: a function without a body would only be found when a driver loads the text. Throws
/// Error(kCompile) with its name.
void check_ptx(std::string_view ptx);

/// What a kernel demands of its launches becomes directives of its head, and "sardonyx_parameter_0" in assembly the
/// name of its first parameter: clang has both for CUDA's language only, so that sources say it in assembly
/// (kernels/gpu.h, kernels/gemm_tma.h).
std::string with_kernel_heads(const std::string& ptx);

/// Lets each kernel be started when all workgroups of the launch before it have ended, rather than when what they wrote
/// has reached memory ("programmatic dependent launch"; sm_90 and later): it begins with waiting for that. The wait is
/// put into the text, before all else, as in the source the compiler may move loads of memory that a kernel does not
/// write over any statement; where the source says so (wait_for_launch_here() in kernels/gpu.h), behind what touches
/// no such memory. Attention of one token (attention_step.h), which has the wait in its source, loops of few workgroups
/// (start_next_launch_if_small()) and products by the copy engine (gemm_tma.h), of which there is one workgroup a unit
/// (ResNet-50 takes 1 to 6 % less for 1 to 32 images on an H200), let the next launch start while they still run. Other
/// kernels do not: that was no faster, also where the next one read its first weights before it waited, and its
/// workgroups would crowd on the units that are free first.
std::string with_early_start(const std::string& ptx);

}  // namespace sardonyx
