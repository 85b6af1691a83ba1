#include "ops/scalars.h"

#include "ops/tensor.h"

namespace sardonyx {

Value* one_element(OpContext& c, int k) {
  Value* v = c.in(k);
  c.graph().add_check(compare(Op::kEq, v->elements(), 1),
                      fmt::format("input {} must have one element, not shape {}", k, to_string(v->shape)));
  return tensor::reshape(c.graph(), v, {});
}

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
  c.require(is_integer(c.in(k)->dtype), "input {} is {}, not an integer", k, name(c.in(k)->dtype));
  return c.ints(one_element(c, k), size).at(0);
}

}  // namespace sardonyx
