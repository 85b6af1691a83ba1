// Building blocks for lowerings: tensor operations that append nodes to a graph. Shapes are symbolic throughout.
#pragma once
#include <algorithm>
#include <functional>
#include <optional>
#include <vector>

#include "graph/graph.h"

namespace sardonyx::tensor {

/// Fresh loop variables for a shape.
Exprs loop_vars(const Exprs& shape);
/// Element of x at the given indices.
Expr at(const Value* x, Exprs indices);
/// Element of x, broadcast to `rank` dims by numpy's rules, at `indices` of the broadcast shape (the last dims are
/// aligned). Symbolic dims are taken to be equal to the shape's (see broadcast_shapes).
Expr at_broadcast(const Value* x, const Exprs& indices, const Exprs& shape);

/// output[i...] = f(indices); the general form. dtype is the body's.
Value* generate(Graph& g, const Exprs& shape, const std::function<Expr(const Exprs&)>& f);
/// The shape to which the inputs broadcast. Symbolic dims that meet are assumed to be equal; a CheckOp checks it.
Exprs broadcast_shapes(Graph& g, const std::vector<Exprs>& shapes);
/// Checks that a tensor of shape `from` can be broadcast to `shape`, which stays as it is (dims as in
/// broadcast_shapes).
void check_broadcast(Graph& g, const Exprs& from, const Exprs& shape);
/// Maximum number of operands that one loop reads. Operators with more combine groups of this size first, so that no
/// kernel has too many pointers and no expression is too deep.
constexpr std::size_t kMaxOperands = 32;
/// combine() of each run of at most kMaxOperands values, in order.
template <typename Combine>
std::vector<Value*> in_runs(const std::vector<Value*>& xs, Combine&& combine) {
  std::vector<Value*> out;
  for (auto first = xs.begin(); first != xs.end();) {
    const auto last = first + std::min<std::ptrdiff_t>(kMaxOperands, xs.end() - first);
    out.push_back(combine(std::vector<Value*>(first, last)));
    first = last;
  }
  return out;
}

/// output = f(elements) with numpy broadcasting.
Value* map(Graph& g, const std::vector<Value*>& xs, const std::function<Expr(const Exprs&)>& f);
Value* map1(Graph& g, Value* x, const std::function<Expr(const Expr&)>& f);
Value* map2(Graph& g, Value* x, Value* y, const std::function<Expr(const Expr&, const Expr&)>& f);
Value* binary(Graph& g, Op op, Value* x, Value* y);
Value* unary(Graph& g, Op op, Value* x);
Value* cast(Graph& g, Value* x, DType t, int mode = 0);
/// A scalar (rank 0) constant.
Value* scalar(Graph& g, double v, DType t);
Value* ints(Graph& g, const std::vector<std::int64_t>& v);

/// Accumulation type of sums and products of t: fp32 for smaller floats, else t.
DType accumulator(DType t);
/// Reduces over `axes` (non-negative, any order). f maps the element before reduction (identity if empty) and may
/// change the dtype.
Value* reduce(Graph& g, ReduceKind kind, Value* x, std::vector<int> axes, bool keepdims,
              const std::function<Expr(const Expr&)>& f = {});
/// Removes or inserts dims of 1; reshape to a shape of the same element count.
Value* reshape(Graph& g, Value* x, const Exprs& shape);
Value* unsqueeze(Graph& g, Value* x, std::vector<int> axes);  ///< axes of the result
Value* squeeze(Graph& g, Value* x, std::vector<int> axes);
Value* transpose(Graph& g, Value* x, const std::vector<int>& perm);
/// Broadcasts to a shape by numpy's rules.
Value* expand(Graph& g, Value* x, const Exprs& shape);
Value* concat(Graph& g, const std::vector<Value*>& xs, int axis);
/// x[..., start : start + size * step : step, ...] along one axis; all in range by contract. step may be negative.
Value* slice(Graph& g, Value* x, int axis, const Expr& start, const Expr& size, const Expr& step = 1);
/// Elements of x along `axis` at the (integer) indices; negative ones count from the end. numpy.take.
Value* gather(Graph& g, Value* x, Value* indices, int axis);
/// Batched matrix product by numpy's rules (1-D operands promoted). The result has dtype `out` (default: a's).
Value* matmul(Graph& g, Value* a, Value* b, bool trans_a = false, bool trans_b = false, std::optional<DType> out = {});
/// Softmax family along axes (in fp32 for smaller floats): `log` gives log-softmax.
Value* softmax(Graph& g, Value* x, std::vector<int> axes, bool log = false);
/// See ConvOp. `output_shape` is the spatial output size of a transposed convolution.
Value* conv(Graph& g, Value* x, Value* w, Value* bias, ConvOp op, const Exprs& output_spatial);
/// A routine with its outputs.
std::vector<Value*> routine(Graph& g, std::string name, std::vector<Value*> inputs, Exprs params,
                            std::vector<double> floats, const std::vector<std::pair<DType, Exprs>>& outputs);
/// A non-negative index from one that may be negative: i < 0 ? i + size : i.
Expr wrap_index(const Expr& i, const Expr& size);

}  // namespace sardonyx::tensor
