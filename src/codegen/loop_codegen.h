// Loop kernels as C++ functions.
#pragma once
#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "fuse/schedule.h"
#include "program/kernel_spec.h"
#include "program/launch.h"

namespace sardonyx::codegen {

/// A kernel's text and how to call it. The text defines
///   extern "C" void NAME(char* const* b, const i64* s, i64 begin, i64 end)
/// which computes work items [begin, end). Any partition of [0, work_items) into calls, in any order and on any
/// threads, computes the whole.
struct LoopSource {
  KernelSpec kernel;            ///< equal kernels have equal specs
  std::vector<Value*> buffers;  ///< b[k]: memory of these values
  Exprs symbols;                ///< s[k]: values of these symbols
  Expr work_items;              ///< number of work items
  Expr work;                    ///< approximate number of operations per work item
};

/// Host code for a kernel.
LoopSource generate_host_loop(const LoopKernel& kernel);

/// Host code for the epilogue of a product of 8-bit integers, as AccumulatorEpilogue describes (program.h). `buffers`
/// contains the product's own output for its sums.
LoopSource generate_accumulator_epilogue(const TileKernel& kernel);

/// A kernel for a GPU. Its text defines NAME(buffers..., i64 values..., u64 divisors...), to be launched with as many
/// workgroups of kGpuThreads threads along x as `threads` asks for; with fewer, each does more.
struct GpuLoopSource {
  KernelSpec kernel;  ///< equal kernels have equal specs
  std::vector<Value*> buffers;
  Exprs values;    ///< expressions of symbols
  Exprs divisors;  ///< what divisor_argument() makes of their values is passed
  Expr threads;
  Expr work;   ///< approximate number of operations per thread
  Expr limit;  ///< the code is for sizes that give at most IndexRange::kLargest here; empty: for all
};
struct GpuLoopOptions {
  /// Whether a symbol's value comes from the inputs' dims.
  std::function<bool(std::int64_t id)> from_inputs;
  /// The program's activations are kept in 16 bits, so what is computed from them need not be more exact.
  bool of_halves = false;
  /// Loops that transpose may do so in registers (gpu_blocks.cpp).
  bool in_blocks = false;
  /// Loads of a window come before everything else, because the compiler would not keep them in flight together.
  bool loads_first = false;
  /// Threads with which every SIMD has one wave, where they are more than what an H200 needs.
  std::int64_t least_threads = 0;
  /// A thread may keep so many bytes of a row in registers even if these are more elements than usual.
  std::int64_t row_bytes = 0;
  /// Windows of float16 have their extremes in that type (kernels/extremes.h).
  bool half_extremes = false;
  /// Windows of single channels may be computed by CDNA's matrix instructions (kernels/window_mfma.h).
  bool matrix_windows = false;
  /// Vectors may be loaded and stored at any multiple of an element.
  bool any_address = false;
  /// Whether a result of more than 16 bits is used for results of 16 bits alone.
  std::function<bool(const Value*)> is_for_halves;
  /// As in KernelPolicy.
  bool packs_float8 = false, guarded_loads = false, quad_gathers = false;
};
/// Where later stages quantise a maximum of dequantised elements again, by the same scale and zero point (MaxPool),
/// takes the maximum of the elements themselves, which is the same.
void take_maxima_of_codes(LoopKernel& kernel);
GpuLoopSource generate_gpu_loop(const LoopKernel& kernel, const GpuLoopOptions& options);

}  // namespace sardonyx::codegen
