// Internal to fuse/: what inlining asks about the expression of a loop, and elements that are known.
#pragma once
#include "graph/graph.h"

namespace sardonyx {

struct BodyFacts {
  int cost = 0;  // arithmetic per element, without index arithmetic
  int loads = 0;
  std::size_t nodes = 0;
  bool movement = true;  // only moves elements
};

/// Operations that an element takes for this part of its expression alone; indices are free.
int cost_of(const Expr& x);
BodyFacts facts_of(const Expr& e);
/// The value of all elements of a constant, if they are equal (constants of one element, ConstantOfShape, scalars).
Expr splat_of(const Value* v);
/// The element of a value with known content at constant indices; empty if it is not known.
Expr known_element(const Value& v, const Exprs& index);
/// Whether the element of a concatenated tensor at this index is known to be in one of its parts.
bool reads_one_part(const LoopOp& l, const Exprs& at);
/// A constant that is only expanded, which is better read where it is small.
bool expands_constant(const LoopOp& l, const BodyFacts& f, const Value& v);

}  // namespace sardonyx
