// The optimiser as a table of passes over the graph.
#pragma once
#include <span>
#include <string_view>
#include <vector>

#include "fuse/epilogues.h"
#include "fuse/options.h"

namespace sardonyx {

/// The state that passes transform.
struct PassState {
  Graph& graph;
  const FuseOptions& options;
  std::vector<Epilogue> epilogues;  ///< found by "epilogues", read by "layouts" and by the grouping into kernels
};

/// A row of the table.
struct Pass {
  std::string_view name;
  std::string_view when;   ///< the condition in words, for documentation
  std::string_view what;   ///< what it does, one sentence
  std::string_view place;  ///< why it stands at this place in the order
  bool (*enabled)(const FuseOptions&);
  void (*run)(PassState&);
};

/// All passes, in the order in which they run. A name may occur twice.
std::span<const Pass> passes();

/// The first pass of this name. Throws Error(kInvalidArgument) if there is none.
const Pass& pass_named(std::string_view name);

/// Runs the enabled passes. Throws Error(kInternal), naming the pass and the node, if verification is on and fails.
void run_passes(PassState& state);

/// Switches verification on for all graphs that this process fuses, whatever their options say. For test programs.
void verify_every_pass(bool on);

}  // namespace sardonyx
