// Layout assignment. Values keep their logical shape; only the order of their dims in memory changes, and loads follow
// it. So no transposes are needed between convolutions and the loops around them: a loop iterates over its output in
// that output's order.
#include "fuse/layouts.h"

#include <algorithm>

#include "fuse/attention_operands.h"
#include "fuse/compute_views.h"
#include "fuse/layout_queries.h"
#include "graph/analysis.h"

namespace sardonyx {
namespace {

// Materialises what `body` loads of v, over `vars`, in an order of its own, right before `user`.
Value* add_loop(Graph& g, Value* v, const Exprs& vars, const Expr& body, const std::vector<int>& order,
                const Node* user) {
  Exprs shape;
  for (const Expr& x : vars) shape.push_back(x->args[0]);
  const std::string saved = g.origin;
  g.origin = user ? user->origin : v->producer ? v->producer->origin : "";
  Node* n = g.add_node(LoopOp{vars, body}, {v}, {{v->dtype, shape}});
  g.origin = saved;
  n->outputs[0]->storage_order = order;
  if (user) {
    auto at = std::find_if(g.nodes.begin(), g.nodes.end(), [&](const auto& p) { return p.get() == user; });
    std::rotate(at, g.nodes.end() - 1, g.nodes.end());
  }
  return n->outputs[0];
}

// A copy of v in another order.
Value* add_copy(Graph& g, Value* v, const std::vector<int>& order, const Node* user) {
  Exprs vars;
  for (const Expr& d : v->shape) vars.push_back(loop_var(d));
  return add_loop(g, v, vars, load(v, v->dtype, vars), order, user);
}

// Finds values that stay row-major because something other than kernels reads them. `soft`: graph outputs, which can be
// copied instead. `viewed`: values of which matmul or attention reads a view, which can become a copy.
void fixed_values(const Graph& g, const FuseOptions& options, std::unordered_set<const Value*>& fixed,
                  std::unordered_set<const Value*>& soft, std::unordered_set<const Value*>& viewed) {
  for (Value* v : g.outputs) (g.parent() ? fixed : soft).insert(storage_of(v));
  for (const auto& n : g.nodes) {
    if (n->as<RoutineOp>() || n->as<BindOp>() || n->as<IfOp>() || n->as<WhileOp>())
      for (Value* v : n->inputs) fixed.insert(storage_of(v));
    const auto* m = n->as<MatMulOp>();
    if (m || n->as<AttentionOp>())
      for (Value* v : n->inputs)
        if (!only_channels(storage_of(v)) &&
            !(m && options.operands_in_any_order && storage_of(v) == v && sums_channels(*m, v)))
          (storage_of(v) == v ? fixed : viewed).insert(storage_of(v));
    if (n->as<ConvOp>())
      for (std::size_t k = 1; k < n->inputs.size(); ++k) fixed.insert(storage_of(n->inputs[k]));
  }
}

class LayoutChooser {
 public:
  LayoutChooser(Graph& g, std::vector<Epilogue>& epilogues, const FuseOptions& options)
      : g_(g), epilogues_(epilogues), options_(options), constants_(constant_nodes(g)) {}

  void run() {
    find_fixed();
    compute_images();
    choose_orders();
    follow_transposes();
    read_operands_in_place();
    order_operands_of_attention();
    order_operands_of_gemms();
    order_transposed_rows();
    copy_for_convolutions();
    for (Value*& v : g_.outputs)
      if (!v->storage_order.empty() && !only_channels(v)) v = add_copy(g_, v, {}, nullptr);
    correct_views();
    sort_nodes(g_);  // copies of an epilogue's operands stand before its convolution, constants may stand behind it
  }

 private:
  // Which values stay row-major, and which a convolution reads.
  void find_fixed() {
    std::unordered_set<const Value*> viewed;
    fixed_values(g_, options_, fixed_, soft_, viewed);
    for (Epilogue& e : epilogues_) {
      tiles_[e.kernel.node] = &e;
      absorbed_.insert(e.loops.begin(), e.loops.end());
      if (e.kernel.node->as<ConvOp>())
        visit(e.kernel.epilogue, [&](const Expr& x) {
          // What is loaded transposed has the convolution's order if it stays row-major.
          if (x->op == Op::kLoad && !is_permuted(x, e.kernel.vars) && !reads_vectors(x, e.kernel))
            wanted_.insert(x->value);
        });
      else
        for (Value* v : loads_of(e.kernel.epilogue))
          if (e.kernel.node->as<AttentionOp>() || !options_.epilogues_in_any_order || storage_of(v) != v ||
              !along_channels(e.kernel, v))
            fixed_.insert(storage_of(v));
    }
    // A copy costs less than a convolution that stays row-major, for which oneDNN has only a general kernel.
    std::unordered_set<const Value*> images;
    for (const auto& n : g_.nodes) {
      if (!n->as<ConvOp>()) continue;
      wanted_.insert(n->inputs[0]);
      const auto it = tiles_.find(n.get());
      if (options_.copy_viewed_images) images.insert(it == tiles_.end() ? n->outputs[0] : it->second->kernel.out);
    }
    for (const Value* v : viewed)
      if (!images.count(v)) fixed_.insert(v);
  }

  // Tokens that a model transposes and then views as an image: the view becomes the loop, so that it can be channels
  // last, which is often how the tokens are in memory.
  void compute_images() {
    const Uses uses = uses_of(g_);
    for (const auto& n : g_.nodes)
      if (n->as<ViewOp>() && wanted_.count(n->outputs[0]) && !fixed_.count(storage_of(n->outputs[0])))
        compute_view_of(n->outputs[0], uses);
  }

  // Channels last for convolutions, what they read, and loops that read such values in place.
  void choose_orders() {
    const std::unordered_set<const Value*> windows = windows_read_along_channels(g_);
    Uses uses = uses_of(g_);
    for (const auto& n : g_.nodes) {
      if (constants_.count(n.get()) || absorbed_.count(n.get())) continue;
      if (n->as<ConvOp>()) {
        choose_convolution(*n);
        continue;
      }
      const auto* l = n->as<LoopOp>();
      Value* out = n->outputs.empty() ? nullptr : n->outputs[0];
      // An image with a dim divided is still the same memory with its channels last. See correct_views().
      if (n->as<ViewOp>() && wanted_.count(out) && out->rank() > 2 && !n->inputs[0]->storage_order.empty() &&
          std::ranges::all_of(uses[out], [](const Node* u) { return u->as<ConvOp>() || u->as<LoopOp>(); }))
        out->storage_order = channels_last(out->rank());
      if (!l || fixed_.count(out) || soft_.count(out) || out->rank() < 2) continue;
      if (l->body->has_reduce) out->storage_order = order_of_remaining(*l);
      if (out->rank() < 3 || !out->storage_order.empty()) continue;
      bool wants = wanted_.count(out) > 0 || windows.count(out) > 0;
      if (!wants)
        for (const Value* v : n->inputs)
          wants |= !v->storage_order.empty() && v->rank() == out->rank() && in_place_order(*l, v);
      if (wants)
        out->storage_order = channels_last(out->rank());
      else if (!l->body->has_reduce && std::ranges::none_of(uses[out], [](const Node* u) { return u->as<ViewOp>(); }))
        out->storage_order = order_of_stack(*l);
    }
  }

  void choose_convolution(const Node& n) {
    Value* out = n.outputs[0];
    const auto it = tiles_.find(&n);
    Value* last = it == tiles_.end() ? out : it->second->kernel.out;
    const std::vector<int> order = same_order(out, last);
    // A single channel is last in either order, whatever the epilogue writes.
    if (is_const(out->shape[1], 1) && last != out && order.empty()) {
      out->storage_order = channels_last(out->rank());
      return;
    }
    if (fixed_.count(last) || fixed_.count(out) || order.empty() || last->rank() < 3) {
      remark(options_, "layouts", n.origin, [&]() -> std::string {
        if (fixed_.count(last) || fixed_.count(out))
          return "stays row-major: a routine, matmul or nested graph reads it";
        return "stays row-major: its epilogue writes another shape";
      });
      return;
    }
    out->storage_order = channels_last(out->rank());
    last->storage_order = order;
  }

  // Attention writes in the order in which a transpose after it reads, if the device's kernel can.
  void follow_transposes() {
    const Uses uses = uses_of(g_);
    for (const auto& n : g_.nodes) {
      const auto* l = n->as<LoopOp>();
      if (!l || l->body->op != Op::kLoad || absorbed_.count(n.get())) continue;
      if (!uses.count(n->outputs[0]) && !soft_.count(n->outputs[0])) continue;  // a view of it is computed instead
      Value* v = const_cast<Value*>(l->body->value);
      if (!v->producer || v->graph != &g_ || fixed_.count(v) || soft_.count(v) || !v->storage_order.empty()) continue;
      const Epilogue* epilogue = attention_before(v);
      if (!epilogue && !v->producer->as<AttentionOp>()) continue;
      std::vector<int> order;
      for (const Expr& var : l->vars)
        for (std::size_t k = 0; k < l->body->args.size(); ++k)
          if (same(var, l->body->args[k])) order.push_back(static_cast<int>(k));
      if (order.size() != v->shape.size() || l->vars.size() != v->shape.size()) continue;
      v->storage_order = order;
      std::string why;
      const bool accepted = epilogue ? !options_.accepts_layout || options_.accepts_layout(epilogue->kernel, why)
                                     : !options_.accepts_tile || options_.accepts_tile(*v->producer, why);
      if (!accepted) v->storage_order.clear();
    }
  }

  // The attention whose epilogue computes v; null if none does.
  const Epilogue* attention_before(const Value* v) const {
    for (const Epilogue& e : epilogues_)
      if (e.kernel.out == v && e.kernel.node->as<AttentionOp>()) return &e;
    return nullptr;
  }

  // Attention reads queries, keys and values where a convolution with channels last has them, not a copy by heads.
  void read_operands_in_place() {
    if (!options_.operands_in_any_order) return;
    for (const auto& n : g_.nodes)
      if (auto* a = n->as<AttentionOp>()) {
        read_ordered_rows(*a, [&](const Node* p) { return absorbed_.count(p) || constants_.count(p); });
        refresh_inputs(*n);
      }
  }

  // A loop whose result only attention reads, if through a view, with the elements of a head far apart (keys that the
  // model has transposed), stores each head's elements side by side.
  void order_operands_of_attention() {
    if (!options_.operands_in_any_order) return;
    const Uses uses = uses_of(g_);
    for (const auto& n : g_.nodes) {
      const auto* a = n->as<AttentionOp>();
      if (!a) continue;
      for (const auto& [operand, element] : {std::pair(a->q, a->vars[4]), {a->k, a->vars[4]}, {a->v, a->vars[5]}}) {
        if (operand->op != Op::kLoad) continue;
        auto* v = const_cast<Value*>(operand->value);
        if (v->graph != &g_ || !v->storage_order.empty() || soft_.count(v)) continue;
        const std::vector<Node*>& users = uses.at(v);
        if (users.size() == 1 && !same(operand->args.back(), element)) compute_view_of(v, uses);
        const Node* producer = v->producer;
        if (!producer || !producer->as<LoopOp>() || absorbed_.count(producer) || constants_.count(producer)) continue;
        std::vector<int> order;
        int last = -1;
        for (int k = 0; k < v->rank(); ++k) {
          if (same(operand->args[static_cast<std::size_t>(k)], element))
            last = k;
          else
            order.push_back(k);
        }
        if (last < 0 || last + 1 == v->rank()) continue;
        if (!std::all_of(users.begin(), users.end(), [&](const Node* u) { return inner_dim(*u, v) == last; })) continue;
        order.push_back(last);
        v->storage_order = order;
      }
    }
  }

  // The dim of v along which attention reads the elements of a head; -1 if there is none.
  static int head_dim(const Node& attention, const Value* v) {
    const auto& a = *attention.as<AttentionOp>();
    for (const auto& [operand, element] : {std::pair(a.q, a.vars[4]), {a.k, a.vars[4]}, {a.v, a.vars[5]}})
      for (std::size_t k = 0; operand->op == Op::kLoad && operand->value == v && k < operand->args.size(); ++k)
        if (same(operand->args[k], element)) return static_cast<int>(k);
    return -1;
  }

  // A loop whose result only GEMMs read, along K in one dim (keys that the model has transposed), and most of whose own
  // operands' elements are contiguous along that dim, stores it innermost: in the other order it would write or read
  // single elements.
  void order_operands_of_gemms() {
    if (!options_.operands_in_any_order) return;
    const Uses uses = uses_of(g_);
    for (const auto& n : g_.nodes) {
      const auto* m = n->as<MatMulOp>();
      if (!m) continue;
      for (const Expr& operand : {m->a, m->b}) {
        if (operand->op != Op::kLoad) continue;
        auto* v = const_cast<Value*>(operand->value);
        if (v->graph != &g_ || !v->storage_order.empty() || soft_.count(v) || v->rank() < 2) continue;
        if (same(operand->args.back(), m->k)) continue;
        if (uses.at(v).size() == 1) compute_view_of(v, uses);
        const Node* producer = v->producer;
        const auto* l = producer ? producer->as<LoopOp>() : nullptr;
        if (!l || l->body->has_reduce || absorbed_.count(producer) || constants_.count(producer)) continue;
        const int inner = summed_dim(*n, v);
        if (inner < 0 || inner + 1 == v->rank() || !most_along(*l, inner)) continue;
        const std::vector<Node*>& users = uses.at(v);
        if (!std::all_of(users.begin(), users.end(), [&](const Node* u) { return summed_dim(*u, v) == inner; }))
          continue;
        for (int k = 0; k < v->rank(); ++k)
          if (k != inner) v->storage_order.push_back(k);
        v->storage_order.push_back(inner);
      }
    }
  }

  // A loop whose result others reduce along one dim, which a transpose then makes the last one (scores with the heads
  // last, of which a GEMM reads the softmax by heads), stores it as that transpose reads it: rows become contiguous.
  void order_transposed_rows() {
    if (!options_.operands_in_any_order) return;
    const Uses uses = uses_of(g_);
    for (const auto& n : g_.nodes) {
      const auto* l = n->as<LoopOp>();
      Value* v = n->outputs.empty() ? nullptr : n->outputs[0];
      if (!l || l->body->has_reduce || fixed_.count(v) || soft_.count(v) || !v->storage_order.empty()) continue;
      if (absorbed_.count(n.get()) || constants_.count(n.get()) || !uses.count(v)) continue;
      const std::vector<int> order = order_of_transposes(uses.at(v), v);
      if (!order.empty() && most_along(*l, order.back())) v->storage_order = order;
    }
  }

  // The dim of v that attention or a GEMM wants to be contiguous; -1 if there is none.
  static int inner_dim(const Node& user, const Value* v) {
    return user.as<AttentionOp>() ? head_dim(user, v) : summed_dim(user, v);
  }

  // The dim of v that a GEMM sums over wherever an operand is v; -1 if there is none, or it is read in another way too.
  static int summed_dim(const Node& gemm, const Value* v) {
    const auto* m = gemm.as<MatMulOp>();
    int dim = -1;
    if (!m) return dim;
    for (const Expr& operand : {m->a, m->b}) {
      if (operand->op != Op::kLoad || operand->value != v) {
        const auto loads = loads_of(operand);
        if (std::find(loads.begin(), loads.end(), v) != loads.end()) return -1;
        continue;
      }
      int here = -1;
      for (std::size_t k = 0; k < operand->args.size(); ++k) {
        if (same(operand->args[k], m->k) && here < 0)
          here = static_cast<int>(k);
        else if (mentions(operand->args[k], m->k))
          return -1;
      }
      if (here < 0 || (dim >= 0 && dim != here)) return -1;
      dim = here;
    }
    return dim;
  }

  // Makes a view of a loop's result, which nothing else reads, that loop itself.
  void compute_view_of(Value* v, const Uses& uses) {
    if (!v->producer || !v->producer->as<ViewOp>()) return;
    Value* source = v->producer->inputs[0];
    const Node* p = source->producer;
    const auto* l = p ? p->as<LoopOp>() : nullptr;
    if (!l || l->body->has_reduce || source->graph != &g_ || absorbed_.count(p) || constants_.count(p) ||
        soft_.count(source) || uses.at(source).size() != 1 || p->outputs.size() != 1 || source->dtype != v->dtype)
      return;
    compute_view(*v->producer);
  }

  // Adds copies where orders differ: inputs of convolutions, operands of their epilogues.
  void copy_for_convolutions() {
    std::vector<Node*> convs;
    for (const auto& n : g_.nodes)
      if (n->as<ConvOp>() && !constants_.count(n.get())) convs.push_back(n.get());
    for (Node* n : convs) {
      Value* x = n->inputs[0];
      // The host's convolutions of integers read channels last, whatever the result's order is.
      const bool last = !n->outputs[0]->storage_order.empty() || x->dtype == DType::kUInt8;
      // A convolution that stays row-major may read channels last in vectors; the other way round it could not.
      const bool readable = options_.operands_in_any_order && !last;
      if (last != !x->storage_order.empty() && x->rank() >= 3 && !only_channels(x) && !readable)
        n->inputs[0] = copy_for(x, n, last);
      if (const auto it = tiles_.find(n); it != tiles_.end()) {
        reorder_transposed_operands(*n, *it->second);
        copy_operands(*n, *it->second);
      }
    }
  }

  // Whether an epilogue's load reads contiguous memory along its columns, so that it needs no copy.
  bool reads_vectors(const Expr& load, const TileKernel& k) const {
    return options_.epilogues_in_any_order && k.vars.size() >= 3 && !is_const(k.vars[1]) &&
           vectors_of_channels(load, k.vars);
  }

  bool only_vectors(const TileKernel& k, const Value* v) const {
    bool all = !k.out->storage_order.empty();
    visit(k.epilogue,
          [&](const Expr& x) { all = all && (x->op != Op::kLoad || x->value != v || reads_vectors(x, k)); });
    return all;
  }

  // One copy for all users: channels last, or else row-major.
  Value* copy_for(Value* v, const Node* user, bool last) {
    Value*& c = (last ? last_copy_ : row_copy_)[v];
    if (!c) c = add_copy(g_, v, last ? channels_last(v->rank()) : std::vector<int>(), user);
    return c;
  }

  // The last loop of an epilogue lists what the whole epilogue loads.
  static void add_input(const Epilogue& e, Value* v) {
    Node* tail = e.loops.back();
    if (std::find(tail->inputs.begin(), tail->inputs.end(), v) == tail->inputs.end()) tail->inputs.push_back(v);
  }

  // Operands that the epilogue loads transposed: copied in the output's order, which may be how they are stored.
  void reorder_transposed_operands(const Node& n, Epilogue& tile) {
    TileKernel& k = tile.kernel;
    if (k.vars.size() != k.out->shape.size()) return;
    k.epilogue = rewrite(k.epilogue, [&](const Expr& e) -> Expr {
      if (!e->has_load) return e;
      if (e->op != Op::kLoad || e->value == n.outputs[0] || !is_permuted(e, k.vars) ||
          (!k.out->storage_order.empty() && reads_vectors(e, k)))
        return {};
      Exprs vars;
      std::vector<std::pair<Expr, Expr>> to;
      for (std::size_t d = 0; d < k.vars.size(); ++d) {
        vars.push_back(loop_var(k.out->shape[d]));
        if (!is_const(k.vars[d])) to.emplace_back(k.vars[d], vars.back());
      }
      auto* v = const_cast<Value*>(e->value);
      Value* c = add_loop(g_, v, vars, substitute(e, to), k.out->storage_order, &n);
      add_input(tile, c);
      return load(c, c->dtype, k.vars);
    });
  }

  void copy_operands(const Node& n, Epilogue& tile) {
    TileKernel& k = tile.kernel;
    for (Value* v : loads_of(k.epilogue)) {
      if (v == n.outputs[0] || v->rank() != k.out->rank() || v->storage_order == k.out->storage_order ||
          only_channels(v) || only_vectors(k, v))
        continue;
      Value* c = copy_for(v, &n, !k.out->storage_order.empty());
      k.epilogue = rewrite(k.epilogue, [&](const Expr& e) -> Expr {
        if (!e->has_load) return e;
        return e->op == Op::kLoad && e->value == v ? load(c, c->dtype, e->args) : Expr();
      });
      add_input(tile, c);
    }
  }

  // A view of a value in another order becomes a copy; a copy with the memory order of its source becomes a view.
  void correct_views() {
    for (const auto& n : g_.nodes) {
      if (const auto* l = n->as<LoopOp>();
          l && l->body->op == Op::kLoad && !absorbed_.count(n.get()) && !constants_.count(n.get())) {
        Value* source = const_cast<Value*>(l->body->value);
        Value* out = n->outputs[0];
        if (source->dtype == out->dtype && source->graph == &g_ &&
            idx::provably_equal(source->elements(), out->elements()) &&
            idx::provably_equal(memory_offset(*source, l->body->args), memory_offset(*out, l->vars))) {
          n->op = ViewOp{};
          n->inputs = {source};
        }
        continue;
      }
      if (!n->as<ViewOp>()) continue;
      Value* source = n->inputs[0];
      if (source->storage_order.empty() || only_channels(source)) continue;
      const Value* out = n->outputs[0];
      const Exprs vars = vars_of(out->shape), at = idx::delinearize(idx::linearize(vars, out->shape), source->shape);
      if (idx::provably_equal(memory_offset(*source, at), memory_offset(*out, vars))) continue;
      n->op = LoopOp{vars, load(source, source->dtype, at)};
      refresh_inputs(*n);
    }
  }

  Graph& g_;
  std::vector<Epilogue>& epilogues_;
  const FuseOptions& options_;
  const std::unordered_set<const Node*> constants_;
  std::unordered_set<const Value*> fixed_, soft_;       // see fixed_values()
  std::unordered_set<const Value*> wanted_;             // read by convolutions
  std::unordered_map<const Node*, Epilogue*> tiles_;    // with an epilogue
  std::unordered_set<const Node*> absorbed_;            // loops that are part of an epilogue
  std::unordered_map<const Value*, Value*> last_copy_;  // channels last
  std::unordered_map<const Value*, Value*> row_copy_;   // row-major
};

}  // namespace

void choose_layouts(Graph& g, std::vector<Epilogue>& epilogues, const FuseOptions& options) {
  LayoutChooser(g, epilogues, options).run();
  // The host may not support an epilogue with the storage orders that its operands got. Its loops then become kernels.
  if (!options.accepts_layout || options.disabled) return;
  const std::size_t refused = std::erase_if(epilogues, [&](const Epilogue& e) {
    std::string why;
    if (options.accepts_layout(e.kernel, why)) return false;
    for (Node* n : e.loops) refresh_inputs(*n);  // without the copies that the epilogue would have read
    return true;
  });
  if (refused) remove_dead_nodes(g);
}

}  // namespace sardonyx
