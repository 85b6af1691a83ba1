// com.microsoft: sums and concatenations over the processes that compute a model together (Options::communicator).
#include "ops/families.h"
#include "ops/tensor.h"

namespace sardonyx {
namespace {

constexpr std::int64_t kMaxGroup = 64;  // processes of a group (collective/group.cpp)

// The sum of all processes' tensors. A group_size, which ONNX Runtime's operator does not have, is checked.
void all_reduce(OpContext& c) {
  Value* x = c.in(0);
  const std::int64_t size = c.attr("group_size", 0);
  c.require(size >= 0 && size <= kMaxGroup, "group_size is {}", size);
  c.out(0, tensor::routine(c.graph(), "all_reduce", {x}, {size}, {}, {{x->dtype, x->shape}})[0]);
}

// All processes' tensors, concatenated along one axis. They arrive in order of ranks; a transpose moves them to the
// axis.
void all_gather(OpContext& c) {
  Graph& g = c.graph();
  Value* x = c.in(0);
  const std::int64_t size = c.attr("group_size", 1);
  c.require(size >= 1 && size <= kMaxGroup, "group_size is {}", size);
  c.require(x->rank() >= 1, "an input without dims");
  const int axis = c.axis(c.attr("axis", 0), x->rank());
  Exprs gathered = {Expr(size)};
  gathered.insert(gathered.end(), x->shape.begin(), x->shape.end());
  Value* parts = tensor::routine(g, "all_gather", {x}, {size}, {}, {{x->dtype, gathered}})[0];
  std::vector<int> perm;  // the processes' dim goes before the axis
  for (int k = 1; k <= x->rank(); ++k) {
    if (k == axis + 1) perm.push_back(0);
    perm.push_back(k);
  }
  Exprs shape = x->shape;
  shape[static_cast<std::size_t>(axis)] = shape[static_cast<std::size_t>(axis)] * size;
  c.out(0, tensor::reshape(g, axis == 0 ? parts : tensor::transpose(g, parts, perm), shape));
}

}  // namespace

void register_collective(OpRegistry& r) {
  r.add({.name = "AllReduce",
         .domain = "com.microsoft",
         .lower = all_reduce,
         .dtypes = "numbers",
         .notes = "the sum over the processes of a group (Options::communicator)"});
  r.add({.name = "AllGather",
         .domain = "com.microsoft",
         .lower = all_gather,
         .dtypes = "any",
         .notes = "over the processes of a group (Options::communicator)"});
}

}  // namespace sardonyx
