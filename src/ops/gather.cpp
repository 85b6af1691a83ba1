// Gather, GatherElements, GatherND. Indices are data: out-of-range ones are clamped, so that nothing outside of a
// tensor is read.
#include "ops/families.h"
#include "ops/tensor.h"

namespace sardonyx {
namespace {

Expr in_range(const Expr& index, const Expr& size) {
  const Expr k = tensor::wrap_index(cast(index, DType::kInt64), size);
  return idx::max(0, idx::min(k, size - 1));
}

// Clamping can't help where there is nothing to read at all.
void check_readable(OpContext& c, const Value* indices, const Expr& size) {
  c.require(indices->dtype == DType::kInt64 || indices->dtype == DType::kInt32, "indices of dtype {}",
            name(indices->dtype));
  c.graph().add_check(logical_or(compare(Op::kGt, size, 0), compare(Op::kEq, indices->elements(), 0)),
                      "indices into an axis without elements");
}

void gather_op(OpContext& c) {
  Value *x = c.in(0), *indices = c.in(1);
  const int axis = c.axis(c.attr("axis", 0), x->rank());
  check_readable(c, indices, x->shape[static_cast<std::size_t>(axis)]);
  c.out(0, tensor::gather(c.graph(), x, indices, axis));
}

void gather_elements_op(OpContext& c) {
  Value *x = c.in(0), *indices = c.in(1);
  const auto axis = static_cast<std::size_t>(c.axis(c.attr("axis", 0), x->rank()));
  c.require(indices->rank() == x->rank(), "indices of rank {} into a tensor of rank {}", indices->rank(), x->rank());
  check_readable(c, indices, x->shape[axis]);
  for (std::size_t k = 0; k < x->shape.size(); ++k)
    if (k != axis)
      c.graph().add_check(compare(Op::kLe, indices->shape[k], x->shape[k]),
                          fmt::format("dim {} of the indices, {}, is larger than the data's, {}", k,
                                      to_string(indices->shape[k]), to_string(x->shape[k])));
  c.out(0, tensor::generate(c.graph(), indices->shape, [&](const Exprs& i) {
          Exprs j = i;
          j[axis] = in_range(tensor::at(indices, i), x->shape[axis]);
          return tensor::at(x, j);
        }));
}

// Each row of the last axis of the indices is an index into the dims of x after the batch dims.
void gather_nd_op(OpContext& c) {
  Value *x = c.in(0), *indices = c.in(1);
  const std::int64_t batch = c.attr("batch_dims", 0);
  c.require(indices->rank() >= 1, "indices of rank 0");
  std::int64_t n;
  if (!is_const_int(indices->shape.back(), n))
    c.refuse("indices whose last dim, {}, is not known when compiling", to_string(indices->shape.back()));
  c.require(batch >= 0 && batch < indices->rank() && batch + n <= x->rank() && n >= 0,
            "batch_dims {} and indices of {} into a tensor of rank {}", batch, n, x->rank());
  for (std::int64_t k = 0; k < batch; ++k) {
    const Expr &a = x->shape[static_cast<std::size_t>(k)], &b = indices->shape[static_cast<std::size_t>(k)];
    c.graph().add_check(compare(Op::kEq, a, b),
                        fmt::format("batch dim {} is {} and {}", k, to_string(a), to_string(b)));
  }
  for (std::int64_t k = batch; k < batch + n; ++k) check_readable(c, indices, x->shape[static_cast<std::size_t>(k)]);
  const auto rows = static_cast<std::size_t>(indices->rank() - 1);
  Exprs shape(indices->shape.begin(), indices->shape.end() - 1);
  shape.insert(shape.end(), x->shape.begin() + batch + n, x->shape.end());
  c.out(0, tensor::generate(c.graph(), shape, [&](const Exprs& i) {
          Exprs row(i.begin(), i.begin() + static_cast<std::ptrdiff_t>(rows)), j(i.begin(), i.begin() + batch);
          for (std::int64_t k = 0; k < n; ++k) {
            Exprs at = row;
            at.push_back(k);
            j.push_back(in_range(tensor::at(indices, at), x->shape[static_cast<std::size_t>(batch + k)]));
          }
          j.insert(j.end(), i.begin() + static_cast<std::ptrdiff_t>(rows), i.end());
          return tensor::at(x, j);
        }));
}

}  // namespace

void register_gather(OpRegistry& r) {
  const char* notes = "indices out of range are clamped";
  r.add({.name = "Gather", .lower = gather_op, .notes = notes});
  r.add({.name = "GatherElements", .lower = gather_elements_op, .notes = notes});
  r.add({.name = "GatherND", .lower = gather_nd_op, .notes = notes});
}

}  // namespace sardonyx
