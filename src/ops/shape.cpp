// Operators that only look at or change shapes: Shape, Reshape, Transpose, Identity, Constant ...
#include "ops/families.h"
#include "ops/tensor.h"

namespace sardonyx {
namespace {

void identity_op(OpContext& c) {
  if (c.is_sequence(0)) return c.out_sequence(0, c.sequence(0));
  c.out(0, c.in(0));
}

void shape_op(OpContext& c) {
  const Exprs& s = c.in(0)->shape;
  const int r = static_cast<int>(s.size());
  auto clamp = [&](std::int64_t a) {
    return static_cast<int>(std::min<std::int64_t>(std::max<std::int64_t>(a < 0 ? a + r : a, 0), r));
  };
  const int start = clamp(c.attr("start", 0)), end = std::max(start, clamp(c.attr("end", r)));
  c.out(0, c.graph().add_content(DType::kInt64, {end - start}, Exprs(s.begin() + start, s.begin() + end)));
}

void size_op(OpContext& c) { c.out(0, c.graph().add_content(DType::kInt64, {}, {c.in(0)->elements()})); }

// Dims: 0 copies the input's dim (unless allowzero), -1 is inferred from the element count.
void reshape_op(OpContext& c) {
  Value* x = c.in(0);
  Exprs target;
  if (c.has(1))
    target = c.ints(c.in(1));
  else
    for (std::int64_t d : c.attr_ints("shape")) target.push_back(d);
  const bool allow_zero = c.attr("allowzero", 0) != 0;
  Exprs shape;
  int inferred = -1;
  for (std::size_t k = 0; k < target.size(); ++k) {
    const Expr& d = target[k];
    if (is_const(d, -1)) {
      c.require(inferred < 0, "two dims of the target shape are -1");
      inferred = static_cast<int>(k);
      shape.push_back(1);
    } else if (is_const(d, 0) && !allow_zero) {
      c.require(k < x->shape.size(), "dim {} of the target shape is 0 but the input has rank {}", k, x->rank());
      shape.push_back(x->shape[k]);
    } else {
      std::int64_t v;
      c.require(!is_const_int(d, v) || v >= 0, "dim {} of the target shape is {}", k, to_string(d));
      shape.push_back(d);
    }
  }
  const Expr total = x->elements();
  // Target dims that are read at run time may be 0 or -1 as well.
  bool run_time = false;
  for (const Expr& d : shape) run_time |= d->op == Op::kSym && d->f != 0;
  if (run_time) {
    Expr known = 1;
    for (std::size_t k = 0; k < shape.size(); ++k) {
      if (!(shape[k]->op == Op::kSym && shape[k]->f != 0)) {
        if (static_cast<int>(k) != inferred) known = known * shape[k];
        continue;
      }
      if (!allow_zero && k < x->shape.size()) shape[k] = select(compare(Op::kEq, shape[k], 0), x->shape[k], shape[k]);
      known = known * select(compare(Op::kLt, shape[k], 0), 1, shape[k]);
    }
    for (std::size_t k = 0; k < shape.size(); ++k)
      if (target[k]->op == Op::kSym && target[k]->f != 0)
        shape[k] = select(compare(Op::kLt, target[k], 0), idx::floordiv(total, idx::max(known, 1)), shape[k]);
    if (inferred >= 0) shape[static_cast<std::size_t>(inferred)] = idx::floordiv(total, idx::max(known, 1));
  } else if (inferred >= 0) {
    const Expr known = idx::product(shape);
    c.require(!is_const(known, 0) || is_const(total, 0), "a dim of -1 can't be inferred beside a dim of 0");
    shape[static_cast<std::size_t>(inferred)] = is_const(known, 0) ? Expr(0) : idx::floordiv(total, known);
  }
  c.graph().add_check(compare(Op::kEq, total, idx::product(shape)),
                      fmt::format("shape {} can't be reshaped to {}", to_string(x->shape), to_string(shape)));
  c.out(0, tensor::reshape(c.graph(), x, shape));
}

void transpose_op(OpContext& c) {
  const int r = c.in(0)->rank();
  std::vector<std::int64_t> reversed;
  for (int k = r; k-- > 0;) reversed.push_back(k);
  std::vector<int> perm;
  std::vector<bool> seen(static_cast<std::size_t>(r));
  for (std::int64_t p : c.attr_ints("perm", reversed)) {
    perm.push_back(c.axis(p, r));
    c.require(!seen[static_cast<std::size_t>(perm.back())], "perm names axis {} twice", perm.back());
    seen[static_cast<std::size_t>(perm.back())] = true;
  }
  c.require(static_cast<int>(perm.size()) == r, "perm has {} entries for rank {}", perm.size(), r);
  c.out(0, tensor::transpose(c.graph(), c.in(0), perm));
}

void constant_op(OpContext& c) {
  Graph& g = c.graph();
  if (const model::Tensor* t = c.node().get_tensor(c.has_attr("sparse_value") ? "sparse_value" : "value")) {
    t->require();
    c.out(0, g.add_constant(t->dtype, t->dims, {t->owner, t->data, t->bytes}));
    return;
  }
  if (c.has_attr("value_int")) return c.out(0, g.add_content(DType::kInt64, {}, {Expr(c.attr("value_int", 0))}));
  if (c.has_attr("value_float")) return c.out(0, tensor::scalar(g, c.attr_f("value_float", 0), DType::kFloat32));
  if (c.has_attr("value_ints")) return c.out(0, tensor::ints(g, c.attr_ints("value_ints")));
  if (c.has_attr("value_floats")) {
    Exprs e;
    for (float f : c.attr_floats("value_floats")) e.push_back(constant_float(f, DType::kFloat32));
    const auto n = static_cast<std::int64_t>(e.size());
    return c.out(0, g.add_content(DType::kFloat32, {n}, std::move(e)));
  }
  c.refuse("a constant of strings; keep text processing outside the model");
}

}  // namespace

void register_shape(OpRegistry& r) {
  r.add({.name = "Identity", .lower = identity_op, .sequences = true});
  r.add({.name = "Shape", .lower = shape_op});
  r.add({.name = "Size", .lower = size_op});
  r.add({.name = "Reshape", .lower = reshape_op});
  r.add({.name = "Transpose", .lower = transpose_op});
  r.add({.name = "Constant", .lower = constant_op});
}

}  // namespace sardonyx
