// See pack_operands.h.
#include "fuse/pack_operands.h"

#include <algorithm>
#include <map>
#include <optional>
#include <unordered_map>

#include "fuse/windows.h"
#include "graph/analysis.h"

namespace sardonyx {
namespace {

class Packer {
 public:
  explicit Packer(Graph& g) : g_(g), constants_(constant_nodes(g)) {}

  void run() {
    const std::size_t count = g_.nodes.size();
    for (std::size_t k = 0; k < count; ++k) {
      Node& n = *g_.nodes[k];
      if (constants_.count(&n)) continue;
      if (auto* m = n.as<MatMulOp>()) {
        g_.origin = n.origin;
        m->a = operand(m->a, m->k);
        m->b = operand(m->b, m->k);
        refresh_inputs(n);
      } else if (auto* t = n.as<AttentionOp>()) {
        g_.origin = n.origin;
        const Expr k = operand(t->k, t->vars[4]), v = operand(t->v, t->vars[5]);
        if (k.get() == t->k.get() && v.get() == t->v.get()) continue;
        t->k = k;
        t->v = v;
        refresh_inputs(n);
      } else if (const auto* c = n.as<ConvOp>()) {
        g_.origin = n.origin;
        n.inputs[1] = weights(n.inputs[1], c->transposed);
      } else if (auto* l = n.as<LoopOp>()) {
        g_.origin = n.origin;
        if (l->body->has_reduce) {
          l->body = window_weights(*l, n.outputs[0]);
          refresh_inputs(n);
        } else if (reads_its_inputs(n, *l)) {
          l->body = gathered_lines(*l, n.outputs[0]);
          refresh_inputs(n);
        }
      }
    }
    g_.origin.clear();
    sort_nodes(g_);
  }

 private:
  bool constant(const Value* v) const { return v->producer && v->graph == &g_ && constants_.count(v->producer) > 0; }

  Value* packed(Value* v, const std::vector<int>& order) {
    Value*& copy = copies_[{v->id, order}];
    if (copy) return copy;
    Exprs vars;
    for (const Expr& d : v->shape) vars.push_back(loop_var(d));
    copy = g_.add_node(LoopOp{vars, load(v, v->dtype, vars)}, {v}, {{v->dtype, v->shape}})->outputs[0];
    copy->storage_order = order;
    return copy;
  }

  Expr operand(const Expr& e, const Expr& k) {
    if (e->op != Op::kLoad || !constant(e->value) || !e->value->storage_order.empty()) return e;
    const int rank = e->value->rank();
    int at = -1;
    for (int d = 0; d < rank; ++d)
      if (same(e->args[static_cast<std::size_t>(d)], k)) at = d;
    if (at < 0 || at == rank - 1) return e;
    std::vector<int> order;
    for (int d = 0; d < rank; ++d)
      if (d != at) order.push_back(d);
    order.push_back(at);
    Value* copy = packed(const_cast<Value*>(e->value), order);
    return load(copy, copy->dtype, e->args);
  }

  // The variable along which neighbouring elements of a loop's result, or of its only transposed copy, are stored;
  // empty if it has one element.
  Expr inner_of(const LoopOp& l, const Value* out) {
    std::vector<int> order = out->storage_order;
    if (order.empty())
      for (int d = 0; d < out->rank(); ++d) order.push_back(d);
    while (!order.empty() && is_const(out->shape[static_cast<std::size_t>(order.back())], 1)) order.pop_back();
    return order.empty() ? Expr() : l.vars[innermost(out, static_cast<std::size_t>(order.back()))];
  }

  // Whether all inputs are tensors that the body names: of an epilogue, some may be copies of these in another order.
  static bool reads_its_inputs(const Node& n, const LoopOp& l) {
    const std::vector<Value*> loads = loads_of(l.body);
    return std::ranges::all_of(n.inputs, [&](const Value* i) { return std::ranges::find(loads, i) != loads.end(); });
  }

  // Constants of which neighbouring outputs read the same places of other lines (channels of an image that is sampled):
  // reordered so that these are neighbours.
  Expr gathered_lines(const LoopOp& l, const Value* out) {
    bool gathers = false;
    visit(l.body, [&](const Expr& x) { gathers = gathers || is_gather(x); });
    const Expr inner = gathers ? inner_of(l, out) : Expr();
    if (!inner) return l.body;
    return rewrite(l.body, [&](const Expr& x) -> Expr {
      if (!x->has_load) return x;
      return is_gather(x) ? operand(x, inner) : Expr();
    });
  }

  static bool is_gather(const Expr& x) {
    return x->op == Op::kLoad && x->args.size() > 1 &&
           std::ranges::any_of(x->args, [](const Expr& i) { return i->has_load; });
  }

  // Weights of windows (depthwise convolutions) that neighbouring outputs of a loop read at a stride: reordered so that
  // neighbouring outputs read neighbouring weights, and packs can be loaded.
  Expr window_weights(const LoopOp& l, const Value* out) {
    const Expr inner = inner_of(l, out);
    if (!inner) return l.body;
    return rewrite(l.body, [&](const Expr& x) -> Expr {
      if (!x->has_reduce) return x;
      if (x->op != Op::kReduce || !is_window(x, inner)) return Expr();
      const Expr body =
          rewrite(x->args[0], [&](const Expr& e) -> Expr { return e->op == Op::kLoad ? operand(e, inner) : Expr(); });
      return body.get() == x->args[0].get() ? x : reduce(static_cast<ReduceKind>(x->i), x->vars, body);
    });
  }

  // The dim of `v` along which its consumers' elements are contiguous in memory: its own innermost one, or that of a
  // transposed copy that is its only reader.
  std::size_t innermost(const Value* v, std::size_t dim) {
    if (users_.empty())
      for (const auto& n : g_.nodes)
        for (const Value* i : n->inputs) {
          std::vector<const Node*>& list = users_[i];
          if (list.empty() || list.back() != n.get()) list.push_back(n.get());
        }
    const auto found = users_.find(v);
    const Node* user = found != users_.end() && found->second.size() == 1 ? found->second[0] : nullptr;
    const auto* l = user ? user->as<LoopOp>() : nullptr;
    // A longer result (a stack that v is a part of) is computed by a kernel of its own.
    if (!l || l->body->has_reduce || !user->outputs[0]->storage_order.empty() ||
        !idx::provably_equal(user->outputs[0]->elements(), v->elements()))
      return dim;
    std::size_t last = l->vars.size();
    while (last > 0 && is_const(l->vars[last - 1]->args[0], 1)) --last;
    if (last == 0) return dim;
    std::optional<std::size_t> at;
    bool same_all = true;
    visit(l->body, [&](const Expr& x) {
      if (x->op != Op::kLoad || x->value != v) return;
      for (std::size_t d = 0; d < x->args.size(); ++d)
        if (same(x->args[d], l->vars[last - 1])) {
          same_all &= !at || *at == d;
          at = d;
        }
    });
    return at && same_all ? *at : dim;
  }

  // Whether neighbouring outputs, along `inner`, are computed side by side: windows of several dims, and of one dim if
  // something else than weights is read along `inner` too. (Other reductions of one variable run along rows.)
  bool is_window(const Expr& r, const Expr& inner) const {
    std::int64_t all = 1, n = 0;
    for (const Expr& v : r->vars) {
      if (!is_const_int(v->args[0], n) || n > kMostTaps) return false;
      all *= std::max<std::int64_t>(n, 1);
      if (all > kMostTaps) return false;
    }
    if (r->vars.size() > 1) return true;
    bool beside = false;
    visit(r->args[0], [&](const Expr& x) {
      if (x->op != Op::kLoad || x->args.empty() || constant(x->value)) return;
      const std::vector<int>& order = x->value->storage_order;
      const std::size_t last = order.empty() ? x->args.size() - 1 : static_cast<std::size_t>(order.back());
      beside |= same(x->args[last], inner) && mentions(x, r->vars[0]);
    });
    return beside;
  }

  Value* weights(Value* w, bool transposed) {
    if (!constant(w) || !w->storage_order.empty()) return w;
    const int channels = transposed ? 0 : 1;
    std::vector<int> order = {1 - channels};
    bool moves = false;
    for (int d = 2; d < w->rank(); ++d) {
      order.push_back(d);
      moves |= !is_const(w->shape[static_cast<std::size_t>(d)], 1);
    }
    order.push_back(channels);
    return moves || transposed ? packed(w, order) : w;
  }

  Graph& g_;
  std::unordered_set<const Node*> constants_;
  std::map<std::pair<int, std::vector<int>>, Value*> copies_;
  std::unordered_map<const Value*, std::vector<const Node*>> users_;  // filled on first use
};

}  // namespace

void pack_operands(Graph& g) { Packer(g).run(); }

}  // namespace sardonyx
