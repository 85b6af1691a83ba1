// Recognises attention by what is computed, however the model writes it: a matmul whose left operand is a softmax of
// (scaled, masked) scores that another matmul computes.
#include "fuse/attention.h"

#include <algorithm>

#include "fuse/attention_operands.h"
#include "fuse/softmax_match.h"
#include "graph/analysis.h"

namespace sardonyx {
namespace {

// If e contains a variable of constant extent only divided by a number: that number of heads shares e. Otherwise 1.
std::int64_t shared_by(const Expr& e, const Expr& variable) {
  std::int64_t divisor = 0, extent = 0;
  bool one = is_const_int(variable->args[0], extent);
  visit(e, [&](const Expr& x) {
    if (x->op != Op::kFloorDiv || !same(x->args[0], variable) || !is_const(x->args[1])) return;
    one &= divisor == 0 || divisor == x->args[1]->i;
    divisor = x->args[1]->i;
  });
  if (!one || divisor < 2 || extent % divisor != 0) return 1;
  const Expr rest = rewrite(e, [&](const Expr& x) -> Expr {
    return x->op == Op::kFloorDiv && same(x->args[0], variable) ? Expr(0) : Expr();
  });
  return mentions(rest, variable) ? 1 : divisor;
}

// Whether an expression is cheap enough to be evaluated for every score.
bool cheap(const Expr& e) {
  int nodes = 0, loads = 0, heavy = 0;
  visit(e, [&](const Expr& x) {
    ++nodes;
    loads += x->op == Op::kLoad;
    heavy += (x->op >= Op::kExp && x->op <= Op::kSigmoid) || x->op == Op::kPow || x->op == Op::kRandom;
  });
  return !e->has_reduce && nodes <= 120 && loads <= 4 && heavy == 0;
}

// Whether an element of a tensor decides which element of another is loaded.
bool gathers(const Expr& e) {
  bool found = false;
  visit(e, [&](const Expr& x) {
    if (x->op == Op::kLoad)
      for (const Expr& i : x->args) found = found || i->has_load;
  });
  return found;
}

// e before it is widened.
const Expr& narrowest(const Expr& e) {
  const bool widened = e->op == Op::kCast && is_float(e->dtype) && is_float(e->args[0]->dtype) &&
                       size_of(e->args[0]->dtype) < size_of(e->dtype);
  return widened ? e->args[0] : e;
}

// (B^T A^T)^T = A B: the product with its operands exchanged, whose result has its last two dims exchanged.
MatMulOp exchanged(MatMulOp m) {
  std::swap(m.a, m.b);
  std::swap(m.vars.back(), m.vars[m.vars.size() - 2]);
  return m;
}

// The product with all dims before the head in one, which the head, rows and columns follow.
MatMulOp with_one_batch(MatMulOp m, const Exprs& shape) {
  const auto outer = static_cast<std::ptrdiff_t>(shape.size()) - 3;
  const Exprs extents(shape.begin(), shape.begin() + outer);
  const Expr batch = loop_var(idx::product(extents));
  const Exprs digits = idx::delinearize(batch, extents);
  std::vector<std::pair<Expr, Expr>> to;
  for (std::size_t k = 0; k < digits.size(); ++k)
    if (!is_const(m.vars[k])) to.emplace_back(m.vars[k], digits[k]);
  m.a = substitute(m.a, to);
  m.b = substitute(m.b, to);
  m.vars.erase(m.vars.begin(), m.vars.begin() + outer);
  m.vars.insert(m.vars.begin(), batch);
  return m;
}

// v, and all views of it.
std::unordered_set<const Value*> views_of(const Graph& g, const Value* v) {
  std::unordered_set<const Value*> found = {v};
  for (const auto& n : g.nodes)
    if (n->as<ViewOp>() && found.count(n->inputs[0])) found.insert(n->outputs[0]);
  return found;
}

// Loads of `from` and of its views become loads of `to`, which has the same elements, with the last two dims exchanged
// if `transposed`.
void redirect(Graph& g, const Value* from, Value* to, bool transposed) {
  const auto views = views_of(g, from);
  const auto renew = [&](const Expr& e) {
    return rewrite(e, [&](const Expr& x) -> Expr {
      if (!x->has_load) return x;
      if (x->op != Op::kLoad || !views.count(x->value)) return Expr();
      const Expr flat = idx::linearize(x->args, x->value->shape);
      if (!transposed) return load(to, x->dtype, idx::delinearize(flat, to->shape));
      Exprs at = x->value == from ? x->args : idx::delinearize(flat, from->shape);
      std::swap(at.back(), at[at.size() - 2]);
      return load(to, x->dtype, at);
    });
  };
  for (const auto& n : g.nodes) {
    if (std::none_of(n->inputs.begin(), n->inputs.end(), [&](const Value* v) { return views.count(v); })) continue;
    if (auto* l = n->as<LoopOp>())
      l->body = renew(l->body);
    else if (auto* m = n->as<MatMulOp>())
      m->a = renew(m->a), m->b = renew(m->b);
    else
      continue;
    refresh_inputs(*n);
  }
}

class Finder {
 public:
  Finder(Graph& g, const FuseOptions& options)
      : g_(g),
        options_(options),
        required_(required_values(g)),
        constants_(constant_nodes(g)),
        uses_(uses_of(g)),
        any_(options.attention_expressions || options.attention_limits) {}

  void run() {
    for (at_ = 0; at_ < g_.nodes.size(); ++at_) {
      n_ = g_.nodes[at_].get();
      for (const Form& f : forms(*n_))
        if (find(f)) break;
    }
    // Includes what was built for attention that the device then refused.
    if (found_ || added_loops_) remove_dead_nodes(g_);
  }

 private:
  bool reject(std::string_view reason) const {
    remark(options_, "attention", n_->origin, [&] { return std::string(reason); });
    return false;
  }

  // How a product may be attention's.
  struct Form {
    MatMulOp product;
    bool reshaped = false, transposed = false;  // other dims than the node's: fewer, or the last two exchanged
  };

  // As it is; with one dim of a batch in place of several (windows of an image); or with its operands exchanged, where
  // values are multiplied by the transposed softmax (v @ weights.transpose(-1, -2), of images with channels first).
  std::vector<Form> forms(const Node& n) const {
    const auto* m = n.as<MatMulOp>();
    if (!m || m->vars.size() < 2) return {};
    if (m->vars.size() > 5) return {{with_one_batch(*m, n.outputs[0]->shape), true, false}};
    std::vector<Form> found = {{*m, m->vars.size() == 5, false}};
    if (!m->owner && m->vars.size() <= 4) found.push_back({exchanged(*m), false, true});
    return found;
  }

  bool find(const Form& f) {
    SoftmaxMatch softmax;
    Scores s;
    if (!match(f.product, softmax, s) || !only_attention_reads(f.product.a->value)) return false;
    replace(f, softmax, s);
    return true;
  }

  bool match(const MatMulOp& m, SoftmaxMatch& softmax, Scores& s) const {
    if (m.a->op != Op::kLoad) return false;
    const Expr body = body_at(m.a);
    if (!body || !match_softmax(body, m.k, any_, softmax)) return false;
    // From here on it is a softmax times a matrix, so a remark says why it is not attention.
    if (m.vars.size() > (any_ ? 5 : 4)) return reject("the product has more dims than batch, head, query and element");
    if (m.b->op != Op::kLoad) return reject("the values are an expression rather than a tensor");
    const Expr scores = expand_scores(softmax.scores);
    s.key = m.k;
    s.any_expression = any_;
    if (!find_gemm(scores, m.vars[m.vars.size() - 2], s))
      return reject("the scores are not a scaled, masked product of queries and keys");
    // Loads of the scores must be at [batch..., query, key], whatever dims the batch has there: a product of all heads
    // of all sequences (baddbmm) is loaded at [sequence * heads + head, query, key].
    const Exprs& at = s.load->args;
    const Expr& query = m.vars[m.vars.size() - 2];
    if (softmax.sink && mentions(softmax.sink, query)) return reject("each query has a sink of its own");
    s.swapped = same(at.back(), query) && same(at[at.size() - 2], m.k);
    bool aligned =
        s.swapped || (same(at.back(), m.k) && (same(at[at.size() - 2], query) || is_const(query->args[0], 1)));
    for (std::size_t k = 0; k + 2 < at.size(); ++k)
      aligned &=
          !mentions(at[k], m.k) && !mentions(at[k], query) && !mentions(at[k], m.vars.back()) && !at[k]->has_load;
    return aligned || reject("the scores are not loaded by batch, query and key");
  }

  // One softmax may multiply several tensors of values (attention with two of them, halves of long rows). Each becomes
  // attention: to compute the scores again costs less than to store them.
  bool only_attention_reads(const Value* weights) {
    if (shared_.count(weights)) return true;
    const auto used = uses_.find(weights);
    const auto multiplied = [&](const Form& f) {
      SoftmaxMatch softmax;
      Scores s;
      return match(f.product, softmax, s) && f.product.a->value == weights;
    };
    const auto becomes_attention = [&](const Node* n) {
      if (n == n_) return true;
      const std::vector<Form> all = forms(*n);
      return std::any_of(all.begin(), all.end(), multiplied);
    };
    if (required_.count(weights) || used == uses_.end() ||
        !std::all_of(used->second.begin(), used->second.end(), becomes_attention))
      return reject("the softmax is used elsewhere too");
    shared_.insert(weights);
    return true;
  }

  // The matmul that computes the scores. A bias may come from one, too (of pairs of tokens, for all rows of a batch):
  // it is the one that is not loaded at [.., query, key] or [.., key, query], or in fewer dims of the batch.
  static bool find_gemm(const Expr& scores, const Expr& query, Scores& s) {
    int best = -1;
    bool clear = false;
    for (const Value* v : loads_of(scores)) {
      if (!v->producer || !v->producer->as<MatMulOp>() || v->rank() < 2) continue;
      Scores own;
      own.key = s.key;
      own.any_expression = s.any_expression;
      if (!decompose(scores, v, own)) continue;
      const Exprs& at = own.load->args;
      int dims = 0;
      if ((same(at.back(), s.key) && (same(at[at.size() - 2], query) || is_const(query->args[0], 1))) ||
          (same(at.back(), query) && same(at[at.size() - 2], s.key)))
        dims = 1 + static_cast<int>(std::count_if(at.begin(), at.end(), [](const Expr& e) { return e->has_var; }));
      if (dims < best) continue;
      clear = dims > best;
      own.product = v->producer->as<MatMulOp>();
      s = own;
      best = dims;
    }
    return clear && s.product && s.load;
  }

  // The current node becomes attention. Where that has another shape (groups of query heads in a dim of their own, a
  // batch of several dims, or dims exchanged), loads are of a new node, and the current one is left to other readers.
  void replace(const Form& f, const SoftmaxMatch& softmax, const Scores& s) {
    AttentionOp a = operation(f.product, softmax, s);
    store_operands(a, s.factor);
    Value result = *n_->outputs[0];
    Exprs& shape = result.shape;
    if (f.transposed) std::swap(shape.back(), shape[shape.size() - 2]);
    if (f.reshaped) shape = {a.vars[0]->args[0], a.vars[1]->args[0], shape[shape.size() - 2], shape.back()};
    Node candidate;
    candidate.op = a;
    candidate.origin = n_->origin;
    candidate.outputs = {f.reshaped || f.transposed ? &result : n_->outputs[0]};
    refresh_inputs(candidate);
    std::string why;
    if (!options_.accepts_tile || !options_.accepts_tile(candidate, why)) {
      reject(why.empty() ? "the device has no attention kernel" : why);
      return;
    }
    found_ = true;
    if (f.reshaped || f.transposed) return replace_reshaped(std::move(a), candidate, result, f.transposed);
    n_->op = std::move(a);
    refresh_inputs(*n_);
  }

  void replace_reshaped(AttentionOp a, const Node& candidate, const Value& result, bool transposed) {
    g_.origin = n_->origin;
    Value* out = g_.add_node(std::move(a), candidate.inputs, {{result.dtype, result.shape}})->outputs[0];
    g_.origin.clear();
    move_before(1);
    if (transposed) {
      Exprs vars;
      for (const Expr& extent : n_->outputs[0]->shape) vars.push_back(loop_var(extent));
      Exprs at = vars;
      std::swap(at.back(), at[at.size() - 2]);
      n_->op = LoopOp{vars, load(out, out->dtype, at)};
      refresh_inputs(*n_);
    } else {
      n_->op = ViewOp{};
      n_->inputs = {out};
    }
    redirect(g_, n_->outputs[0], out, transposed);
  }

  // Moves the last `count` nodes before the current one.
  void move_before(std::size_t count) {
    std::rotate(g_.nodes.begin() + static_cast<std::ptrdiff_t>(at_),
                g_.nodes.end() - static_cast<std::ptrdiff_t>(count), g_.nodes.end());
    at_ += count;
    n_ = g_.nodes[at_].get();
  }

  // The operation over batch, head, query, key, the elements of q and k, and those of v.
  AttentionOp operation(const MatMulOp& m, const SoftmaxMatch& softmax, const Scores& s) {
    const std::size_t r = m.vars.size();
    AttentionOp a;
    const Expr b = r >= 4 ? m.vars[0] : loop_var(1);
    const Expr group = r == 5 ? m.vars[2]->args[0] : Expr(1);
    const Expr h = r == 5 ? loop_var(m.vars[1]->args[0] * group) : r >= 3 ? m.vars[r - 3] : loop_var(1);
    const Expr d = loop_var(s.product->k->args[0]);
    a.vars = {b, h, m.vars[r - 2], m.k, d, m.vars[r - 1]};
    const Exprs& product = s.product->vars;
    const Expr &row = product[product.size() - 2], &column = product.back();
    std::vector<std::pair<Expr, Expr>> sub = {
        {s.product->k, d}, {s.swapped ? row : column, m.k}, {s.swapped ? column : row, m.vars[r - 2]}};
    for (std::size_t k = 0; k + 2 < product.size(); ++k)
      if (!is_const(product[k])) sub.emplace_back(product[k], s.load->args[k]);
    a.q = substitute(s.swapped ? s.product->b : s.product->a, sub);
    a.k = substitute(s.swapped ? s.product->a : s.product->b, sub);
    a.v = m.b;
    a.scale = constant_float(s.scale, DType::kFloat32);
    a.softcap = s.softcap;
    a.bias = s.bias;
    a.begin = s.begin;
    a.end = s.end;
    a.sink = softmax.sink;
    a.zero_empty = softmax.zero_empty;
    if (r == 5)  // key and value heads, and groups of query heads
      for (Expr* e : {&a.q, &a.k, &a.v, &a.bias, &a.begin, &a.end, &a.sink})
        if (*e) *e = substitute(*e, {{m.vars[1], idx::floordiv(h, group)}, {m.vars[2], idx::mod(h, group)}});
    if (any_) {
      double factor = s.scale;
      // GPUs' kernels ask for the address of each query's row, the host's for the distance of rows.
      a.q = operand(a.q, a.vars[2], a.vars[4], &factor, options_.attention_expressions);
      Expr k_scale, v_scale;
      const bool converts = options_.attention_expressions;
      const Expr k = scaled_rows(a.k, a.vars[3], a.vars[4], converts, k_scale),
                 v = scaled_rows(a.v, a.vars[3], a.vars[5], converts, v_scale);
      if (k && v && k->dtype == v->dtype) {
        a.k = k, a.k_scale = k_scale;
        a.v = v, a.v_scale = v_scale;
      } else {
        a.k = operand(a.k, a.vars[3], a.vars[4], &factor);
        a.v = operand(a.v, a.vars[3], a.vars[5]);
      }
      a.scale = constant_float(factor, DType::kFloat32);
    }
    return a;
  }

  // Materialises operands that the device does not accept as expressions. Queries are multiplied by `factor`, if any.
  void store_operands(AttentionOp& a, const Expr& factor) {
    const Expr& h = a.vars[1];
    if (factor) {
      const Expr scaled = binary(Op::kMul, cast(a.q, DType::kFloat32), factor);
      a.q = in_memory(a, cast(scaled, a.q->dtype), {0, 1, 2, 4});
    }
    if (options_.attention_limits && !options_.attention_expressions) {
      store_pages(a);
      // The host's kernel reads rows: transposed operands are copied.
      if (!contiguous_rows(a.q, a.vars[2], a.vars[4])) a.q = copied(a, a.q, {0, 1, 2, 4});
      if (!in_pages(a.v) && !contiguous_rows(a.v, a.vars[3], a.vars[5])) a.v = copied(a, a.v, {0, 1, 3, 5});
    }
    // Keys that a loop computes for this GEMM only (rotated ones), element by element or once for each query head, are
    // stored row by row, once for all heads that share them.
    if (options_.attention_limits && !options_.attention_expressions && a.k->op == Op::kLoad) {
      const auto keys = uses_.find(a.k->value);
      const Expr made = body_at(a.k);
      if (made && !made->has_reduce && made->op != Op::kLoad && !required_.count(a.k->value) && keys != uses_.end() &&
          keys->second.size() == 1) {
        const std::int64_t group = shared_by(made, h);
        if (group > 1 || !contiguous_rows(a.k, a.vars[3], a.vars[4])) a.k = in_memory(a, made, {0, 1, 3, 4}, h, group);
      }
    }
    if (a.bias) {
      if (!options_.attention_expressions || !cheap(a.bias))
        a.bias = in_memory(a, a.bias, {0, 1, 2, 3});
      else if (better_stored(a, a.bias))
        a.bias = cast(copied(a, narrowest(a.bias), {0, 1, 2, 3}), a.bias->dtype);
      a.has_bias = true;
    }
    if (options_.attention_expressions) return;
    for (Expr* e : {&a.begin, &a.end, &a.sink})
      if (*e) *e = in_memory(a, *e, {0, 1, 2});
  }

  // A table of biases by relative position: two loads for each score, one of which waits for the other. What depends on
  // constants alone is computed once, when the program is loaded.
  bool better_stored(const AttentionOp& a, const Expr& bias) const {
    constexpr std::int64_t kMostElements = std::int64_t{1} << 22;  // 8 MB for each attention
    if (!gathers(bias)) return false;
    for (const Value* v : loads_of(bias))
      if (v->graph != &g_ || !v->producer || !constants_.count(v->producer)) return false;
    std::int64_t elements = 1;
    for (const std::size_t k : {0, 1, 2, 3}) {
      std::int64_t extent = 1;
      if (mentions(bias, a.vars[k]) && (!is_const_int(a.vars[k]->args[0], extent) || extent > kMostElements))
        return false;
      elements *= extent;
      if (elements > kMostElements) return false;
    }
    return true;
  }

  static bool in_pages(const Expr& e) { return e->op == Op::kLoad && e->args[0]->has_load; }

  // The host's kernel reads keys and values in pages through a table. If their first index depends on batch and page
  // only, it becomes such a table, and the load (pages[b, t / rows], t % rows, ...).
  void store_pages(AttentionOp& a) {
    const Expr &b = a.vars[0], &t = a.vars[3];
    Expr last;
    Value* table = nullptr;
    for (Expr* e : {&a.k, &a.v, &a.k_scale, &a.v_scale}) {
      std::int64_t rows = 0;
      if (!*e || !in_pages(*e) || (*e)->value->rank() < 3 || !is_const_int((*e)->value->shape[1], rows) ||
          !same((*e)->args[1], idx::mod(t, rows)))
        continue;
      const Expr page = loop_var(idx::ceildiv(t->args[0], rows)), row = loop_var(rows);
      const Expr number = substitute((*e)->args[0], {{t, page * rows + row}});
      bool free = !mentions(number, row);
      for (const std::size_t k : {1, 2, 4, 5}) free = free && !mentions(number, a.vars[k]);
      if (!free) continue;
      if (!last || !same((*e)->args[0], last)) {
        last = (*e)->args[0];
        const Expr sequence = loop_var(b->args[0]);
        g_.origin = n_->origin;
        const std::size_t count = g_.nodes.size();
        table = g_.add_loop({sequence, page}, substitute(number, {{b, sequence}}));
        added_loops_ = true;
        g_.origin.clear();
        move_before(g_.nodes.size() - count);
      }
      Exprs at = (*e)->args;
      at[0] = load(table, table->dtype, {b, idx::floordiv(t, rows)});
      *e = load((*e)->value, (*e)->dtype, at);
    }
  }

  // e, materialised over those of the variables `over` on which it depends, instead of evaluated for every score. If
  // `grouped_by` is one of them, it counts groups of `group`.
  Expr in_memory(const AttentionOp& a, const Expr& e, const std::vector<std::size_t>& over, const Expr& grouped_by = {},
                 std::int64_t group = 1) {
    if (e->op == Op::kLoad && !grouped_by) return e;
    return copied(a, e, over, grouped_by, group);
  }

  // in_memory() of what may be in memory already, in another order.
  Expr copied(const AttentionOp& a, const Expr& e, const std::vector<std::size_t>& over, const Expr& grouped_by = {},
              std::int64_t group = 1) {
    Exprs vars, at_vars;
    std::vector<std::pair<Expr, Expr>> own;
    for (const std::size_t k : over) {
      const Expr& v = a.vars[k];
      const bool moves = mentions(e, v);
      const std::int64_t divisor = grouped_by && same(v, grouped_by) ? group : 1;
      const Expr extent = idx::floordiv(v->args[0], divisor), index = idx::floordiv(v, divisor);
      vars.push_back(loop_var(moves ? extent : Expr(1)));
      at_vars.push_back(moves ? index : Expr(0));
      own.emplace_back(v, moves ? vars.back() * divisor : Expr(0));
    }
    g_.origin = n_->origin;
    const std::size_t count = g_.nodes.size();
    Value* value = g_.add_loop(vars, substitute(e, own));
    added_loops_ = true;
    g_.origin.clear();
    move_before(g_.nodes.size() - count);
    return load(value, value->dtype, at_vars);
  }

  Graph& g_;
  const FuseOptions& options_;
  const std::unordered_set<const Value*> required_;
  const std::unordered_set<const Node*> constants_;
  const Uses uses_;
  std::unordered_set<const Value*> shared_;  ///< softmaxes that only attention reads
  const bool any_;                           // limits, softcaps and sinks
  std::size_t at_ = 0;
  Node* n_ = nullptr;
  bool found_ = false, added_loops_ = false;
};

}  // namespace

void find_attention(Graph& g, const FuseOptions& options) { Finder(g, options).run(); }

}  // namespace sardonyx
