// Uses, dead nodes, constant nodes.
#include "fuse/graph_util.h"

#include <algorithm>

namespace sardonyx {

Uses uses_of(const Graph& g) {
  Uses u;
  for (const auto& n : g.nodes)
    for (const Value* v : n->inputs) {
      auto& list = u[v];
      if (list.empty() || list.back() != n.get()) list.push_back(n.get());
    }
  return u;
}

void refresh_inputs(Node& n) {
  std::vector<Value*> in;
  auto add = [&](const Expr& e) {
    for (Value* v : loads_of(e))
      if (std::find(in.begin(), in.end(), v) == in.end()) in.push_back(v);
  };
  if (const auto* l = n.as<LoopOp>()) {
    add(l->body);
    n.inputs = std::move(in);
  } else if (const auto* m = n.as<MatMulOp>()) {
    add(m->a);
    add(m->b);
    n.inputs = std::move(in);
  } else if (const auto* a = n.as<AttentionOp>(); a && a->q) {
    for (const Expr& e : {a->scale, a->q, a->k, a->v, a->bias, a->begin, a->end, a->sink}) add(e);
    n.inputs = std::move(in);
  }
}

namespace {

void collect_symbols(const Expr& e, std::unordered_set<std::int64_t>& out) {
  if (!e || !e->has_sym) return;
  visit(e, [&](const Expr& x) {
    if (x->op == Op::kSym) out.insert(x->i);
    if (x->op == Op::kVar && x->args[0]->has_sym) collect_symbols(x->args[0], out);
  });
}

void symbols_in_shape(const Value* v, std::unordered_set<std::int64_t>& out) {
  for (const Expr& d : v->shape) collect_symbols(d, out);
}

void symbols_of_graph(const Graph& g, std::unordered_set<std::int64_t>& out);

void symbols_of_node(const Node& n, std::unordered_set<std::int64_t>& out) {
  for (const Value* v : n.outputs) symbols_in_shape(v, out);
  for (const Value* v : n.inputs) symbols_in_shape(v, out);
  if (const auto* l = n.as<LoopOp>()) collect_symbols(l->body, out);
  if (const auto* m = n.as<MatMulOp>()) {
    collect_symbols(m->a, out);
    collect_symbols(m->b, out);
  }
  if (const auto* c = n.as<ConvOp>()) {
    for (const Expr& e : c->pads_begin) collect_symbols(e, out);
    for (const Expr& e : c->pads_end) collect_symbols(e, out);
  }
  if (const auto* a = n.as<AttentionOp>())
    for (const Expr& e : {a->scale, a->q, a->k, a->v, a->bias, a->begin, a->end, a->sink}) collect_symbols(e, out);
  if (const auto* r = n.as<RoutineOp>())
    for (const Expr& e : r->params) collect_symbols(e, out);
  if (const auto* c = n.as<CheckOp>()) collect_symbols(c->condition, out);
  auto bindings = [&](const std::vector<SymbolBinding>& list) {
    for (const SymbolBinding& b : list) collect_symbols(b.value, out);
  };
  if (const auto* i = n.as<IfOp>()) {
    collect_symbols(i->condition, out);
    symbols_of_graph(*i->then_graph, out);
    symbols_of_graph(*i->else_graph, out);
    bindings(i->then_symbols);
    bindings(i->else_symbols);
  }
  if (const auto* w = n.as<WhileOp>()) {
    for (const Expr& e : {w->trip_count, w->condition, w->next_condition}) collect_symbols(e, out);
    for (const auto& d : w->carried_dims) {
      collect_symbols(d.initial, out);
      collect_symbols(d.next, out);
    }
    symbols_of_graph(*w->body, out);
    bindings(w->stacked_dims);
  }
}

void symbols_of_graph(const Graph& g, std::unordered_set<std::int64_t>& out) {
  for (const Value* v : g.inputs) symbols_in_shape(v, out);
  for (const Value* v : g.outputs) symbols_in_shape(v, out);
  for (const auto& n : g.nodes) symbols_of_node(*n, out);
}

}  // namespace

std::unordered_set<std::int64_t> symbols_used(const Node& n) {
  std::unordered_set<std::int64_t> out;
  symbols_of_node(n, out);
  for (std::int64_t own : symbols_defined(n)) out.erase(own);
  return out;
}

std::vector<std::int64_t> symbols_defined(const Node& n) {
  std::vector<std::int64_t> out;
  if (const auto* b = n.as<BindOp>())
    for (const Expr& s : b->symbols) out.push_back(s->i);
  auto nested = [&](const Graph& g) {
    for (const auto& m : g.nodes)
      for (std::int64_t s : symbols_defined(*m)) out.push_back(s);
  };
  if (const auto* i = n.as<IfOp>()) {
    for (const SymbolBinding& b : i->then_symbols) out.push_back(b.symbol->i);
    for (const SymbolBinding& b : i->else_symbols) out.push_back(b.symbol->i);
    nested(*i->then_graph);
    nested(*i->else_graph);
  }
  if (const auto* w = n.as<WhileOp>()) {
    if (w->iteration) out.push_back(w->iteration->i);
    if (w->trips) out.push_back(w->trips->i);
    for (const auto& d : w->carried_dims) out.push_back(d.symbol->i);
    for (const SymbolBinding& b : w->stacked_dims) out.push_back(b.symbol->i);
    nested(*w->body);
  }
  return out;
}

void sort_nodes(Graph& g) {
  std::unordered_map<std::int64_t, const Node*> binder;
  for (const auto& n : g.nodes)
    for (std::int64_t s : symbols_defined(*n)) binder[s] = n.get();
  std::vector<std::unique_ptr<Node>> sorted;
  std::unordered_map<const Node*, std::unique_ptr<Node>*> waiting;
  for (auto& n : g.nodes) waiting[n.get()] = &n;
  // Depth first, with a stack of its own: graphs may be long.
  for (std::size_t k = 0; k < g.nodes.size(); ++k) {
    std::vector<std::pair<Node*, bool>> stack;
    if (g.nodes[k]) stack.emplace_back(g.nodes[k].get(), false);
    while (!stack.empty()) {
      auto [n, ready] = stack.back();
      stack.pop_back();
      auto it = waiting.find(n);
      if (it == waiting.end()) continue;
      if (ready) {
        sorted.push_back(std::move(*it->second));
        waiting.erase(it);
        continue;
      }
      stack.emplace_back(n, true);
      for (const Value* v : n->inputs)
        if (v->producer && waiting.count(v->producer)) stack.emplace_back(v->producer, false);
      for (std::int64_t s : symbols_used(*n))
        if (auto b = binder.find(s); b != binder.end() && b->second != n && waiting.count(b->second))
          stack.emplace_back(const_cast<Node*>(b->second), false);
    }
  }
  g.nodes = std::move(sorted);
}

namespace {
void remove_dead(Graph& g, std::unordered_set<std::int64_t> symbols);
}

void remove_dead_nodes(Graph& g) { remove_dead(g, {}); }

namespace {
// `symbols`: those that the surroundings need of g.
void remove_dead(Graph& g, std::unordered_set<std::int64_t> symbols) {
  std::unordered_set<const Value*> live(g.outputs.begin(), g.outputs.end());
  for (const Value* v : g.outputs) symbols_in_shape(v, symbols);
  for (const Expr& e : g.final_expressions) collect_symbols(e, symbols);
  std::unordered_set<const Node*> keep;
  // Backwards; a bind is kept for symbols that later nodes use. Control flow may bind symbols for others, so it is kept
  // if those are used.
  for (auto it = g.nodes.rbegin(); it != g.nodes.rend(); ++it) {
    Node& n = **it;
    bool used = n.as<CheckOp>() != nullptr;
    for (const Value* v : n.outputs) used |= live.count(v) > 0;
    for (std::int64_t s : symbols_defined(n)) used |= symbols.count(s) > 0;
    if (!used) continue;
    keep.insert(&n);
    live.insert(n.inputs.begin(), n.inputs.end());
    symbols_of_node(n, symbols);
  }
  for (const auto& n : g.nodes) {
    if (!keep.count(n.get())) continue;
    // A nested graph must keep what defines any symbol that the node itself or a later one reads.
    if (auto* i = n->as<IfOp>()) {
      remove_dead(*i->then_graph, symbols);
      remove_dead(*i->else_graph, symbols);
    }
    if (auto* w = n->as<WhileOp>()) remove_dead(*w->body, symbols);
  }
  std::erase_if(g.nodes, [&](const std::unique_ptr<Node>& n) { return !keep.count(n.get()); });
}
}  // namespace

std::unordered_set<const Node*> constant_nodes(const Graph& g) {
  std::unordered_set<const Node*> out;
  for (const auto& n : g.nodes) {
    if (n->as<ConstantOp>()) {
      out.insert(n.get());
      continue;
    }
    const auto* routine = n->as<RoutineOp>();
    if (!n->as<LoopOp>() && !n->as<ViewOp>() && !n->as<MatMulOp>() && !n->as<ConvOp>() && !routine) continue;
    bool constant = !n->inputs.empty();
    // Constants are computed once and may be shared; processes must sum together whenever a model runs.
    if (routine && is_collective(routine->name)) continue;
    for (const Value* v : n->inputs) constant &= v->producer && out.count(v->producer) > 0;
    std::vector<std::int64_t> dims;
    for (const Value* v : n->outputs) constant = constant && constant_dims(v->shape, dims);
    for (std::size_t k = 0; routine && k < routine->params.size(); ++k)
      constant = constant && is_const(routine->params[k]);
    if (!constant) continue;
    if (const auto* l = n->as<LoopOp>()) {
      bool varies = l->body->has_sym;
      visit(l->body, [&](const Expr& x) { varies |= x->op == Op::kRandom; });
      if (varies) continue;
    }
    out.insert(n.get());
  }
  return out;
}

std::unordered_set<const Value*> required_values(const Graph& g) {
  std::unordered_set<const Value*> out(g.outputs.begin(), g.outputs.end());
  for (const auto& n : g.nodes)
    if (n->as<RoutineOp>() || n->as<BindOp>() || n->as<IfOp>() || n->as<WhileOp>())
      out.insert(n->inputs.begin(), n->inputs.end());
  return out;
}

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
  const Expr product = binary(Op::kMul, cast(load(x, x->dtype, xi), acc), cast(load(w, w->dtype, wi), acc));
  Expr sum = reduce(ReduceKind::kSum, red, select(inside, product, constant(0, acc)));
  if (c.has_bias) sum = binary(Op::kAdd, sum, cast(load(in[2], in[2]->dtype, {vars[1]}), acc));
  return {vars, cast(sum, out->dtype)};
}

std::string join_origins(const std::string& first, const std::string& second) {
  static const std::string between = " + ";
  std::string out = first;
  for (std::size_t at = 0; at < second.size();) {
    const std::size_t end = std::min(second.find(between, at), second.size());
    const std::string node = second.substr(at, end - at);
    // Whole names only: "a (Add)" is not in "aa (Add)".
    if ((between + out + between).find(between + node + between) == std::string::npos)
      out += (out.empty() ? "" : between) + node;
    at = end + between.size();
  }
  return out;
}

}  // namespace sardonyx
