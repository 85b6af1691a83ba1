// Decides which index expressions fit 32 bits, which halves their registers and saves most of their instructions on a
// GPU.
#pragma once
#include <functional>
#include <unordered_map>
#include <unordered_set>

#include "expr/expr.h"
#include "program/launch.h"

namespace sardonyx::codegen {

/// Bounds int64 expressions by expressions of symbols. Bounded expressions are assumed to fit 32 bits; limit() is the
/// condition for that at run time.
class IndexRange {
 public:
  /// `trusted`: whether a limit may depend on the symbol with this id, because the inputs' dims determine it. Sizes
  /// beyond the limit then get a program of their own.
  explicit IndexRange(std::function<bool(std::int64_t)> trusted) : trusted_(std::move(trusted)) {}

  /// Whether `e` may be computed in int32_t.
  bool narrow(const Expr& e);
  /// Must be at most kLargest in a run; empty if that is certain.
  Expr limit() const;

  static constexpr std::int64_t kLargest = kLargestIndex;

 private:
  struct Bounds {
    Expr low, high;  ///< empty: unknown
  };
  const Bounds& bounds(const Expr& e);
  Bounds compute(const Expr& e);

  std::function<bool(std::int64_t)> trusted_;
  std::unordered_map<Expr, Bounds, ExprHash, ExprSame> known_;
  std::unordered_map<Expr, bool, ExprHash, ExprSame> narrow_;
  std::unordered_set<Expr, ExprHash, ExprSame> limits_;
};

}  // namespace sardonyx::codegen
