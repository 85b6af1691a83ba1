// Expressions as C++ statements of the kernel dialect.
#include "codegen/emit.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstdlib>
#include <unordered_set>

#include "codegen/emit_types.h"

namespace sardonyx::codegen {

const char* type_name(DType t) {
  if (const char* found = dtype_info(t).kernel_name) return found;
  fail(ErrorKind::kUnsupported, "arithmetic on {} is not supported", name(t));
}

const char* storage_name(DType t) { return t == DType::kBool ? "u8" : type_name(t); }

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

void Emitter::close(const char* after) {
  scopes_.pop_back();
  line(std::string("}") + after);
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

std::size_t position(Exprs& list, const Expr& e) {
  for (std::size_t k = 0; k < list.size(); ++k)
    if (same(list[k], e)) return k;
  list.push_back(e);
  return list.size() - 1;
}

// Whether a constant may be a scale: small integers, halves and the like are the same in all layers.
bool is_scale(const Expr& e) {
  return e->dtype == DType::kFloat32 && std::isfinite(e->f) &&
         (std::bit_cast<std::uint32_t>(static_cast<float>(e->f)) & 0xffff) != 0;
}

// Whether an operand of `e` may be a zero point. Sums with powers of two are left out: these are offsets of bit
// patterns.
bool is_zero_point(const Expr& e, const Expr& x) {
  if (x->dtype != DType::kInt32 || !is_const(x) || (e->op != Op::kAdd && e->op != Op::kSub && e->op != Op::kMul))
    return false;
  const std::int64_t magnitude = std::abs(x->i);
  return magnitude < 256 && (e->op == Op::kMul || (magnitude & (magnitude - 1)) != 0);
}

}  // namespace

// Only expressions that cannot fail when they are evaluated for sizes for which the kernel would not have run.
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

std::string Emitter::scale(double x) {
  const auto number = static_cast<float>(x);
  if (!scales_are_arguments) return fmt::format("{:a}f", static_cast<double>(number));
  return fmt::format("bit_cast<f32>(u32({}))", argument(Expr(std::int64_t{std::bit_cast<std::uint32_t>(number)})));
}

std::string Emitter::zero_point(std::int64_t x) {
  return scales_are_arguments ? fmt::format("i32({})", argument(Expr(x))) : fmt::format("{}", x);
}

std::string Emitter::argument(const Expr& e) { return "s" + std::to_string(position(symbols, e)); }

std::string Emitter::divisor(const Expr& e) { return "d" + std::to_string(position(divisors, e)); }

std::string Emitter::named_factor(const Expr& e, const Expr& x) const {
  if (e->op != Op::kMul || x->dtype != DType::kInt64 || !is_const(x)) return {};
  for (const auto& [size, name] : named_factors)
    if (x->i == size) return narrow(x) ? name : fmt::format("i64({})", name);
  return {};
}

std::string Emitter::value(const Expr& e) {
  if (is_const(e)) return narrow(e) ? fmt::format("i32({})", e->i) : is_scale(e) ? scale(e->f) : literal(e);
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
      if (guard_.empty())
        text = fmt::format("{}[{}]", buffer(e->value), at);
      else if (guards_addresses)
        text = fmt::format("{}[{} ? {} : 0]", buffer(e->value), guard_, at);
      else
        text = fmt::format("load_if({} + {}, {})", buffer(e->value), at, guard_);
      if (e->dtype == DType::kBool) text += " != 0";
      break;
    }
    case Op::kSelect:
      return selection(e);
    case Op::kReduce:
      return reduction(e);
    default: {
      if (quantizes) text = quantization(e);
      if (text.empty() && joins_bounds) text = bounded_half(e);
      if (!text.empty()) break;
      std::vector<std::string> a;
      bool in_32 = e->dtype != DType::kInt64 || narrow(e);
      for (const Expr& x : e->args) {
        std::string factor = named_factor(e, x);
        a.push_back(!factor.empty()                               ? std::move(factor)
                    : scales_are_arguments && is_zero_point(e, x) ? zero_point(x->i)
                                                                  : value(x));
        in_32 &= x->dtype == DType::kInt64 && narrow(x);
      }
      switch (e->op) {  // operations that are the same in either type
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
      if (e->op == Op::kCast && is_float(e->args[0]->dtype) && narrow(e)) {  // certainly within its range
        text = fmt::format("i32({})", a[0]);
        break;
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

namespace {

// Whether computing an expression costs little beside a load. Operations on indices do not count: packs share most.
bool is_short(const Expr& e) {
  constexpr int kMost = 40;
  int operations = 0;
  visit(e, [&](const Expr& x) { operations += x->dtype != DType::kInt64; });
  return operations <= kMost && !e->has_reduce;
}

// Whether all tensors that `e` loads have a first element, whatever the sizes of the inputs.
bool has_elements(const Expr& e) {
  bool all = true;
  visit(e, [&](const Expr& x) {
    if (x->op != Op::kLoad) return;
    for (const Expr& n : x->value->shape) all = all && is_const(n) && n->i > 0;
  });
  return all;
}

}  // namespace

// Both sides are computed; loads of the side that is not selected give 0.
std::string Emitter::guarded_selection(const Expr& e, const std::string& condition) {
  const std::string outside = guard_;
  const auto side = [&](const Expr& x, const std::string& selected) {
    scopes_.emplace_back();  // values with these loads are of this side alone
    guard_ = outside.empty() ? selected : fmt::format("({} & {})", outside, selected);
    const std::string text = value(x);
    guard_ = outside;
    scopes_.pop_back();
    return text;
  };
  const std::string x = side(e->args[1], condition), y = side(e->args[2], fmt::format("!{}", condition));
  const std::string name = fresh("t");
  line(fmt::format("const {} {} = {} ? {} : {};", type_of(e), name, condition, x, y));
  return name;
}

std::string Emitter::selection(const Expr& e) {
  const std::string c = value(e->args[0]);
  const Expr &x = e->args[1], &y = e->args[2];
  if (std::string text = sine_or_cosine(e, c); !text.empty()) return text;
  std::string name = fresh("t");
  if (!x->has_load && !y->has_load && !x->has_reduce && !y->has_reduce) {
    const std::string a = value(x), b = value(y);
    line(fmt::format("const {} {} = {} ? {} : {};", type_of(e), name, c, a, b));
    return name;
  }
  // Only the selected side may load, because the other one's indices may be out of range. Compute first what both need.
  Exprs both;
  certain_parts(e, [&](const Expr& part) {
    if (same(part, e)) return true;
    both.push_back(part);
    return false;
  });
  for (const Expr& part : both) value(part);
  if (guards_loads && is_short(x) && is_short(y) && (!guards_addresses || has_elements(e)))
    return guarded_selection(e, c);
  line(fmt::format("{} {};", type_of(e), name));
  open("if (" + c + ")");
  line(fmt::format("{} = {};", name, value(x)));
  close();
  open("else");
  line(fmt::format("{} = {};", name, value(y)));
  close();
  return name;
}

}  // namespace sardonyx::codegen
