#include "fuse/tile_as_loop.h"

#include "graph/analysis.h"

namespace sardonyx {
namespace {
DType accumulator_of(DType t) {
  if (t == DType::kFloat64 || t == DType::kInt64 || t == DType::kUInt64 || t == DType::kUInt32) return t;
  return is_float(t) ? DType::kFloat32 : DType::kInt32;
}

constexpr std::int64_t kLeastCopied = 16;  // rows, columns and K from which on a GEMM of copied operands is faster

bool long_enough(const Expr& var) {
  std::int64_t n = 0;
  return !is_const(var) && (!is_const_int(var->args[0], n) || n >= kLeastCopied);
}

// `operand` of a GEMM, copied to a tensor of its own over those of `vars` that it depends on.
Expr copied(Graph& g, const Expr& operand, const Exprs& vars) {
  Exprs own, fresh;
  std::vector<std::pair<Expr, Expr>> to;
  for (const Expr& v : vars) {
    if (!mentions(operand, v)) continue;
    own.push_back(v);
    fresh.push_back(loop_var(v->args[0]));
    to.emplace_back(v, fresh.back());
  }
  const Value* copy = g.add_loop(fresh, substitute(operand, to));
  return load(copy, copy->dtype, own);
}

// Whether the device takes the GEMM once operands that are strided (heads between tokens) are copied; does so.
bool copy_operands(Graph& g, Node& n, const FuseOptions& options) {
  auto& m = *n.as<MatMulOp>();
  if (!options.few_threads || m.end || m.vars.size() < 2 || !long_enough(m.k) || !long_enough(m.vars.back()) ||
      !long_enough(m.vars[m.vars.size() - 2]))
    return false;
  const MatMulOp original = m;
  Exprs left = m.vars, right = m.vars;
  left.back() = m.k;
  right[right.size() - 2] = m.k;
  std::string why;
  const std::string saved = g.origin;
  g.origin = n.origin;
  bool accepted = false;
  for (const auto& [a, b] : {std::pair(true, false), {false, true}, {true, true}}) {
    m.a = a ? copied(g, original.a, left) : original.a;
    m.b = b ? copied(g, original.b, right) : original.b;
    refresh_inputs(n);
    accepted = options.accepts_tile(n, why);
    if (accepted) break;
  }
  g.origin = saved;
  if (!accepted) {
    m = original;
    refresh_inputs(n);
  }
  return accepted;
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
  const std::size_t count = g.nodes.size();
  for (std::size_t k = 0; k < count; ++k) {
    Node* n = g.nodes[k].get();
    const auto* m = n->as<MatMulOp>();
    const auto* c = n->as<ConvOp>();
    if (!m && !c) continue;
    std::string why;
    if (options.accepts_tile && (options.accepts_tile(*n, why) || (m && copy_operands(g, *n, options)))) continue;
    remark(options, "tiles_to_loops", n->origin,
           [&] { return "runs as a loop: " + (why.empty() ? "the device has no such tile kernel" : why); });
    if (m)
      n->op = loop_of_matmul(*m, n->outputs[0]->dtype);
    else
      n->op = loop_of_conv(*c, n->inputs, n->outputs[0]);
    refresh_inputs(*n);
  }
  if (g.nodes.size() == count) return;
  sort_nodes(g);
  remove_dead_nodes(g);  // copies that did not help
}

}  // namespace sardonyx
