// Expressions as C++ statements of the kernel dialect.
#include "codegen/emit.h"

#include <algorithm>
#include <cmath>
#include <unordered_set>

namespace sardonyx::codegen {

const char* type_name(DType t) {
  switch (t) {
    case DType::kBool:
      return "bool";
    case DType::kInt8:
      return "i8";
    case DType::kInt16:
      return "i16";
    case DType::kInt32:
      return "i32";
    case DType::kInt64:
      return "i64";
    case DType::kUInt8:
      return "u8";
    case DType::kUInt16:
      return "u16";
    case DType::kUInt32:
      return "u32";
    case DType::kUInt64:
      return "u64";
    case DType::kFloat16:
      return "f16";
    case DType::kBFloat16:
      return "bf16";
    case DType::kFloat32:
      return "f32";
    case DType::kFloat64:
      return "f64";
    case DType::kFloat8E4M3FN:
      return "f8e4m3fn";
    case DType::kFloat8E4M3FNUZ:
      return "f8e4m3fnuz";
    case DType::kFloat8E5M2:
      return "f8e5m2";
    case DType::kFloat8E5M2FNUZ:
      return "f8e5m2fnuz";
    case DType::kFloat8E8M0:
      return "f8e8m0";
    case DType::kFloat4E2M1:
      return "f4e2m1";
    case DType::kInt4:
      return "i4";
    case DType::kUInt4:
      return "u4";
    case DType::kInt2:
      return "i2";
    case DType::kUInt2:
      return "u2";
    default:
      fail(ErrorKind::kUnsupported, "arithmetic on {} is not supported", name(t));
  }
}

const char* storage_name(DType t) { return t == DType::kBool ? "u8" : type_name(t); }

namespace {

bool plain_float(DType t) { return t == DType::kFloat32 || t == DType::kFloat64; }
bool narrow_int(DType t) { return t == DType::kInt4 || t == DType::kUInt4 || t == DType::kInt2 || t == DType::kUInt2; }
// Type in which arithmetic on t is done; results are rounded back.
DType compute_type(DType t) {
  if (narrow_int(t)) return DType::kInt32;
  return is_float(t) && !plain_float(t) ? DType::kFloat32 : t;
}

std::string cast_text(DType from, DType to, std::int64_t mode, const std::string& x) {
  if (from == to) return x;
  const bool fp8 = size_of(to) == 1 && is_float(to);
  if (!fp8) return fmt::format("cast<{}>({})", type_name(to), x);
  const char* round = (mode & 2) != 0 ? "Round::kDown" : (mode & 4) != 0 ? "Round::kNearest" : "Round::kUp";
  return fmt::format("cast<{}, {}, {}>({})", type_name(to), (mode & 1) != 0 ? "true" : "false", round, x);
}

}  // namespace

const char* computed_name(DType t) { return type_name(compute_type(t)); }

std::string literal(const Expr& e) {
  const DType t = e->dtype;
  if (t == DType::kBool) return e->i ? "true" : "false";
  if (is_float(t)) {
    std::string text;
    if (std::isnan(e->f))
      text = "nan32()";
    else if (std::isinf(e->f))
      text = e->f > 0 ? "inf32()" : "(-inf32())";
    else if (t == DType::kFloat64)
      return fmt::format("{:a}", e->f);
    else
      text = fmt::format("{:a}f", static_cast<double>(static_cast<float>(e->f)));
    if (t == DType::kFloat32) return text;
    return fmt::format("cast<{}>({})", type_name(t), text);
  }
  if (t == DType::kInt64) return e->i == INT64_MIN ? "i64(-9223372036854775807ll - 1)" : fmt::format("i64({})", e->i);
  if (t == DType::kUInt64) return fmt::format("u64({}ull)", static_cast<std::uint64_t>(e->i));
  if (narrow_int(t)) return fmt::format("cast<{}>(i32({}))", type_name(t), e->i);
  return fmt::format("{}({}ll)", type_name(t), e->i);
}

Expr storage_offset(const Value& v, const Exprs& indices) {
  if (v.storage_order.empty()) return idx::linearize(indices, v.shape);
  Exprs i, s;
  for (int d : v.storage_order) {
    i.push_back(indices[static_cast<std::size_t>(d)]);
    s.push_back(v.shape[static_cast<std::size_t>(d)]);
  }
  return idx::linearize(i, s);
}

Expr flatten_loads(const Expr& e) {
  if (!e->has_load) return e;
  return rewrite(e, [](const Expr& x) -> Expr {
    if (!x->has_load) return x;
    if (x->op != Op::kLoad) return Expr();
    const Value& v = *x->value;
    Exprs i;
    for (const Expr& a : x->args) i.push_back(flatten_loads(a));
    return load(x->value, x->dtype, {storage_offset(v, i)});
  });
}

void certain_parts(const Expr& e, const std::function<bool(const Expr&)>& f, int selections) {
  if (!e->has_load || !f(e) || e->op == Op::kReduce) return;
  if (e->op != Op::kSelect) {
    for (const Expr& a : e->args) certain_parts(a, f, selections);
    return;
  }
  certain_parts(e->args[0], f, selections);
  if (!e->args[1]->has_load || !e->args[2]->has_load || selections == 0) return;
  std::unordered_set<Expr, ExprHash, ExprSame> one;
  certain_parts(e->args[1], [&](const Expr& x) { return one.insert(x).second; }, selections - 1);
  std::unordered_set<Expr, ExprHash, ExprSame> both;
  const auto in_both = [&](const Expr& x) {
    if (!both.insert(x).second) return false;
    return one.count(x) == 0 || f(x);
  };
  certain_parts(e->args[2], in_both, selections - 1);
}

std::string Emitter::find(const Expr& e) const {
  for (auto s = scopes_.rbegin(); s != scopes_.rend(); ++s) {
    auto it = s->find(e);
    if (it != s->end()) return it->second;
  }
  return {};
}

void Emitter::line(const std::string& text) {
  out_.append(2 * scopes_.size(), ' ');
  out_ += text;
  out_ += '\n';
}

void Emitter::open(const std::string& header) {
  line(header + " {");
  scopes_.emplace_back();
}

void Emitter::close() {
  scopes_.pop_back();
  line("}");
}

void Emitter::bind(const Expr& var, const std::string& name) { scopes_.back()[var] = name; }

std::string Emitter::buffer(const Value* v) {
  auto it = buffer_names_.find(v);
  if (it != buffer_names_.end()) return it->second;
  buffers.push_back(const_cast<Value*>(v));
  return buffer_names_[v] = "b" + std::to_string(buffers.size() - 1);
}

bool Emitter::narrow(const Expr& e) const { return range && range->narrow(e); }

const char* Emitter::type_of(const Expr& e) const { return narrow(e) ? "i32" : type_name(e->dtype); }

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

std::size_t position(Exprs& list, const Expr& e) {
  for (std::size_t k = 0; k < list.size(); ++k)
    if (same(list[k], e)) return k;
  list.push_back(e);
  return list.size() - 1;
}

}  // namespace

// Only what can't fail when it is evaluated for sizes for which nobody would have computed it.
bool Emitter::is_parameter(const Expr& e) const {
  if (e->dtype != DType::kInt64 || !e->has_sym || e->has_var || e->has_load || e->has_reduce) return false;
  bool ok = true;
  visit(e, [&](const Expr& x) {
    switch (x->op) {
      case Op::kConst:
      case Op::kSym:
      case Op::kAdd:
      case Op::kSub:
      case Op::kMul:
      case Op::kMin:
      case Op::kMax:
        ok &= x->dtype == DType::kInt64;
        return;
      case Op::kFloorDiv:
      case Op::kMod:
        ok &= x->dtype == DType::kInt64 && is_const(x->args[1]) && x->args[1]->i > 0;
        return;
      default:
        ok = false;
    }
  });
  return ok;
}

std::string Emitter::parameter(const Expr& e) {
  const std::string name = "s" + std::to_string(position(symbols, e));
  return narrow(e) ? "i32(" + name + ")" : name;
}

std::string Emitter::argument(const Expr& e) { return "s" + std::to_string(position(symbols, e)); }

std::string Emitter::divisor(const Expr& e) { return "d" + std::to_string(position(divisors, e)); }

std::string Emitter::value(const Expr& e) {
  if (is_const(e)) return narrow(e) ? fmt::format("i32({})", e->i) : literal(e);
  std::string known = find(e);
  if (!known.empty()) return known;
  if (range ? is_parameter(e) : e->op == Op::kSym) return parameter(e);
  check(e->op != Op::kVar, "variable i{} is not in scope", e->i);
  std::string name = compute(e);
  scopes_.back()[e] = name;
  return name;
}

std::string Emitter::compute(const Expr& e) {
  std::string text;
  switch (e->op) {
    case Op::kLoad: {
      auto local = locals_.find(e->value);
      if (local != locals_.end()) return local->second;
      check(e->args.size() == 1, "a load that is not flat");
      const std::string at = value(e->args[0]);
      text = fmt::format("{}[{}]{}", buffer(e->value), at, e->dtype == DType::kBool ? " != 0" : "");
      break;
    }
    case Op::kSelect:
      return selection(e);
    case Op::kReduce:
      return reduction(e);
    default: {
      std::vector<std::string> a;
      bool in_32 = e->dtype != DType::kInt64 || narrow(e);
      for (const Expr& x : e->args) {
        a.push_back(value(x));
        in_32 &= x->dtype == DType::kInt64 && narrow(x);
      }
      switch (e->op) {  // those that mean the same in either type
        case Op::kCast:
        case Op::kAdd:
        case Op::kSub:
        case Op::kMul:
        case Op::kFloorDiv:
        case Op::kMod:
        case Op::kMin:
        case Op::kMax:
        case Op::kEq:
        case Op::kNe:
        case Op::kLt:
        case Op::kLe:
        case Op::kGt:
        case Op::kGe:
          break;
        default:
          in_32 = false;
      }
      if (!in_32)
        for (std::size_t k = 0; k < a.size(); ++k)
          if (narrow(e->args[k])) a[k] = "i64(" + a[k] + ")";
      if (!range || !division(e, a, in_32, text)) text = operation(e, a);
      if (!in_32 && narrow(e)) text = "i32(" + text + ")";
    }
  }
  const std::string name = fresh("t");
  line(fmt::format("const {} {} = {};", type_of(e), name, text));
  return name;
}

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

std::string Emitter::selection(const Expr& e) {
  const std::string c = value(e->args[0]);
  const Expr &x = e->args[1], &y = e->args[2];
  const std::string name = fresh("t");
  if (!x->has_load && !y->has_load && !x->has_reduce && !y->has_reduce) {
    const std::string a = value(x), b = value(y);
    line(fmt::format("const {} {} = {} ? {} : {};", type_of(e), name, c, a, b));
    return name;
  }
  // Only the chosen side may load: the other one's indices can be out of range. What both need comes before.
  Exprs both;
  certain_parts(e, [&](const Expr& part) {
    if (same(part, e)) return true;
    both.push_back(part);
    return false;
  });
  for (const Expr& part : both) value(part);
  line(fmt::format("{} {};", type_of(e), name));
  open("if (" + c + ")");
  line(fmt::format("{} = {};", name, value(x)));
  close();
  open("else");
  line(fmt::format("{} = {};", name, value(y)));
  close();
  return name;
}

std::string Emitter::combine(ReduceKind kind, DType t, const std::string& acc, const std::string& x) {
  auto back = [&](const std::string& s) {
    return bits_of(t) < 32 && !is_float(t) ? fmt::format("{}({})", type_name(t), s) : s;
  };
  switch (kind) {
    case ReduceKind::kSum:
      return back(acc + " + " + x);
    case ReduceKind::kProd:
      return back(acc + " * " + x);
    case ReduceKind::kMin:
      return fmt::format("min({}, {})", acc, x);
    case ReduceKind::kMax:
      return fmt::format("max({}, {})", acc, x);
    case ReduceKind::kAny:
      return acc + " | " + x;
    case ReduceKind::kAll:
      return acc + " & " + x;
    default:
      fail(ErrorKind::kInternal, "internal error: not a combining reduction");
  }
}

std::string Emitter::neutral(ReduceKind kind, DType t) {
  const char* n = type_name(t);
  switch (kind) {
    case ReduceKind::kSum:
      return fmt::format("{}(0)", n);
    case ReduceKind::kProd:
      return fmt::format("{}(1)", n);
    case ReduceKind::kMin:
    case ReduceKind::kMax: {
      const bool max = kind == ReduceKind::kMax;
      if (t == DType::kBool) return max ? "false" : "true";
      if (is_float(t)) return fmt::format("{}({}inf32())", n, max ? "-" : "");
      const int bits = bits_of(t);
      if (!is_signed(t)) return max ? fmt::format("{}(0)", n) : fmt::format("{}(~{}(0))", n, n);
      const std::string low =
          bits == 64 ? "i64(-9223372036854775807ll - 1)" : fmt::format("{}(-{}ll)", n, std::int64_t{1} << (bits - 1));
      return max ? low : fmt::format("{}(~{})", n, low);
    }
    case ReduceKind::kAny:
      return "false";
    case ReduceKind::kAll:
      return "true";
    default:
      return "";
  }
}

int unit_stride_loads(const Expr& e, const Expr& var) {
  int n = 0;
  visit(e, [&](const Expr& x) {
    if (x->op != Op::kLoad || x->args.size() != 1) return;
    Expr c, rest;
    if (idx::split_affine(x->args[0], var, c, rest) && is_const(c, 1)) ++n;
  });
  return n;
}

Exprs order_reduce_vars(const Expr& e, bool& contiguous) {
  Exprs vars = e->vars;
  int best = 0;
  std::size_t at = vars.size();
  for (std::size_t k = 0; k < vars.size(); ++k) {
    const int n = unit_stride_loads(e->args[0], vars[k]);
    if (n > best) {
      best = n;
      at = k;
    }
  }
  contiguous = at < vars.size();
  if (contiguous)
    std::rotate(vars.begin() + static_cast<std::ptrdiff_t>(at), vars.begin() + static_cast<std::ptrdiff_t>(at) + 1,
                vars.end());
  return vars;
}

std::string Emitter::reduction(const Expr& e) {
  const auto kind = static_cast<ReduceKind>(e->i);
  if (kind >= ReduceKind::kArgMin) return arg_reduction(e);
  const DType t = e->dtype;
  check(compute_type(t) == t || t == DType::kBool, "reduction in {}: widen the body first", name(t));
  bool contiguous;
  const Exprs vars = order_reduce_vars(e, contiguous);
  const Expr& body = e->args[0];
  const std::string acc = fresh("r");
  std::int64_t last = 0;
  const bool short_loop = is_const_int(vars.back()->args[0], last) && last < 32;
  if (!contiguous || short_loop || plain_reductions) {
    line(fmt::format("{} {} = {};", type_name(t), acc, neutral(kind, t)));
    for (const Expr& v : vars) {
      const std::string i = fresh("i"), n = value(v->args[0]);
      open(fmt::format("for ({2} {0} = 0; {0} < {1}; ++{0})", i, n, type_of(v)));
      bind(v, i);
    }
    const std::string x = narrow(body) ? "i64(" + value(body) + ")" : value(body);
    line(fmt::format("{} = {};", acc, combine(kind, t, acc, x)));
    for (std::size_t k = 0; k < vars.size(); ++k) close();
    return acc;
  }
  // Independent partial results for the contiguous variable, so that the loop vectorises without reordering one sum.
  const int lanes = size_of(t) >= 8 ? 16 : 32;
  const std::string lane = acc + "_";
  line(fmt::format("{} {}[{}];", type_name(t), lane, lanes));
  line(fmt::format("for (int l = 0; l < {}; ++l) {}[l] = {};", lanes, lane, neutral(kind, t)));
  for (std::size_t k = 0; k + 1 < vars.size(); ++k) {
    const std::string i = fresh("i"), n = value(vars[k]->args[0]);
    open(fmt::format("for (i64 {0} = 0; {0} < {1}; ++{0})", i, n));
    bind(vars[k], i);
  }
  const std::string v = fresh("v"), n = value(vars.back()->args[0]);
  line(fmt::format("i64 {} = 0;", v));
  open(fmt::format("for (; {0} + {2} <= {1}; {0} += {2})", v, n, lanes));
  line("#pragma clang loop vectorize(assume_safety)");
  open(fmt::format("for (int l = 0; l < {}; ++l)", lanes));
  const std::string i = fresh("i");
  line(fmt::format("const i64 {} = {} + l;", i, v));
  bind(vars.back(), i);
  const std::string x = value(body);
  line(fmt::format("{0}[l] = {1};", lane, combine(kind, t, lane + "[l]", x)));
  close();
  close();
  open(fmt::format("for (; {0} < {1}; ++{0})", v, n));
  bind(vars.back(), v);
  const std::string y = value(body);
  line(fmt::format("{0}[0] = {1};", lane, combine(kind, t, lane + "[0]", y)));
  close();
  for (std::size_t k = 0; k + 1 < vars.size(); ++k) close();
  line(fmt::format("for (int h = {}; h > 0; h /= 2) for (int l = 0; l < h; ++l) {}[l] = {};", lanes / 2, lane,
                   combine(kind, t, lane + "[l]", lane + "[l + h]")));
  line(fmt::format("const {} {} = {}[0];", type_name(t), acc, lane));
  return acc;
}

std::string Emitter::arg_reduction(const Expr& e) {
  const auto kind = static_cast<ReduceKind>(e->i);
  const bool max = kind == ReduceKind::kArgMax || kind == ReduceKind::kArgMaxLast;
  const bool last = kind == ReduceKind::kArgMinLast || kind == ReduceKind::kArgMaxLast;
  const DType t = e->args[0]->dtype;
  const DType c = compute_type(t);
  const std::string best = fresh("r"), where = fresh("r"), at = fresh("n");
  line(fmt::format("{} {} = {}(0);", type_name(c), best, type_name(c)));
  line(fmt::format("i64 {} = 0, {} = 0;", where, at));
  for (const Expr& v : e->vars) {
    const std::string i = fresh("i"), n = value(v->args[0]);
    open(fmt::format("for ({2} {0} = 0; {0} < {1}; ++{0})", i, n, type_of(v)));
    bind(v, i);
  }
  const std::string x = fresh("x");
  line(fmt::format("const {} {} = {};", type_name(c), x, cast_text(t, c, 1, value(e->args[0]))));
  // NaN counts as the extreme, the first one wins, as in numpy.
  const std::string better = fmt::format("{} {}{} {}", x, max ? ">" : "<", last ? "=" : "", best);
  const std::string nan = is_float(c) ? fmt::format(" || ({0} != {0} && {1} == {1})", x, best) : "";
  const std::string keep = is_float(c) ? fmt::format("{0} == {0} && ", best) : "";
  open(fmt::format("if ({} == 0 || ({}{}){})", at, keep, better, nan));
  line(fmt::format("{} = {}; {} = {};", best, x, where, at));
  close();
  line(fmt::format("++{};", at));
  for (std::size_t k = 0; k < e->vars.size(); ++k) close();
  return where;
}

}  // namespace sardonyx::codegen
