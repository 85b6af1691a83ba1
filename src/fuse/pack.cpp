// See pack.h.
#include "fuse/pack.h"

#include <algorithm>
#include <map>

#include "fuse/graph_util.h"

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
      } else if (const auto* c = n.as<ConvOp>()) {
        g_.origin = n.origin;
        n.inputs[1] = weights(n.inputs[1], c->transposed);
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
};

}  // namespace

void pack_operands(Graph& g) { Packer(g).run(); }

}  // namespace sardonyx
