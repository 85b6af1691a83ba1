// Routines on a GPU: the launches that a routine consists of. The device code is in kernels/routines_*.h.
#pragma once
#include <optional>
#include <string>
#include <vector>

#include "graph/graph.h"
#include "program/kernel_spec.h"
#include "target/chip.h"

namespace sardonyx::codegen {

/// A launch; see GpuLoopSource.
struct GpuRoutineLaunch {
  KernelSpec kernel;
  std::vector<int> tensors;  ///< indices into: the routine's inputs, its outputs, workspace
  std::vector<int> writes;   ///< those of these indices that it writes
  Exprs values;
  Expr threads;
  Expr repeat;  ///< number of launches, each with its number as the last argument; empty: one, without it
  Expr when;    ///< see ProgramStep::when
};

struct GpuRoutine {
  struct Workspace {
    DType dtype;
    Expr elements;
  };
  std::vector<Workspace> workspace;
  std::vector<GpuRoutineLaunch> launches;
  Expr limit;  ///< must be less than 2^31 - 2^29 in a run; see LaunchStep::limit
};

/// Empty if this routine runs on the CPU, even in a program for a GPU. narrow: the model's weights have 16 bits.
std::optional<GpuRoutine> generate_gpu_routine(const Node& node, const Chip& chip, bool narrow);

}  // namespace sardonyx::codegen
