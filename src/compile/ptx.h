// PTX post-processing: what clang and LLVM can not do.
#pragma once
#include <string>
#include <string_view>

namespace sardonyx {

/// Throws Error(kCompile) with the name of a function that is called but not defined. PTX has no linker, so otherwise
/// only the driver that loads the text would notice.
void check_ptx(std::string_view ptx);

/// The text with the version of PTX that its instructions need, if it is later than that of the chip's row, which is
/// the oldest driver's for everything else: wgmma of uint8 with int8 needs 8.4 (CUDA 12.4).
std::string with_needed_version(std::string ptx);

/// The text with minima and maxima of 16-bit integers computed in 32 bits.
///
/// ptxas (12.9 and 13.0, also the drivers') fuses one with a comparison of its result on sm_90 and later: VIMNMX.U16x2
/// writes a predicate for each half of the register, and both go to the same one, so the empty upper half may decide.
/// LLVM narrows indices to 16 bits where their range allows, and the edge of a window is such a comparison.
std::string with_wide_minima(const std::string& ptx);

/// The text with stores of the low bits of a register through a copy of it.
///
/// ptxas (12.9 and 13.0, also the drivers') infers a register's type from what computes it, and converts a float that
/// st.b8 stores to an 8-bit integer, saturated, where the low bits of its 32 are meant (quantized() in
/// kernels/prelude_quantize.h). A copy has no type; it costs no instruction.
std::string with_untyped_stores(const std::string& ptx);

/// Makes each kernel wait for the previous launch (griddepcontrol.wait), so that it may be started as soon as that
/// launch's blocks have ended, before their results have reached memory ("programmatic dependent launch"; sm_90 and
/// later).
///
/// The wait is inserted into the text because no earlier stage can hold it in place. LLVM considers loads from memory
/// that the kernel does not write (read-only, no-alias parameters, which the NVPTX back end marks as invariant) free to
/// move across any statement, even an intrinsic or a volatile assembly statement with a memory clobber. Nothing moves
/// in the text any more, and ptxas knows what the instruction means.
///
/// The wait becomes the kernel's first instruction. If the source marks a place (wait_for_launch_here() in
/// kernels/gpu.h), it is inserted there, after a prologue that must access only parameters and shared memory. Kernels
/// whose source contains the instruction (attention_step.h, stream.h) are not changed.
///
/// Which kernels let the next launch start early is decided in their sources (start_next_launch()): single-token
/// attention, loops of few blocks, and TMA GEMMs, which have one block per multiprocessor (ResNet-50 takes 1 to 6 %
/// less time for 1 to 32 images on an H200). For other kernels it gained nothing, and blocks of the next launch would
/// crowd on the multiprocessors that become free first.
std::string with_early_start(const std::string& ptx);

}  // namespace sardonyx
