#include "ops/scalars.h"

#include "ops/tensor.h"

namespace sardonyx {

Expr scalar_element(OpContext& c, const Value* v) {
  c.graph().add_check(compare(Op::kEq, v->elements(), 1),
                      fmt::format("a scalar is needed, not shape {}", to_string(v->shape)));
  if (v->content) return v->content->at(0);
  return tensor::at(v, Exprs(v->shape.size(), Expr(0)));
}

DType dtype_attr(const OpContext& c, std::string_view name, DType fallback) {
  return c.has_attr(name) ? from_onnx(static_cast<int>(c.attr(name, 0))) : fallback;
}

Expr int_input(OpContext& c, int k, bool size) {
  Value* v = c.in(k);
  c.require(is_integer(v->dtype), "input {} is {}, not an integer", k, name(v->dtype));
  c.require(is_const(v->elements(), 1), "input {} must be a scalar, not of shape {}", k, to_string(v->shape));
  return c.ints(v, size).at(0);
}

}  // namespace sardonyx
