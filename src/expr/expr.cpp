// Construction, comparison, printing and rewriting of expressions.
#include <algorithm>
#include <atomic>
#include <cmath>

#include "expr/node.h"
#include "support/error.h"

namespace sardonyx {
namespace {

std::size_t mix(std::size_t h, std::size_t v) { return (h ^ v) * 0x9E3779B97F4A7C15ULL + (h >> 29); }

/// Powers of a float up to this one are products of squares, as XLA's integer_pow: their rounding errors add up to at
/// most 8 / 2^24 of the result.
constexpr double kMostPower = 9;

bool is_comparison(Op op) { return op >= Op::kEq && op <= Op::kGe; }

}  // namespace

Expr make_node(Op op, DType dtype, Exprs args, std::int64_t i, double f, const Value* value, std::string name,
               Exprs vars) {
  auto n = std::make_shared<ExprNode>();
  n->op = op;
  n->dtype = dtype;
  n->i = i;
  n->f = f;
  n->value = value;
  n->name = std::move(name);
  n->args = std::move(args);
  n->vars = std::move(vars);
  std::size_t h = mix(static_cast<std::size_t>(op) * 64 + static_cast<std::size_t>(dtype), static_cast<std::size_t>(i));
  if (op == Op::kConst) h = mix(h, std::hash<double>()(f));
  if (value) h = mix(h, reinterpret_cast<std::size_t>(value));
  n->has_load = op == Op::kLoad;
  n->has_var = op == Op::kVar;
  n->has_sym = op == Op::kSym;
  n->has_reduce = op == Op::kReduce;
  if (op != Op::kVar) {
    for (const Expr& a : n->args) {
      h = mix(h, a->hash);
      n->has_load |= a->has_load;
      n->has_var |= a->has_var;
      n->has_sym |= a->has_sym;
      n->has_reduce |= a->has_reduce;
    }
    for (const Expr& v : n->vars) {
      h = mix(h, v->hash);
      n->has_sym |= v->args[0]->has_sym;
    }
  }
  n->hash = h;
  return Expr(std::shared_ptr<const ExprNode>(std::move(n)));
}

Expr::Expr(std::int64_t v) : Expr(constant_int(v)) {}

Expr constant_int(std::int64_t v, DType t) {
  if (t == DType::kBool) v = v != 0;
  const int bits = bits_of(t);
  if (t != DType::kBool && bits < 64) {  // wraps, like a store to the type
    const std::uint64_t m = (std::uint64_t{1} << bits) - 1;
    std::uint64_t u = static_cast<std::uint64_t>(v) & m;
    if (is_signed(t) && (u >> (bits - 1))) u |= ~m;
    v = static_cast<std::int64_t>(u);
  }
  return make_node(Op::kConst, t, {}, v, 0, nullptr, {}, {});
}

Expr constant_float(double v, DType t) { return make_node(Op::kConst, t, {}, 0, round_to(v, t), nullptr, {}, {}); }

Expr constant(double v, DType t) {
  return is_float(t) ? constant_float(v, t) : constant_int(static_cast<std::int64_t>(v), t);
}

Expr constant_bool(bool v) { return constant_int(v, DType::kBool); }

Expr loop_var(const Expr& extent) {
  static std::atomic<std::int64_t> next{0};
  return make_node(Op::kVar, DType::kInt64, {extent}, next++, 0, nullptr, {}, {});
}

Expr symbol(int id, const std::string& name) {
  return make_node(Op::kSym, DType::kInt64, {}, id, 0, nullptr, name, {});
}
Expr data_symbol(int id, const std::string& name) {
  return make_node(Op::kSym, DType::kInt64, {}, id, 1, nullptr, name, {});
}

Expr load(const Value* value, DType dtype, Exprs indices) {
  for (const Expr& i : indices) check(i->dtype == DType::kInt64, "load index of dtype {}", name(i->dtype));
  return make_node(Op::kLoad, dtype, std::move(indices), 0, 0, value, {}, {});
}

Expr unary(Op op, const Expr& a) {
  const DType t = op == Op::kIsNaN || op == Op::kIsInf ? DType::kBool : a->dtype;
  if (op == Op::kNot) return logical_not(a);
  if (Expr folded = fold_constants(op, t, {a}, 0)) return folded;
  if (op == Op::kNeg && a->dtype == DType::kInt64) return idx::sub(0, a);
  if ((op == Op::kFloor || op == Op::kCeil || op == Op::kRound || op == Op::kTrunc) && !is_float(t)) return a;
  if ((op == Op::kIsNaN || op == Op::kIsInf) && !is_float(a->dtype)) return constant_bool(false);
  return make_node(op, t, {a}, 0, 0, nullptr, {}, {});
}

Expr binary(Op op, const Expr& a, const Expr& b) {
  check(a->dtype == b->dtype || op == Op::kPow, "binary operands of dtypes {} and {}", name(a->dtype), name(b->dtype));
  if (is_comparison(op)) return compare(op, a, b);
  if (op == Op::kAnd) return logical_and(a, b);
  if (op == Op::kOr) return logical_or(a, b);
  if (Expr folded = fold_constants(op, a->dtype, {a, b}, 0)) return folded;
  if (a->dtype == DType::kInt64) {
    switch (op) {
      case Op::kAdd:
        return idx::add(a, b);
      case Op::kSub:
        return idx::sub(a, b);
      case Op::kMul:
        return idx::mul(a, b);
      case Op::kMin:
        return idx::min(a, b);
      case Op::kMax:
        return idx::max(a, b);
      case Op::kFloorDiv:
        return is_const(b) && b->i > 0 ? idx::floordiv(a, b) : make_node(op, a->dtype, {a, b}, 0, 0, nullptr, {}, {});
      case Op::kMod:
        return is_const(b) && b->i > 0 ? idx::mod(a, b) : make_node(op, a->dtype, {a, b}, 0, 0, nullptr, {}, {});
      case Op::kDiv:  // truncating; the same as floor for operands that can't be negative, which shape arithmetic
                      // relies on
        if (is_const(b, 1)) return a;
        if (idx::provably_nonnegative(a) && (is_const(b) ? b->i > 0 : idx::provably_nonnegative(b)) && !a->has_load)
          return idx::floordiv(a, b);
        break;
      default:
        break;
    }
  }
  if (is_const(b)) {  // identities, exact but for powers above 2, whose products round once more than pow does
    if (op == Op::kPow && is_float(a->dtype) && is_float(b->dtype)) {
      if (b->f == 1.0) return a;
      if (b->f == 2.0) return binary(Op::kMul, a, a);
      if (b->f == 3.0) return binary(Op::kMul, binary(Op::kMul, a, a), a);
      if (b->f >= 4.0 && b->f <= kMostPower && b->f == std::floor(b->f)) {
        const Expr half = binary(Op::kPow, binary(Op::kMul, a, a), constant(std::floor(b->f / 2), b->dtype));
        return std::fmod(b->f, 2) == 0 ? half : binary(Op::kMul, half, a);
      }
    }
    if ((op == Op::kMul || op == Op::kDiv) && (is_float(b->dtype) ? b->f == 1.0 : b->i == 1)) return a;
    if (op == Op::kAdd && !is_float(b->dtype) && b->i == 0) return a;
  }
  if (is_const(a) && op == Op::kMul && (is_float(a->dtype) ? a->f == 1.0 : a->i == 1)) return b;
  return make_node(op, a->dtype, {a, b}, 0, 0, nullptr, {}, {});
}

namespace {
// A comparison with a constant of a mask that is stored as numbers, select(condition, 1, 0) == 0: the condition, or its
// opposite. Empty for anything else.
Expr compare_mask(Op op, const Expr& a, const Expr& b) {
  const bool first = a->op == Op::kSelect && is_const(b);
  if (!first && !(b->op == Op::kSelect && is_const(a))) return Expr();
  const Expr& mask = first ? a : b;
  if (!is_const(mask->args[1]) || !is_const(mask->args[2])) return Expr();
  const auto result = [&](const Expr& x) { return first ? compare(op, x, b) : compare(op, a, x); };
  const Expr held = result(mask->args[1]), otherwise = result(mask->args[2]);
  return select(mask->args[0], held, otherwise);
}
}  // namespace

Expr compare(Op op, const Expr& a, const Expr& b) {
  check(a->dtype == b->dtype, "comparison of dtypes {} and {}", name(a->dtype), name(b->dtype));
  if (Expr folded = fold_constants(op, DType::kBool, {a, b}, 0)) return folded;
  if (Expr of_mask = compare_mask(op, a, b)) return of_mask;
  if (a->dtype == DType::kInt64 && !a->has_load && !b->has_load) {
    auto less = [](const Expr& x, const Expr& y) { return idx::provably_nonnegative(idx::sub(idx::sub(y, x), 1)); };
    auto less_equal = [](const Expr& x, const Expr& y) { return idx::provably_nonnegative(idx::sub(y, x)); };
    switch (op) {
      case Op::kLt:
        if (less(a, b)) return constant_bool(true);
        if (less_equal(b, a)) return constant_bool(false);
        break;
      case Op::kLe:
        if (less_equal(a, b)) return constant_bool(true);
        if (less(b, a)) return constant_bool(false);
        break;
      case Op::kGt:
        return compare(Op::kLt, b, a);
      case Op::kGe:
        return compare(Op::kLe, b, a);
      case Op::kEq:
        if (idx::provably_equal(a, b)) return constant_bool(true);
        if (less(a, b) || less(b, a)) return constant_bool(false);
        break;
      case Op::kNe:
        return logical_not(compare(Op::kEq, a, b));
      default:
        break;
    }
  }
  return make_node(op, DType::kBool, {a, b}, 0, 0, nullptr, {}, {});
}

Expr select(const Expr& c, const Expr& then, const Expr& otherwise) {
  check(c->dtype == DType::kBool, "select on dtype {}", name(c->dtype));
  check(then->dtype == otherwise->dtype, "select between {} and {}", name(then->dtype), name(otherwise->dtype));
  if (is_const(c)) return c->i ? then : otherwise;
  if (same(then, otherwise)) return then;
  if (then->dtype == DType::kBool && is_const(then) && is_const(otherwise)) return then->i ? c : logical_not(c);
  return make_node(Op::kSelect, then->dtype, {c, then, otherwise}, 0, 0, nullptr, {}, {});
}

Expr cast(const Expr& a, DType to, int mode) {
  if (a->dtype == to) return a;
  if (Expr folded = fold_constants(Op::kCast, to, {a}, mode)) return folded;
  // A cast back from a wider type of the same kind is the identity (int32 -> int64 -> int32), as shape code often
  // writes.
  if (a->op == Op::kCast && a->args[0]->dtype == to && is_integer(to) && is_integer(a->dtype) &&
      is_signed(to) == is_signed(a->dtype) && bits_of(a->dtype) >= bits_of(to))
    return a->args[0];
  // Wider floats hold every number of 16 bits.
  if (a->op == Op::kCast && a->args[0]->dtype == to && (to == DType::kFloat16 || to == DType::kBFloat16) &&
      (a->dtype == DType::kFloat32 || a->dtype == DType::kFloat64))
    return a->args[0];
  // Whether a select gives its constant that is not 0: its condition, as exporters write masks.
  if (to == DType::kBool && a->op == Op::kSelect && is_const(a->args[1]) && is_const(a->args[2])) {
    const bool first = cast(a->args[1], to, mode)->i != 0, second = cast(a->args[2], to, mode)->i != 0;
    if (first == second) return cast(a->args[1], to, mode);
    return first ? a->args[0] : logical_not(a->args[0]);
  }
  return make_node(Op::kCast, to, {a}, mode, 0, nullptr, {}, {});
}

Expr bitcast(const Expr& a, DType to) {
  if (a->dtype == to) return a;
  check(size_of(a->dtype) == size_of(to), "bitcast between sizes");
  return make_node(Op::kBitCast, to, {a}, 0, 0, nullptr, {}, {});
}

Expr reduce(ReduceKind kind, Exprs vars, const Expr& body) {
  const bool arg = kind >= ReduceKind::kArgMin;
  if (!arg) {  // a variable of extent 1 is 0
    std::vector<std::pair<Expr, Expr>> ones;
    Exprs kept;
    for (const Expr& v : vars) {
      if (is_const(v->args[0], 1))
        ones.emplace_back(v, Expr(0));
      else
        kept.push_back(v);
    }
    if (!ones.empty()) return reduce(kind, kept, substitute(body, ones));
    if (vars.empty()) return body;
  }
  return make_node(Op::kReduce, arg ? DType::kInt64 : body->dtype, {body}, static_cast<std::int64_t>(kind), 0, nullptr,
                   {}, std::move(vars));
}

Expr random_uniform(const Expr& seed, const Expr& counter) {
  return make_node(Op::kRandom, DType::kFloat32, {seed, counter}, 0, 0, nullptr, {}, {});
}

Expr logical_and(const Expr& a, const Expr& b) {
  if (is_const(a)) return a->i ? b : a;
  if (is_const(b)) return b->i ? a : b;
  if (same(a, b)) return a;
  return make_node(Op::kAnd, DType::kBool, {a, b}, 0, 0, nullptr, {}, {});
}

Expr logical_or(const Expr& a, const Expr& b) {
  if (is_const(a)) return a->i ? a : b;
  if (is_const(b)) return b->i ? b : a;
  if (same(a, b)) return a;
  return make_node(Op::kOr, DType::kBool, {a, b}, 0, 0, nullptr, {}, {});
}

Expr logical_not(const Expr& a) {
  if (is_const(a)) return constant_bool(!a->i);
  if (a->op == Op::kNot) return a->args[0];
  return make_node(Op::kNot, DType::kBool, {a}, 0, 0, nullptr, {}, {});
}

bool same(const Expr& a, const Expr& b) {
  if (a.get() == b.get()) return true;
  if (!a || !b || a->hash != b->hash || a->op != b->op || a->dtype != b->dtype || a->i != b->i || a->value != b->value)
    return false;
  if (a->op == Op::kVar || a->op == Op::kSym) return true;  // identified by id
  if (a->op == Op::kConst)
    return a->f == b->f ? std::signbit(a->f) == std::signbit(b->f) : (std::isnan(a->f) && std::isnan(b->f));
  if (a->args.size() != b->args.size() || a->vars.size() != b->vars.size()) return false;
  for (std::size_t k = 0; k < a->args.size(); ++k)
    if (!same(a->args[k], b->args[k])) return false;
  for (std::size_t k = 0; k < a->vars.size(); ++k)
    if (!same(a->vars[k], b->vars[k])) return false;
  return true;
}

int order(const Expr& a, const Expr& b) {
  if (a.get() == b.get()) return 0;
  auto three = [](auto x, auto y) { return x < y ? -1 : x > y ? 1 : 0; };
  if (int c = three(a->op, b->op)) return c;
  if (int c = three(a->dtype, b->dtype)) return c;
  if (int c = three(a->i, b->i)) return c;
  if (a->op == Op::kVar || a->op == Op::kSym) return 0;
  if (int c = three(a->f, b->f)) return c;
  if (int c = three(a->args.size(), b->args.size())) return c;
  for (std::size_t k = 0; k < a->args.size(); ++k)
    if (int c = order(a->args[k], b->args[k])) return c;
  if (int c = three(a->vars.size(), b->vars.size())) return c;
  for (std::size_t k = 0; k < a->vars.size(); ++k)
    if (int c = order(a->vars[k], b->vars[k])) return c;
  return three(a->value, b->value);  // only loads get here that are otherwise equal
}

bool is_const(const Expr& a) { return a->op == Op::kConst; }
bool is_const(const Expr& a, std::int64_t v) { return a->op == Op::kConst && !is_float(a->dtype) && a->i == v; }
bool is_const_int(const Expr& a, std::int64_t& v) {
  if (a->op != Op::kConst || is_float(a->dtype)) return false;
  v = a->i;
  return true;
}

namespace {

// Rebuilds a node with new operands through the simplifying constructors.
Expr rebuild(const Expr& e, Exprs args, Exprs vars) {
  const ExprNode& n = *e;
  switch (n.op) {
    case Op::kConst:
    case Op::kSym:
      return e;
    case Op::kVar:
      return make_node(Op::kVar, n.dtype, std::move(args), n.i, 0, nullptr, {}, {});
    case Op::kLoad:
      return load(n.value, n.dtype, std::move(args));
    case Op::kCast:
      return cast(args[0], n.dtype, static_cast<int>(n.i));
    case Op::kBitCast:
      return bitcast(args[0], n.dtype);
    case Op::kSelect:
      return select(args[0], args[1], args[2]);
    case Op::kReduce:
      return reduce(static_cast<ReduceKind>(n.i), std::move(vars), args[0]);
    case Op::kRandom:
      return random_uniform(args[0], args[1]);
    default:
      break;
  }
  if (args.size() == 1) return unary(n.op, args[0]);
  if (n.dtype == DType::kInt64 && n.op == Op::kFloorDiv) return idx::floordiv(args[0], args[1]);
  if (n.dtype == DType::kInt64 && n.op == Op::kMod) return idx::mod(args[0], args[1]);
  return binary(n.op, args[0], args[1]);
}

struct Rewriter {
  const std::function<Expr(const Expr&)>& f;
  std::unordered_map<const ExprNode*, Expr> done;

  Expr run(const Expr& e) {
    auto it = done.find(e.get());
    if (it != done.end()) return it->second;
    Expr r = f(e);
    if (!r) {
      r = e;
      if (!e->args.empty()) {
        Exprs args, vars;
        bool changed = false;
        for (const Expr& v : e->vars) {
          // A reduce's variable keeps its identity; only its extent is rewritten.
          const Expr extent = run(v->args[0]);
          changed |= extent.get() != v->args[0].get();
          vars.push_back(extent.get() == v->args[0].get()
                             ? v
                             : make_node(Op::kVar, DType::kInt64, {extent}, v->i, 0, nullptr, {}, {}));
        }
        for (const Expr& a : e->args) {
          args.push_back(run(a));
          changed |= args.back().get() != a.get();
        }
        if (changed) r = rebuild(e, std::move(args), std::move(vars));
      }
    }
    done.emplace(e.get(), r);
    return r;
  }
};

}  // namespace

Expr rewrite(const Expr& e, const std::function<Expr(const Expr&)>& f) { return Rewriter{f, {}}.run(e); }

Expr substitute(const Expr& e, const std::vector<std::pair<Expr, Expr>>& replacements) {
  if (replacements.empty()) return e;
  bool vars = false, syms = false;
  for (const auto& [from, to] : replacements) {
    vars |= from->op == Op::kVar;
    syms |= from->op == Op::kSym;
  }
  return rewrite(e, [&](const Expr& x) -> Expr {
    if (!(vars && x->has_var) && !(syms && x->has_sym) && x->op != Op::kVar) return x;
    if (x->op == Op::kVar || x->op == Op::kSym)
      for (const auto& [from, to] : replacements)
        if (from->op == x->op && from->i == x->i) return to;
    if (x->op == Op::kVar && !syms) return x;
    return Expr();
  });
}

Expr freshen_reduce_vars(const Expr& e) {
  if (!e->has_reduce) return e;
  return rewrite(e, [](const Expr& x) -> Expr {
    if (!x->has_reduce) return x;
    if (x->op != Op::kReduce) return Expr();
    Exprs vars;
    std::vector<std::pair<Expr, Expr>> replacements;
    for (const Expr& v : x->vars) {
      vars.push_back(loop_var(v->args[0]));
      replacements.emplace_back(v, vars.back());
    }
    return reduce(static_cast<ReduceKind>(x->i), vars, freshen_reduce_vars(substitute(x->args[0], replacements)));
  });
}

namespace {
void visit_once(const Expr& e, const std::function<void(const Expr&)>& f,
                std::unordered_map<const ExprNode*, bool>& seen) {
  if (seen.count(e.get())) return;
  seen[e.get()] = true;
  for (const Expr& v : e->vars) visit_once(v, f, seen);
  for (const Expr& a : e->args) visit_once(a, f, seen);
  f(e);
}
}  // namespace

void visit(const Expr& e, const std::function<void(const Expr&)>& f) {
  std::unordered_map<const ExprNode*, bool> seen;
  visit_once(e, f, seen);
}

}  // namespace sardonyx
