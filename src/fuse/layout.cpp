// Layout assignment. Values keep their logical shape; only the order of their dims in memory changes, and loads follow it. So no transposes
// are inserted between convolutions and the loops around them: a loop just walks its output in that output's order.
#include "fuse/layout.h"

#include <algorithm>

#include "fuse/graph_util.h"

namespace sardonyx {
namespace {

std::vector<int> channels_last(int rank) {
  std::vector<int> order = {0};
  for (int k = 2; k < rank; ++k) order.push_back(k);
  order.push_back(1);
  return order;
}

bool in_place_order(const LoopOp& l, const Value* v) {
  // v is loaded at the loop's own variables, dim by dim: worth walking in v's order.
  bool found = false;
  visit(l.body, [&](const Expr& x) {
    if (x->op != Op::kLoad || x->value != v || x->args.size() != l.vars.size()) return;
    bool same_order = true;
    for (std::size_t k = 0; k < l.vars.size(); ++k) {
      Expr c, rest;
      same_order &= is_const(x->args[k], 0) || (idx::split_affine(x->args[k], l.vars[k], c, rest) && !is_const(c, 0));
    }
    found |= same_order;
  });
  return found;
}

}  // namespace

void choose_layouts(Graph& g, const std::vector<Epilogue>& epilogues, const FuseOptions& options) {
  if (options.disabled) return;
  std::unordered_set<const Value*> fixed;  // must be row-major
  for (const Value* v : required_values(g)) fixed.insert(storage_of(const_cast<Value*>(v)));
  // Views need their source row-major unless they become loops; count them as a wish only.
  std::unordered_map<const Node*, const Epilogue*> tiles;
  std::unordered_set<const Node*> absorbed;
  for (const Epilogue& e : epilogues) {
    tiles[e.kernel.node] = &e;
    absorbed.insert(e.loops.begin(), e.loops.end());
  }
  std::unordered_set<const Value*> conv_inputs;
  for (const auto& n : g.nodes)
    if (n->as<ConvOp>()) conv_inputs.insert(n->inputs[0]);
  std::vector<std::pair<Value*, Value*>> copies;  // required value -> value in another order
  const auto constants = constant_nodes(g);
  for (const auto& n : g.nodes) {
    if (constants.count(n.get())) continue;
    if (const auto* c = n->as<ConvOp>()) {
      (void)c;
      Value* out = n->outputs[0];
      auto it = tiles.find(n.get());
      Value* last = it == tiles.end() ? out : it->second->kernel.out;
      if (fixed.count(last) || fixed.count(out) || last->rank() != out->rank() || last->rank() < 3) continue;
      out->storage_order = last->storage_order = channels_last(out->rank());
      continue;
    }
    const auto* l = n->as<LoopOp>();
    if (!l || absorbed.count(n.get())) continue;
    Value* out = n->outputs[0];
    if (fixed.count(out) || out->rank() < 3) continue;
    bool wants = conv_inputs.count(out) > 0;
    if (!wants)
      for (const Value* v : n->inputs) wants |= !v->storage_order.empty() && v->rank() == out->rank() && in_place_order(*l, v);
    if (wants) out->storage_order = channels_last(out->rank());
  }
  // A view of a value in another order is a copy.
  for (const auto& n : g.nodes) {
    if (!n->as<ViewOp>()) continue;
    Value* source = n->inputs[0];
    if (source->storage_order.empty()) continue;
    // Dims of 1 do not matter: [n, c, 1, 1] is the same memory in both orders.
    int spatial = 0;
    for (int k = 2; k < source->rank(); ++k) spatial += !is_const(source->shape[static_cast<std::size_t>(k)], 1);
    if (spatial == 0) continue;
    const Value* out = n->outputs[0];
    Exprs vars;
    for (const Expr& d : out->shape) vars.push_back(loop_var(d));
    n->op = LoopOp{vars, load(source, source->dtype, idx::delinearize(idx::linearize(vars, out->shape), source->shape))};
    refresh_inputs(*n);
  }
}

}  // namespace sardonyx
