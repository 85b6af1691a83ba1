// See closed_forms.h.
#include "fuse/closed_forms.h"

#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <unordered_map>

#include "graph/analysis.h"

namespace sardonyx {
namespace {

constexpr std::int64_t kMaxElements = 1 << 24;  // of a constant that is compared with an affine function
constexpr std::size_t kMaxNodes = 48;           // of an expression that replaces a load
/// Index arithmetic must not overflow: constants below this, times extents of tensors, don't.
constexpr std::int64_t kMaxConstant = std::int64_t(1) << 31;

bool discrete(DType t) { return t == DType::kInt64 || t == DType::kInt32 || t == DType::kBool; }

/// The elements of a tensor, as an expression over `vars` that loads nothing.
struct ClosedForm {
  Exprs vars;
  Expr body;
};

bool small(const Expr& e) {
  std::size_t nodes = 0;
  bool moderate = true;
  visit(e, [&](const Expr& x) {
    ++nodes;
    std::int64_t c = 0;
    if (is_const_int(x, c)) moderate &= c > -kMaxConstant && c < kMaxConstant;
  });
  return moderate && nodes <= kMaxNodes;
}

// The variable that `condition` makes 0 where it holds, if it is of the form v < 1 or v == 0; else empty.
Expr zero_where(const Expr& condition) {
  const Expr& x = condition->args.empty() ? condition : condition->args[0];
  if (x->op != Op::kVar || condition->args.size() != 2) return Expr();
  const Expr& y = condition->args[1];
  if ((condition->op == Op::kLt && is_const(y, 1)) || (condition->op == Op::kEq && is_const(y, 0)) ||
      (condition->op == Op::kLe && is_const(y, 0)))
    return x;
  return Expr();
}

Expr as_integer(const Expr& e, std::int64_t& bound);

// The first element of an axis often has a value of its own that the formula of the others gives too; positions are
// often counted in floating point.
Expr simplified(const Expr& e) {
  return rewrite(e, [](const Expr& x) -> Expr {
    if (x->op == Op::kCast && x->dtype == DType::kInt64 && is_float(x->args[0]->dtype)) {
      std::int64_t bound = 0;
      return as_integer(x->args[0], bound);
    }
    if (x->op != Op::kSelect) return Expr();
    const Expr condition = simplified(x->args[0]), then = simplified(x->args[1]), otherwise = simplified(x->args[2]);
    const Expr v = zero_where(condition);
    if (v && same(substitute(then, {{v, Expr(0)}}), substitute(otherwise, {{v, Expr(0)}}))) return otherwise;
    return select(condition, then, otherwise);
  });
}

template <typename T>
bool affine_elements(const T* data, const std::vector<std::int64_t>& dims, std::vector<std::int64_t>& strides) {
  // Differences and multiples of values below kMaxConstant don't overflow.
  std::int64_t step = 1, count = 1;
  for (const std::int64_t d : dims) count *= d;
  if (std::abs(std::int64_t(data[0])) >= kMaxConstant) return false;
  strides.assign(dims.size(), 0);
  for (std::size_t k = dims.size(); k-- > 0; step *= dims[k]) {
    if (dims[k] == 1) continue;
    if (std::abs(std::int64_t(data[step])) >= kMaxConstant) return false;
    strides[k] = std::int64_t(data[step]) - std::int64_t(data[0]);
  }
  std::vector<std::int64_t> at(dims.size(), 0);
  std::int64_t expected = data[0];
  for (std::int64_t i = 0; i < count; ++i) {
    if (std::int64_t(data[i]) != expected) return false;
    for (std::size_t k = dims.size(); k-- > 0;) {
      expected += strides[k];
      if (++at[k] < dims[k]) break;
      expected -= strides[k] * dims[k];
      at[k] = 0;
    }
  }
  return true;
}

// The keys that a mask allows for each query, as a condition on their positions: lower <= key - query < upper, with
// bounds at the mask's edges left out. Empty if the mask is no such band.
template <typename T>
Expr band(const T* data, std::int64_t queries, std::int64_t keys, T allowed, const Expr& query, const Expr& key) {
  bool below = false, above = false;
  std::int64_t lower = -queries, upper = keys;
  for (std::int64_t i = 0; i < queries; ++i) {
    const T *row = data + i * keys, *end = row + keys;
    const T* first = std::find(row, end, allowed);
    const T* last = std::find_if(first, end, [&](T x) { return x != allowed; });
    if (std::find(last, end, allowed) != end) return Expr();
    if (first == last) return Expr();  // a query without a key has no position
    if (first != row) below = true, lower = std::max(lower, first - row - i);
    if (last != end) above = true, upper = std::min(upper, last - row - i);
  }
  for (std::int64_t i = 0; i < queries; ++i)
    for (std::int64_t j = 0; j < keys; ++j) {
      const bool inside = (!below || j - i >= lower) && (!above || j - i < upper);
      if (inside != (data[i * keys + j] == allowed)) return Expr();
    }
  Expr r = constant_bool(true);
  if (above) r = logical_and(r, compare(Op::kLt, key, query + upper));
  if (below) r = logical_and(r, compare(Op::kLe, query + lower, key));
  return r;
}

// A mask that is added to scores: 0 in a band, one number below -1e30 elsewhere.
template <typename T>
Expr additive_band(const T* data, std::int64_t queries, std::int64_t keys, const Expr& query, const Expr& key) {
  const T* end = data + queries * keys;
  const T* other = std::find_if(data, end, [](T x) { return x != T(0); });
  if (other == end || !(*other <= T(-1e30)) ||
      std::find_if(other, end, [&](T x) { return x != *other && x != T(0); }) != end)
    return Expr();
  const Expr c = band(data, queries, keys, T(0), query, key);
  return c ? select(c, constant_float(0, DType::kFloat32), constant_float(*other, DType::kFloat32)) : c;
}

/// The largest absolute value of integers that float32 holds exactly.
constexpr std::int64_t kExactFloat = std::int64_t(1) << 24;

// An int64 expression equal to floating-point arithmetic on small integers; empty if `e` is something else. `bound`: of
// its absolute value.
Expr as_integer(const Expr& e, std::int64_t& bound) {
  if (e->dtype != DType::kFloat32 && e->dtype != DType::kFloat64) return Expr();
  if (is_const(e)) {
    bound = kExactFloat;
    if (!(std::fabs(e->f) < kExactFloat) || e->f != std::trunc(e->f)) return Expr();
    bound = std::llabs(static_cast<std::int64_t>(e->f));
    return Expr(static_cast<std::int64_t>(e->f));
  }
  if (e->op == Op::kCast && e->args[0]->dtype == DType::kInt64) {
    // |x| <= b if neither b - x nor b + x can be negative.
    const Expr& x = e->args[0];
    for (bound = 1; bound < kExactFloat; bound *= 2)
      if (idx::provably_nonnegative(bound - x) && idx::provably_nonnegative(x + bound)) return x;
    return Expr();
  }
  if (e->op != Op::kAdd && e->op != Op::kSub && e->op != Op::kMul) return Expr();
  std::int64_t a = 0, b = 0;
  const Expr x = as_integer(e->args[0], a), y = x ? as_integer(e->args[1], b) : x;
  if (!x || !y) return Expr();
  bound = e->op == Op::kMul ? a * b : a + b;
  return bound < kExactFloat ? binary(e->op, x, y) : Expr();
}

class Finder {
 public:
  explicit Finder(Graph& g) : g_(g) {}

  void run() {
    for (const auto& n : g_.nodes) {
      if (n->outputs.size() != 1) continue;
      const Value* v = n->outputs[0];
      if (auto* l = n->as<LoopOp>())
        loop(*n, *l);
      else if (n->as<ConstantOp>())
        constant(*v);
      else if (n->as<ViewOp>())
        view(*v, *n->inputs[0]);
      else if (const auto* r = n->as<RoutineOp>(); r && r->name == "scan")
        running_sum(*n, *r);
    }
    remove_dead_nodes(g_);
  }

 private:
  void note(const Value& v, Exprs vars, const Expr& body) {
    if (!body->has_load && !body->has_reduce && small(body)) known_[&v] = {std::move(vars), body};
  }

  void constant(const Value& v) {
    if (v.dtype == DType::kBool || v.dtype == DType::kFloat32) mask(v);
    if (v.dtype == DType::kFloat32 && v.content && v.content->size() == 1 && is_const(v.content->front()))
      note(v, vars_of(v.shape), v.content->front());
    if (!discrete(v.dtype) || known_.count(&v)) return;
    std::vector<std::int64_t> dims, strides;
    std::int64_t count = 1;
    for (const Expr& e : v.shape) {
      std::int64_t d = 0;
      if (!is_const_int(e, d) || d == 0 || d > kMaxElements || (count *= d) > kMaxElements) return;
      dims.push_back(d);
    }
    const bool affine = v.dtype == DType::kInt64   ? affine_elements(v.constant_as<std::int64_t>(), dims, strides)
                        : v.dtype == DType::kInt32 ? affine_elements(v.constant_as<std::int32_t>(), dims, strides)
                                                   : affine_elements(v.constant_as<std::uint8_t>(), dims, strides);
    if (!affine) return;
    const Exprs vars = vars_of(v.shape);
    const std::int64_t first = v.dtype == DType::kInt64   ? v.constant_as<std::int64_t>()[0]
                               : v.dtype == DType::kInt32 ? v.constant_as<std::int32_t>()[0]
                                                          : v.constant_as<std::uint8_t>()[0];
    Expr e = first;
    for (std::size_t k = 0; k < vars.size(); ++k) e = e + vars[k] * strides[k];
    if (v.dtype == DType::kBool && !is_const(e)) return;
    note(v, vars, v.dtype == DType::kInt64 ? e : cast(e, v.dtype));
  }

  // A mask of queries (next to last dim) and keys (last dim).
  void mask(const Value& v) {
    std::int64_t queries = 0, keys = 0, before = 1;
    if (v.rank() < 2) return;
    const Exprs vars = vars_of(v.shape);
    const auto r = vars.size();
    if (!is_const_int(v.shape[r - 2], queries) || !is_const_int(v.shape[r - 1], keys) || queries < 2 || keys < 2 ||
        queries > kMaxElements / keys ||
        !is_const_int(idx::product(Exprs(v.shape.begin(), v.shape.end() - 2)), before) || before != 1)
      return;
    const Expr e = v.dtype == DType::kBool
                       ? band(v.constant_as<std::uint8_t>(), queries, keys, std::uint8_t(1), vars[r - 2], vars[r - 1])
                       : additive_band(v.constant_as<float>(), queries, keys, vars[r - 2], vars[r - 1]);
    if (e) note(v, vars, e);
  }

  void view(const Value& v, const Value& source) {
    const auto it = known_.find(&source);
    if (it == known_.end()) return;
    const Exprs vars = vars_of(v.shape);
    note(v, vars, element(it->second, idx::delinearize(idx::linearize(vars, v.shape), source.shape)));
  }

  void loop(Node& n, LoopOp& l) {
    const Expr body = resolved(l.body);
    if (body.get() != l.body.get()) {
      l.body = body;
      refresh_inputs(n);
    }
    std::int64_t bound = 0;
    if (discrete(l.body->dtype) || (is_float(l.body->dtype) && !l.body->has_load && as_integer(l.body, bound)))
      note(*n.outputs[0], l.vars, l.body);
  }

  // Running sums of what is constant along the axis.
  void running_sum(Node& n, const RoutineOp& r) {
    const Value &x = *n.inputs[0], &y = *n.outputs[0];
    const auto it = known_.find(&x);
    const bool floats = y.dtype == DType::kFloat32;
    if (it == known_.end() || !(y.dtype == DType::kInt64 || floats) || r.params.size() != 3) return;
    std::int64_t product = 1, exclusive = 0, reverse = 0;
    if (!is_const_int(r.params[0], product) || !is_const_int(r.params[1], exclusive) ||
        !is_const_int(r.params[2], reverse) || product)
      return;
    const Exprs vars = vars_of(y.shape);
    if (mentions(it->second.body, it->second.vars[1])) return;
    const Expr before = reverse ? y.shape[1] - 1 - vars[1] : vars[1];
    std::int64_t bound = 0;
    const Expr each = floats ? as_integer(element(it->second, vars), bound) : element(it->second, vars);
    if (!each) return;
    Expr sum = each * (exclusive ? before : before + 1);
    // Sums of floats must be exact whatever the order of additions.
    if (floats) sum = cast(sum, y.dtype);
    if (!small(sum) || (floats && !as_integer(sum, bound))) return;
    n.op = LoopOp{vars, sum};
    refresh_inputs(n);
    note(y, vars, sum);
  }

  static Expr element(const ClosedForm& f, const Exprs& at) {
    std::vector<std::pair<Expr, Expr>> r;
    for (std::size_t k = 0; k < at.size(); ++k) r.emplace_back(f.vars[k], at[k]);
    return simplified(substitute(f.body, r));
  }

  // e with the elements of known tensors in place of loads.
  Expr resolved(const Expr& e) {
    if (!e->has_load) return e;
    bool changed = false;
    const Expr r = rewrite(e, [&](const Expr& x) -> Expr {
      if (!x->has_load) return x;
      if (x->op != Op::kLoad) return Expr();
      const auto it = known_.find(x->value);
      if (it == known_.end()) {
        Exprs at;
        bool moved = false;
        for (const Expr& i : x->args) {
          at.push_back(resolved(i));
          moved |= at.back().get() != i.get();
        }
        changed |= moved;
        return moved ? load(x->value, x->dtype, at) : x;
      }
      Exprs at;
      for (const Expr& i : x->args) at.push_back(resolved(i));
      for (const Expr& i : at)
        if (i->has_load) return load(x->value, x->dtype, at);  // the element of a lookup: it is in memory anyway
      changed = true;
      return element(it->second, at);
    });
    return changed ? simplified(r) : e;
  }

  Graph& g_;
  std::unordered_map<const Value*, ClosedForm> known_;
};

}  // namespace

void find_closed_forms(Graph& g) { Finder(g).run(); }

}  // namespace sardonyx
