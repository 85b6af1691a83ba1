// See channel_order.h.
#include "fuse/channel_order.h"

#include <algorithm>

#include "graph/analysis.h"

namespace sardonyx {
namespace {

// The channel that loop `l` reads for its output channel; null if it does anything else to the other dims or values.
const Expr* channel_of(const LoopOp& l, const Value& out, const Value& x) {
  if (l.body->op != Op::kLoad || l.body->value != &x || out.dtype != x.dtype || l.vars.size() != l.body->args.size())
    return nullptr;
  for (std::size_t d = 0; d < l.vars.size(); ++d) {
    const Expr& at = l.body->args[d];
    if (d != 1 && !same(at, l.vars[d])) return nullptr;
    if (d == 1 && (same(at, l.vars[1]) || std::any_of(l.vars.begin(), l.vars.end(), [&](const Expr& v) {
                     return !same(v, l.vars[1]) && mentions(at, v);
                   })))
      return nullptr;
  }
  return &l.body->args[1];
}

// Why the convolution keeps its order; null if it takes the loop's. An empty reason: it has nothing to do with it.
const char* obstacle(const Node& n, const Value& x, const std::unordered_set<const Node*>& constants, const Graph& g,
                     const Uses& uses) {
  const auto* c = x.producer ? x.producer->as<ConvOp>() : nullptr;
  std::int64_t before = 0, after = 0;
  if (!c || c->transposed || !is_const_int(x.shape[1], before) || !is_const_int(n.outputs[0]->shape[1], after))
    return "";
  if (before != after) return "";
  if (c->groups != 1) return "the convolution has groups";
  const auto reads = uses.find(&x);
  if (reads == uses.end() || reads->second.size() != 1 ||
      std::find(g.outputs.begin(), g.outputs.end(), &x) != g.outputs.end())
    return "other nodes read the convolution's result";
  for (std::size_t k = 1; k < x.producer->inputs.size(); ++k)
    if (!constants.count(x.producer->inputs[k]->producer)) return "its weights are not constant";
  return nullptr;
}

// `v` with the order of `channel`, an expression of `var`, along its first dim.
Value* rearranged(Graph& g, const Value* v, const Expr& channel, const Expr& var) {
  const Exprs vars = vars_of(v->shape);
  Exprs at = vars;
  at[0] = substitute(channel, {{var, vars[0]}});
  return g.add_loop(vars, load(v, v->dtype, at));
}

}  // namespace

void channel_order(Graph& g, const FuseOptions& options) {
  const auto constants = constant_nodes(g);
  const Uses uses = uses_of(g);
  const std::size_t count = g.nodes.size();
  for (std::size_t at = 0; at < count; ++at) {
    Node& n = *g.nodes[at];
    const auto* l = n.as<LoopOp>();
    if (!l || constants.count(&n) || n.inputs.size() != 1 || n.outputs[0]->rank() < 2) continue;
    const Value& x = *n.inputs[0];
    const Expr* channel = channel_of(*l, *n.outputs[0], x);
    if (!channel) continue;
    if (const char* why = obstacle(n, x, constants, g, uses)) {
      if (*why) remark(options, "channel_order", n.origin, [&] { return std::string(why); });
      continue;
    }
    const Node& convolution = *x.producer;
    g.origin = convolution.origin;
    std::vector<Value*> inputs = convolution.inputs;
    for (std::size_t k = 1; k < inputs.size(); ++k) inputs[k] = rearranged(g, inputs[k], *channel, l->vars[1]);
    n.origin = convolution.origin;
    n.op = *convolution.as<ConvOp>();
    n.inputs = std::move(inputs);
  }
  g.origin.clear();
  sort_nodes(g);
  remove_dead_nodes(g);
}

}  // namespace sardonyx
