// Internal to fuse/: uses, dead nodes, constant nodes.
#pragma once
#include <string>
#include <unordered_map>
#include <unordered_set>
#include <vector>

#include "graph/graph.h"

namespace sardonyx {

/// For each value the nodes that read it, once each, in order.
using Uses = std::unordered_map<const Value*, std::vector<Node*>>;
Uses uses_of(const Graph& g);
/// Sets a node's inputs to what its expressions load (loops, matmul, attention).
void refresh_inputs(Node& n);
/// Puts the nodes into an order in which values and symbols are defined before use, changing as little as possible.
void sort_nodes(Graph& g);
/// Removes nodes that no output, check or symbol needs.
void remove_dead_nodes(Graph& g);
/// Nodes that depend on constants only, with constant shapes: computed once when the program is loaded.
std::unordered_set<const Node*> constant_nodes(const Graph& g);
/// Ids of the symbols that running this node needs (in shapes, bodies, parameters; nested graphs included).
std::unordered_set<std::int64_t> symbols_used(const Node& n);
/// Ids of the symbols that running this node defines.
std::vector<std::int64_t> symbols_defined(const Node& n);
/// Values that must exist in row-major memory because something other than a loop or tile kernel reads them.
std::unordered_set<const Value*> required_values(const Graph& g);
/// Origins of two nodes that become one: each of the model's nodes once, `first` before `second`, with " + " between
/// them.
std::string join_origins(const std::string& first, const std::string& second);
/// A tile node as a loop: the definition itself. For devices and dtypes without a tile kernel.
LoopOp loop_of_matmul(const MatMulOp& m, DType out);
LoopOp loop_of_conv(const ConvOp& c, const std::vector<Value*>& inputs, const Value* out);

}  // namespace sardonyx
