// Routines on a GPU: the launches that a routine consists of. The device code is in kernels/routines_*.h.
#pragma once
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "fuse/schedule.h"
#include "graph/graph.h"
#include "program/kernel_spec.h"
#include "target/chip.h"

namespace sardonyx::codegen {

/// A launch; see GpuLoopSource.
struct GpuRoutineLaunch {
  KernelSpec kernel;
  std::vector<int> tensors;  ///< indices into: the routine's inputs, its outputs, workspace, rearranged
  std::vector<int> writes;   ///< those of these indices that it writes
  std::vector<Value*> read;  ///< further tensors, of which it computes inputs
  Exprs values, divisors;
  Expr threads;
  std::vector<std::size_t> computes;  ///< numbers of inputs
  Expr repeat;  ///< number of launches, each with its number as the last argument; empty: one, without it
  Expr when;    ///< see ProgramStep::when
};

struct GpuRoutine {
  struct Workspace {
    DType dtype;
    Expr elements;
  };
  /// A tensor that is computed from inputs, once if these are in memory before all launches.
  struct Rearranged {
    std::shared_ptr<Value> value;
    LoopKernel elements;
  };
  std::vector<Workspace> workspace;
  std::vector<ComputedInput> stored;     ///< inputs that run as loops of their own, into the first output, before all
  std::optional<Rearranged> rearranged;  ///< after the workspace
  std::vector<GpuRoutineLaunch> launches;
  Expr limit;  ///< must be less than 2^31 - 2^29 in a run; see LaunchStep::limit
};

/// Whether a value is in memory before all launches of a run.
using IsLoaded = std::function<bool(const Value*)>;
/// Empty if this routine runs on the CPU, even in a program for a GPU. precision: of the model's weights. from_inputs:
/// as in GpuLoopOptions.
std::optional<GpuRoutine> generate_gpu_routine(const NodeStep& step, const Chip& chip, DType precision,
                                               const IsLoaded& loaded,
                                               const std::function<bool(std::int64_t symbol)>& from_inputs);

}  // namespace sardonyx::codegen
