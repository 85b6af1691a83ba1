// Routines and collectives for given sizes; the same on all backends.
#pragma once
#include <cstdint>
#include <vector>

#include "program/program.h"
#include "routines/routine.h"
#include "runtime/run_state.h"
#include "sardonyx/communicator.h"

namespace sardonyx {

/// A routine's dims and parameters.
struct RoutineSizes {
  RoutineSizes(const RoutineStep& step, const RunState& run);
  std::vector<std::vector<std::int64_t>> inputs, outputs;  ///< dims
  std::vector<std::int64_t> params;
};

/// Prepares the call of a routine on the run's buffers. Throws Error(kInternal) for a routine that does not exist.
routines::Call routine_call(const RoutineStep& step, const RoutineSizes& sizes, const RunState& run);
routines::Fn routine_function(const RoutineStep& step);

/// Runs a collective: a call of the communicator. `stream`: of a GPU, else null.
void run_collective(const RoutineStep& step, const RoutineSizes& sizes, Communicator& group, const RunState& run,
                    void* stream);

}  // namespace sardonyx
