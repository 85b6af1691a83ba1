#include "fuse/tile_as_loop.h"

#include "graph/analysis.h"

namespace sardonyx {
namespace {
DType accumulator_of(DType t) {
  if (t == DType::kFloat64 || t == DType::kInt64 || t == DType::kUInt64 || t == DType::kUInt32) return t;
  return is_float(t) ? DType::kFloat32 : DType::kInt32;
}
}  // namespace

LoopOp loop_of_matmul(const MatMulOp& m, DType out) {
  const DType acc = is_integer(out) ? accumulator_of(out) : accumulator_of(m.a->dtype);
  return {m.vars, cast(reduce(ReduceKind::kSum, {m.k}, binary(Op::kMul, cast(m.a, acc), cast(m.b, acc))), out)};
}

LoopOp loop_of_conv(const ConvOp& c, const std::vector<Value*>& in, const Value* out) {
  const Value *x = in[0], *w = in[1];
  const std::size_t n = c.strides.size();
  const DType acc = is_integer(out->dtype) ? DType::kInt32 : accumulator_of(x->dtype);
  Exprs vars;
  for (const Expr& d : out->shape) vars.push_back(loop_var(d));
  const Expr groups = c.groups;
  // Channels of one group on both sides, and the group that output channel vars[1] belongs to.
  const Expr in_per_group = idx::floordiv(x->shape[1], groups), out_per_group = idx::floordiv(out->shape[1], groups);
  const Expr group = c.groups == 1 ? Expr(0) : idx::floordiv(vars[1], out_per_group);
  const Expr ch = loop_var(in_per_group);
  Exprs red = {ch}, xi = {vars[0], group * in_per_group + ch};
  Exprs wi = c.transposed ? Exprs{group * in_per_group + ch, vars[1] - group * out_per_group} : Exprs{vars[1], ch};
  Expr inside = constant_bool(true);
  for (std::size_t k = 0; k < n; ++k) {
    const Expr r = loop_var(w->shape[k + 2]);
    red.push_back(r);
    wi.push_back(r);
    Expr at;
    if (c.transposed) {
      const Expr shifted = vars[k + 2] + c.pads_begin[k] - r * c.dilations[k];
      at = c.strides[k] == 1 ? shifted : idx::floordiv(shifted, c.strides[k]);
      if (c.strides[k] != 1) inside = logical_and(inside, compare(Op::kEq, idx::mod(shifted, c.strides[k]), 0));
    } else {
      at = vars[k + 2] * c.strides[k] + r * c.dilations[k] - c.pads_begin[k];
    }
    inside = logical_and(inside, logical_and(compare(Op::kGe, at, 0), compare(Op::kLt, at, x->shape[k + 2])));
    xi.push_back(at);
  }
  const Expr weight = cast(load(w, w->dtype, wi), acc);
  const auto times = [&](const Expr& element) { return binary(Op::kMul, element, weight); };
  const Expr outside = c.padding == 0 ? constant(0, acc) : times(constant_int(c.padding, acc));
  Expr sum = reduce(ReduceKind::kSum, red, select(inside, times(cast(load(x, x->dtype, xi), acc)), outside));
  if (c.has_bias) sum = binary(Op::kAdd, sum, cast(load(in[2], in[2]->dtype, {vars[1]}), acc));
  return {vars, cast(sum, out->dtype)};
}

void lower_refused_tiles(Graph& g, const FuseOptions& options) {
  for (const auto& n : g.nodes) {
    const auto* m = n->as<MatMulOp>();
    const auto* c = n->as<ConvOp>();
    if (!m && !c) continue;
    std::string why;
    if (options.accepts_tile && options.accepts_tile(*n, why)) continue;
    remark(options, "tiles_to_loops", n->origin,
           [&] { return "runs as a loop: " + (why.empty() ? "the device has no such tile kernel" : why); });
    if (m)
      n->op = loop_of_matmul(*m, n->outputs[0]->dtype);
    else
      n->op = loop_of_conv(*c, n->inputs, n->outputs[0]);
    refresh_inputs(*n);
  }
}

}  // namespace sardonyx
