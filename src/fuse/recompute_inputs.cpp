#include "fuse/recompute_inputs.h"

#include <algorithm>

#include "graph/analysis.h"

namespace sardonyx {
namespace {

// Operations on elements, of which a function counts as several: about what reading the element again costs.
constexpr int kMostOperations = 16, kOfFunction = 8;
constexpr std::size_t kMostLoops = 2;  // that compute it again

// Whether it is cheaper to compute an element from the tensor that the loop reads than to store and load it.
bool is_cheap(const LoopOp& l, DType stored) {
  if (l.body->has_reduce) return false;
  std::size_t bytes = 0;
  int operations = 0;
  bool from_tile = false;
  visit(l.body, [&](const Expr& x) {
    if (x->op == Op::kRandom) operations = kMostOperations + 1;
    if (x->op == Op::kLoad) {
      bytes += size_of(x->dtype);
      const Node* p = storage_of(x->value)->producer;
      from_tile |= p && (p->as<MatMulOp>() || p->as<ConvOp>() || p->as<AttentionOp>());
    } else if (x->dtype != DType::kInt64 && !is_const(x)) {
      const bool function = (x->op >= Op::kExp && x->op <= Op::kErf) || x->op == Op::kPow || x->op == Op::kDiv;
      operations += function ? kOfFunction : 1;
    }
  });
  // A loop that reads a tile kernel's result becomes its epilogue, which stores the element anyway.
  return bytes > 0 && bytes <= size_of(stored) && operations <= kMostOperations && !from_tile;
}

Expr recomputed(const Expr& e, const Value* v, const LoopOp& l) {
  return rewrite(e, [&](const Expr& x) -> Expr {
    if (!x->has_load) return x;
    if (x->op != Op::kLoad || x->value != v) return Expr();
    std::vector<std::pair<Expr, Expr>> at;
    for (std::size_t k = 0; k < l.vars.size(); ++k) at.emplace_back(l.vars[k], recomputed(x->args[k], v, l));
    return substitute(l.body, at);
  });
}

struct Readers {
  std::vector<std::pair<Node*, std::size_t>> routines;  // and the number of the input
  std::vector<Node*> loops;
};

// What reads v: routines that can compute it, and loops. Empty if anything else does.
Readers readers_of(const Graph& g, const Value* v, const FuseOptions& options) {
  Readers r;
  bool others = std::ranges::any_of(g.outputs, [&](const Value* o) { return storage_of(o) == v; });
  for (const auto& n : g.nodes) {
    if (n->as<ViewOp>()) continue;
    bool reads = false;
    for (std::size_t k = 0; k < n->inputs.size(); ++k) {
      if (storage_of(n->inputs[k]) != v) continue;
      std::string why;
      if (n->as<RoutineOp>() && options.computes_input(*n, k, *v->producer, why))
        r.routines.emplace_back(n.get(), k);
      else
        others |= !n->as<LoopOp>() || n->inputs[k] != v;
      reads |= n->as<LoopOp>() != nullptr;
    }
    if (reads) r.loops.push_back(n.get());
  }
  return others || r.loops.size() > kMostLoops ? Readers{} : r;
}

}  // namespace

void recompute_routine_inputs(Graph& g, const FuseOptions& options) {
  const std::unordered_set<const Node*> constants = constant_nodes(g);
  const std::size_t count = g.nodes.size();
  for (std::size_t k = 0; k < count; ++k) {
    const Node& p = *g.nodes[k];
    const auto* l = p.as<LoopOp>();
    if (!l || constants.count(&p) || !is_cheap(*l, p.outputs[0]->dtype)) continue;
    const Value* v = p.outputs[0];
    const Readers readers = readers_of(g, v, options);
    if (readers.routines.empty()) continue;
    for (Node* reader : readers.loops) {
      auto* loop = reader->as<LoopOp>();
      loop->body = recomputed(loop->body, v, *l);
      refresh_inputs(*reader);
    }
    g.origin = p.origin;
    for (std::size_t r = 1; r < readers.routines.size(); ++r) {
      Value*& input = readers.routines[r].first->inputs[readers.routines[r].second];
      const Exprs vars = vars_of(v->shape);
      std::vector<std::pair<Expr, Expr>> at;
      for (std::size_t d = 0; d < vars.size(); ++d) at.emplace_back(l->vars[d], vars[d]);
      Value* own = g.add_loop(vars, substitute(l->body, at));
      input = input == v ? own : g.add_view(own, input->shape);
    }
    g.origin.clear();
  }
  sort_nodes(g);
}

}  // namespace sardonyx
