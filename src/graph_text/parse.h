// Graphs from their text; graph/text.h shows the notation, and docs/passes.md describes it.
#pragma once
#include <memory>
#include <string_view>

#include "graph/graph.h"

namespace sardonyx {

/// The graph that a text describes. Constants whose elements are left out ({...}) get small numbers that repeat.
/// Throws Error(kInvalidArgument) that names line and column for text that is no graph, and the fault for a graph that
/// verify() rejects. Accepts any bytes.
std::unique_ptr<Graph> parse_graph(std::string_view text);

}  // namespace sardonyx
