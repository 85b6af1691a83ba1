// A tile kernel takes over the loop that follows it if that loop is the only user of its result, reads each element at
// the position that it writes, and the device can evaluate it there.
#include "fuse/epilogues.h"

#include <algorithm>

#include "fuse/byte_stores.h"
#include "graph/analysis.h"

namespace sardonyx {
namespace {

// All loads of `t` in the body are at the loop's own position (the same row-major offset); with `pairs`, at the two
// positions 2 * offset and 2 * offset + 1.
bool reads_in_place(const LoopOp& l, const Value* t, const Value* out, bool pairs = false) {
  const Expr here = idx::linearize(l.vars, out->shape);
  bool ok = true, any = false;
  visit(l.body, [&](const Expr& x) {
    if (x->op != Op::kLoad || storage_of(x->value) != t) return;
    any = true;
    const Expr at = idx::linearize(x->args, x->value->shape);
    if (pairs)
      ok &= idx::provably_equal(at, here * Expr(2)) || idx::provably_equal(at, here * Expr(2) + 1);
    else
      ok &= idx::provably_equal(at, here);
  });
  return ok && any;
}

class Finder {
 public:
  Finder(Graph& g, const FuseOptions& options) : g_(g), options_(options), bytes_(g), constants_(constant_nodes(g)) {
    for (const auto& n : g.nodes) {
      if (n->as<ViewOp>()) continue;
      for (Value* v : n->inputs) {
        auto& list = users_[storage_of(v)];
        if (std::find(list.begin(), list.end(), n.get()) == list.end()) list.push_back(n.get());
      }
    }
    for (Value* v : g.outputs) outputs_.insert(storage_of(v));
  }

  std::vector<Epilogue> run() {
    std::vector<Epilogue> found;
    for (const auto& n : g_.nodes) {
      if (!(n->as<MatMulOp>() || n->as<ConvOp>() || n->as<AttentionOp>()) || constants_.count(n.get())) continue;
      Epilogue e;
      e.kernel.node = n.get();
      e.kernel.out = n->outputs[0];
      e.kernel.vars = vars_of(n->outputs[0]->shape);
      const std::string why = grow(e);
      if (!why.empty())
        remark(options_, "epilogues", n->origin, [&] { return why; },
               {{"fused loops", std::to_string(e.loops.size())}});
      if (!e.loops.empty()) found.push_back(std::move(e));
    }
    return found;
  }

 private:
  // Moves loops into the epilogue as long as possible; returns why it ended.
  std::string grow(Epilogue& e) {
    for (;;) {
      const Value* current = e.kernel.out;
      if (outputs_.count(current)) return "its result is an output of the graph";
      if (bytes_.stores(current)) return "";  // what reads it dequantises it
      const std::vector<Node*>& users = users_[current];
      if (users.empty()) return "";
      if (users.size() > 1) return fmt::format("{} nodes read its result", users.size());
      Node* next = users[0];
      const auto* l = next->as<LoopOp>();
      if (!l) return "";  // a tile kernel or routine: nothing to fuse
      if (taken_.count(next)) return fmt::format("'{}' is the epilogue of another tile kernel", next->origin);
      if (l->body->has_reduce) return fmt::format("'{}' is a reduction", next->origin);
      std::string why;
      TileKernel longer =
          is_pair(e.kernel, *l, *next->outputs[0]) ? with_pairs(e.kernel, *next) : with_loop(e.kernel, *next);
      if (!longer.epilogue) return fmt::format("'{}' reads its result at other positions than it writes", next->origin);
      if (!options_.accepts_epilogue || !options_.accepts_epilogue(longer, why))
        return fmt::format("'{}' does not run as an epilogue{}{}", next->origin, why.empty() ? "" : ": ", why);
      e.kernel = std::move(longer);
      e.loops.push_back(next);
      taken_.insert(next);
    }
  }

  // Whether the loop reads pairs of adjacent columns of a matmul (fuse/gated_gemm.h).
  bool is_pair(const TileKernel& k, const LoopOp& l, const Value& out) const {
    const Value* t = k.node->outputs[0];
    return options_.gated_gemm && k.node->as<MatMulOp>() && k.out == t && out.rank() == t->rank() &&
           idx::provably_equal(t->shape.back(), out.shape.back() * Expr(2)) &&
           idx::provably_equal(t->elements(), out.elements() * Expr(2)) && reads_in_place(l, t, &out, true);
  }

  static TileKernel with_pairs(const TileKernel& k, const Node& next) {
    TileKernel pair = k;
    pair.pairs = true;
    pair.out = next.outputs[0];
    pair.vars = next.as<LoopOp>()->vars;
    pair.epilogue = next.as<LoopOp>()->body;
    return pair;
  }

  // The kernel with `next` in its epilogue, whose body is rewritten over the kernel's variables with the result so far
  // in place of its loads. Without epilogue if the loop reads other positions.
  static TileKernel with_loop(const TileKernel& k, const Node& next) {
    const auto* l = next.as<LoopOp>();
    TileKernel longer = k;
    longer.epilogue = Expr();
    const Value *current = k.out, *out = next.outputs[0];
    if (!idx::provably_equal(current->elements(), out->elements()) || !reads_in_place(*l, current, out)) return longer;
    Exprs extents;
    for (const Expr& v : k.vars) extents.push_back(v->args[0]);
    const Exprs at = idx::delinearize(idx::linearize(k.vars, extents), out->shape);
    std::vector<std::pair<Expr, Expr>> r;
    for (std::size_t d = 0; d < l->vars.size(); ++d) r.emplace_back(l->vars[d], at[d]);
    const Value* t = k.node->outputs[0];
    const Expr so_far = k.epilogue ? k.epilogue : load(t, t->dtype, k.vars);
    longer.epilogue = rewrite(substitute(l->body, r), [&](const Expr& x) -> Expr {
      if (!x->has_load) return x;
      if (x->op == Op::kLoad && storage_of(x->value) == current) return so_far;
      return Expr();
    });
    longer.out = next.outputs[0];
    return longer;
  }

  Graph& g_;
  const FuseOptions& options_;
  const ByteStores bytes_;
  const std::unordered_set<const Node*> constants_;
  std::unordered_map<const Value*, std::vector<Node*>> users_;  // by storage; views are not users
  std::unordered_set<const Value*> outputs_;
  std::unordered_set<const Node*> taken_;  // the sum of two convolutions is the epilogue of one of them
};

}  // namespace

std::vector<Epilogue> find_epilogues(Graph& g, const FuseOptions& options) { return Finder(g, options).run(); }

}  // namespace sardonyx
