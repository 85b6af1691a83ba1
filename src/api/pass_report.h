// What each pass of the optimiser did to a model, and its remarks. For `sardonyx inspect`.
#pragma once
#include <string>
#include <vector>

#include "fuse/options.h"
#include "import/model_source.h"
#include "sardonyx/options.h"

namespace sardonyx {

/// A graph as text (graph/text.h) after a pass that changed it.
struct PassSnapshot {
  std::string pass;    ///< "import" for the graph before the first pass
  std::string nested;  ///< of a graph in an If or Loop, the first of its nodes; "" for the model's graph
  std::string text;
};

struct PassReport {
  std::vector<PassSnapshot> passes;  ///< in order; passes that changed nothing are left out
  std::vector<Remark> remarks;       ///< without duplicates, in order
};

/// Runs all passes on the graph, which they rewrite; verifies it after each. Throws Error(kInternal) if one leaves an
/// invalid graph.
PassReport report_passes(Graph& graph, FuseOptions options);

/// The effect of the passes on a model compiled with these options for a target: "host", "gfx942", "sm_90". Throws
/// Error as Model::compile_for() does.
PassReport passes_for(const std::string& target, std::unique_ptr<ModelSource> source, const Options& options = {});

}  // namespace sardonyx
