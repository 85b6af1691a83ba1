// Recognises attention by what is computed, however the model writes it: a matmul whose left operand is a softmax of
// (scaled, masked) scores that another matmul computes.
#include "fuse/attention.h"

#include <algorithm>

#include "fuse/softmax_match.h"
#include "graph/analysis.h"

namespace sardonyx {
namespace {

// A load of a view, or of a loop that only moves elements, as a load of what those read.
Expr through_movement(Expr x) {
  for (int depth = 0; depth < 16 && x->op == Op::kLoad; ++depth) {
    const Node* p = x->value->producer;
    if (p && p->as<ViewOp>()) {
      const Value* source = p->inputs[0];
      x = load(source, x->dtype, idx::delinearize(idx::linearize(x->args, x->value->shape), source->shape));
    } else if (const auto* l = p ? p->as<LoopOp>() : nullptr; l && l->body->op == Op::kLoad) {
      x = body_at(x);
    } else {
      break;
    }
  }
  return x;
}

// Whether rows (over `row`) of elements (over `element`) are contiguous in memory, at a constant stride.
bool contiguous_rows(const Expr& x, const Expr& row, const Expr& element) {
  if (x->op != Op::kLoad || !x->value->storage_order.empty()) return false;
  Expr factor, rest, left;
  return idx::split_affine(idx::linearize(x->args, x->value->shape), element, factor, rest) && is_const(factor, 1) &&
         idx::split_affine(rest, row, factor, left) && !mentions(left, row) && !mentions(left, element) &&
         !left->has_load;
}

// An index of which the smaller of two is taken, as what it is below the limit. So rows past the last one, which repeat
// it, do not hide that the others follow one another.
Expr within_limits(const Expr& e, const Expr& variable) {
  return rewrite(e, [&](const Expr& x) -> Expr {
    if (x->op != Op::kMin || mentions(x->args[0], variable) == mentions(x->args[1], variable)) return {};
    return x->args[mentions(x->args[0], variable) ? 0 : 1];
  });
}

// Whether each row of elements (over `element`) is contiguous, at a place that is read from memory: a row of a page of
// a KV cache, whose number is in a table.
bool gathered_rows(const Expr& x, const Expr& element) {
  if (x->op != Op::kLoad || !x->value->storage_order.empty()) return false;
  Expr factor, rest;
  const Expr flat = idx::linearize(x->args, x->value->shape);
  return flat->has_load && idx::split_affine(flat, element, factor, rest) && is_const(factor, 1) &&
         !mentions(rest, element);
}

// If x loads a tensor that is another one times a constant, a load of that one; `factor` is multiplied by the constant.
Expr through_scale(const Expr& x, double& factor) {
  if (x->op != Op::kLoad || !x->value->producer || !x->value->producer->as<LoopOp>()) return x;
  Expr e = body_at(x);
  double c = 1;
  while (is_float(e->dtype)) {
    if (e->op == Op::kCast) {
      e = e->args[0];
    } else if (e->op == Op::kMul && (is_const(e->args[0]) || is_const(e->args[1]))) {
      const bool first = is_const(e->args[0]);
      c *= e->args[first ? 0 : 1]->f;
      e = e->args[first ? 1 : 0];
    } else {
      break;
    }
  }
  if (e->op != Op::kLoad || e->dtype != x->dtype || !(c > 0)) return x;
  factor *= c;
  return e;
}

// Operands are read in place if their rows are contiguous. A constant factor of q and k is split off. limited: the last
// rows may be the same one.
Expr operand(const Expr& x, const Expr& row, const Expr& element, double* factor = nullptr, bool limited = false) {
  Expr y = through_movement(x);
  if (gathered_rows(y, element)) return y;
  double c = 1;
  if (factor) y = through_movement(through_scale(y, c));
  if (!contiguous_rows(limited ? within_limits(y, row) : y, row, element)) return x;
  if (factor) *factor *= c;
  return y;
}

// If x loads a tensor whose rows are int8 in pages times a number for each row: a load of the integers, and `scale`
// becomes the row's. The same with a scale of 1 for rows of int8 or float8 that are only converted, if `converts`.
// Otherwise empty.
Expr scaled_rows(const Expr& x, const Expr& row, const Expr& element, bool converts, Expr& scale) {
  const Expr y = through_movement(x);
  if (y->op != Op::kLoad || !y->value->producer || !y->value->producer->as<LoopOp>()) return {};
  Expr e = body_at(y);
  while (e->op == Op::kCast && is_float(e->dtype) && (is_float(e->args[0]->dtype) || e->args[0]->op == Op::kLoad))
    e = e->args[0];
  if (converts && (e->dtype == DType::kInt8 || e->dtype == DType::kFloat8E4M3FN) && contiguous_rows(e, row, element)) {
    scale = constant_float(1, DType::kFloat32);
    return e;
  }
  if (e->op != Op::kMul || e->dtype != DType::kFloat32) return {};
  for (const std::size_t k : {0, 1}) {
    const Expr &numbers = e->args[k], &factor = e->args[1 - k];
    if (numbers->op != Op::kCast) continue;
    if (const DType t = numbers->args[0]->dtype; t != DType::kInt8 && t != DType::kFloat8E4M3FN) continue;
    if (!gathered_rows(numbers->args[0], element) || factor->op != Op::kLoad || mentions(factor, element)) continue;
    scale = factor;
    return numbers->args[0];
  }
  return {};
}

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

// Loads of `from` become loads of `to`, which has the same elements.
void redirect(Graph& g, const Value* from, Value* to) {
  for (const auto& n : g.nodes) {
    if (std::find(n->inputs.begin(), n->inputs.end(), from) == n->inputs.end()) continue;
    const auto renew = [&](const Expr& e) {
      return rewrite(e, [&](const Expr& x) -> Expr {
        if (!x->has_load) return x;
        if (x->op != Op::kLoad || x->value != from) return Expr();
        return load(to, x->dtype, idx::delinearize(idx::linearize(x->args, from->shape), to->shape));
      });
    };
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
      SoftmaxMatch softmax;
      Scores s;
      if (match(*n_, softmax, s) && only_attention_reads(n_->as<MatMulOp>()->a->value)) replace(softmax, s);
    }
    // Includes what was built for attention that the device then refused.
    if (found_ || added_loops_) remove_dead_nodes(g_);
  }

 private:
  bool reject(std::string_view reason) const {
    remark(options_, "attention", n_->origin, [&] { return std::string(reason); });
    return false;
  }

  bool match(const Node& n, SoftmaxMatch& softmax, Scores& s) const {
    const auto* m = n.as<MatMulOp>();
    if (!m || m->a->op != Op::kLoad) return false;
    const Expr body = body_at(m->a);
    if (!body || !match_softmax(body, m->k, any_, softmax)) return false;
    // From here on it is a softmax times a matrix, so a remark says why it is not attention.
    if (m->vars.size() > (any_ ? 5 : 4)) return reject("the product has more dims than batch, head, query and element");
    if (m->b->op != Op::kLoad) return reject("the values are an expression rather than a tensor");
    const Expr scores = expand_scores(softmax.scores);
    s.key = m->k;
    s.any_expression = any_;
    if (!find_gemm(scores, m->vars[m->vars.size() - 2], s))
      return reject("the scores are not a scaled, masked product of queries and keys");
    // Loads of the scores must be at [batch..., query, key], whatever dims the batch has there: a product of all heads
    // of all sequences (baddbmm) is loaded at [sequence * heads + head, query, key].
    const Exprs& at = s.load->args;
    const Expr& query = m->vars[m->vars.size() - 2];
    bool aligned = same(at.back(), m->k) && (same(at[at.size() - 2], query) || is_const(query->args[0], 1));
    for (std::size_t k = 0; k + 2 < at.size(); ++k)
      aligned &=
          !mentions(at[k], m->k) && !mentions(at[k], query) && !mentions(at[k], m->vars.back()) && !at[k]->has_load;
    return aligned || reject("the scores are transposed before the softmax");
  }

  // One softmax may multiply several tensors of values (attention with two of them, halves of long rows). Each becomes
  // attention: to compute the scores again costs less than to store them.
  bool only_attention_reads(const Value* weights) {
    if (shared_.count(weights)) return true;
    const auto used = uses_.find(weights);
    const auto becomes_attention = [&](const Node* n) {
      SoftmaxMatch softmax;
      Scores s;
      return n == n_ || (match(*n, softmax, s) && n->as<MatMulOp>()->a->value == weights);
    };
    if (required_.count(weights) || used == uses_.end() ||
        !std::all_of(used->second.begin(), used->second.end(), becomes_attention))
      return reject("the softmax is used elsewhere too");
    shared_.insert(weights);
    return true;
  }

  // The matmul that computes the scores. A bias may come from one, too (of pairs of tokens, for all rows of a batch):
  // it is the one that is not loaded at [.., query, key], or in fewer dims of the batch.
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
      if (same(at.back(), s.key) && (same(at[at.size() - 2], query) || is_const(query->args[0], 1)))
        dims = 1 + static_cast<int>(std::count_if(at.begin(), at.end(), [](const Expr& e) { return e->has_var; }));
      if (dims < best) continue;
      clear = dims > best;
      own.product = v->producer->as<MatMulOp>();
      s = own;
      best = dims;
    }
    return clear && s.product && s.load;
  }

  void replace(const SoftmaxMatch& softmax, const Scores& s) {
    const MatMulOp& m = *n_->as<MatMulOp>();
    const std::size_t r = m.vars.size();
    AttentionOp a = operation(m, softmax, s);
    store_operands(a, s.factor);
    Node candidate;
    candidate.op = a;
    candidate.origin = n_->origin;
    candidate.outputs = n_->outputs;
    Value grouped = *n_->outputs[0];
    if (r == 5) {
      grouped.shape = {a.vars[0]->args[0], a.vars[1]->args[0], n_->outputs[0]->shape[3], n_->outputs[0]->shape[4]};
      candidate.outputs = {&grouped};
    }
    refresh_inputs(candidate);
    std::string why;
    if (!options_.accepts_tile || !options_.accepts_tile(candidate, why)) {
      reject(why.empty() ? "the device has no attention kernel" : why);
      return;
    }
    found_ = true;
    if (r == 5) return replace_grouped(std::move(a), candidate, grouped);
    n_->op = std::move(a);
    refresh_inputs(*n_);
  }

  // Adds a node with all query heads in one dim; the old one becomes a view of its result.
  void replace_grouped(AttentionOp a, const Node& candidate, const Value& grouped) {
    g_.origin = n_->origin;
    Value* out = g_.add_node(std::move(a), candidate.inputs, {{grouped.dtype, grouped.shape}})->outputs[0];
    g_.origin.clear();
    move_before(1);
    n_->op = ViewOp{};
    n_->inputs = {out};
    redirect(g_, n_->outputs[0], out);
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
    std::vector<std::pair<Expr, Expr>> sub = {{s.product->k, d}, {s.product->vars.back(), m.k}};
    const Exprs& product = s.product->vars;
    sub.emplace_back(product[product.size() - 2], m.vars[r - 2]);
    for (std::size_t k = 0; k + 2 < product.size(); ++k)
      if (!is_const(product[k])) sub.emplace_back(product[k], s.load->args[k]);
    a.q = substitute(s.product->a, sub);
    a.k = substitute(s.product->b, sub);
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
