// See attention_operands.h.
#include "fuse/attention_operands.h"

#include <tuple>

#include "fuse/reduction_digits.h"
#include "fuse/softmax_match.h"
#include "graph/analysis.h"

namespace sardonyx {

bool contiguous_rows(const Expr& x, const Expr& row, const Expr& element) {
  if (x->op != Op::kLoad || !x->value->storage_order.empty()) return false;
  Expr factor, rest, left;
  return idx::split_affine(idx::linearize(x->args, x->value->shape), element, factor, rest) && is_const(factor, 1) &&
         idx::split_affine(rest, row, factor, left) && !mentions(left, row) && !mentions(left, element) &&
         !left->has_load;
}

namespace {

// A load of a view, or of a loop that only moves elements, as a load of what those read.
Expr through_movement(Expr x) {
  for (int depth = 0; depth < 16 && x->op == Op::kLoad; ++depth) {
    const Node* p = x->value->producer;
    if (p && p->as<ViewOp>()) {
      const Value* source = p->inputs[0];
      x = load(source, x->dtype, idx::delinearize(idx::linearize(x->args, x->value->shape), source->shape));
    } else if (const auto* l = p ? p->as<LoopOp>() : nullptr; l && l->body->op == Op::kLoad) {
      x = body_at(x);
    } else {
      break;
    }
  }
  return x;
}

// An index of which the smaller of two is taken, as what it is below the limit. So rows past the last one, which repeat
// it, do not hide that the others follow one another.
Expr within_limits(const Expr& e, const Expr& variable) {
  return rewrite(e, [&](const Expr& x) -> Expr {
    if (x->op != Op::kMin || mentions(x->args[0], variable) == mentions(x->args[1], variable)) return {};
    return x->args[mentions(x->args[0], variable) ? 0 : 1];
  });
}

// Whether each row of elements (over `element`) is contiguous, at a place that is read from memory: a row of a page of
// a KV cache, whose number is in a table.
bool gathered_rows(const Expr& x, const Expr& element) {
  if (x->op != Op::kLoad || !x->value->storage_order.empty()) return false;
  Expr factor, rest;
  const Expr flat = idx::linearize(x->args, x->value->shape);
  return flat->has_load && idx::split_affine(flat, element, factor, rest) && is_const(factor, 1) &&
         !mentions(rest, element);
}

// If x loads a tensor that is another one times a constant, a load of that one; `factor` is multiplied by the constant.
Expr through_scale(const Expr& x, double& factor) {
  if (x->op != Op::kLoad || !x->value->producer || !x->value->producer->as<LoopOp>()) return x;
  Expr e = body_at(x);
  double c = 1;
  while (is_float(e->dtype)) {
    if (e->op == Op::kCast) {
      e = e->args[0];
    } else if (e->op == Op::kMul && (is_const(e->args[0]) || is_const(e->args[1]))) {
      const bool first = is_const(e->args[0]);
      c *= e->args[first ? 0 : 1]->f;
      e = e->args[first ? 1 : 0];
    } else {
      break;
    }
  }
  if (e->op != Op::kLoad || e->dtype != x->dtype || !(c > 0)) return x;
  factor *= c;
  return e;
}

}  // namespace

Expr operand(const Expr& x, const Expr& row, const Expr& element, double* factor, bool limited) {
  Expr y = through_movement(x);
  if (gathered_rows(y, element)) return y;
  double c = 1;
  if (factor) y = through_movement(through_scale(y, c));
  if (!contiguous_rows(limited ? within_limits(y, row) : y, row, element)) return x;
  if (factor) *factor *= c;
  return y;
}

Expr scaled_rows(const Expr& x, const Expr& row, const Expr& element, bool converts, Expr& scale) {
  const Expr y = through_movement(x);
  if (y->op != Op::kLoad || !y->value->producer || !y->value->producer->as<LoopOp>()) return {};
  Expr e = body_at(y);
  while (e->op == Op::kCast && is_float(e->dtype) && (is_float(e->args[0]->dtype) || e->args[0]->op == Op::kLoad))
    e = e->args[0];
  if (converts && (e->dtype == DType::kInt8 || e->dtype == DType::kFloat8E4M3FN) && contiguous_rows(e, row, element)) {
    scale = constant_float(1, DType::kFloat32);
    return e;
  }
  if (e->op != Op::kMul || e->dtype != DType::kFloat32) return {};
  for (const std::size_t k : {0, 1}) {
    const Expr &numbers = e->args[k], &factor = e->args[1 - k];
    if (numbers->op != Op::kCast) continue;
    if (const DType t = numbers->args[0]->dtype; t != DType::kInt8 && t != DType::kFloat8E4M3FN) continue;
    if (!gathered_rows(numbers->args[0], element) || factor->op != Op::kLoad || mentions(factor, element)) continue;
    scale = factor;
    return numbers->args[0];
  }
  return {};
}

namespace {

// If x loads what a loop only moves: what that loop loads, if rows are contiguous in memory there. Otherwise empty.
Expr moved_rows(const Expr& x, const Expr& row, const Expr& element) {
  const Expr y = body_at(x);
  if (!y || y->op != Op::kLoad || y->dtype != x->dtype || y->value->storage_order.empty()) return {};
  Expr factor, rest, start;
  const bool contiguous = idx::split_affine(memory_offset(y), element, factor, rest) && is_const(factor, 1) &&
                          idx::split_affine(rest, row, factor, start) && !factor->has_var && !mentions(start, row) &&
                          !mentions(start, element) && !start->has_load;
  return contiguous ? y : Expr();
}

}  // namespace

void read_ordered_rows(AttentionOp& a, const std::function<bool(const Node*)>& stays) {
  if (a.k_scale || a.v_scale) return;
  const std::tuple<Expr*, Expr, Expr> operands[] = {
      {&a.q, a.vars[2], a.vars[4]}, {&a.k, a.vars[3], a.vars[4]}, {&a.v, a.vars[3], a.vars[5]}};
  for (const auto& [operand, row, element] : operands) {
    const Node* p = (*operand)->op == Op::kLoad ? (*operand)->value->producer : nullptr;
    if (!p || !p->as<LoopOp>() || stays(p)) continue;
    if (const Expr y = moved_rows(*operand, row, element)) *operand = y;
  }
}

}  // namespace sardonyx
