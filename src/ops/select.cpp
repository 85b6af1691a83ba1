// Operators whose output size depends on data: NonZero, Compress, NonMaxSuppression.
#include <cmath>

#include "ops/families.h"
#include "ops/scalars.h"
#include "ops/tensor.h"

namespace sardonyx {
namespace {

// Flat positions of the non-zero elements, ascending: an int64 tensor of as many elements.
Value* nonzero_positions(Graph& g, Value* x) {
  if (x->content) {  // known, as in shape computations
    Exprs positions;
    bool known = true;
    for (std::size_t k = 0; k < x->content->size(); ++k) {
      const Expr& e = (*x->content)[k];
      known &= is_const(e);
      if (known && (is_float(e->dtype) ? e->f != 0 : e->i != 0)) positions.push_back(static_cast<std::int64_t>(k));
    }
    const auto n = static_cast<std::int64_t>(positions.size());
    if (known) return g.add_content(DType::kInt64, {n}, std::move(positions));
  }
  const Expr n = x->elements();
  Value* flags = tensor::reshape(g, tensor::cast(g, x, DType::kBool), {n});
  const auto y = tensor::routine(g, "nonzero", {flags}, {}, {}, {{DType::kInt64, {n}}, {DType::kInt64, {1}}});
  return tensor::slice(g, y[0], 0, 0, g.bind(y[1], true).at(0));
}

// [rank, count]: the indices of each non-zero element, one element per column.
void nonzero_op(OpContext& c) {
  Graph& g = c.graph();
  Value* x = c.in(0);
  const Exprs shape = x->shape;
  Value* positions = nonzero_positions(g, x);
  if (x->rank() == 1) return c.out(0, tensor::unsqueeze(g, positions, {0}));
  c.out(0, tensor::generate(g, {x->rank(), positions->shape[0]}, [&](const Exprs& i) {
          if (shape.empty()) return Expr(0);  // a scalar's indices have no components: nothing to compute
          const Exprs at = idx::delinearize(tensor::at(positions, {i[1]}), shape);
          Expr e = at.back();
          for (std::size_t k = at.size() - 1; k-- > 0;)
            e = select(compare(Op::kEq, i[0], static_cast<std::int64_t>(k)), at[k], e);
          return e;
        }));
}

// Slices along an axis, or elements of the flattened input, where the condition holds.
void compress_op(OpContext& c) {
  Graph& g = c.graph();
  Value *x = c.in(0), *condition = c.in(1);
  c.require(condition->rank() == 1 && condition->dtype == DType::kBool, "the condition must be a vector of bool");
  int axis = 0;
  if (c.has_attr("axis"))
    axis = c.axis(c.attr("axis", 0), x->rank());
  else
    x = tensor::reshape(g, x, {x->elements()});
  const Expr n = x->shape[static_cast<std::size_t>(axis)];
  g.add_check(compare(Op::kLe, condition->shape[0], n),
              fmt::format("a condition of {} elements for {}", to_string(condition->shape[0]), to_string(n)));
  c.out(0, tensor::gather(g, x, nonzero_positions(g, condition), axis));
}

// Input k as one element of dtype t, or a constant.
Value* scalar_or(OpContext& c, int k, double fallback, DType t) {
  Graph& g = c.graph();
  if (!c.has(k)) return g.add_content(t, {1}, {constant(fallback, t)});
  return tensor::reshape(g, tensor::cast(g, one_element(c, k), t), {1});
}

void nms_op(OpContext& c) {
  Graph& g = c.graph();
  Value *boxes = c.in(0), *scores = c.in(1);
  c.require(boxes->rank() == 3 && scores->rank() == 3, "boxes of rank {} and scores of rank {}", boxes->rank(),
            scores->rank());
  c.require(boxes->dtype == DType::kFloat32 && scores->dtype == DType::kFloat32, "boxes and scores must be float32");
  g.add_check(compare(Op::kEq, boxes->shape[2], 4), "boxes of other than 4 coordinates");
  g.add_check(compare(Op::kEq, boxes->shape[0], scores->shape[0]), "boxes and scores differ in the batch");
  g.add_check(compare(Op::kEq, boxes->shape[1], scores->shape[2]), "boxes and scores differ in number");
  Value* most = scalar_or(c, 2, 0, DType::kInt64);
  Value* iou = scalar_or(c, 3, 0, DType::kFloat32);
  // Without a score threshold every score passes.
  Value* threshold = scalar_or(c, 4, -INFINITY, DType::kFloat32);
  const Expr per_class = idx::min(idx::max(c.int_scalar(most), 0), boxes->shape[1]);
  const Expr capacity = scores->shape[0] * scores->shape[1] * per_class;
  const auto y = tensor::routine(g, "nms", {boxes, scores, iou, threshold},
                                 {c.attr("center_point_box", 0) != 0 ? 1 : 0, per_class}, {},
                                 {{DType::kInt64, {capacity, 3}}, {DType::kInt64, {1}}});
  c.out(0, tensor::slice(g, y[0], 0, 0, g.bind(y[1], true).at(0)));
}

}  // namespace

void register_select(OpRegistry& r) {
  r.add({.name = "NonZero", .lower = nonzero_op, .dtypes = "numbers, bool"});
  r.add({.name = "Compress", .lower = compress_op});
  r.add({.name = "NonMaxSuppression", .lower = nms_op, .dtypes = "float32"});
}

}  // namespace sardonyx
