// Uses, dead nodes, constant nodes.
#include "graph/analysis.h"

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

std::vector<Expr> expressions_of(const Node& n) {
  if (const auto* l = n.as<LoopOp>()) return {l->body};
  std::vector<Expr> out;
  if (const auto* m = n.as<MatMulOp>())
    for (const Expr& e : {m->a, m->b, m->owner, m->end})
      if (e) out.push_back(e);
  if (const auto* a = n.as<AttentionOp>())
    for (const Expr& e : {a->scale, a->q, a->k, a->v, a->k_scale, a->v_scale, a->bias, a->begin, a->end, a->sink})
      if (e) out.push_back(e);
  return out;
}

Expr of_group(const MatMulOp& m, const Expr& group) {
  return rewrite(m.b, [&](const Expr& x) { return same(x, m.owner) ? group : Expr(); });
}

void refresh_inputs(Node& n) {
  const std::vector<Expr> expressions = expressions_of(n);
  if (expressions.empty()) return;
  std::vector<Value*> in;
  for (const Expr& e : expressions)
    for (Value* v : loads_of(e))
      if (std::find(in.begin(), in.end(), v) == in.end()) in.push_back(v);
  n.inputs = std::move(in);
}

Value* storage_of(Value* v) {
  while (v->producer && v->producer->as<ViewOp>()) v = v->producer->inputs[0];
  return v;
}

const Value* storage_of(const Value* v) { return storage_of(const_cast<Value*>(v)); }

void collect_symbols(const Expr& e, std::unordered_set<std::int64_t>& out) {
  if (!e || !e->has_sym) return;
  visit(e, [&](const Expr& x) {
    if (x->op == Op::kSym) out.insert(x->i);
    if (x->op == Op::kVar && x->args[0]->has_sym) collect_symbols(x->args[0], out);
  });
}

bool mentions(const Expr& e, const Expr& var) {
  if (!e || !e->has_var) return false;
  bool found = false;
  visit(e, [&](const Expr& x) { found |= x->op == var->op && x->op == Op::kVar && x->i == var->i; });
  return found;
}

Exprs vars_of(const Exprs& shape) {
  Exprs vars;
  for (const Expr& d : shape) vars.push_back(loop_var(d));
  return vars;
}

namespace {

void symbols_in_shape(const Value* v, std::unordered_set<std::int64_t>& out) {
  for (const Expr& d : v->shape) collect_symbols(d, out);
}

void symbols_of_graph(const Graph& g, std::unordered_set<std::int64_t>& out);

void symbols_of_node(const Node& n, std::unordered_set<std::int64_t>& out) {
  for (const Value* v : n.outputs) symbols_in_shape(v, out);
  for (const Value* v : n.inputs) symbols_in_shape(v, out);
  if (const auto* l = n.as<LoopOp>()) collect_symbols(l->body, out);
  if (n.as<MatMulOp>() || n.as<AttentionOp>())
    for (const Expr& e : expressions_of(n)) collect_symbols(e, out);
  if (const auto* c = n.as<ConvOp>()) {
    for (const Expr& e : c->pads_begin) collect_symbols(e, out);
    for (const Expr& e : c->pads_end) collect_symbols(e, out);
  }
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
  // Depth first, with an explicit stack because graphs may be deep.
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
// `symbols`: those of g that the enclosing graphs need.
void remove_dead(Graph& g, std::unordered_set<std::int64_t> symbols);
}  // namespace

void remove_dead_nodes(Graph& g) { remove_dead(g, {}); }

namespace {
void remove_dead(Graph& g, std::unordered_set<std::int64_t> symbols) {
  std::unordered_set<const Value*> live(g.outputs.begin(), g.outputs.end());
  for (const Value* v : g.outputs) symbols_in_shape(v, symbols);
  for (const Expr& e : g.final_expressions) collect_symbols(e, symbols);
  std::unordered_set<const Node*> keep;
  // Backwards. A bind is kept if later nodes use its symbols. Control flow may bind symbols for later nodes too.
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
    // A nested graph must keep whatever defines a symbol that its node or a later one reads.
    if (auto* i = n->as<IfOp>()) {
      remove_dead(*i->then_graph, symbols);
      remove_dead(*i->else_graph, symbols);
    }
    if (auto* w = n->as<WhileOp>()) remove_dead(*w->body, symbols);
  }
  std::erase_if(g.nodes, [&](const std::unique_ptr<Node>& n) { return !keep.count(n.get()); });
}
}  // namespace

Value* transposed_matrix(const Value* v) {
  const auto* l = v->producer ? v->producer->as<LoopOp>() : nullptr;
  if (!l || v->rank() != 2 || l->body->op != Op::kLoad || l->body->dtype != v->dtype) return nullptr;
  const Value* x = l->body->value;
  const bool transposes = x->rank() == 2 && x->dtype == v->dtype && same(l->body->args[0], l->vars[1]) &&
                          same(l->body->args[1], l->vars[0]);
  const auto whole = [&](std::size_t d) { return idx::provably_equal(x->shape[d], v->shape[1 - d]); };
  return transposes && whole(0) && whole(1) ? const_cast<Value*>(x) : nullptr;
}

namespace {

/// Values without inputs (masks, ranges) that a routine reads: they are stored in any case, so that storing them for
/// good costs nothing but memory. Others are cheaper computed where they are read.
std::unordered_set<const Value*> stored_without_inputs(const Graph& g) {
  constexpr std::int64_t kMostElements = 1 << 20;
  std::unordered_set<const Value*> out;
  for (const auto& n : g.nodes) {
    if (!n->as<RoutineOp>()) continue;
    for (const Value* v : n->inputs) {
      std::vector<std::int64_t> dims;
      if (!v->producer || !v->producer->as<LoopOp>() || !v->producer->inputs.empty() || !constant_dims(v->shape, dims))
        continue;
      std::int64_t elements = 1;
      for (const std::int64_t d : dims) elements = elements > kMostElements ? elements : elements * d;
      if (elements <= kMostElements) out.insert(v);
    }
  }
  return out;
}

}  // namespace

std::unordered_set<const Node*> constant_nodes(const Graph& g) {
  std::unordered_set<const Node*> out;
  const std::unordered_set<const Value*> stored = stored_without_inputs(g);
  for (const auto& n : g.nodes) {
    if (n->as<ConstantOp>()) {
      out.insert(n.get());
      continue;
    }
    const auto* routine = n->as<RoutineOp>();
    if (!n->as<LoopOp>() && !n->as<ViewOp>() && !n->as<MatMulOp>() && !n->as<ConvOp>() && !routine) continue;
    bool constant = !n->inputs.empty() || (n->outputs.size() == 1 && stored.count(n->outputs[0]) > 0);
    // Constants are computed once per process group; a collective must run whenever the model runs.
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
