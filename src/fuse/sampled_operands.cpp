// See sampled_operands.h.
#include "fuse/sampled_operands.h"

#include <algorithm>
#include <optional>
#include <utility>

#include "fuse/reduction_digits.h"
#include "fuse/reorder.h"
#include "graph/analysis.h"

namespace sardonyx {
namespace {

constexpr std::int64_t kVector = 8;  // 16-bit elements of a 16-byte load
constexpr int kMostBetween = 4;      // loops between a convolution and the image

/// Whether v is an image whose channels, its second dim, are innermost in memory once layouts are chosen.
bool is_image(const Value* v, int between = 0) {
  const Node* p = storage_of(const_cast<Value*>(v))->producer;
  if (!p || v->rank() != 4) return false;
  if (p->as<ConvOp>()) return true;
  const auto* l = p->as<LoopOp>();
  if (!l || between == kMostBetween) return false;
  bool found = false;
  visit(l->body, [&](const Expr& x) {
    bool in_place = x->op == Op::kLoad && x->args.size() == l->vars.size();
    for (std::size_t d = 0; in_place && d < x->args.size(); ++d) in_place = same(x->args[d], l->vars[d]);
    found = found || (in_place && is_image(x->value, between + 1));
  });
  return found;
}

/// Whether an image is sampled at computed positions and `channel` is (part of) its channels and nothing else of it.
bool samples(const Expr& load, const Expr& channel) {
  const Exprs& at = load->args;
  Expr factor, rest;
  return at.size() == 4 && (at[2]->has_load || at[3]->has_load) && mentions(at[1], channel) &&
         idx::split_affine(at[1], channel, factor, rest) && is_const(factor, 1) &&
         std::none_of(at.begin() + 2, at.end(), [&](const Expr& i) { return mentions(i, channel); });
}

/// An operand that a loop computes element by element, as K and the rest.
struct Sampled {
  Node* loop = nullptr;
  Exprs lines;   ///< new variables: the loop's dims but those of K
  Exprs digits;  ///< K's parts, channels last
  Expr body;     ///< over lines and digits
  Expr term;     ///< K of the GEMM as it was, over digits
};

class SampledOperands {
 public:
  explicit SampledOperands(Graph& g)
      : g_(g), constants_(constant_nodes(g)), required_(required_values(g)), uses_(uses_of(g)) {}

  void run() {
    const std::size_t count = g_.nodes.size();
    for (std::size_t k = 0; k < count; ++k) {
      Node& n = *g_.nodes[k];
      if (auto* m = n.as<MatMulOp>(); m && !constants_.count(&n)) gemm(n, *m);
    }
    if (orders_.empty()) return;
    for (const auto& n : g_.nodes) {
      if (auto* l = n->as<LoopOp>()) l->body = reindexed(l->body, orders_);
      for (Value* v : n->outputs)
        if (const auto it = orders_.find(v); it != orders_.end()) v->shape = permuted(v->shape, it->second);
    }
    g_.origin.clear();
    sort_nodes(g_);
    remove_dead_nodes(g_);
  }

 private:
  void gemm(Node& n, MatMulOp& m) {
    // The weights come first: [outputs, K] x [batches, K, positions].
    if (m.end || m.vars.size() < 2 || !is_weight(m) || !only_loops_read(n.outputs[0])) return;
    std::optional<Sampled> s = sampled(m);
    if (!s) return;
    g_.origin = n.origin;
    const Expr k = loop_var(m.k->args[0]);
    const Expr weights = rearranged(m, *s, k);
    const Expr rows = matrix_of(*s, m, k);
    m.a = rows, m.b = weights, m.k = k;
    std::swap(row(m), m.vars.back());
    refresh_inputs(n);
    orders_[n.outputs[0]] = exchanged(m.vars.size());
  }

  static Expr& row(MatMulOp& m) { return m.vars[m.vars.size() - 2]; }
  static const Expr& row(const MatMulOp& m) { return m.vars[m.vars.size() - 2]; }

  /// Whether the left operand is a constant matrix over outputs and K.
  bool is_weight(const MatMulOp& m) const {
    const Node* p = m.a->op == Op::kLoad ? m.a->value->producer : nullptr;
    std::int64_t outputs = 0;
    return m.a->op == Op::kLoad && (m.a->value->is_constant() || (p && constants_.count(p) > 0)) &&
           m.a->args.size() == 2 && same(m.a->args[0], row(m)) && same(m.a->args[1], m.k) &&
           is_const_int(row(m)->args[0], outputs) && outputs % kVector == 0;
  }

  bool only_loops_read(const Value* v) const {
    const auto found = uses_.find(v);
    if (required_.count(v) || v->content || found == uses_.end()) return false;
    return std::all_of(found->second.begin(), found->second.end(), [](const Node* n) { return n->as<LoopOp>(); });
  }

  bool read_once(const Value* v) const {
    const auto found = uses_.find(v);
    return !required_.count(v) && found != uses_.end() && found->second.size() == 1;
  }

  /// Whether the right operand is a matrix of which each batch, term and position is one element.
  static bool is_plain(const MatMulOp& m) {
    if (m.b->op != Op::kLoad || m.b->args.size() != m.vars.size()) return false;
    for (std::size_t d = 0; d < m.vars.size(); ++d)
      if (!same(m.b->args[d], d + 2 == m.vars.size() ? m.k : m.vars[d])) return false;
    return true;
  }

  /// Where an element of `matrix`, a view of `v`, is in v, over K and `lines`, which it adds: one variable for each dim
  /// of v but those that are K, where v's dims are parts of the matrix's.
  static Exprs position(const MatMulOp& m, const Value& matrix, const Value& v, Exprs& lines) {
    const std::size_t of_k = m.vars.size() - 2;
    Exprs at;
    for (std::size_t d = 0; d < m.vars.size(); ++d) {
      Exprs dims;
      while (at.size() + dims.size() < v.shape.size() &&
             (dims.empty() || !idx::provably_equal(idx::product(dims), matrix.shape[d])))
        dims.push_back(v.shape[at.size() + dims.size()]);
      if (dims.empty() || !idx::provably_equal(idx::product(dims), matrix.shape[d])) break;
      const Exprs parts = d == of_k ? idx::delinearize(m.k, dims) : vars_of(dims);
      if (d != of_k) lines.insert(lines.end(), parts.begin(), parts.end());
      at.insert(at.end(), parts.begin(), parts.end());
      if (d + 1 == m.vars.size() && at.size() == v.shape.size()) return at;
    }
    lines = vars_of(matrix.shape);
    at = lines;
    at[of_k] = m.k;
    lines.erase(lines.begin() + static_cast<std::ptrdiff_t>(of_k));
    return idx::delinearize(idx::linearize(at, matrix.shape), v.shape);
  }

  /// The right operand, perhaps a view of a loop's result.
  std::optional<Sampled> sampled(const MatMulOp& m) const {
    if (!is_plain(m)) return {};
    const Value* matrix = m.b->value;
    if (!read_once(matrix) || size_of(matrix->dtype) != 2 || !is_float(matrix->dtype)) return {};
    const bool view = matrix->producer && matrix->producer->as<ViewOp>();
    const Value* v = view ? matrix->producer->inputs[0] : matrix;
    Node* p = v->producer;
    const auto* l = p ? p->as<LoopOp>() : nullptr;
    if (!l || !read_once(v) || l->body->has_reduce) return {};
    Sampled s;
    s.loop = p;
    const Exprs at = position(m, *matrix, *v, s.lines);
    std::vector<std::pair<Expr, Expr>> to;
    for (std::size_t d = 0; d < at.size(); ++d) to.emplace_back(l->vars[d], at[d]);
    const auto digits = digits_of(reduce(ReduceKind::kSum, {m.k}, substitute(l->body, to)));
    if (!digits) return {};
    s.digits = digits->vars;
    s.body = digits->body;
    s.term = digits->terms[0];
    return channels_last(s) ? std::optional(std::move(s)) : std::nullopt;
  }

  /// Moves the channels of the sampled image behind the other digits; false if nothing samples an image.
  static bool channels_last(Sampled& s) {
    for (std::size_t k = 0; k < s.digits.size(); ++k) {
      const Expr digit = s.digits[k];
      if (!is_const(idx::mod(digit->args[0], Expr(kVector)), 0)) continue;
      bool found = false;
      visit(s.body,
            [&](const Expr& x) { found = found || (x->op == Op::kLoad && samples(x, digit) && is_image(x->value)); });
      if (!found) continue;
      s.digits.erase(s.digits.begin() + static_cast<std::ptrdiff_t>(k));
      s.digits.push_back(digit);
      return true;
    }
    return false;
  }

  static Exprs extents(const Exprs& vars) {
    Exprs out;
    for (const Expr& v : vars) out.push_back(v->args[0]);
    return out;
  }

  /// The weights with K in the new order, computed when the program is loaded.
  Expr rearranged(const MatMulOp& m, const Sampled& s, const Expr& k) {
    const Expr output = loop_var(row(m)->args[0]), term = loop_var(m.k->args[0]);
    const Exprs parts = idx::delinearize(term, extents(s.digits));
    std::vector<std::pair<Expr, Expr>> to;
    for (std::size_t d = 0; d < parts.size(); ++d) to.emplace_back(s.digits[d], parts[d]);
    const Value* w = g_.add_loop({output, term}, load(m.a->value, m.a->dtype, {output, substitute(s.term, to)}));
    return load(w, w->dtype, {row(m), k});
  }

  /// Positions x K: the samples.
  Expr matrix_of(const Sampled& s, const MatMulOp& m, const Expr& k) {
    Exprs vars = s.lines;
    vars.insert(vars.end(), s.digits.begin(), s.digits.end());
    g_.origin = join_origins(s.loop->origin, g_.origin);
    Value* made = g_.add_loop(vars, s.body);
    Exprs at = m.vars;
    at.erase(at.end() - 2);
    at.push_back(k);
    const Value* rows = g_.add_node(ViewOp{}, {made}, {{made->dtype, extents(at)}})->outputs[0];
    return load(rows, rows->dtype, at);
  }

  Graph& g_;
  const std::unordered_set<const Node*> constants_;
  const std::unordered_set<const Value*> required_;
  const Uses uses_;
  Orders orders_;
};

}  // namespace

void sampled_operands(Graph& g) { SampledOperands(g).run(); }

}  // namespace sardonyx
