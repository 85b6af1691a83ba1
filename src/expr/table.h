// Shape expressions as a flat table of nodes, for files: shared nodes are written once, and input is checked.
//
// Only what evaluate() computes may be in a table: constants, symbols, arithmetic, select and casts; no loads, loop
// variables or reductions.
#pragma once
#include <cstdint>
#include <string>
#include <unordered_map>
#include <vector>

#include "expr/expr.h"

namespace sardonyx {

/// One node. `args` are positions of earlier nodes.
struct TableNode {
  Op op = Op::kConst;
  DType dtype = DType::kInt64;
  std::int64_t i = 0;  ///< see ExprNode
  double f = 0;
  std::vector<std::uint32_t> args;
};

/// How many operands a node has, or -1 if it may not be in a table.
int table_arity(Op op);

/// Collects expressions. Structurally equal nodes are one.
class ExprTable {
 public:
  /// The position of `e`. Throws Error(kUnsupported) if it is larger than what TableReader takes.
  std::uint32_t add(const Expr& e);
  const std::vector<TableNode>& nodes() const { return nodes_; }

 private:
  std::uint32_t add_nodes(const Expr& e);

  std::vector<TableNode> nodes_;
  std::unordered_map<Expr, std::uint32_t, ExprHash, ExprSame> ids_;
};

/// Builds expressions from an untrusted table.
class TableReader {
 public:
  /// evaluate() and to_string() visit an expression recursively as a tree: these limits bound their time and stack.
  static constexpr std::uint32_t kMaxDepth = 2000;
  static constexpr std::uint64_t kMaxTreeNodes = 1 << 20;

  explicit TableReader(std::vector<std::string> symbol_names) : symbol_names_(std::move(symbol_names)) {}
  /// Appends a node. Throws Error(kInvalidModel) for a node that ExprTable never writes: unknown operators and dtypes,
  /// missing or mismatched operands, symbols without a name, expressions that are too large.
  void add(const TableNode& node);
  std::size_t size() const { return entries_.size(); }
  /// Throws Error(kInvalidModel) if there is no such node.
  const Expr& at(std::uint64_t position) const;

 private:
  struct Entry {
    Expr e;
    std::uint32_t depth = 1;
    std::uint64_t tree_nodes = 1;
  };
  std::vector<std::string> symbol_names_;
  std::vector<Entry> entries_;
};

}  // namespace sardonyx
