#include "fuse/merge_matmuls.h"

#include <algorithm>
#include <map>
#include <span>

#include "fuse/inline_dequantization.h"
#include "fuse/schedule.h"
#include "graph/analysis.h"

namespace sardonyx {
namespace {

constexpr std::size_t kMostBranches = 32;  // one loop concatenates their weights, and one kernel may read their parts

struct Branch {
  Node* matmul;
  Node* add = nullptr;  // y = matmul + bias[n], if that is its only user
  Value* bias = nullptr;
  Value* weights = nullptr;
  std::int64_t columns = 0;
};

// X[batch..., m, k] . W[k, n] with W constant.
bool plain(const MatMulOp& m, Value*& x, Value*& w) {
  if (m.a->op != Op::kLoad || m.b->op != Op::kLoad || m.b->args.size() != 2 || m.a->args.size() != m.vars.size())
    return false;
  for (std::size_t k = 0; k + 1 < m.a->args.size(); ++k)
    if (!same(m.a->args[k], m.vars[k]) && !(is_const(m.a->args[k], 0) && is_const(m.vars[k]->args[0], 1))) return false;
  if (!same(m.a->args.back(), m.k) || !same(m.b->args[0], m.k) || !same(m.b->args[1], m.vars.back())) return false;
  x = const_cast<Value*>(m.a->value);
  w = const_cast<Value*>(m.b->value);
  return true;
}

// e without casts between float types, which only say in which type a value is stored.
Expr strip_casts(Expr e) {
  while (e->op == Op::kCast && !(e->i & kCastRounds) && is_float(e->dtype) && is_float(e->args[0]->dtype))
    e = e->args[0];
  return e;
}

// The only user of v, if it adds a constant of one element per column.
Node* bias_add(Value* v, const Uses& uses, const std::unordered_set<const Node*>& constants, Value*& bias) {
  auto it = uses.find(v);
  if (it == uses.end() || it->second.size() != 1) return nullptr;
  Node* n = it->second[0];
  const auto* l = n->as<LoopOp>();
  if (!l || l->vars.size() != v->shape.size()) return nullptr;
  const Expr sum = strip_casts(l->body);
  if (sum->op != Op::kAdd) return nullptr;
  for (int side = 0; side < 2; ++side) {
    const Expr t = strip_casts(sum->args[static_cast<std::size_t>(side)]),
               b = strip_casts(sum->args[static_cast<std::size_t>(1 - side)]);
    if (t->op != Op::kLoad || t->value != v || b->op != Op::kLoad || b->value->rank() != 1 || !b->value->producer ||
        !constants.count(b->value->producer))
      continue;
    bool here = same(b->args[0], l->vars.back());
    for (std::size_t k = 0; k < l->vars.size(); ++k)
      here &= same(t->args[k], l->vars[k]) || (is_const(t->args[k], 0) && is_const(l->vars[k]->args[0], 1));
    if (!here) continue;
    bias = const_cast<Value*>(b->value);
    return n;
  }
  return nullptr;
}

// Concatenates constants along their last dim.
Value* side_by_side(Graph& g, const std::vector<Value*>& parts) {
  Exprs shape = parts[0]->shape;
  std::vector<Expr> starts = {Expr(0)};
  for (Value* p : parts) starts.push_back(starts.back() + p->shape.back());
  shape.back() = starts.back();
  Exprs vars;
  for (const Expr& d : shape) vars.push_back(loop_var(d));
  Expr body;
  for (std::size_t k = parts.size(); k-- > 0;) {
    Exprs i = vars;
    i.back() = vars.back() - starts[k];
    const Expr x = load(parts[k], parts[k]->dtype, i);
    body = body ? select(compare(Op::kLt, vars.back(), starts[k + 1]), x, body) : x;
  }
  return g.add_loop(vars, body);
}

// Why two GEMMs are not merged; null if they can be.
const char* difference(const Branch& b, const Branch& first) {
  if ((b.add != nullptr) != (first.add != nullptr)) return "one has a bias, the other has none";
  if (b.weights->dtype != first.weights->dtype || b.matmul->outputs[0]->dtype != first.matmul->outputs[0]->dtype)
    return "their types differ";
  if (b.add && (b.add->outputs[0]->dtype != first.add->outputs[0]->dtype || b.bias->dtype != first.bias->dtype))
    return "the types of their biases differ";
  if (b.matmul->outputs[0]->rank() != first.matmul->outputs[0]->rank()) return "their ranks differ";
  if (!idx::provably_equal(b.weights->shape[0], first.weights->shape[0])) return "their K differ";
  return nullptr;
}

// The merged GEMM of all branches, plus their biases.
Value* merged(Graph& g, std::span<const Branch> branches) {
  const Node* first = branches[0].matmul;
  std::vector<Value*> ws, bs;
  for (const Branch& b : branches) {
    ws.push_back(b.weights);
    if (b.bias) bs.push_back(b.bias);
  }
  Value* w = side_by_side(g, ws);
  MatMulOp m = *first->as<MatMulOp>();
  const Expr n = loop_var(w->shape[1]);
  m.vars.back() = n;
  m.b = load(w, w->dtype, {m.k, n});
  Value* x = const_cast<Value*>(m.a->value);
  Exprs shape = first->outputs[0]->shape;
  shape.back() = w->shape[1];
  Value* y = g.add_node(m, {x, w}, {{first->outputs[0]->dtype, shape}})->outputs[0];
  if (bs.empty()) return y;
  Value* bias = side_by_side(g, bs);
  const Exprs vars = vars_of(shape);
  // Computed in the wider of the two types, and rounded as each branch is.
  const DType out = branches[0].add->outputs[0]->dtype, t = y->dtype == bias->dtype ? y->dtype : DType::kFloat32;
  const Expr sum = binary(Op::kAdd, cast(load(y, y->dtype, vars), t), cast(load(bias, bias->dtype, {vars.back()}), t));
  return g.add_loop(vars, cast(sum, out, t == DType::kFloat32 && out == DType::kFloat16 ? kCastSaturatesHalf : 0));
}

// Merges the branches; their results become slices.
void merge(Graph& g, std::span<const Branch> branches) {
  if (branches.size() < 2) return;
  g.origin.clear();
  for (const Branch& b : branches) g.origin += (g.origin.empty() ? "" : " + ") + b.matmul->origin;
  Value* y = merged(g, branches);
  g.origin.clear();
  std::int64_t start = 0;
  for (const Branch& b : branches) {
    Node* result = b.add ? b.add : b.matmul;
    Exprs vars, i;
    for (const Expr& d : result->outputs[0]->shape) vars.push_back(loop_var(d));
    i = vars;
    i.back() = vars.back() + start;
    result->op = LoopOp{vars, load(y, y->dtype, i)};
    refresh_inputs(*result);
    start += b.columns;
  }
}

}  // namespace

void merge_matmuls(Graph& g, const FuseOptions& options) {
  const auto constants = constant_nodes(g);
  const Uses uses = uses_of(g);
  std::unordered_set<const Value*> outputs(g.outputs.begin(), g.outputs.end());
  std::map<int, std::vector<Branch>> groups;  // by the left operand's id
  for (const auto& n : g.nodes) {
    const auto* m = n->as<MatMulOp>();
    Value *x, *w;
    if (!m || constants.count(n.get()) || !plain(*m, x, w) || !w->producer || !constants.count(w->producer)) continue;
    if (options.prologues && is_dequantization(*w->producer)) {
      remark(options, "merge_matmuls", n->origin,
             [] { return std::string("not merged: its weights are quantised, and merging would dequantise them"); });
      continue;
    }
    Branch b{n.get(), nullptr, nullptr, w, 0};
    if (!is_const_int(w->shape[1], b.columns)) continue;
    if (!outputs.count(n->outputs[0])) b.add = bias_add(n->outputs[0], uses, constants, b.bias);
    groups[x->id].push_back(b);
  }
  for (auto& [id, branches] : groups) {
    std::erase_if(branches, [&](const Branch& b) {
      const char* why = difference(b, branches[0]);
      if (why)
        remark(options, "merge_matmuls", b.matmul->origin,
               [&] { return fmt::format("not merged with '{}': {}", branches[0].matmul->origin, why); });
      return why != nullptr;
    });
    for (std::size_t first = 0; first + 1 < branches.size(); first += kMostBranches)
      merge(g, std::span(branches).subspan(first, std::min(kMostBranches, branches.size() - first)));
  }
  sort_nodes(g);
  remove_dead_nodes(g);
}

}  // namespace sardonyx
