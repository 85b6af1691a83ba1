// PTX post-processing: what clang and LLVM can not do.
#pragma once
#include <string>
#include <string_view>

namespace sardonyx {

/// Throws Error(kCompile) with the name of a function that is called but not defined: PTX has no linker, so that
/// otherwise only a driver that loads the text would find it.
void check_ptx(std::string_view ptx);

/// Makes each kernel wait for the launch before it (griddepcontrol.wait), so that it may be started as soon as that
/// launch's blocks have ended, before what they wrote has reached memory ("programmatic dependent launch"; sm_90 and
/// later).
///
/// The wait is put into the text because no earlier place holds: LLVM treats loads from memory that the kernel does not
/// write (read-only, no-alias parameters, which its NVPTX back end tags as invariant) as free to move across any
/// statement, an intrinsic or a volatile assembly statement with a memory clobber included. In the text nothing moves
/// any more, and ptxas knows what the instruction means.
///
/// The wait is the kernel's first instruction, or, where the source says so (wait_for_launch_here() in kernels/gpu.h),
/// stands behind a prologue that touches no memory other than parameters and shared memory. Kernels that have the
/// instruction in their source (attention_step.h, stream.h) are left as they are.
///
/// Which kernels let the next launch start early is decided in their sources (start_next_launch()): single-token
/// attention, loops of few blocks, and GEMMs by the copy engine, which have one block a multiprocessor (ResNet-50 takes
/// 1 to 6 % less time for 1 to 32 images on an H200). For other kernels it gained nothing, and blocks of the next
/// launch would crowd on the multiprocessors that are free first.
std::string with_early_start(const std::string& ptx);

}  // namespace sardonyx
