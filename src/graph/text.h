// Graphs as text, which graph_text/parse.h reads: listings of `sardonyx inspect --passes`, and tests of passes.
//
//   %0 "x" = input float32[n, 4]
//   %1 = constant float32[4] {1, 2, 3, 4}
//   %2 = loop float32[i0 < n, i1 < 4]: %0[i0, i1] * %1[i1]
//   %3 = matmul float32[i0 < n, i1 < 8; i2 < 4]: %2[i0, i2], %9[i2, i1]   @"fc (MatMul)"
//   return %3 "y"
//
// docs/passes.md describes the notation. Values are numbered in the order of their definition, variables of a node by
// position (i0, i1, ...; of reductions r0, r1, ...), so that equal graphs have equal text.
#pragma once
#include <string>

#include "graph/graph.h"

namespace sardonyx {

struct TextOptions {
  bool origins = true;  ///< after each node @"the model's node"
  /// Constants of more elements print as {...}; parse_graph() gives such constants elements of its own choice.
  std::int64_t most_elements = 64;
};

/// The graph as text. to_string(g) (graph.h) has the default options.
std::string to_string(const Graph& g, const TextOptions& options);

}  // namespace sardonyx
