#include "fuse/recompute_inputs.h"

#include <algorithm>

#include "graph/analysis.h"

namespace sardonyx {
namespace {

// Operations on elements, of which a function counts as several: about what reading the element again costs.
constexpr int kMostOperations = 16, kOfFunction = 8;
constexpr std::size_t kMostReaders = 2;

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

// The loops that read v besides the routine. Empty if there are none, too many, or readers of another kind.
std::vector<Node*> loops_that_read(const Graph& g, const Value* v, const Node* routine) {
  std::vector<Node*> loops;
  bool others = std::ranges::any_of(g.outputs, [&](const Value* o) { return storage_of(o) == v; });
  for (const auto& n : g.nodes) {
    if (n.get() == routine || n->as<ViewOp>()) continue;
    const auto of_v = [&](const Value* x) { return storage_of(x) == v; };
    if (std::ranges::none_of(n->inputs, of_v)) continue;
    const bool whole = std::ranges::all_of(n->inputs, [&](const Value* x) { return x == v || !of_v(x); });
    others |= !n->as<LoopOp>() || !whole;
    loops.push_back(n.get());
  }
  if (others || loops.size() > kMostReaders) loops.clear();
  return loops;
}

}  // namespace

void recompute_routine_inputs(Graph& g, const FuseOptions& options) {
  const std::unordered_set<const Node*> constants = constant_nodes(g);
  for (const auto& n : g.nodes) {
    if (!n->as<RoutineOp>()) continue;
    for (std::size_t k = 0; k < n->inputs.size(); ++k) {
      const Value* v = storage_of(n->inputs[k]);
      const Node* p = v->producer;
      const auto* l = p ? p->as<LoopOp>() : nullptr;
      std::string why;
      if (!l || v->graph != &g || constants.count(p) || !is_cheap(*l, v->dtype) ||
          !options.computes_input(*n, k, *p, why))
        continue;
      for (Node* reader : loops_that_read(g, v, n.get())) {
        auto* loop = reader->as<LoopOp>();
        loop->body = recomputed(loop->body, v, *l);
        refresh_inputs(*reader);
      }
    }
  }
}

}  // namespace sardonyx
