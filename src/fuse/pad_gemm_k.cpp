// See pad_gemm_k.h.
#include "fuse/pad_gemm_k.h"

#include <algorithm>
#include <iterator>
#include <map>
#include <optional>
#include <utility>

#include "fuse/reduction_digits.h"
#include "graph/analysis.h"

namespace sardonyx {
namespace {

constexpr std::int64_t kVector = 8;      // 16-bit elements of a 16-byte load
constexpr std::int64_t kLeastTerms = 3;  // of a sum, for each zero: shorter ones are mostly the padding
constexpr std::int64_t kLeastLines =
    32;  // rows and columns: with fewer, an operand is read about as often as a copy would

// The dim of the operand that K runs along and no other; empty if it is read in another way.
std::optional<std::size_t> dim_of_k(const Expr& operand, const Expr& k) {
  if (operand->op != Op::kLoad || size_of(operand->dtype) != 2 || !is_float(operand->dtype) || operand->has_reduce)
    return {};
  std::optional<std::size_t> at;
  for (std::size_t d = 0; d < operand->args.size(); ++d) {
    if (!mentions(operand->args[d], k)) continue;
    if (at || !same(operand->args[d], k)) return {};
    at = d;
  }
  return at && idx::provably_equal(operand->value->shape[*at], k->args[0]) ? at : std::nullopt;
}

Exprs lines_of(const MatMulOp& m, const Expr& operand) {
  Exprs out;
  std::copy_if(m.vars.begin(), m.vars.end(), std::back_inserter(out),
               [&](const Expr& v) { return mentions(operand, v); });
  return out;
}

// Whether the operand is a tensor of 16-bit floats, or a part of one, so that a copy is no larger than that.
bool may_be_gathered(const MatMulOp& m, const Expr& operand) {
  if (operand->op != Op::kLoad || size_of(operand->dtype) != 2 || !is_float(operand->dtype) || operand->has_reduce)
    return false;
  Expr elements = m.k->args[0];
  for (const Expr& v : lines_of(m, operand)) elements = elements * v->args[0];
  return idx::provably_nonnegative(idx::sub(idx::product(operand->value->shape), elements), true);
}

// Whether the operand is computed from floats, element by element: the sum of a GEMM's columns and their bias, where a
// merged GEMM has those of several.
bool is_computed(const Expr& operand) {
  if (operand->op == Op::kLoad || size_of(operand->dtype) != 2 || !is_float(operand->dtype) || operand->has_reduce)
    return false;
  bool floats = true;
  visit(operand, [&](const Expr& x) { floats &= x->op != Op::kLoad || is_float(x->dtype); });
  return floats;
}

bool mentions_line(const MatMulOp& m, const Expr& e) {
  return mentions(e, m.vars[m.vars.size() - 2]) || mentions(e, m.vars.back());
}

// Whether elements that are contiguous in memory belong to different matrices of a batch: a product of images, pixel by
// pixel. Neither K nor lines could be loaded in vectors. What a convolution computes gets another order later.
bool is_across(const MatMulOp& m, const Expr& operand) {
  if (operand->op != Op::kLoad || operand->args.empty()) return false;
  const Value* v = operand->value;
  const Node* p = storage_of(const_cast<Value*>(v))->producer;
  const Expr& last = operand->args.back();
  return v->storage_order.empty() && !(p && p->as<ConvOp>()) && !is_const(v->shape.back(), 1) && !mentions(last, m.k) &&
         !mentions_line(m, last) &&
         std::any_of(m.vars.begin(), m.vars.end(), [&](const Expr& of) { return mentions(last, of); });
}

// Whether an operand's lines, or its K, are contiguous in memory, but begin at odd multiples of one or two elements (a
// part of a merged GEMM's result): an element is loaded by itself each time that a tile reads it.
bool is_misaligned(const MatMulOp& m, const Expr& operand) {
  constexpr std::int64_t kLeastPart = 4;  // elements that are loaded at a time
  if (operand->op != Op::kLoad || size_of(operand->dtype) != 2 || !is_float(operand->dtype)) return false;
  const Expr at = memory_offset(operand);
  for (const Expr& v : {m.k, m.vars.back(), m.vars[m.vars.size() - 2]}) {
    Expr step, rest;
    if (!mentions(at, v) || !idx::split_affine(at, v, step, rest) || !is_const(step, 1) || mentions(rest, v)) continue;
    std::int64_t lines = 0;
    return !is_const_int(idx::mod(rest, kLeastPart), lines) || lines != 0;
  }
  return false;
}

class Padder {
 public:
  Padder(Graph& g, const FuseOptions& options)
      : g_(g), options_(options), constants_(constant_nodes(g)), uses_(uses_of(g)) {
    for (Value* v : g.outputs) outputs_.insert(storage_of(v));
    for (const Value* v : required_values(g)) outputs_.insert(storage_of(v));
  }

  void run() {
    const std::size_t count = g_.nodes.size();
    for (std::size_t i = 0; i < count; ++i) {
      Node& n = *g_.nodes[i];
      if (auto* m = n.as<MatMulOp>(); m && !constants_.count(&n)) product(n, *m);
    }
    g_.origin.clear();
    sort_nodes(g_);
    remove_dead_nodes(g_);
  }

 private:
  void product(Node& n, MatMulOp& m) {
    std::int64_t terms = 0, lines = 0;
    if (!is_const_int(m.k->args[0], terms) || terms <= kVector) return;
    if ((kVector - terms % kVector) % kVector * kLeastTerms > terms) return;
    // Of whole vectors, only operands change whose elements lie across.
    const bool whole = terms % kVector == 0, parts_a = loads_elements(m, m.a, terms),
               parts_b = loads_elements(m, m.b, terms), stays_a = whole && !is_across(m, m.a) && !parts_a,
               stays_b = whole && !is_across(m, m.b) && !parts_b;
    if (stays_a && stays_b) return;
    const auto reject = [&](const char* why) {
      remark(options_, "pad_gemm_k", n.origin, [&] { return std::string(why); }, {{"k", std::to_string(terms)}});
    };
    // Lines of one operand tell how often the other is read; few rows are read faster than a launch for a copy starts.
    const auto few = [&](const Expr& lines_of) {
      return is_const_int(lines_of->args[0], lines) && lines < kLeastLines;
    };
    const bool free_a = costs_nothing(m.a), free_b = costs_nothing(m.b);
    if ((few(m.vars.back()) && !free_a) || (few(m.vars[m.vars.size() - 2]) && !(free_a && free_b)))
      return reject("it has too few rows or columns");
    const auto a = dim_of_k(m.a, m.k), b = dim_of_k(m.b, m.k);
    const auto may_be_copied = [&](const Expr& x) { return may_be_gathered(m, x) || is_computed(x); };
    if ((!stays_a && !a && !may_be_copied(m.a)) || (!stays_b && !b && !may_be_copied(m.b)))
      return reject("an operand is repeated, or not of 16-bit floats");
    const Expr k = whole ? m.k : loop_var(Expr((terms + kVector - 1) / kVector * kVector));
    g_.origin = n.origin;
    if (!stays_a) m.a = a && !(whole && parts_a) ? padded(m, m.a, *a, k) : gathered(m, m.a, k);
    if (!stays_b) m.b = b && !(whole && parts_b) ? padded(m, m.b, *b, k) : gathered(m, m.b, k);
    m.k = k;
    refresh_inputs(n);
  }

  // Whether a tile would load single elements of an operand, for enough other lines that a copy costs less.
  bool loads_elements(const MatMulOp& m, const Expr& operand, std::int64_t terms) const {
    constexpr std::int64_t kLongSum = 64;  // terms
    const Expr& others = mentions(operand, m.vars.back()) ? m.vars[m.vars.size() - 2] : m.vars.back();
    std::int64_t lines = 0;
    const bool many = !is_const(others) && (!is_const_int(others->args[0], lines) || lines >= kLeastLines);
    return many && terms >= kLongSum && operand->op == Op::kLoad && !constants_.count(operand->value->producer) &&
           is_misaligned(m, operand) && may_be_gathered(m, operand);
  }

  // Whether what computes the operand writes the zeros itself, or does so when the program is loaded.
  bool costs_nothing(const Expr& operand) const {
    if (operand->op != Op::kLoad) return false;
    const Node* p = operand->value->producer;
    return p && (constants_.count(p) > 0 || takes_over(operand->value) || viewed_dims(operand->value) > 0);
  }

  // Whether a loop computes v for nothing else than a copy. One that computes what may become an epilogue stays: it
  // saturates what a tile kernel computed, of which float16 holds no more than infinity.
  bool takes_over(const Value* v) const {
    const Node* p = v->producer;
    const auto* l = p ? p->as<LoopOp>() : nullptr;
    if (!l || v->graph != &g_ || l->body->has_reduce || constants_.count(p) || outputs_.count(v) ||
        uses_.at(v).size() != 1)
      return false;
    const std::vector<Value*> loads = loads_of(l->body);
    return l->body->op == Op::kLoad || std::none_of(loads.begin(), loads.end(), [&](const Value* x) {
             const Node* n = x->producer;
             const bool tile = n && (n->as<MatMulOp>() || n->as<ConvOp>() || n->as<AttentionOp>());
             // An epilogue has as many elements as its kernel's result: what concatenates several tensors is none.
             return tile && !idx::provably_nonnegative(v->elements() - x->elements() - 1, true);
           });
  }

  // Of a loop's result that is only read as a matrix: how many of its first dims are the matrix's lines. 0: no such.
  std::size_t viewed_dims(const Value* v) const {
    const Node* p = v->producer;
    if (!p || !p->as<ViewOp>() || v->rank() != 2 || outputs_.count(v) || uses_.at(v).size() != 1 ||
        !takes_over(p->inputs[0]))
      return 0;
    const Exprs& shape = p->inputs[0]->shape;
    for (std::size_t d = 1; d < shape.size(); ++d)
      if (idx::provably_equal(idx::product(Exprs(shape.begin() + static_cast<std::ptrdiff_t>(d), shape.end())),
                              v->shape[1]))
        return d;
    return 0;
  }

  // Such a matrix with `extent` elements in a line: the loop writes the zeros.
  Value* copy_of_viewed(const Value* v, std::size_t lead, const Expr& extent) {
    const Value* source = v->producer->inputs[0];
    const auto* l = source->producer->as<LoopOp>();
    const auto split = source->shape.begin() + static_cast<std::ptrdiff_t>(lead);
    Exprs vars = vars_of(Exprs(source->shape.begin(), split));
    const Expr term = loop_var(v->shape[1]);  // with its own extent, so that indices stay simple
    Exprs at = vars;
    for (const Expr& i : idx::delinearize(term, Exprs(split, source->shape.end()))) at.push_back(i);
    vars.push_back(loop_var(extent));
    std::vector<std::pair<Expr, Expr>> to;
    for (std::size_t d = 0; d < at.size(); ++d) to.emplace_back(l->vars[d], at[d]);
    const Expr body = substitute(substitute(l->body, to), {{term, vars.back()}});
    g_.origin = join_origins(source->producer->origin, g_.origin);
    const Expr inside = compare(Op::kLt, vars.back(), v->shape[1]);
    Value* made = g_.add_loop(vars, select(inside, body, constant_float(0, v->dtype)));
    return g_.add_node(ViewOp{}, {made}, {{v->dtype, {v->shape[0], extent}}})->outputs[0];
  }

  // The operand with k in place of its index along `dim`, and zeros from the end of that dim on.
  Expr padded(const MatMulOp& m, const Expr& operand, std::size_t dim, const Expr& k) {
    auto* v = const_cast<Value*>(operand->value);
    Value*& copy = copies_[{v, dim}];
    if (!copy) {
      std::vector<std::size_t> dims = {dim};
      for (std::size_t d = 0; d < operand->args.size(); ++d)
        if (mentions_line(m, operand->args[d])) dims.push_back(d);
      copy = copy_of(v, dim, k->args[0], dims);
    }
    Exprs at = operand->args;
    at[dim] = k;
    return load(copy, copy->dtype, at);
  }

  // The operand's lines and K as a matrix of their own: K runs along several dims of its tensor (the heads of attention
  // and their elements).
  Expr gathered(const MatMulOp& m, const Expr& operand, const Expr& k) {
    Exprs at = lines_of(m, operand), vars;
    for (const Expr& v : at) vars.push_back(loop_var(v->args[0]));
    vars.push_back(loop_var(k->args[0]));
    std::vector<std::pair<Expr, Expr>> to = {{m.k, vars.back()}};
    for (std::size_t d = 0; d < at.size(); ++d) to.emplace_back(at[d], vars[d]);
    const Expr inside = compare(Op::kLt, vars.back(), m.k->args[0]);
    const Value* out = g_.add_loop(vars, select(inside, substitute(operand, to), constant_float(0, operand->dtype)));
    at.push_back(k);
    return load(out, out->dtype, at);
  }

  // `dims`: K's and those of lines.
  Value* copy_of(Value* v, std::size_t dim, const Expr& extent, const std::vector<std::size_t>& dims) {
    if (const std::size_t lead = dim == 1 ? viewed_dims(v) : 0) return copy_of_viewed(v, lead, extent);
    Exprs vars = vars_of(v->shape);
    vars[dim] = loop_var(extent);
    Expr body = load(v, v->dtype, vars);
    const Node* p = v->producer;
    if (takes_over(v)) {
      const auto* l = p->as<LoopOp>();
      std::vector<std::pair<Expr, Expr>> to;
      for (std::size_t d = 0; d < vars.size(); ++d) to.emplace_back(l->vars[d], vars[d]);
      body = substitute(l->body, to);
      g_.origin = join_origins(p->origin, g_.origin);
    }
    const bool constant = p && constants_.count(p) > 0;
    const Expr inside = compare(Op::kLt, vars[dim], v->shape[dim]);
    Value* out = g_.add_loop(vars, select(inside, body, constant_float(0, v->dtype)));
    if (!constant) out->storage_order = order_of(body, vars, dims);
    return out;
  }

  // The dim along which `body` reads contiguous memory becomes the innermost: a GEMM reads K and lines in vectors. If
  // it is neither (the matrices of a batch, element by element), K is, and so it is if nothing is read once for each
  // element: what is read once for each line stays in registers or caches.
  static std::vector<int> order_of(const Expr& body, const Exprs& vars, const std::vector<std::size_t>& dims) {
    std::size_t best = dims[0];
    int most = unit_loads(body, vars[best], vars);
    bool matrix = false;
    visit(body, [&](const Expr& x) {
      matrix |= x->op == Op::kLoad && mentions(x, vars[best]) &&
                std::any_of(dims.begin() + 1, dims.end(), [&](std::size_t d) { return mentions(x, vars[d]); });
    });
    for (const std::size_t d : dims)
      if (const int n = unit_loads(body, vars[d], vars); matrix && n > most) best = d, most = n;
    if (best + 1 == vars.size()) return {};
    std::vector<int> order;
    for (std::size_t d = 0; d < vars.size(); ++d)
      if (d != best) order.push_back(static_cast<int>(d));
    order.push_back(static_cast<int>(best));
    return order;
  }

  Graph& g_;
  const FuseOptions& options_;
  const std::unordered_set<const Node*> constants_;
  const Uses uses_;
  std::unordered_set<const Value*> outputs_;
  std::map<std::pair<const Value*, std::size_t>, Value*> copies_;
};

}  // namespace

void pad_gemm_k(Graph& g, const FuseOptions& options) { Padder(g, options).run(); }

}  // namespace sardonyx
