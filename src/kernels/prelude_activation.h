// Activation functions that need care; code generation writes out simple combinations (Elu, HardSwish, ...). All for
// f32 and f64, in forms that neither overflow nor cancel.
#pragma once
#include "prelude_trig_f32.h"
#include "prelude_trig_f64.h"

SDX_STRICT_BEGIN
namespace sdx {

/// 1 / (1 + e^-x), as e^x / (1 + e^x) for x < 0.
template <class F>
SDX_FN F sigmoid(F x) {
  const F e = exp(-fabs(x));
  return detail::quotient(x < F(0) ? e : F(1), F(1) + e);
}
namespace detail {
// x times a weight that vanishes faster than x grows: -0, not NaN, where the weight is 0.
template <class F>
SDX_FN F weighted(F x, F weight) {
  return weight == F(0) ? -F(0) : x * weight;
}
}  // namespace detail
/// x sigmoid(x), also called Swish.
template <class F>
SDX_FN F silu(F x) {
  return detail::weighted(x, sigmoid(x));
}
/// log(1 + e^x).
template <class F>
SDX_FN F softplus(F x) {
  return (x < F(0) ? F(0) : x) + log1p(exp(-fabs(x)));
}
template <class F>
SDX_FN F softsign(F x) {
  return x / (F(1) + fabs(x));
}
/// x tanh(softplus(x)) = x ((1 + e^x)^2 - 1) / ((1 + e^x)^2 + 1), divided by e^2x for x > 0.
template <class F>
SDX_FN F mish(F x) {
  const F e = exp(-fabs(x));
  const bool negative = x < F(0);
  const F n = negative ? fma(e, e, e + e) : fma(F(2), e, F(1));
  const F d = negative ? n + F(2) : fma(F(2) * e, e, n);
  return detail::weighted(x, detail::quotient(n, d));
}
/// x (1 + erf(x / sqrt 2)) / 2, of small relative error also far below zero, where 1 + erf would cancel.
template <class F>
SDX_FN F gelu(F x) {
  // Beyond 40 erfc is 0; the bound keeps infinity out of the product.
  const F half = F(0.5) * clamp(x, F(-40), F(40)) * detail::erfc_positive(fabs(x) * F(0.70710678118654752440));
  return x > F(0) ? x - half : half;
}
/// x (1 + tanh(sqrt(2/pi) (x + 0.044715 x^3))) / 2 = x sigmoid(2 sqrt(2/pi) (x + 0.044715 x^3)).
template <class F>
SDX_FN F gelu_tanh(F x) {
  return detail::weighted(x, sigmoid(x * fma(x * x, F(0.071354816272600240), F(1.5957691216057307))));
}

}  // namespace sdx
SDX_STRICT_END
