// Operations on scalars as C++: Emitter::operation and what it needs.
#include <cmath>

#include "codegen/emit_types.h"

namespace sardonyx::codegen {
namespace {

bool is_half(DType t) { return t == DType::kFloat16 || t == DType::kBFloat16; }

// For float32 arguments and results that are rounded to 16 bits; nullptr: there is none.
const char* quick_function(Op op) {
  return op == Op::kExp       ? "half_exp"
         : op == Op::kSigmoid ? "half_sigmoid"
         : op == Op::kTanh    ? "half_tanh"
         : op == Op::kErf     ? "half_erf"
                              : nullptr;
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

}  // namespace

// Divisions of index expressions in 32 bits, of which the general ones take tens of instructions.
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

std::string Emitter::operation(const Expr& e, const std::vector<std::string>& args) {
  const DType operand = e->args[0]->dtype;
  if (e->op == Op::kCast && (e->i & kCastSaturatesHalf)) return fmt::format("saturated_half({})", args[0]);
  if (e->op == Op::kCast) return cast_text(operand, e->dtype, e->i, args[0]);
  if (e->op == Op::kBitCast) return fmt::format("bit_cast<{}>({})", type_name(e->dtype), args[0]);
  if (e->op == Op::kRandom) return fmt::format("random_uniform({}, {})", args[0], args[1]);
  const DType c = compute_type(operand);
  std::vector<std::string> a = args;
  for (std::size_t k = 0; k < a.size(); ++k)
    a[k] = cast_text(e->args[k]->dtype, compute_type(e->args[k]->dtype), 1, a[k]);
  const bool f = is_float(c);
  const bool wide = c == DType::kInt64 || c == DType::kUInt64 || c == DType::kInt32 || c == DType::kUInt32 || f;
  // Small integers are promoted by C++; bring results back to their type.
  auto back = [&](std::string s) { return wide ? s : fmt::format("{}({})", type_name(c), s); };
  auto call = [&](const char* fn) {
    std::string s = std::string(fn) + "(";
    for (std::size_t k = 0; k < a.size(); ++k) s += (k ? ", " : "") + a[k];
    return s + ")";
  };
  auto infix = [&](const char* op) { return fmt::format("{} {} {}", a[0], op, a[1]); };
  std::string r;
  const char* quick = c == DType::kFloat32 ? quick_function(e->op) : nullptr;
  if (quick && (for_halves || (of_halves && only_halves(e)))) return cast_text(c, e->dtype, 1, call(quick));
  if (for_halves && e->op == Op::kAdd && e->dtype == DType::kFloat32)  // of Gelu
    for (const std::size_t k : {0, 1})
      if (e->args[k]->op == Op::kErf && is_const(e->args[1 - k]) && e->args[1 - k]->f == 1)
        return fmt::format("half_one_plus_erf({})", value(e->args[k]->args[0]));
  if (for_halves && c == DType::kFloat32) {
    if (e->op == Op::kDiv && is_const(e->args[1])) {
      const auto by = 1 / static_cast<float>(e->args[1]->f);
      if (std::isnormal(by)) return fmt::format("{} * {:a}f", a[0], static_cast<double>(by));
    }
  }
  switch (e->op) {
    case Op::kNeg:
      r = back("-" + a[0]);
      break;
    case Op::kAbs:
      r = call(f ? "fabs" : "abs");
      break;
    case Op::kSign:
      r = call("sign");
      break;
    case Op::kNot:
      return "!" + a[0];
    case Op::kBitNot:
      r = call("bit_not");
      break;
    case Op::kExp:
      r = call("exp");
      break;
    case Op::kExpm1:
      r = call("expm1");
      break;
    case Op::kLog:
      r = call("log");
      break;
    case Op::kLog1p:
      r = call("log1p");
      break;
    case Op::kSqrt:
      r = call("sqrt");
      break;
    case Op::kRsqrt:
      r = call("rsqrt");
      break;
    case Op::kReciprocal:
      r = f ? fmt::format("{}(1) / {}", type_name(c), a[0]) : fmt::format("div_trunc({}(1), {})", type_name(c), a[0]);
      break;
    case Op::kSin:
      r = call("sin");
      break;
    case Op::kCos:
      r = call("cos");
      break;
    case Op::kTan:
      r = call("tan");
      break;
    case Op::kAsin:
      r = call("asin");
      break;
    case Op::kAcos:
      r = call("acos");
      break;
    case Op::kAtan:
      r = call("atan");
      break;
    case Op::kSinh:
      r = call("sinh");
      break;
    case Op::kCosh:
      r = call("cosh");
      break;
    case Op::kTanh:
      r = call("tanh");
      break;
    case Op::kAsinh:
      r = call("asinh");
      break;
    case Op::kAcosh:
      r = call("acosh");
      break;
    case Op::kAtanh:
      r = call("atanh");
      break;
    case Op::kErf:
      r = call("erf");
      break;
    case Op::kSigmoid:
      r = call("sigmoid");
      break;
    case Op::kFloor:
      r = call("floor");
      break;
    case Op::kCeil:
      r = call("ceil");
      break;
    case Op::kRound:
      r = call("round");
      break;
    case Op::kTrunc:
      r = call("trunc");
      break;
    case Op::kIsNaN:
      return call("isnan");
    case Op::kIsInf:
      return call("isinf");
    case Op::kAdd:
      r = back(infix("+"));
      break;
    case Op::kSub:
      r = back(infix("-"));
      break;
    case Op::kMul:
      r = back(infix("*"));
      break;
    case Op::kDiv:
      r = f ? infix("/") : call("div_trunc");
      break;
    case Op::kFloorDiv:
      if (c == DType::kInt64 && is_const(e->args[1]) && e->args[1]->i > 0 &&
          idx::provably_nonnegative(e->args[0], true))
        r = infix("/");
      else if (f)
        r = fmt::format("floor({})", infix("/"));
      else if (c == DType::kInt64 && !e->args[1]->has_load && idx::provably_nonnegative(e->args[0], true))
        r = fmt::format("i64(u64({}) / u64(max({}, i64(1))))", a[0], a[1]);
      else
        r = call("div_floor");
      break;
    case Op::kMod:
      if (c == DType::kInt64 && is_const(e->args[1]) && e->args[1]->i > 0 &&
          idx::provably_nonnegative(e->args[0], true))
        r = infix("%");
      else if (c == DType::kInt64 && !e->args[1]->has_load && idx::provably_nonnegative(e->args[0], true))
        r = fmt::format("i64(u64({}) % u64(max({}, i64(1))))", a[0], a[1]);
      else
        r = call("mod_floor");
      break;
    case Op::kFMod:
      r = call("mod_trunc");
      break;
    case Op::kPow:
      r = call(f ? "pow" : "ipow");
      break;
    case Op::kMin:
      r = call("min");
      break;
    case Op::kMax:
      r = call("max");
      break;
    case Op::kAnd:
      return infix("&");
    case Op::kOr:
      return infix("|");
    case Op::kXor:
      return infix("!=");
    case Op::kBitAnd:
      r = call("bit_and");
      break;
    case Op::kBitOr:
      r = call("bit_or");
      break;
    case Op::kBitXor:
      r = call("bit_xor");
      break;
    case Op::kShl:
      r = call("shl");
      break;
    case Op::kShr:
      r = call("shr");
      break;
    case Op::kEq:
      return infix("==");
    case Op::kNe:
      return infix("!=");
    case Op::kLt:
      return infix("<");
    case Op::kLe:
      return infix("<=");
    case Op::kGt:
      return infix(">");
    case Op::kGe:
      return infix(">=");
    default:
      fail(ErrorKind::kInternal, "internal error: no code for {}", to_string(e));
  }
  return cast_text(c, e->dtype, 1, r);
}

}  // namespace sardonyx::codegen
