// Routines on a GPU: the launches that make one up. The device code is in kernels/routines_*.h.
#pragma once
#include <optional>
#include <string>
#include <vector>

#include "graph/graph.h"
#include "program/kernel_spec.h"

namespace sardonyx::codegen {

/// One launch; like GpuLoopSource.
struct GpuRoutineLaunch {
  KernelSpec kernel;
  std::vector<int> tensors;  ///< numbers into: the routine's inputs, its outputs, room
  std::vector<int> writes;   ///< which of these numbers it writes
  Exprs values;
  Expr threads;
  Expr repeat;  ///< how many launches, which get their number as the last argument; empty: one, without
};

struct GpuRoutine {
  struct Room {
    DType dtype;
    Expr elements;
  };
  std::vector<Room> room;  ///< working memory
  std::vector<GpuRoutineLaunch> launches;
  Expr limit;  ///< must be less than 2^31 - 2^29 in a run; see LaunchStep::limit
};

/// Empty if this routine runs on the CPU, also for a GPU's program.
std::optional<GpuRoutine> generate_gpu_routine(const Node& node);

}  // namespace sardonyx::codegen
