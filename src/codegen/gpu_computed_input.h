// Inputs of routines that the routines' kernels compute themselves, as an expression (kernels/routines_input.h).
#pragma once
#include <functional>
#include <string>
#include <vector>

#include "fuse/schedule.h"
#include "target/chip.h"

namespace sardonyx::codegen {

/// Whether the kernels of this routine can compute this input, by this loop, instead of reading it. If not, the reason.
bool gpu_computes_input(const Node& routine, std::size_t input, const Node& loop, std::string& why);

/// C++ that defines an input for a kernel, and the kernel's parameters for it.
struct ComputedInputSource {
  std::string text;
  std::vector<Value*> buffers;  ///< parameters b{first_buffer}, ...
  Exprs values;                 ///< parameters s0, s1, ...: those that were given, and more
  Exprs divisors;               ///< parameters d0, d1, ..., likewise
  Expr limit;                   ///< as in GpuLoopSource
};
struct ComputedInputOptions {
  std::string name;              ///< that the text defines
  std::size_t first_buffer = 0;  ///< parameters before it have other uses
  Exprs values, divisors;
  bool narrow = false;                                   ///< as GpuLoopOptions::of_halves
  std::function<bool(std::int64_t symbol)> from_inputs;  ///< as in GpuLoopOptions
};
ComputedInputSource computed_input(const Stage& stage, const Chip& chip, const ComputedInputOptions& options);

}  // namespace sardonyx::codegen
