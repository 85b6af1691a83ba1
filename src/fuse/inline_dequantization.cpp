// See inline_dequantization.h.
#include "fuse/inline_dequantization.h"

#include <algorithm>

#include "graph/analysis.h"

namespace sardonyx {
namespace {

constexpr std::size_t kMaxNodes = 80;  // of a body that is evaluated for each element that is read

// Why this loop is not a dequantisation; null if it is.
const char* obstacle(const Node& n) {
  const auto* l = n.as<LoopOp>();
  if (!l || !is_float(n.outputs[0]->dtype)) return "it does not compute floats";
  if (l->body->has_reduce) return "it contains a reduction, which the GEMM would repeat";
  std::size_t nodes = 0;
  visit(l->body, [&](const Expr&) { ++nodes; });
  if (nodes > kMaxNodes) return "its expression is too large to be evaluated for each element that is read";
  std::int64_t out = 0, in = 0;
  if (!is_const_int(n.outputs[0]->elements(), out)) return "its size is not known when compiling";
  for (const Value* v : loads_of(l->body)) {
    std::int64_t count = 0;
    if (!is_const_int(v->elements(), count)) return "the size of what it reads is not known when compiling";
    in += count * static_cast<std::int64_t>(size_of(v->dtype));
  }
  const bool expands = in > 0 && out * static_cast<std::int64_t>(size_of(n.outputs[0]->dtype)) * 10 > in * 15;
  return expands ? nullptr : "it reads nearly as many bytes as it writes";
}

// Whether a loop reads elements of 8 bits or fewer, as dequantisations do.
bool reads_small_integers(const Node& n) {
  const auto* l = n.as<LoopOp>();
  const auto loads = l ? loads_of(l->body) : std::vector<Value*>();
  return std::any_of(loads.begin(), loads.end(),
                     [](const Value* v) { return size_of(v->dtype) == 1 && v->dtype != DType::kBool; });
}

Expr inlined(const Expr& e, Node& user, const FuseOptions& options) {
  if (e->op != Op::kLoad || !e->value->producer || e->value->graph != user.outputs[0]->graph) return e;
  const Node& p = *e->value->producer;
  if (const char* why = obstacle(p)) {
    if (reads_small_integers(p))
      remark(options, "inline_dequantization", p.origin, [&] { return std::string(why); }, {{"into", user.origin}});
    return e;
  }
  const auto* l = p.as<LoopOp>();
  std::vector<std::pair<Expr, Expr>> r;
  for (std::size_t k = 0; k < e->args.size(); ++k) r.emplace_back(l->vars[k], e->args[k]);
  user.origin = join_origins(p.origin, user.origin);
  return substitute(l->body, r);
}

}  // namespace

bool is_dequantization(const Node& n) { return obstacle(n) == nullptr; }

void inline_dequantization(Graph& g, const FuseOptions& options) {
  for (const auto& n : g.nodes) {
    auto* m = n->as<MatMulOp>();
    if (!m) continue;
    m->a = inlined(m->a, *n, options);
    m->b = inlined(m->b, *n, options);
    refresh_inputs(*n);
  }
  remove_dead_nodes(g);
}

}  // namespace sardonyx
