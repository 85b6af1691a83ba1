// Operators about order: TopK, Unique, CumSum, CumProd, ReverseSequence.
#include "ops/families.h"
#include "ops/scalars.h"
#include "ops/tensor.h"

namespace sardonyx {
namespace {

// [outer, axis, inner]: the shape in which routines see a tensor and one of its axes.
Exprs around(const Exprs& shape, int axis) {
  return {idx::product(Exprs(shape.begin(), shape.begin() + axis)), shape[static_cast<std::size_t>(axis)],
          idx::product(Exprs(shape.begin() + axis + 1, shape.end()))};
}

void topk_op(OpContext& c) {
  Graph& g = c.graph();
  Value* x = c.in(0);
  const int axis = c.axis(c.attr("axis", -1), x->rank());
  const Expr d = x->shape[static_cast<std::size_t>(axis)];
  Expr k;
  if (c.opset() < 10)
    k = c.attr("k", 0);
  else {
    k = int_input(c, 1, true);
  }
  g.add_check(logical_and(compare(Op::kGe, k, 0), compare(Op::kLe, k, d)),
              fmt::format("k is {} but the axis has {} elements", to_string(k), to_string(d)));
  Exprs shape = x->shape, inner = around(x->shape, axis);
  shape[static_cast<std::size_t>(axis)] = k;
  Value* in = tensor::reshape(g, x, inner);
  inner[1] = k;
  const bool largest = c.opset() < 11 || c.attr("largest", 1) != 0, sorted = c.opset() < 11 || c.attr("sorted", 1) != 0;
  const auto y = tensor::routine(g, "topk", {in}, {largest ? 1 : 0, sorted ? 1 : 0}, {},
                                 {{x->dtype, inner}, {DType::kInt64, inner}});
  c.out(0, tensor::reshape(g, y[0], shape));
  c.out(1, tensor::reshape(g, y[1], shape));
}

// Sorted (or first-seen) distinct elements, or slices along an axis.
void unique_op(OpContext& c) {
  Graph& g = c.graph();
  Value* x = c.in(0);
  const bool by_axis = c.has_attr("axis");
  const int axis = by_axis ? c.axis(c.attr("axis", 0), x->rank()) : 0;
  Value* source = by_axis ? x : tensor::reshape(g, x, {x->elements()});
  // The routine compares rows: bring the axis to the front.
  std::vector<int> perm = {axis};
  for (int k = 0; k < source->rank(); ++k)
    if (k != axis) perm.push_back(k);
  Value* front = tensor::transpose(g, source, perm);
  const Expr n = front->shape[0];
  const Expr width = idx::product(Exprs(front->shape.begin() + 1, front->shape.end()));
  Value* rows = tensor::reshape(g, front, {n, width});
  const auto y =
      tensor::routine(g, "unique", {rows}, {c.attr("sorted", 1) != 0 ? 1 : 0}, {},
                      {{DType::kInt64, {n}}, {DType::kInt64, {n}}, {DType::kInt64, {n}}, {DType::kInt64, {1}}});
  const Expr count = g.bind(y[3], true).at(0);
  Value* first = tensor::slice(g, y[0], 0, 0, count);
  c.out(0, tensor::gather(g, source, first, axis));
  c.out(1, first);
  c.out(2, y[1]);
  c.out(3, tensor::slice(g, y[2], 0, 0, count));
}

// Running sums or products. Short axes and known tensors become loops, which fuse and fold; the rest is a routine.
void cumulative(OpContext& c, bool product) {
  Graph& g = c.graph();
  Value* x = c.in(0);
  const auto axes = c.const_ints(c.in(1), "axis");
  c.require(axes.size() == 1, "{} axes", axes.size());
  const int axis = c.axis(axes[0], x->rank());
  const bool exclusive = c.attr("exclusive", 0) != 0, reverse = c.attr("reverse", 0) != 0;
  std::int64_t d;
  if (is_const_int(x->shape[static_cast<std::size_t>(axis)], d) && (d <= 32 || x->content)) {
    const DType w = tensor::accumulator(x->dtype);
    return c.out(0, tensor::generate(g, x->shape, [&](const Exprs& i) {
                   const Expr j = loop_var(d);
                   const Expr& at = i[static_cast<std::size_t>(axis)];
                   Exprs from = i;
                   from[static_cast<std::size_t>(axis)] = j;
                   const Expr counted = reverse ? compare(exclusive ? Op::kGt : Op::kGe, j, at)
                                                : compare(exclusive ? Op::kLt : Op::kLe, j, at);
                   const Expr e = select(counted, cast(tensor::at(x, from), w), constant(product ? 1 : 0, w));
                   return cast(reduce(product ? ReduceKind::kProd : ReduceKind::kSum, {j}, e), x->dtype);
                 }));
  }
  const Exprs inner = around(x->shape, axis);
  Value* y = tensor::routine(g, "scan", {tensor::reshape(g, x, inner)},
                             {product ? 1 : 0, exclusive ? 1 : 0, reverse ? 1 : 0}, {}, {{x->dtype, inner}})[0];
  c.out(0, tensor::reshape(g, y, x->shape));
}

void cumsum_op(OpContext& c) { cumulative(c, false); }
void cumprod_op(OpContext& c) { cumulative(c, true); }

// The first lens[b] elements of each sequence in reverse, the rest as it is.
void reverse_sequence_op(OpContext& c) {
  Value *x = c.in(0), *lens = c.in(1);
  c.require(x->rank() >= 2 && lens->rank() == 1, "an input of rank {} with lengths of rank {}", x->rank(),
            lens->rank());
  const auto batch = static_cast<std::size_t>(c.axis(c.attr("batch_axis", 1), x->rank())),
             time = static_cast<std::size_t>(c.axis(c.attr("time_axis", 0), x->rank()));
  c.require(batch != time, "batch_axis and time_axis are both {}", batch);
  c.graph().add_check(compare(Op::kEq, lens->shape[0], x->shape[batch]), "sequence_lens has not one element per batch");
  c.out(0, tensor::generate(c.graph(), x->shape, [&](const Exprs& i) {
          // A length is data: more than the axis has must not read outside.
          const Expr n = idx::min(cast(tensor::at(lens, {i[batch]}), DType::kInt64), x->shape[time]);
          Exprs j = i;
          j[time] = select(compare(Op::kLt, i[time], n), n - 1 - i[time], i[time]);
          return tensor::at(x, j);
        }));
}

}  // namespace

void register_ordering(OpRegistry& r) {
  r.add({.name = "TopK",
         .lower = topk_op,
         .dtypes = "numbers",
         .notes = "NaN counts as the largest; of equal elements the first comes first"});
  r.add({.name = "Unique", .lower = unique_op, .dtypes = "numbers, bool", .notes = "NaN equals NaN"});
  r.add({.name = "CumSum", .lower = cumsum_op, .dtypes = "numbers", .notes = "the axis must be known when compiling"});
  r.add(
      {.name = "CumProd", .lower = cumprod_op, .dtypes = "numbers", .notes = "the axis must be known when compiling"});
  r.add({.name = "ReverseSequence", .lower = reverse_sequence_op});
}

}  // namespace sardonyx
