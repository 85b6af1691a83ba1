// How scheduled kernels become steps of a program, on one kind of device. What is the same on all of them (control
// flow, buffers, compilation) is in build.cpp.
#pragma once
#include <cstddef>
#include <memory>
#include <vector>

#include "compile/compiler.h"
#include "fuse/options.h"
#include "fuse/schedule.h"
#include "lower/program_builder.h"

namespace sardonyx {

/// Lowers the steps of one block, in order.
class BlockLowering {
 public:
  virtual ~BlockLowering() = default;
  /// Appends the program steps for `step` to `out`. False for nodes that every device leaves to the caller: control
  /// flow, checks, and routines without device code.
  virtual bool lower(const Step& step, std::vector<ProgramStep>& out) = 0;
};

class Lowering {
 public:
  virtual ~Lowering() = default;
  /// How graphs are fused for the device.
  virtual FuseOptions fuse_options() const = 0;
  /// The target of compilation, which decides about the dialect of kernels (definition_of()).
  virtual Target target() const = 0;
  virtual bool gpu_dialect() const = 0;
  /// Kernels per translation unit: enough to share the cost of headers, few enough to compile in parallel.
  virtual std::size_t kernels_per_object() const = 0;
  /// `steps` outlives the result.
  virtual std::unique_ptr<BlockLowering> block(ProgramBuilder& builder, const std::vector<Step>& steps) const = 0;
};

std::unique_ptr<Lowering> host_lowering(const BuildOptions& options);  ///< host_lowering.cpp
std::unique_ptr<Lowering> gpu_lowering(const BuildOptions& options);   ///< gpu_lowering.cpp
/// For options.target.
std::unique_ptr<Lowering> make_lowering(const BuildOptions& options);

}  // namespace sardonyx
