// QuantizeLinear to 8 bits by a known scale, as calls of kernels/prelude_quantize.h.
#include <fmt/format.h>

#include <cmath>
#include <limits>
#include <optional>

#include "codegen/emit.h"

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

std::string Emitter::quantization(const Expr& e, bool wide) {
  if (e->op != Op::kCast || e->args[0]->dtype != DType::kFloat32) return {};
  if (const double largest = largest_of(e->dtype); largest > 0) {
    const auto q = quotient_of(e->args[0]);
    if (!q || e->i != 1) return {};  // 1: saturates
    if (wide) return fmt::format("{} * {}", value(q->x), scale(1 / q->scale));
    return fmt::format("quantized_float<{}>({}, {}, {}, {})", type_name(e->dtype), value(q->x), scale(q->scale),
                       scale(1 / q->scale), scale(largest * q->scale));
  }
  if (e->dtype != DType::kInt8 && e->dtype != DType::kUInt8) return {};
  const double least = e->dtype == DType::kInt8 ? -128 : 0, most = e->dtype == DType::kInt8 ? 127 : 255;
  const Expr& upper = e->args[0];
  if (upper->op != Op::kMin || !is_const(upper->args[1]) || upper->args[1]->f != most) return {};
  const Expr& lower = upper->args[0];
  if (lower->op != Op::kMax || !is_const(lower->args[1]) || lower->args[1]->f != least) return {};
  Expr rounded = lower->args[0];
  double zero = 0;
  if (rounded->op == Op::kAdd && is_const(rounded->args[1])) {
    zero = rounded->args[1]->f;
    rounded = rounded->args[0];
  }
  if (rounded->op != Op::kRound || zero != std::nearbyint(zero) || zero < least || zero > most) return {};
  auto q = quotient_of(rounded->args[0]);
  if (!q) return {};
  // Relu in front of a range that begins with 0: the functions clamp to it, NaN too.
  if (zero == least && q->x->op == Op::kMax && is_const(q->x->args[1]) && q->x->args[1]->f == 0) q->x = q->x->args[0];
  return fmt::format(
      "{}<{}>({}, {}, {}, {}, {}, {})", wide ? "quantized_code" : "quantized", type_name(e->dtype), value(q->x),
      scale(q->scale), scale(1 / q->scale), scale((least - zero) * q->scale), scale((most - zero) * q->scale),
      zero == 0 || zero == least ? fmt::format("{}", zero) : zero_point(static_cast<std::int64_t>(zero)));
}

Emitter::Wide Emitter::wide(const Expr& e) {
  switch (e->dtype) {
    case DType::kFloat16:
    case DType::kBFloat16:
      if (e->op != Op::kCast || e->args[0]->dtype != DType::kFloat32) return {};
      return {value(e->args[0]), (e->i & kCastSaturatesHalf) != 0};
    case DType::kUInt8:
      // int8 with its sign bit flipped: of the sum, as of the result, only the low 8 bits count.
      if (e->op == Op::kBitXor && is_const(e->args[1], 128) && e->args[0]->op == Op::kBitCast &&
          e->args[0]->args[0]->dtype == DType::kInt8) {
        const std::string code = quantizes ? quantization(e->args[0]->args[0], true) : "";
        return {code.empty() ? "" : fmt::format("({} + 128)", code)};
      }
      return {quantizes ? quantization(e, true) : ""};
    case DType::kInt8:
    case DType::kFloat8E4M3FN:
    case DType::kFloat8E5M2:
      return {quantizes ? quantization(e, true) : ""};
    default:
      return {};
  }
}

}  // namespace sardonyx::codegen
