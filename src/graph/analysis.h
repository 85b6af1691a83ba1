// Queries and utilities for passes: uses, inputs, symbols, dead and constant nodes, order.
#pragma once
#include <string>
#include <unordered_map>
#include <unordered_set>
#include <vector>

#include "graph/graph.h"

namespace sardonyx {

/// For each value, the nodes that read it, each once, in the graph's order.
using Uses = std::unordered_map<const Value*, std::vector<Node*>>;
Uses uses_of(const Graph& g);
/// The expressions in which a node loads tensors: a loop's body, the operands of a matmul or of attention. Empty for
/// other kinds, which read their inputs whole.
std::vector<Expr> expressions_of(const Node& n);
/// The right operand of a matmul of groups with `group` in place of the owner.
Expr of_group(const MatMulOp& m, const Expr& group);
/// Sets the inputs of a loop, matmul or attention to what its expressions load. Call after changing an expression.
void refresh_inputs(Node& n);
/// The value that owns v's memory: v itself, or what v is a view of.
Value* storage_of(Value* v);
const Value* storage_of(const Value* v);
/// Whether e contains this loop variable. False if e is empty or `var` is a constant (a variable that was replaced).
bool mentions(const Expr& e, const Expr& var);
/// One fresh loop variable for each dim.
Exprs vars_of(const Exprs& shape);
/// Orders nodes so that values and symbols are defined before use; nodes that are in order stay where they are.
void sort_nodes(Graph& g);
/// Removes nodes that no output, check or symbol needs; nested graphs included.
void remove_dead_nodes(Graph& g);
/// Nodes that depend only on constants and have constant shapes: they run once, when the program is loaded.
std::unordered_set<const Node*> constant_nodes(const Graph& g);
/// The matrix of which `v` is the transpose, v[i, j] = x[j, i], if a loop computes v so; null otherwise.
Value* transposed_matrix(const Value* v);
/// Symbols that this node needs when it runs (in shapes, bodies, parameters; including nested graphs).
std::unordered_set<std::int64_t> symbols_used(const Node& n);
/// Symbols that this node defines when it runs, including nested graphs.
std::vector<std::int64_t> symbols_defined(const Node& n);
/// Adds the symbols in e, including the extents of its variables, to `out`. e may be empty.
void collect_symbols(const Expr& e, std::unordered_set<std::int64_t>& out);
/// Values that must exist in row-major memory because something other than a loop or tile kernel reads them.
std::unordered_set<const Value*> required_values(const Graph& g);
/// The origins of two merged nodes, joined by " + ", without duplicates, `first` before `second`.
std::string join_origins(const std::string& first, const std::string& second);

}  // namespace sardonyx
