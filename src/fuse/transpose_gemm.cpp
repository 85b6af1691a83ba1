// See transpose_gemm.h.
#include "fuse/transpose_gemm.h"

#include <algorithm>

#include "fuse/reorder.h"
#include "graph/analysis.h"

namespace sardonyx {
namespace {

constexpr std::int64_t kVector = 8;  // 16-bit elements of a 16-byte load
// Minimum size of the exchanged GEMM. Batches are no longer merged into its rows, so each needs the rows of a tile.
constexpr std::int64_t kLeastRows = 48, kLeastColumns = 64;

/// How the readers of a value index its last two dims.
struct Reads {
  bool transposed = false;  ///< the loop's innermost variable, or a reduced one, indexes the last dim but one
  bool combined = false;    ///< and the loop reads another tensor in its own order
};

class Transposer {
 public:
  Transposer(Graph& g, const FuseOptions& options)
      : g_(g), options_(options), constants_(constant_nodes(g)), required_(required_values(g)), uses_(uses_of(g)) {}

  void run() {
    for (const auto& n : g_.nodes)
      if (auto* m = n->as<MatMulOp>(); m && !constants_.count(n.get())) product(*n, *m);
    if (orders_.empty()) return;
    for (const auto& n : g_.nodes) {
      if (auto* l = n->as<LoopOp>()) l->body = reindexed(l->body, orders_);
      if (auto* m = n->as<MatMulOp>()) {
        for (Expr* e : {&m->a, &m->b, &m->owner, &m->end})
          if (*e) *e = reindexed(*e, orders_);
      }
      for (Value* v : n->outputs)
        if (const auto it = orders_.find(v); it != orders_.end()) v->shape = permuted(v->shape, it->second);
    }
  }

 private:
  void product(Node& n, MatMulOp& m) {
    Reads reads;
    std::vector<Node*> between;
    if (!plain(m.a) || !plain(m.b) || m.a->dtype != m.b->dtype || !readers(*n.outputs[0], reads, between) ||
        !reads.combined)
      return;
    const std::size_t row = m.vars.size() - 2, col = row + 1;
    std::int64_t rows = 0, cols = 0;
    if (!is_const_int(m.vars[row]->args[0], rows) || !is_const_int(m.vars[col]->args[0], cols) || cols < kLeastRows ||
        rows < kLeastColumns || rows % kVector != 0) {
      remark(options_, "transpose_gemm", n.origin,
             [] { return std::string("its result is read transposed, but its transpose would be too narrow"); });
      return;
    }
    std::swap(m.vars[row], m.vars[col]);
    std::swap(m.a, m.b);
    const Order order = exchanged(m.vars.size());
    orders_[n.outputs[0]] = order;
    for (Node* l : between) {
      auto& vars = l->as<LoopOp>()->vars;
      vars = permuted(vars, order);
      orders_[l->outputs[0]] = order;
    }
  }

  // A tensor of 16-bit floats in memory: what matrix units multiply, with either dim contiguous.
  static bool plain(const Expr& operand) {
    return operand->op == Op::kLoad && size_of(operand->dtype) == 2 && is_float(operand->dtype);
  }

  // Whether all readers of v read it transposed, if through element-wise loops, which are added to `between`.
  bool readers(const Value& v, Reads& reads, std::vector<Node*>& between) const {
    const auto found = uses_.find(&v);
    if (v.rank() < 2 || v.content || required_.count(&v) || orders_.count(&v) || found == uses_.end()) return false;
    for (Node* r : found->second) {
      const auto* l = r->as<LoopOp>();
      if (!l || constants_.count(r)) return false;
      if (in_place(*l, v)) {
        if (between.size() >= 4 || !readers(*r->outputs[0], reads, between)) return false;
        between.push_back(r);
      } else if (!transposed(*l, v, reads)) {
        return false;
      }
    }
    return reads.transposed;
  }

  // An element-wise loop over v whose other operands have at most one of v's last two dims.
  static bool in_place(const LoopOp& l, const Value& v) {
    const std::size_t rank = l.vars.size();
    if (l.body->has_reduce || rank != v.shape.size()) return false;
    bool ok = true;
    visit(l.body, [&](const Expr& x) {
      if (x->op != Op::kLoad) return;
      if (x->value == &v)
        for (std::size_t k = 0; k < rank; ++k) ok = ok && same(x->args[k], l.vars[k]);
      else
        ok = ok && !(mentions(x, l.vars[rank - 2]) && mentions(x, l.vars[rank - 1]));
    });
    return ok;
  }

  // Whether the variables that the loop reduces, or else its innermost one, index v's last dim but one and not the
  // last.
  static bool transposed(const LoopOp& l, const Value& v, Reads& reads) {
    if (l.vars.empty()) return false;
    const auto own = [&](const Expr& x) {
      return std::any_of(l.vars.begin(), l.vars.end(), [&](const Expr& var) { return same(var, x); });
    };
    const Expr& inner = l.vars.back();
    bool ok = true, combined = false;
    visit(l.body, [&](const Expr& x) {
      if (x->op != Op::kLoad || x->args.size() < 2) return;
      const Expr &row = x->args[x->args.size() - 2], &col = x->args.back();
      if (x->value == &v)
        ok = ok && row->op == Op::kVar && own(col) && (!own(row) || (same(row, inner) && !same(col, inner)));
      else
        combined = combined || (same(col, inner) && own(row) && !same(row, inner));
    });
    reads.transposed = reads.transposed || ok;
    reads.combined = reads.combined || (ok && combined);
    return ok;
  }

  Graph& g_;
  const FuseOptions& options_;
  const std::unordered_set<const Node*> constants_;
  const std::unordered_set<const Value*> required_;
  const Uses uses_;
  Orders orders_;
};

}  // namespace

void transpose_gemm(Graph& g, const FuseOptions& options) { Transposer(g, options).run(); }

}  // namespace sardonyx
