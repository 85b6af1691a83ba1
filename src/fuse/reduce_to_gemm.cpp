// See reduce_to_gemm.h.
#include "fuse/reduce_to_gemm.h"

#include <algorithm>

#include "graph/analysis.h"

namespace sardonyx {
namespace {

constexpr std::int64_t kLeast = 16;  // rows, columns and terms of a sum: fewer are no tile
constexpr std::size_t kMostFactors = 6;
constexpr int kMostMovements = 16;  // loops and views behind one another

/// The factors of a product, as loads over the variables of the sum.
using Factors = Exprs;

/// A GEMM: the variables of its rows and columns, and the factors of each side.
struct Sides {
  std::size_t row = 0, col = 0;
  Factors a, b;
};

class Multiplier {
 public:
  Multiplier(Graph& g, const FuseOptions& options)
      : g_(g), options_(options), constants_(constant_nodes(g)), required_(required_values(g)), uses_(uses_of(g)) {}

  void run() {
    const std::size_t count = g_.nodes.size();
    for (std::size_t at = 0; at < count; ++at) {
      Node& n = *g_.nodes[at];
      const auto* l = n.as<LoopOp>();
      if (!l || constants_.count(&n) || !multiplied(l->body->dtype)) continue;
      const Expr sum = before_casts(l->body);
      Factors factors;
      if (sum->op != Op::kReduce || static_cast<ReduceKind>(sum->i) != ReduceKind::kSum ||
          !collect(sum->args[0], factors) || factors.size() < 2)
        continue;
      if (const Expr k = joined(sum->vars, l->vars, factors)) replace(n, *l, k, factors);
    }
    g_.origin.clear();
    if (!found_) return;
    sort_nodes(g_);
    remove_dead_nodes(g_);
  }

 private:
  static bool multiplied(DType t) { return t == DType::kFloat32 || t == DType::kFloat16 || t == DType::kBFloat16; }

  // e without conversions between floats: GEMMs add up in float32 what models round in between. A tensor that is
  // rounded before it is multiplied stays so.
  static Expr before_casts(Expr e) {
    while (e->op == Op::kCast && multiplied(e->dtype) && multiplied(e->args[0]->dtype) &&
           (e->args[0]->op != Op::kLoad || size_of(e->dtype) > size_of(e->args[0]->dtype)))
      e = e->args[0];
    return e;
  }

  // Adds the factors of e, which are tensors. Looks into loops that multiply or move elements, if nothing else reads a
  // product.
  bool collect(Expr e, Factors& all) const {
    for (int depth = 0; depth < kMostMovements; ++depth) {
      e = before_casts(e);
      if (e->op == Op::kMul) return collect(e->args[0], all) && collect(e->args[1], all);
      if (e->op != Op::kLoad || !is_float(e->dtype)) return false;
      const Node* p = e->value->producer;
      const auto* l = p && !constants_.count(p) ? p->as<LoopOp>() : nullptr;
      if (p && p->as<ViewOp>()) {
        const Value* source = p->inputs[0];
        e = load(source, source->dtype, idx::delinearize(idx::linearize(e->args, e->value->shape), source->shape));
      } else if (l && (l->body->op == Op::kLoad || (before_casts(l->body)->op == Op::kMul && only_use(e->value)))) {
        std::vector<std::pair<Expr, Expr>> at;
        for (std::size_t k = 0; k < l->vars.size(); ++k) at.emplace_back(l->vars[k], e->args[k]);
        e = substitute(l->body, at);
      } else {
        break;
      }
    }
    all.push_back(e);
    return e->op == Op::kLoad && multiplied(e->dtype) && e->dtype == all[0]->dtype && all.size() <= kMostFactors;
  }

  // One variable in place of those of a sum, of which the first is the outermost. Empty for windows, whose elements are
  // indexed by a dim of the result and one of the sum together.
  static Expr joined(const Exprs& of_sum, const Exprs& of_result, Factors& factors) {
    if (of_sum.size() == 1) return of_sum[0];
    const auto any = [](const Exprs& vars, const Expr& e) {
      return std::any_of(vars.begin(), vars.end(), [&](const Expr& v) { return mentions(e, v); });
    };
    for (const Expr& f : factors)
      for (const Expr& index : f->args)
        if (any(of_sum, index) && any(of_result, index)) return {};
    Exprs extents;
    for (const Expr& v : of_sum) extents.push_back(v->args[0]);
    const Expr k = loop_var(idx::product(extents));
    const Exprs at = idx::delinearize(k, extents);
    std::vector<std::pair<Expr, Expr>> to;
    for (std::size_t d = 0; d < at.size(); ++d) to.emplace_back(of_sum[d], at[d]);
    for (Expr& f : factors) f = substitute(f, to);
    return k;
  }

  bool only_use(const Value* v) const {
    const auto used = uses_.find(v);
    return !required_.count(v) && used != uses_.end() && used->second.size() == 1;
  }

  // The extent of a variable; a large one if it is not known when compiling.
  static std::int64_t extent(const Expr& var) {
    std::int64_t n = 0;
    return is_const_int(var->args[0], n) ? n : kLeast;
  }

  // Factors that have `own` among their variables.
  static Factors with(const Factors& all, const Expr& own) {
    Factors some;
    for (const Expr& f : all)
      if (mentions(f, own)) some.push_back(f);
    return some;
  }

  // The largest GEMM, by rows times columns. Dims of both sides are those of a batch.
  static bool divide(const LoopOp& l, const Expr& k, const Factors& factors, Sides& best) {
    std::int64_t most = 0;
    for (std::size_t i = 0; i < l.vars.size(); ++i)
      for (std::size_t j = 0; j < l.vars.size(); ++j) {
        const std::int64_t rows = extent(l.vars[i]), cols = extent(l.vars[j]);
        if (i == j || rows < kLeast || cols < kLeast || rows * cols <= most) continue;
        Sides s;
        s.row = i;
        s.col = j;
        s.b = with(factors, l.vars[j]);
        for (const Expr& f : factors)
          if (!mentions(f, l.vars[j])) s.a.push_back(f);
        if (with(s.a, l.vars[i]).empty() || !with(s.b, l.vars[i]).empty() || with(s.a, k).empty() ||
            with(s.b, k).empty())
          continue;
        best = s;
        most = rows * cols;
      }
    return most > 0;
  }

  void replace(Node& n, const LoopOp& l, const Expr& k, const Factors& factors) {
    const auto stays = [&](const char* why) {
      remark(options_, "reduce_to_gemm", n.origin, [&] { return std::string(why); });
    };
    Sides s;
    if (extent(k) < kLeast) return stays("its sums of products are short");
    if (!divide(l, k, factors, s)) return stays("no two tensors have rows and columns of their own");
    g_.origin = n.origin;
    MatMulOp m;
    std::vector<std::size_t> order;
    for (std::size_t d = 0; d < l.vars.size(); ++d)
      if (d != s.row && d != s.col) order.push_back(d);
    order.push_back(s.row);
    order.push_back(s.col);
    std::vector<std::pair<Expr, Expr>> sub;
    Exprs shape, at;
    for (const std::size_t d : order) {
      m.vars.push_back(loop_var(l.vars[d]->args[0]));
      sub.emplace_back(l.vars[d], m.vars.back());
      shape.push_back(l.vars[d]->args[0]);
      at.push_back(l.vars[d]);
    }
    m.k = loop_var(k->args[0]);
    sub.emplace_back(k, m.k);
    const std::size_t row = order.size() - 2;
    m.a = operand(s.a, sub, m.vars, row, m.k);
    m.b = operand(s.b, sub, m.vars, row + 1, m.k);
    Node* made = g_.add_node(m, {}, {{n.outputs[0]->dtype, shape}});
    refresh_inputs(*made);
    const Value* product = made->outputs[0];
    n.op = LoopOp{l.vars, load(product, product->dtype, at)};
    refresh_inputs(n);
    found_ = true;
  }

  // One side: the tensor itself, or a loop that multiplies several. `line`: the index of its row or column.
  Expr operand(const Factors& factors, const std::vector<std::pair<Expr, Expr>>& sub, const Exprs& vars,
               std::size_t line, const Expr& k) {
    Expr e = substitute(factors[0], sub);
    for (std::size_t f = 1; f < factors.size(); ++f) e = binary(Op::kMul, e, substitute(factors[f], sub));
    if (factors.size() == 1) return e;
    Exprs own, over, at;
    std::vector<std::pair<Expr, Expr>> renamed;
    const auto add = [&](const Expr& var) {
      over.push_back(loop_var(var->args[0]));
      at.push_back(var);
      renamed.emplace_back(var, over.back());
    };
    for (std::size_t d = 0; d + 2 < vars.size(); ++d)
      if (mentions(e, vars[d])) add(vars[d]);
    add(vars[line]);
    add(k);
    const Value* made = g_.add_loop(over, substitute(e, renamed));
    return load(made, made->dtype, at);
  }

  Graph& g_;
  const FuseOptions& options_;
  const std::unordered_set<const Node*> constants_;
  const std::unordered_set<const Value*> required_;
  const Uses uses_;
  bool found_ = false;
};

}  // namespace

void reduce_to_gemm(Graph& g, const FuseOptions& options) { Multiplier(g, options).run(); }

}  // namespace sardonyx
