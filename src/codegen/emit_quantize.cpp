// QuantizeLinear to 8 bits by a known scale, as calls of kernels/prelude_quantize.h.
#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <optional>

#include "codegen/emit_types.h"
#include "codegen/loop_codegen.h"

namespace sardonyx::codegen {
namespace {

// x / scale, where scale is a constant of which the functions' rounding is exact.
struct Quotient {
  Expr x;
  float scale;
};

std::optional<Quotient> quotient_of(const Expr& e) {
  constexpr float kLeast = 0x1p-60F, kMost = 0x1p60F;
  if (e->op != Op::kDiv || e->dtype != DType::kFloat32 || !is_const(e->args[1])) return {};
  const auto scale = static_cast<float>(e->args[1]->f);
  if (!(scale >= kLeast && scale <= kMost)) return {};
  return Quotient{e->args[0], scale};
}

double largest_of(DType t) {
  switch (t) {
    case DType::kFloat8E4M3FN:
      return 448;
    case DType::kFloat8E4M3FNUZ:
      return 240;
    case DType::kFloat8E5M2:
    case DType::kFloat8E5M2FNUZ:
      return 57344;
    default:
      return 0;
  }
}

}  // namespace

bool of_eight_bits(DType t) { return t != DType::kBool && size_of(t) == 1; }

bool loads_eight_bits(const Expr& e) {
  bool found = false;
  visit(e, [&](const Expr& x) { found |= x->op == Op::kLoad && of_eight_bits(x->dtype); });
  return found;
}

std::optional<Emitter::Codes> Emitter::codes_of(const Expr& e) {
  if (e->op != Op::kCast || e->args[0]->dtype != DType::kFloat32) return {};
  if (e->dtype != DType::kInt8 && e->dtype != DType::kUInt8) return {};
  Codes c;
  c.least = e->dtype == DType::kInt8 ? -128 : 0;
  c.most = e->dtype == DType::kInt8 ? 127 : 255;
  const Expr& upper = e->args[0];
  if (upper->op != Op::kMin || !is_const(upper->args[1]) || upper->args[1]->f != c.most) return {};
  const Expr& lower = upper->args[0];
  if (lower->op != Op::kMax || !is_const(lower->args[1]) || lower->args[1]->f != c.least) return {};
  Expr rounded = lower->args[0];
  if (rounded->op == Op::kAdd && is_const(rounded->args[1])) {
    c.zero = rounded->args[1]->f;
    rounded = rounded->args[0];
  }
  if (rounded->op != Op::kRound || c.zero != std::nearbyint(c.zero) || c.zero < c.least || c.zero > c.most) return {};
  const auto q = quotient_of(rounded->args[0]);
  if (!q) return {};
  c.x = q->x;
  c.scale = q->scale;
  // Relu in front of a range that begins with 0: the functions clamp to it, NaN too.
  if (c.zero == c.least && c.x->op == Op::kMax && is_const(c.x->args[1]) && c.x->args[1]->f == 0) c.x = c.x->args[0];
  return c;
}

namespace {

// The maximum of 8-bit elements, as int32, if `e` is the maximum of what DequantizeLinear makes of them by the scale
// and zero point of `c`. Codes of type `t`.
Expr maximum_of_codes(const Expr& e, const Emitter::Codes& c, DType t) {
  if (e->op != Op::kReduce || static_cast<ReduceKind>(e->i) != ReduceKind::kMax) return {};
  Expr x = e->args[0], inside;
  if (x->op == Op::kSelect) {  // outside of an image
    if (!is_const(x->args[2]) || !(x->args[2]->f <= (c.least - c.zero) * c.scale)) return {};
    inside = x->args[0];
    x = x->args[1];
  }
  if (x->op != Op::kMul || !is_const(x->args[1]) || static_cast<float>(x->args[1]->f) != c.scale) return {};
  x = x->args[0];
  if (x->op != Op::kCast || x->dtype != DType::kFloat32) return {};
  x = x->args[0];
  double zero = 0;
  if (x->op == Op::kSub && x->dtype == DType::kInt32 && is_const(x->args[1])) {
    zero = static_cast<double>(x->args[1]->i);
    x = x->args[0];
  }
  if (x->op == Op::kCast && x->dtype == DType::kInt32) x = x->args[0];
  if (x->op != Op::kLoad || x->dtype != t || zero != c.zero) return {};
  x = cast(x, DType::kInt32);
  if (inside) x = select(inside, x, constant_int(static_cast<std::int64_t>(c.least), DType::kInt32));
  return reduce(ReduceKind::kMax, e->vars, x);
}

}  // namespace

void take_maxima_of_codes(LoopKernel& kernel) {
  for (std::size_t k = 0; k < kernel.stages.size(); ++k) {
    Stage& s = kernel.stages[k];
    if (s.stored || !s.body->has_reduce || s.out->dtype != DType::kFloat32) continue;
    Expr maximum;
    bool only = true;
    std::vector<Stage> later(kernel.stages.begin() + static_cast<std::ptrdiff_t>(k) + 1, kernel.stages.end());
    for (Stage& after : later)
      after.body = rewrite(after.body, [&](const Expr& x) -> Expr {
        if (!x->has_load) return x;
        if (x->op == Op::kLoad && x->value == s.out) only = false;
        const auto c = Emitter::codes_of(x);
        if (!c || c->x->op != Op::kLoad || c->x->value != s.out) return {};
        const Expr m = maximum_of_codes(s.body, *c, x->dtype);
        only &= m && (!maximum || same(maximum, m));
        maximum = m;
        return cast(bitcast(c->x, DType::kInt32), x->dtype);
      });
    if (!only || !maximum) continue;
    s.body = bitcast(maximum, DType::kFloat32);  // the value's type stays
    std::copy(later.begin(), later.end(), kernel.stages.begin() + static_cast<std::ptrdiff_t>(k) + 1);
  }
}

std::string Emitter::quantization(const Expr& e) {
  if (e->op != Op::kCast || e->args[0]->dtype != DType::kFloat32) return {};
  if (const double largest = largest_of(e->dtype); largest > 0) {
    const auto q = quotient_of(e->args[0]);
    if (!q || e->i != 1) return {};  // 1: saturates
    return fmt::format("quantized_float<{}>({}, {}, {}, {})", type_name(e->dtype), value(q->x), scale(q->scale),
                       scale(1 / q->scale), scale(largest * q->scale));
  }
  const auto c = codes_of(e);
  if (!c) return {};
  return fmt::format("quantized<{}>({}, {}, {}, {}, {}, {})", type_name(e->dtype), value(c->x), scale(c->scale),
                     scale(1 / c->scale), scale((c->least - c->zero) * c->scale), scale((c->most - c->zero) * c->scale),
                     zero_text(c->zero, c->least));
}

// Zero points that begin or halve the range are the same in many layers.
std::string Emitter::zero_text(double zero, double least) {
  return zero == 0 || zero == least ? fmt::format("{}", zero) : zero_point(static_cast<std::int64_t>(zero));
}

std::string Emitter::wide_codes(const Codes& c) {
  if (c.zero == 0 && c.least == 0) return fmt::format("{} * {}", value(c.x), scale(1 / c.scale));
  return fmt::format("wide_code({}, {}, {}, {})", value(c.x), scale(1 / c.scale), scale((c.least - c.zero) * c.scale),
                     zero_text(c.zero, c.least));
}

bool Emitter::rounds_float8(const Expr& e) const {
  if (!quantizes || (e->dtype != DType::kFloat8E4M3FN && e->dtype != DType::kFloat8E5M2)) return false;
  return e->op == Op::kCast && e->args[0]->dtype == DType::kFloat32 && e->i == 1 && quotient_of(e->args[0]);
}

Emitter::Wide Emitter::wide(const Expr& e) {
  if (e->dtype == DType::kFloat16 || e->dtype == DType::kBFloat16) {
    if (e->op != Op::kCast || e->args[0]->dtype != DType::kFloat32) return {};
    return {value(e->args[0]), saturates(e)};
  }
  if (!quantizes) return {};
  if (rounds_float8(e)) {
    const auto q = quotient_of(e->args[0]);
    return {fmt::format("{} * {}", value(q->x), scale(1 / q->scale))};
  }
  // int8 with its sign bit flipped is uint8 with a zero point that is 128 larger.
  const bool flipped = e->op == Op::kBitXor && e->dtype == DType::kUInt8 && is_const(e->args[1], 128) &&
                       e->args[0]->op == Op::kBitCast && e->args[0]->args[0]->dtype == DType::kInt8;
  auto c = codes_of(flipped ? e->args[0]->args[0] : e);
  if (!c) return {};
  if (flipped)
    for (double* x : {&c->zero, &c->least, &c->most}) *x += 128;
  return {wide_codes(*c)};
}

}  // namespace sardonyx::codegen
