// Reductions along axes: Reduce*, ArgMax, ArgMin.
#include "ops/families.h"
#include "ops/tensor.h"

namespace sardonyx {
namespace {

using tensor::accumulator;
using Map = Expr (*)(const Expr&);

// Axes to reduce: from the attribute or, since `input_since`, from input 1. None given: all, or none if
// noop_with_empty_axes.
std::vector<int> reduced_axes(OpContext& c, int input_since) {
  const int rank = c.in(0)->rank();
  std::vector<std::int64_t> given;
  if (c.opset() < input_since)
    given = c.attr_ints("axes");
  else if (c.has(1) && !is_const(c.in(1)->elements(), 0))
    given = c.const_ints(c.in(1), "axes");
  std::vector<int> axes;
  std::vector<bool> seen(static_cast<std::size_t>(rank));
  for (std::int64_t a : given) {
    const int axis = c.axis(a, rank);
    if (!seen[static_cast<std::size_t>(axis)]) axes.push_back(axis);
    seen[static_cast<std::size_t>(axis)] = true;
  }
  if (given.empty() && c.attr("noop_with_empty_axes", 0) == 0)
    for (int k = 0; k < rank; ++k) axes.push_back(k);
  return axes;
}

// The loop variables of a reduction: `at` indexes the input, `out` are those of the output.
struct Axes {
  Exprs at, out, reduced;
  Expr count = 1;  // elements reduced into one
};

Axes variables(const Value* x, const std::vector<int>& axes, bool keepdims) {
  std::vector<bool> is_reduced(x->shape.size());
  for (int a : axes) is_reduced[static_cast<std::size_t>(a)] = true;
  Axes v;
  for (std::size_t k = 0; k < x->shape.size(); ++k) {
    v.at.push_back(loop_var(x->shape[k]));
    if (!is_reduced[k]) {
      v.out.push_back(v.at[k]);
      continue;
    }
    v.reduced.push_back(v.at[k]);
    v.count = v.count * x->shape[k];
    if (keepdims) v.out.push_back(loop_var(1));
  }
  return v;
}

bool keep(OpContext& c) { return c.attr("keepdims", 1) != 0; }

// y = after(kind over the axes of before(x)), computed in dtype `w` and cast back.
void reduce_with(OpContext& c, int input_since, ReduceKind kind, DType w, Map before, Map after) {
  Value* x = c.in(0);
  const Axes v = variables(x, reduced_axes(c, input_since), keep(c));
  Expr e = cast(tensor::at(x, v.at), w);
  e = reduce(kind, v.reduced, before ? before(e) : e);
  c.out(0, c.graph().add_loop(v.out, cast(after ? after(e) : e, x->dtype)));
}

Expr squared(const Expr& e) { return binary(Op::kMul, e, e); }
Expr absolute(const Expr& e) { return unary(Op::kAbs, e); }
Expr root(const Expr& e) { return unary(Op::kSqrt, e); }
Expr logarithm(const Expr& e) { return unary(Op::kLog, e); }

// Roots and logarithms of integers are computed in fp64.
DType float_for(DType t) { return is_float(t) ? accumulator(t) : DType::kFloat64; }

void sum_op(OpContext& c) { reduce_with(c, 13, ReduceKind::kSum, accumulator(c.in(0)->dtype), nullptr, nullptr); }
void prod_op(OpContext& c) { reduce_with(c, 18, ReduceKind::kProd, accumulator(c.in(0)->dtype), nullptr, nullptr); }
void l1_op(OpContext& c) { reduce_with(c, 18, ReduceKind::kSum, accumulator(c.in(0)->dtype), absolute, nullptr); }
void l2_op(OpContext& c) { reduce_with(c, 18, ReduceKind::kSum, float_for(c.in(0)->dtype), squared, root); }
void sum_square_op(OpContext& c) {
  reduce_with(c, 18, ReduceKind::kSum, accumulator(c.in(0)->dtype), squared, nullptr);
}
void log_sum_op(OpContext& c) { reduce_with(c, 18, ReduceKind::kSum, float_for(c.in(0)->dtype), nullptr, logarithm); }

template <ReduceKind kind, ReduceKind of_bools>
void extremum_op(OpContext& c) {
  const DType t = c.in(0)->dtype;
  reduce_with(c, 18, t == DType::kBool ? of_bools : kind, accumulator(t), nullptr, nullptr);
}

// Integers are summed in 64 bits and divided with truncation.
void mean_op(OpContext& c) {
  Value* x = c.in(0);
  const DType t = x->dtype;
  const DType w = is_float(t) ? accumulator(t) : is_signed(t) ? DType::kInt64 : DType::kUInt64;
  const Axes v = variables(x, reduced_axes(c, 18), keep(c));
  const Expr sum = reduce(ReduceKind::kSum, v.reduced, cast(tensor::at(x, v.at), w));
  c.out(0, c.graph().add_loop(v.out, cast(binary(Op::kDiv, sum, cast(v.count, w)), t)));
}

// log(sum(exp(x))) = m + log(sum(exp(x - m))), with m the largest element (0 if that is infinite).
void log_sum_exp_op(OpContext& c) {
  Graph& g = c.graph();
  Value* x = c.in(0);
  const std::vector<int> axes = reduced_axes(c, 18);
  const DType w = float_for(x->dtype);
  const Axes m = variables(x, axes, true);
  Value* top = g.add_loop(m.out, reduce(ReduceKind::kMax, m.reduced, cast(tensor::at(x, m.at), w)));
  const Axes v = variables(x, axes, keep(c));
  Exprs at_top = v.at;
  for (int a : axes) at_top[static_cast<std::size_t>(a)] = 0;
  const Expr raw = tensor::at(top, at_top);
  const Expr shift = select(unary(Op::kIsInf, raw), constant(0, w), raw);
  const Expr term = unary(Op::kExp, binary(Op::kSub, cast(tensor::at(x, v.at), w), shift));
  const Expr sum = reduce(ReduceKind::kSum, v.reduced, term);
  c.out(0, g.add_loop(v.out, cast(binary(Op::kAdd, unary(Op::kLog, sum), shift), x->dtype)));
}

template <ReduceKind first, ReduceKind last>
void arg_op(OpContext& c) {
  Value* x = c.in(0);
  const int axis = c.axis(c.attr("axis", 0), x->rank());
  const Expr d = x->shape[static_cast<std::size_t>(axis)];
  c.graph().add_check(compare(Op::kGt, d, 0), "the maximum and minimum along an empty axis are undefined");
  const Axes v = variables(x, {axis}, keep(c));
  const ReduceKind kind = c.attr("select_last_index", 0) != 0 ? last : first;
  c.out(0, c.graph().add_loop(v.out, reduce(kind, v.reduced, tensor::at(x, v.at))));
}

}  // namespace

void register_reduce(OpRegistry& r) {
  const char* notes = "axes must be known when compiling";
  r.add({.name = "ReduceSum", .lower = sum_op, .dtypes = "numbers", .notes = notes});
  r.add({.name = "ReduceProd", .lower = prod_op, .dtypes = "numbers", .notes = notes});
  r.add({.name = "ReduceMean", .lower = mean_op, .dtypes = "numbers", .notes = notes});
  r.add({.name = "ReduceMax",
         .lower = extremum_op<ReduceKind::kMax, ReduceKind::kAny>,
         .dtypes = "numbers, bool",
         .notes = notes});
  r.add({.name = "ReduceMin",
         .lower = extremum_op<ReduceKind::kMin, ReduceKind::kAll>,
         .dtypes = "numbers, bool",
         .notes = notes});
  r.add({.name = "ReduceL1", .lower = l1_op, .dtypes = "numbers", .notes = notes});
  r.add({.name = "ReduceL2", .lower = l2_op, .dtypes = "numbers", .notes = notes});
  r.add({.name = "ReduceSumSquare", .lower = sum_square_op, .dtypes = "numbers", .notes = notes});
  r.add({.name = "ReduceLogSum", .lower = log_sum_op, .dtypes = "numbers", .notes = notes});
  r.add({.name = "ReduceLogSumExp", .lower = log_sum_exp_op, .dtypes = "numbers", .notes = notes});
  r.add({.name = "ArgMax", .lower = arg_op<ReduceKind::kArgMax, ReduceKind::kArgMaxLast>, .dtypes = "numbers"});
  r.add({.name = "ArgMin", .lower = arg_op<ReduceKind::kArgMin, ReduceKind::kArgMinLast>, .dtypes = "numbers"});
}

}  // namespace sardonyx
