// See untranspose.h.
#include "fuse/untranspose.h"

#include <algorithm>

#include "fuse/reorder.h"
#include "graph/analysis.h"

namespace sardonyx {
namespace {

// For each dim of `whole`, the consecutive dims of `split` that it is split into; empty if `split` is something else.
std::vector<Order> split_dims(const Exprs& whole, const Exprs& split) {
  std::vector<Order> groups;
  std::size_t next = 0;
  for (const Expr& d : whole) {
    Order group;
    Expr product(1);
    do {
      if (next == split.size()) return {};
      product = product * split[next];
      group.push_back(next++);
    } while (!idx::provably_equal(product, d));
    groups.push_back(std::move(group));
  }
  return next == split.size() ? groups : std::vector<Order>();
}

// Adds the positions of the variables that are the digits of an index into a dim of `extent`, highest first: just one,
// or those of a dim that the loop splits (a head and its elements). False if the index is something else.
bool add_digits(const Expr& index, const Expr& extent, const Exprs& vars, Order& order) {
  std::vector<std::pair<std::int64_t, std::size_t>> steps;
  for (std::size_t d = 0; d < vars.size(); ++d) {
    Expr step, rest;
    std::int64_t n = 0;
    if (same(index, vars[d])) {
      order.push_back(d);
      return true;
    }
    if (!mentions(index, vars[d]) || is_const(vars[d]->args[0], 1)) continue;
    if (!idx::split_affine(index, vars[d], step, rest) || !is_const_int(step, n)) return false;
    steps.emplace_back(-n, d);
  }
  std::sort(steps.begin(), steps.end());
  Exprs digits, extents;
  for (const auto& [step, d] : steps) {
    order.push_back(d);
    digits.push_back(vars[d]);
    extents.push_back(vars[d]->args[0]);
  }
  return !steps.empty() && idx::provably_equal(idx::linearize(digits, extents), index) &&
         idx::provably_equal(idx::product(extents), extent);
}

// For each dim of the results of GEMMs whose only reader is this loop, the loop's variables that index it; empty if
// there are none, if orders differ, or if it is the loop's own order.
Order order_of(const LoopOp& l, const Uses& uses) {
  Order order;
  bool ok = true;
  visit(l.body, [&](const Expr& x) {
    if (!ok || x->op != Op::kLoad || !x->value->producer || !x->value->producer->as<MatMulOp>()) return;
    const auto readers = uses.find(x->value);
    ok = readers != uses.end() && readers->second.size() == 1;
    Order here;
    for (std::size_t d = 0; ok && d < x->args.size(); ++d)
      ok = add_digits(x->args[d], x->value->shape[d], l.vars, here);
    ok = ok && here.size() == l.vars.size() && (order.empty() || order == here);
    order = std::move(here);
  });
  if (!ok || order.empty() || std::is_sorted(order.begin(), order.end())) return {};
  Order sorted = order;
  std::sort(sorted.begin(), sorted.end());
  return std::adjacent_find(sorted.begin(), sorted.end()) == sorted.end() ? order : Order();
}

bool is_channels_last(const Order& order) {
  if (order.size() < 3 || order.front() != 0 || order.back() != 1) return false;
  for (std::size_t k = 1; k + 1 < order.size(); ++k)
    if (order[k] != k + 1) return false;
  return true;
}

// Whether it is a convolution of v as its image, for which channels last is an order in memory.
bool convolves(const Node& n, const Value& v, const Order& order) {
  return n.as<ConvOp>() && n.inputs[0] == &v && n.inputs[1] != &v && is_channels_last(order);
}

// The order of `view`, a view of what gets `order`, if its readers can follow: loops, which permute their indices, and
// convolutions. Otherwise empty.
Order order_of_view(const Value& view, const Value& source, const Order& order, const Uses& uses) {
  const auto readers = uses.find(&view);
  const std::vector<Order> groups = split_dims(source.shape, view.shape);
  if (groups.empty() || readers == uses.end()) return {};
  Order result;
  for (const std::size_t k : order) result.insert(result.end(), groups[k].begin(), groups[k].end());
  for (const Node* r : readers->second)
    if (!r->as<LoopOp>() && !convolves(*r, view, result)) return {};
  return result;
}

// Whether a GEMM that reads v reads it as well in this order: what becomes the innermost dim is K, or the columns of
// the right matrix. Rows of the left one that run across memory are better copied.
bool reads_in_order(const MatMulOp& m, const Value& v, const Order& order) {
  bool ok = !m.owner;
  const auto check = [&](const Expr& operand, bool right) {
    visit(operand, [&](const Expr& x) {
      if (x->op != Op::kLoad || x->value != &v) return;
      const Expr& inner = x->args[order.back()];
      ok = ok && (same(inner, m.k) || (right && same(inner, m.vars.back())));
    });
  };
  check(m.a, false);
  check(m.b, true);
  return ok;
}

// Whether attention reads v as queries, keys or values only, and their rows remain contiguous in this order. Rows may
// have any distance.
bool attends_in_order(const AttentionOp& a, const Value& v, const Order& order) {
  bool ok = true;
  const auto check = [&](const Expr& operand, const Expr& element) {
    if (!operand) return;
    visit(operand, [&](const Expr& x) {
      if (x->op == Op::kLoad && x->value == &v) ok = ok && element && same(x->args[order.back()], element);
    });
  };
  check(a.q, a.vars[4]);
  check(a.k, a.vars[4]);
  check(a.v, a.vars[5]);
  for (const Expr& other : {a.scale, a.bias, a.k_scale, a.v_scale, a.begin, a.end, a.sink}) check(other, {});
  return ok;
}

// Whether the device still has a kernel for a GEMM or attention that reads v in this order: the host's wants whole
// matrices.
bool still_accepted(const FuseOptions& options, const Node& tile, Value& v, const Order& order) {
  if (!options.accepts_tile) return true;
  std::string why;
  v.storage_order.assign(order.begin(), order.end());  // the same memory
  const bool accepted = options.accepts_tile(tile, why);
  v.storage_order.clear();
  return accepted;
}

// Adds to `orders` the order of v and of its views. False if one of its readers cannot follow.
bool follow(Value& v, const Order& order, const Uses& uses, const std::unordered_set<const Value*>& required,
            const FuseOptions& options, Orders& orders) {
  const auto readers = uses.find(&v);
  if (required.count(&v) || v.content || readers == uses.end()) return false;
  Orders found = {{&v, order}};
  for (const Node* r : readers->second) {
    if (r->as<LoopOp>() || convolves(*r, v, order)) continue;
    if (const auto* m = r->as<MatMulOp>()) {
      if (!reads_in_order(*m, v, order) || !still_accepted(options, *r, v, order)) return false;
      continue;
    }
    if (const auto* a = r->as<AttentionOp>()) {
      if (!attends_in_order(*a, v, order) || !still_accepted(options, *r, v, order)) return false;
      continue;
    }
    if (!r->as<ViewOp>() || required.count(r->outputs[0])) return false;
    const Order of_view = order_of_view(*r->outputs[0], v, order, uses);
    if (of_view.empty()) return false;
    found[r->outputs[0]] = of_view;
  }
  orders.merge(found);
  return true;
}

// The image as convolutions know it, channels second. With channels last in memory, as convolutions want it, this is
// a view.
void add_image(Graph& g, Value* v, const Order& order, Node& convolution) {
  Exprs vars(order.size());
  for (std::size_t k = 0; k < order.size(); ++k) vars[order[k]] = loop_var(v->shape[k]);
  g.origin = v->producer->origin;
  convolution.inputs[0] = g.add_loop(vars, load(v, v->dtype, permuted(vars, order)));
}

}  // namespace

void untranspose(Graph& g, const FuseOptions& options) {
  const auto required = required_values(g);
  const auto constants = constant_nodes(g);
  const Uses uses = uses_of(g);
  Orders orders;
  for (const auto& n : g.nodes) {
    auto* l = n->as<LoopOp>();
    if (!l || l->body->has_reduce || constants.count(n.get())) continue;
    const Order order = order_of(*l, uses);
    if (order.empty()) continue;
    if (!follow(*n->outputs[0], order, uses, required, options, orders)) {
      remark(options, "untranspose", n->origin, [] {
        return std::string("it transposes a GEMM's result, and is an output or has a reader that needs its order");
      });
      continue;
    }
    l->vars = permuted(l->vars, order);
  }
  if (orders.empty()) return;
  const std::size_t count = g.nodes.size();
  for (std::size_t k = 0; k < count; ++k) {
    Node& n = *g.nodes[k];
    if (auto* l = n.as<LoopOp>()) l->body = reindexed(l->body, orders);
    if (auto* m = n.as<MatMulOp>()) {
      m->a = reindexed(m->a, orders);
      m->b = reindexed(m->b, orders);
    }
    if (auto* a = n.as<AttentionOp>())
      for (Expr* operand : {&a->q, &a->k, &a->v}) *operand = reindexed(*operand, orders);
    for (Value* v : n.outputs)
      if (const auto it = orders.find(v); it != orders.end()) v->shape = permuted(v->shape, it->second);
    if (n.as<ConvOp>())
      if (const auto it = orders.find(n.inputs[0]); it != orders.end()) add_image(g, n.inputs[0], it->second, n);
  }
  g.origin.clear();
  sort_nodes(g);
}

}  // namespace sardonyx
