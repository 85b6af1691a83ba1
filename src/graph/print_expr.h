// Internal to graph/: expressions in the text form.
#pragma once
#include <string>
#include <unordered_map>
#include <unordered_set>

#include "graph/graph.h"

namespace sardonyx::text {

/// Numbers of values, in the order of their definition.
class ValueNames {
 public:
  /// Names v, which is defined next.
  std::string define(const Value* v);
  /// The name of v: "%3". Values that are not defined in the text are "%?" and their id.
  std::string of(const Value* v) const;

 private:
  std::unordered_map<const Value*, int> number_;
};

/// A constant: "3", "1.5", "1.5:float16", "true". Without `typed`, as in the braces of a constant, where the type is
/// known: "3", "1.5".
std::string number(const Expr& constant, bool typed = true);
/// A symbol's name, in single quotes where needed.
std::string symbol_text(const std::string& name);

/// Prints the expressions of one node. Variables that are not declared are named "r0", "r1" ... where a reduction
/// declares them. A subexpression that occurs several times and is not small is printed once, as "(t0 = ...)".
class ExprPrinter {
 public:
  explicit ExprPrinter(const ValueNames& values) : values_(values) {}

  /// Names variables prefix0, prefix1, ... and gives "i0 < n, i1 < 4".
  std::string declare(const Exprs& vars, char prefix);
  std::string print(const Expr& e);

 private:
  using Sizes = std::unordered_map<const ExprNode*, std::size_t>;
  void count(const Expr& e);
  std::size_t size(const Expr& e, Sizes& sizes) const;
  std::string text(const Expr& e, int outer);
  std::string operation(const Expr& e, int outer);
  std::string arguments(const Exprs& args);

  const ValueNames& values_;
  std::unordered_map<std::int64_t, std::string> variables_;
  std::unordered_map<char, int> named_;  // variables, by prefix
  std::unordered_map<Expr, int, ExprHash, ExprSame> occurs_;
  std::unordered_set<Expr, ExprHash, ExprSame> shared_;
  std::unordered_map<Expr, std::string, ExprHash, ExprSame> printed_;  // of shared ones, the name
};

}  // namespace sardonyx::text
