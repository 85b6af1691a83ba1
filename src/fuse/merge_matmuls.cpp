#include "fuse/merge_matmuls.h"

#include <algorithm>
#include <map>
#include <memory>
#include <optional>
#include <span>
#include <unordered_map>

#include "fuse/inline_dequantization.h"
#include "fuse/schedule.h"
#include "graph/analysis.h"

namespace sardonyx {
namespace {

constexpr std::size_t kMostLoops = 4;      // copy, zero points, scale, bias
constexpr std::size_t kMostBranches = 32;  // one loop concatenates their weights, and one kernel may read their parts

// A loop that computes each element of a product's result from that element and constants of its column: the scale, the
// bias or the zero points' share of an 8-bit product.
struct ColumnLoop {
  Node* node = nullptr;
  Expr body;        // with loads of tokens in place of the element and the constants
  Exprs constants;  // numbers, and loads of one element per column
};

struct Branch {
  Node* matmul;
  Node* add = nullptr;  // y = matmul + bias[n], if that is its only user
  Value* bias = nullptr;
  Value* weights = nullptr;
  std::int64_t columns = 0;
  std::vector<ColumnLoop> loops;  // of an 8-bit product, one after another, instead of `add`
  Node* result() const { return !loops.empty() ? loops.back().node : add ? add : matmul; }
};

// Placeholders for the operands of column loops, so that equal loops of several branches become equal expressions.
class Tokens {
 public:
  Expr element(DType type) { return of(0, type); }
  Expr constant(std::size_t k, DType type) { return of(k + 1, type); }
  // The number of the constant that a token stands for; -1: the element. Empty: v is no token.
  std::optional<std::int64_t> number(const Value* v) const {
    const auto at = numbers_.find(v);
    return at == numbers_.end() ? std::optional<std::int64_t>() : static_cast<std::int64_t>(at->second) - 1;
  }

 private:
  Expr of(std::size_t k, DType type) {
    std::unique_ptr<Value>& v = values_[{k, type}];
    if (!v) v = std::make_unique<Value>();
    numbers_[v.get()] = k;
    return load(v.get(), type, {});
  }
  std::map<std::pair<std::size_t, DType>, std::unique_ptr<Value>> values_;
  std::unordered_map<const Value*, std::size_t> numbers_;
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

// The only user of v, if it is a column loop.
std::optional<ColumnLoop> column_loop(Value* v, const Uses& uses, const std::unordered_set<const Node*>& constants,
                                      Tokens& tokens) {
  const auto it = uses.find(v);
  if (it == uses.end() || it->second.size() != 1) return {};
  ColumnLoop c{it->second[0], {}, {}};
  const auto* l = c.node->as<LoopOp>();
  if (!l || l->vars.size() != v->shape.size() || l->body->has_reduce) return {};
  const auto is_here = [&](const Expr& x) {
    for (std::size_t k = 0; k < l->vars.size(); ++k)
      if (!same(x->args[k], l->vars[k]) && !(is_const(x->args[k], 0) && is_const(l->vars[k]->args[0], 1))) return false;
    return true;
  };
  const auto by_column = [&](const Expr& x) {
    return x->value->rank() == 1 && x->value->producer && constants.count(x->value->producer) &&
           same(x->args[0], l->vars.back());
  };
  bool ok = true;
  c.body = rewrite(l->body, [&](const Expr& x) -> Expr {
    ok &= x->op != Op::kVar && x->op != Op::kSym;
    if (x->op == Op::kLoad && x->value == v && is_here(x)) return tokens.element(x->dtype);
    const bool number = x->op == Op::kConst && (x->dtype == DType::kFloat32 || x->dtype == DType::kInt32);
    if (!number && x->op != Op::kLoad) return Expr();
    ok &= number || by_column(x);
    c.constants.push_back(x);
    return tokens.constant(c.constants.size() - 1, x->dtype);
  });
  return ok ? std::optional(std::move(c)) : std::nullopt;
}

// Concatenates constants along a dim.
Value* concatenated(Graph& g, const std::vector<Value*>& parts, std::size_t dim) {
  Exprs shape = parts[0]->shape;
  std::vector<Expr> starts = {Expr(0)};
  for (Value* p : parts) starts.push_back(starts.back() + p->shape[dim]);
  shape[dim] = starts.back();
  Exprs vars;
  for (const Expr& d : shape) vars.push_back(loop_var(d));
  Expr body;
  for (std::size_t k = parts.size(); k-- > 0;) {
    Exprs i = vars;
    i[dim] = vars[dim] - starts[k];
    const Expr x = load(parts[k], parts[k]->dtype, i);
    body = body ? select(compare(Op::kLt, vars[dim], starts[k + 1]), x, body) : x;
  }
  return g.add_loop(vars, body);
}

// The same along the last dim.
Value* side_by_side(Graph& g, const std::vector<Value*>& parts) {
  return concatenated(g, parts, parts[0]->shape.size() - 1);
}

// The matrices of which these are the transposes; empty if some are none.
std::vector<Value*> transposed_matrices(const std::vector<Value*>& ws) {
  std::vector<Value*> sources;
  for (const Value* w : ws)
    if (Value* x = transposed_matrix(w)) sources.push_back(x);
  return sources.size() == ws.size() ? sources : std::vector<Value*>();
}

// Why two GEMMs are not merged; null if they can be.
const char* difference(const Branch& b, const Branch& first) {
  if (b.loops.size() != first.loops.size()) return "their results are scaled in different ways";
  for (std::size_t k = 0; k < b.loops.size(); ++k)
    if (!same(b.loops[k].body, first.loops[k].body) ||
        b.loops[k].node->outputs[0]->dtype != first.loops[k].node->outputs[0]->dtype)
      return "their results are scaled in different ways";
  if ((b.add != nullptr) != (first.add != nullptr)) return "one has a bias, the other has none";
  if (b.weights->dtype != first.weights->dtype || b.matmul->outputs[0]->dtype != first.matmul->outputs[0]->dtype)
    return "their types differ";
  if (b.add && (b.add->outputs[0]->dtype != first.add->outputs[0]->dtype || b.bias->dtype != first.bias->dtype))
    return "the types of their biases differ";
  if (b.matmul->outputs[0]->rank() != first.matmul->outputs[0]->rank()) return "their ranks differ";
  if (!idx::provably_equal(b.weights->shape[0], first.weights->shape[0])) return "their K differ";
  return nullptr;
}

// Column loop number `at` of all branches, of their merged results `y`.
Value* merged_loop(Graph& g, std::span<const Branch> branches, std::size_t at, Value* y, const Tokens& tokens) {
  const ColumnLoop& first = branches[0].loops[at];
  const Exprs vars = vars_of(y->shape);
  Exprs constants;
  for (std::size_t k = 0; k < first.constants.size(); ++k) {
    std::vector<Value*> parts;
    bool equal = first.constants[k]->op == Op::kConst;
    for (const Branch& b : branches) {
      const Expr& x = b.loops[at].constants[k];
      equal &= same(x, first.constants[k]);
      parts.push_back(x->op == Op::kLoad ? const_cast<Value*>(x->value) : g.add_loop({loop_var(Expr(b.columns))}, x));
    }
    if (equal) {
      constants.push_back(first.constants[k]);
      continue;
    }
    Value* all = side_by_side(g, parts);
    constants.push_back(load(all, all->dtype, {vars.back()}));
  }
  const Expr body = rewrite(first.body, [&](const Expr& x) -> Expr {
    const auto number = x->op == Op::kLoad ? tokens.number(x->value) : std::nullopt;
    if (!number) return Expr();
    return *number < 0 ? load(y, y->dtype, vars) : constants[static_cast<std::size_t>(*number)];
  });
  return g.add_loop(vars, body);
}

// The merged GEMM of all branches, plus their biases.
Value* merged(Graph& g, std::span<const Branch> branches, const Tokens& tokens, bool transposed_constants) {
  const Node* first = branches[0].matmul;
  std::vector<Value*> ws, bs;
  for (const Branch& b : branches) {
    ws.push_back(b.weights);
    if (b.bias) bs.push_back(b.bias);
  }
  const bool as_stored = transposed_constants && is_float(ws[0]->dtype);
  const std::vector<Value*> rows = as_stored ? transposed_matrices(ws) : std::vector<Value*>();
  Value* w = rows.empty() ? side_by_side(g, ws) : concatenated(g, rows, 0);
  MatMulOp m = *first->as<MatMulOp>();
  const Expr columns = w->shape[rows.empty() ? 1 : 0], n = loop_var(columns);
  m.vars.back() = n;
  m.b = load(w, w->dtype, rows.empty() ? Exprs{m.k, n} : Exprs{n, m.k});
  Value* x = const_cast<Value*>(m.a->value);
  Exprs shape = first->outputs[0]->shape;
  shape.back() = columns;
  Value* y = g.add_node(m, {x, w}, {{first->outputs[0]->dtype, shape}})->outputs[0];
  for (std::size_t k = 0; k < branches[0].loops.size(); ++k) y = merged_loop(g, branches, k, y, tokens);
  if (bs.empty()) return y;
  Value* bias = side_by_side(g, bs);
  const Exprs vars = vars_of(shape);
  // Computed in the wider of the two types, and rounded as each branch is.
  const DType out = branches[0].add->outputs[0]->dtype, t = y->dtype == bias->dtype ? y->dtype : DType::kFloat32;
  const Expr sum = binary(Op::kAdd, cast(load(y, y->dtype, vars), t), cast(load(bias, bias->dtype, {vars.back()}), t));
  return g.add_loop(vars, cast(sum, out, t == DType::kFloat32 && out == DType::kFloat16 ? kCastSaturatesHalf : 0));
}

// Merges the branches; their results become slices.
void merge(Graph& g, std::span<const Branch> branches, const Tokens& tokens, bool transposed_constants) {
  if (branches.size() < 2) return;
  g.origin.clear();
  for (const Branch& b : branches) g.origin += (g.origin.empty() ? "" : " + ") + b.matmul->origin;
  Value* y = merged(g, branches, tokens, transposed_constants);
  g.origin.clear();
  std::int64_t start = 0;
  for (const Branch& b : branches) {
    Node* result = b.result();
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
  Tokens tokens;
  for (const auto& n : g.nodes) {
    const auto* m = n->as<MatMulOp>();
    Value *x, *w;
    if (!m || constants.count(n.get()) || !plain(*m, x, w) || !w->producer || !constants.count(w->producer)) continue;
    if (options.prologues && is_dequantization(*w->producer)) {
      remark(options, "merge_matmuls", n->origin,
             [] { return std::string("not merged: its weights are quantised, and merging would dequantise them"); });
      continue;
    }
    Branch b{n.get(), nullptr, nullptr, w, 0, {}};
    if (!is_const_int(w->shape[1], b.columns)) continue;
    if (size_of(w->dtype) == 1) {
      while (b.loops.size() < kMostLoops && !outputs.count(b.result()->outputs[0])) {
        auto next = column_loop(b.result()->outputs[0], uses, constants, tokens);
        if (!next) break;
        b.loops.push_back(std::move(*next));
      }
    } else if (!outputs.count(n->outputs[0]))
      b.add = bias_add(n->outputs[0], uses, constants, b.bias);
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
      merge(g, std::span(branches).subspan(first, std::min(kMostBranches, branches.size() - first)), tokens,
            options.transposed_constants);
  }
  sort_nodes(g);
  remove_dead_nodes(g);
}

}  // namespace sardonyx
