// Inputs that routines compute: an element-wise loop whose result only one routine reads (the messages that a graph
// network adds up, the exponentials that a running sum does) is no kernel, if the routine's kernels can compute it. A
// loop that fills a tensor (the zeros that messages are added to) may have any number of readers.
#pragma once
#include <unordered_set>
#include <vector>

#include "fuse/schedule.h"

namespace sardonyx {

struct RoutineInputs {
  struct Routine {
    std::vector<Node*> nodes;  ///< the loops that are part of its step, then the routine
    NodeStep step;
  };
  std::vector<Routine> routines;
  std::unordered_set<const Node*> unread;  ///< loops that are part of no step, as all that read them compute them
};

/// Leaves out `taken` nodes, and routines that compute none of their inputs.
RoutineInputs find_routine_inputs(Graph& g, const std::unordered_set<const Node*>& taken, const FuseOptions& options);

}  // namespace sardonyx
