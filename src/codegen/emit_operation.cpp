// Operations on scalars as C++: Emitter::operation and what it needs.
#include <cmath>

#include "codegen/emit_types.h"
#include "codegen/known_range.h"

namespace sardonyx::codegen {
namespace {

// Between int64 and a float: AVX2 has instructions for int32 only.
bool is_64_bit_cast(const Expr& e) {
  if (e->op != Op::kCast) return false;
  const DType from = e->args[0]->dtype;
  return (from == DType::kInt64 && plain_float(e->dtype)) || (plain_float(from) && e->dtype == DType::kInt64);
}

bool is_half(DType t) { return t == DType::kFloat16 || t == DType::kBFloat16; }

// For float32 arguments, with results that are rounded to 16 bits; nullptr: there is none.
const char* quick_function(Op op) {
  return op == Op::kExp       ? "half_exp"
         : op == Op::kSigmoid ? "half_sigmoid"
         : op == Op::kTanh    ? "half_tanh"
         : op == Op::kErf     ? "half_erf"
         : op == Op::kSin     ? "half_sin"
         : op == Op::kCos     ? "half_cos"
                              : nullptr;
}

// Operations that are a function of the same meaning in kernels/prelude.h.
const char* function_name(Op op) {
  switch (op) {
    case Op::kSign:
      return "sign";
    case Op::kBitNot:
      return "bit_not";
    case Op::kExp:
      return "exp";
    case Op::kExpm1:
      return "expm1";
    case Op::kLog:
      return "log";
    case Op::kLog1p:
      return "log1p";
    case Op::kSqrt:
      return "sqrt";
    case Op::kRsqrt:
      return "rsqrt";
    case Op::kSin:
      return "sin";
    case Op::kCos:
      return "cos";
    case Op::kTan:
      return "tan";
    case Op::kAsin:
      return "asin";
    case Op::kAcos:
      return "acos";
    case Op::kAtan:
      return "atan";
    case Op::kSinh:
      return "sinh";
    case Op::kCosh:
      return "cosh";
    case Op::kTanh:
      return "tanh";
    case Op::kAsinh:
      return "asinh";
    case Op::kAcosh:
      return "acosh";
    case Op::kAtanh:
      return "atanh";
    case Op::kErf:
      return "erf";
    case Op::kSigmoid:
      return "sigmoid";
    case Op::kFloor:
      return "floor";
    case Op::kCeil:
      return "ceil";
    case Op::kRound:
      return "round";
    case Op::kTrunc:
      return "trunc";
    case Op::kFMod:
      return "mod_trunc";
    case Op::kMin:
      return "min";
    case Op::kMax:
      return "max";
    case Op::kBitAnd:
      return "bit_and";
    case Op::kBitOr:
      return "bit_or";
    case Op::kBitXor:
      return "bit_xor";
    case Op::kShl:
      return "shl";
    case Op::kShr:
      return "shr";
    default:
      return nullptr;
  }
}

const char* predicate_function(Op op) { return op == Op::kIsNaN ? "isnan" : op == Op::kIsInf ? "isinf" : nullptr; }

// Operations on bools, or with a bool result, that are an operator of C++.
const char* predicate_operator(Op op) {
  switch (op) {
    case Op::kAnd:
      return "&";
    case Op::kOr:
      return "|";
    case Op::kXor:
      return "!=";
    case Op::kEq:
      return "==";
    case Op::kNe:
      return "!=";
    case Op::kLt:
      return "<";
    case Op::kLe:
      return "<=";
    case Op::kGt:
      return ">";
    case Op::kGe:
      return ">=";
    default:
      return nullptr;
  }
}

// In float32, rounded or not.
bool is_sine(const Expr& e) {
  return (e->op == Op::kSin || e->op == Op::kCos) && compute_type(e->args[0]->dtype) == DType::kFloat32;
}

// Whether the argument is not large.
bool is_near(const Expr& sine) {
  const Expr& x = sine->args[0];
  return x->dtype == DType::kFloat16 || (x->op == Op::kCast && x->args[0]->dtype == DType::kFloat16);
}

bool only_halves(const Expr& e) {
  bool some = false, all = true;
  visit(e, [&](const Expr& x) {
    if (x->op != Op::kLoad) return;
    some = true;
    all &= is_half(x->dtype);
  });
  return some && all;
}

// Operations whose code depends on the type in which they are computed, `c`.
std::string arithmetic(const Expr& e, const std::vector<std::string>& a, DType c) {
  const bool f = is_float(c);
  const bool wide = c == DType::kInt64 || c == DType::kUInt64 || c == DType::kInt32 || c == DType::kUInt32 || f;
  // C++ promotes small integers; results are converted back to their type.
  auto back = [&](const std::string& s) { return wide ? s : fmt::format("{}({})", type_name(c), s); };
  auto call = [&](const char* name) { return fmt::format("{}({})", name, fmt::join(a, ", ")); };
  auto infix = [&](const char* op) { return fmt::format("{} {} {}", a[0], op, a[1]); };
  // For indices that are known to be non-negative, C++'s division equals floor division.
  const bool division = e->op == Op::kFloorDiv || e->op == Op::kMod;
  const bool index = division && c == DType::kInt64 && idx::provably_nonnegative(e->args[0], true);
  const bool by_constant = index && is_const(e->args[1]) && e->args[1]->i > 0;
  const bool by_size = index && !e->args[1]->has_load;
  switch (e->op) {
    case Op::kNeg:
      return back("-" + a[0]);
    case Op::kAbs:
      return call(f ? "fabs" : "abs");
    case Op::kReciprocal:
      return f ? fmt::format("{}(1) / {}", type_name(c), a[0])
               : fmt::format("div_trunc({}(1), {})", type_name(c), a[0]);
    case Op::kAdd:
      return back(infix("+"));
    case Op::kSub:
      return back(infix("-"));
    case Op::kMul:
      return back(infix("*"));
    case Op::kDiv:
      return f ? infix("/") : call("div_trunc");
    case Op::kFloorDiv:
      if (by_constant) return infix("/");
      if (f) return fmt::format("floor({})", infix("/"));
      return by_size ? fmt::format("i64(u64({}) / u64(max({}, i64(1))))", a[0], a[1]) : call("div_floor");
    case Op::kMod:
      if (by_constant) return infix("%");
      return by_size ? fmt::format("i64(u64({}) % u64(max({}, i64(1))))", a[0], a[1]) : call("mod_floor");
    case Op::kPow:
      return call(f ? "pow" : "ipow");
    default:
      fail(ErrorKind::kInternal, "internal error: no code for {}", to_string(e));
  }
}

}  // namespace

bool saturates(const Expr& e) {
  if (e->op != Op::kCast || !(e->i & kCastSaturatesHalf)) return false;
  const Op x = e->args[0]->op;
  return x != Op::kSin && x != Op::kCos && x != Op::kTanh && x != Op::kSigmoid && x != Op::kErf;
}

bool has_far_sines(const Expr& e) {
  bool some = false;
  visit(e, [&](const Expr& x) { some |= is_sine(x) && !is_near(x); });
  return some;
}

// Divisions of index expressions in 32 bits. The general ones take tens of instructions.
bool Emitter::division(const Expr& e, const std::vector<std::string>& a, bool in_32, std::string& text) {
  if (!in_32 || (e->op != Op::kFloorDiv && e->op != Op::kMod) || e->dtype != DType::kInt64) return false;
  const Expr& n = e->args[1];
  if (!idx::provably_nonnegative(e->args[0], true)) return false;
  const bool quotient = e->op == Op::kFloorDiv;
  if (is_const(n)) {
    if (n->i <= 0) return false;
    text = fmt::format("i32(u32({}) {} {}u)", a[0], quotient ? "/" : "%", n->i);
    return true;
  }
  if (is_parameter(n)) {
    const std::string q = fmt::format("fast_quotient({}, {})", a[0], divisor(n));
    text = quotient ? q : fmt::format("{} - {} * {}", a[0], q, a[1]);
  } else {
    text = fmt::format("i32(u32({}) {} u32(max({}, i32(1))))", a[0], quotient ? "/" : "%", a[1]);
  }
  return true;
}

// 1 + erf(x) and 1 + tanh(x) of the two forms of GELU. Empty if the expression is neither.
std::string Emitter::one_plus(const Expr& e) {
  if (e->op != Op::kAdd || e->dtype != DType::kFloat32) return {};
  for (const std::size_t k : {0, 1}) {
    const Expr &f = e->args[k], &one = e->args[1 - k];
    if (!is_const(one) || one->f != 1) continue;
    if (f->op == Op::kErf) return fmt::format("half_one_plus_erf({})", value(f->args[0]));
    if (f->op != Op::kTanh) continue;
    const Expr& x = f->args[0];
    for (const std::size_t c : {0, 1})
      if (x->op == Op::kMul && is_const(x->args[c]))
        return fmt::format("half_one_plus_tanh({}, {})", value(x->args[1 - c]), value(x->args[c]));
    return fmt::format("half_one_plus_tanh({}, 1.0f)", value(x));
  }
  return {};
}

// Relu and Clip with known bounds as part of a rounding to float16 that saturates; empty: `e` is something else.
std::string Emitter::bounded_half(const Expr& e) {
  if (e->op != Op::kCast || !(e->i & kCastSaturatesHalf) || e->args[0]->dtype != DType::kFloat32) return {};
  constexpr double kLargest = 65504;
  double lo = -kLargest, hi = kLargest;
  Expr x = e->args[0];
  while ((x->op == Op::kMax || x->op == Op::kMin) && is_const(x->args[1])) {
    const double bound = x->args[1]->f;
    if (!(bound >= lo && bound <= hi)) break;
    (x->op == Op::kMax ? lo : hi) = bound;
    x = x->args[0];
  }
  if (lo == -kLargest && hi == kLargest) return {};
  return fmt::format("bounded_half({}, {:a}f, {:a}f)", value(x), lo, hi);
}

// A call of the function that is `e`. Of sines in float32 the prelude has forms for arguments that are not large, as
// those from float16, and for the elements of a thread together (with_sines()).
std::string Emitter::call(const Expr& e, const char* function, const std::string& a) const {
  if (is_sine(e) && is_near(e)) return fmt::format("near_{}({})", function, a);
  if (is_sine(e) && !sines.empty()) return fmt::format("{}({}, {})", function, a, sines);
  return fmt::format("{}({})", function, a);
}

// select(c, sin(x), cos(x)); empty: `e` is something else.
std::string Emitter::sine_or_cosine(const Expr& e, const std::string& c) {
  const Expr &sine = e->args[1], &cosine = e->args[2];
  if (sine->op != Op::kSin || cosine->op != Op::kCos || !same(sine->args[0], cosine->args[0]) || !is_sine(sine))
    return {};
  const Expr& x = sine->args[0];
  const std::string a = cast_text(x->dtype, DType::kFloat32, 1, value(x));
  const bool half = for_halves || (of_halves && only_halves(sine));
  std::string name = fresh("t");
  const std::string y =
      fmt::format("{}sin_or_cos({}, {}{})", half ? "half_" : "", c, a, sines.empty() ? "" : fmt::format(", {}", sines));
  line(fmt::format("const {} {} = {};", type_of(e), name, cast_text(DType::kFloat32, e->dtype, 1, y)));
  return name;
}

// A cheaper form, exact enough if only 16-bit values are read or written. Empty if there is none.
std::string Emitter::half_operation(const Expr& e, const std::vector<std::string>& a) {
  if (compute_type(e->args[0]->dtype) != DType::kFloat32) return {};
  const char* quick = quick_function(e->op);
  if (quick && (for_halves || (of_halves && only_halves(e))))
    return cast_text(DType::kFloat32, e->dtype, 1, call(e, quick, a[0]));
  if (!for_halves) return {};
  if (std::string text = one_plus(e); !text.empty()) return text;
  if (e->op == Op::kDiv && is_const(e->args[1])) {
    const auto by = 1 / static_cast<float>(e->args[1]->f);
    if (std::isnormal(by)) return fmt::format("{} * {:a}f", a[0], static_cast<double>(by));
  }
  const char* function = e->op == Op::kReciprocal ? "half_reciprocal"
                         : e->op == Op::kSqrt     ? "half_sqrt"
                         : e->op == Op::kRsqrt    ? "half_rsqrt"
                         : e->op == Op::kDiv      ? "half_divide"
                                                  : nullptr;
  return function ? cast_text(DType::kFloat32, e->dtype, 1, fmt::format("{}({})", function, fmt::join(a, ", ")))
                  : std::string();
}

std::string Emitter::operation(const Expr& e, const std::vector<std::string>& args) {
  const DType operand = e->args[0]->dtype;
  if (saturates(e)) return fmt::format("saturated_half({})", args[0]);
  if (vector_casts && is_64_bit_cast(e) && fits_32_bits(e->args[0]))
    return fmt::format("cast<{}>(i32({}))", type_name(e->dtype), args[0]);
  if (e->op == Op::kCast) return cast_text(operand, e->dtype, e->i, args[0]);
  if (e->op == Op::kBitCast) return fmt::format("bit_cast<{}>({})", type_name(e->dtype), args[0]);
  if (e->op == Op::kRandom) return fmt::format("random_uniform({}, {})", args[0], args[1]);
  std::vector<std::string> a = args;
  for (std::size_t k = 0; k < a.size(); ++k)
    a[k] = cast_text(e->args[k]->dtype, compute_type(e->args[k]->dtype), 1, a[k]);
  if (std::string text = half_operation(e, a); !text.empty()) return text;
  if (e->op == Op::kNot) return "!" + a[0];
  if (const char* name = predicate_operator(e->op)) return fmt::format("{} {} {}", a[0], name, a[1]);
  if (const char* name = predicate_function(e->op)) return fmt::format("{}({})", name, a[0]);
  const DType c = compute_type(operand);
  if (bounded_angles && e->dtype == DType::kFloat32 && (e->op == Op::kSin || e->op == Op::kCos))
    return fmt::format("bounded_{}({})", function_name(e->op), a[0]);
  if (const char* name = function_name(e->op))
    return cast_text(c, e->dtype, 1, call(e, name, fmt::format("{}", fmt::join(a, ", "))));
  return cast_text(c, e->dtype, 1, arithmetic(e, a, c));
}

}  // namespace sardonyx::codegen
