// Limits of element types as expressions.
#include "ops/element_math.h"

#include <cmath>

namespace sardonyx::el {

double lowest(DType t) { return is_signed(t) ? -std::ldexp(1.0, bits_of(t) - 1) : 0.0; }

double largest(DType t) { return std::ldexp(1.0, bits_of(t) - (is_signed(t) ? 1 : 0)) - 1; }

Expr minimum(DType t) {
  if (is_float(t)) return constant_float(-INFINITY, t);
  if (!is_signed(t)) return constant_int(0, t);
  return constant_int(static_cast<std::int64_t>(~std::uint64_t{0} << (bits_of(t) - 1)), t);
}

Expr zero(DType t) {
  const bool plain =
      !is_float(t) || t == DType::kFloat64 || t == DType::kFloat32 || t == DType::kFloat16 || t == DType::kBFloat16;
  return plain ? constant(0, t) : cast(constant_float(0, DType::kFloat32), t);
}

}  // namespace sardonyx::el
