// Reciprocals, roots, exponentials, logarithms, sines, scaling by powers of two, and the helpers of IEEE division. The
// ISA documents give bounds on the error, not bits; results here are correctly rounded or close to it, hence within the
// bounds.
#include <limits>
#include <numbers>

#include "sim/ops/families.h"
#include "sim/ops/lanes.h"

namespace sardonyx::sim {
namespace {

using U = std::uint32_t;
using UL = std::uint64_t;
using I = std::int32_t;

float flush(float v) { return (bitsOf(v) & 0x7f800000) == 0 ? std::copysign(0.0f, v) : v; }

/// These units neither read nor make f32 denormals, whatever the mode register says.
template <auto F>
void flushing(Wave& w, const Inst& in) {
  Row t0, out;
  const U* a = readF32(w, in.src[0], t0);
  for (int l = 0; l < w.lanes; ++l) {
    float x = flush(asF32(a[l]));
    out[l] = canonical(bitsOf(flush(F(x))), x != x);
  }
  writeF32(w, in, in.dst[0], out);
}
/// sin and cos of an angle in revolutions; V_SIN_F32 is defined for |x| <= 256.
float sinTurns(float x) {
  if (std::isinf(x)) return std::numeric_limits<float>::quiet_NaN();
  double turns = static_cast<double>(x) - std::floor(static_cast<double>(x));
  return static_cast<float>(std::sin(turns * 2 * std::numbers::pi));
}
float cosTurns(float x) {
  if (std::isinf(x)) return std::numeric_limits<float>::quiet_NaN();
  double turns = static_cast<double>(x) - std::floor(static_cast<double>(x));
  return static_cast<float>(std::cos(turns * 2 * std::numbers::pi));
}
float rsq(float x) { return static_cast<float>(1.0 / std::sqrt(static_cast<double>(x))); }

template <class T>
int frexpExponent(T v) {
  if (v == 0 || !std::isfinite(v)) return 0;
  int e;
  std::frexp(v, &e);
  return e;
}
template <class T>
T frexpMantissa(T v) {
  if (!std::isfinite(v)) return v;
  int e;
  return std::frexp(v, &e);
}

void frexpExp32(Wave& w, const Inst& in) {
  Row t0, out;
  const U* a = readF32(w, in.src[0], t0);
  for (int l = 0; l < w.lanes; ++l) out[l] = static_cast<U>(frexpExponent(asF32(a[l])));
  writeB32(w, in.dst[0], out);
}
void frexpExp64(Wave& w, const Inst& in) {
  Row64 a;
  Row out;
  readF64(w, in.src[0], a);
  for (int l = 0; l < w.lanes; ++l) out[l] = static_cast<U>(frexpExponent(asF64(a[l])));
  writeB32(w, in.dst[0], out);
}
void frexpExp16(Wave& w, const Inst& in) {
  Row a, out;
  readF16(w, in.src[0], a);
  for (int l = 0; l < w.lanes; ++l) out[l] = static_cast<U>(frexpExponent(asF32(a[l]))) & 0xffff;
  writeB16(w, in, in.dst[0], out);
}
void ldexp32(Wave& w, const Inst& in) {
  Row t0, t1, out;
  const U* a = readF32(w, in.src[0], t0);
  const U* b = readB32(w, in.src[1], t1);
  RoundingScope rounding(round32(w));
  for (int l = 0; l < w.lanes; ++l) out[l] = bitsOf(std::ldexp(asF32(a[l]), static_cast<I>(b[l])));
  writeF32(w, in, in.dst[0], out);
}
void ldexp64(Wave& w, const Inst& in) {
  Row64 a;
  Row t1;
  readF64(w, in.src[0], a);
  const U* b = readB32(w, in.src[1], t1);
  RoundingScope rounding(round64(w));
  for (int l = 0; l < w.lanes; ++l) a[l] = bitsOf(std::ldexp(asF64(a[l]), static_cast<I>(b[l])));
  writeF64(w, in, in.dst[0], a);
}
void ldexp16(Wave& w, const Inst& in) {
  Row a, t1;
  readF16(w, in.src[0], a);
  const U* b = readB16(w, in.src[1], t1);
  for (int l = 0; l < w.lanes; ++l) a[l] = bitsOf(std::ldexp(asF32(a[l]), static_cast<std::int16_t>(b[l])));
  writeF16(w, in, in.dst[0], a);
}

/// Constants of V_DIV_SCALE, V_DIV_FMAS and V_DIV_FIXUP per format.
template <class T>
struct Div;
template <>
struct Div<float> {
  static constexpr int bias = 127, fraction = 23, far = 96, scale = 64, tiny = 23, under = -150, special = 255;
};
template <>
struct Div<double> {
  static constexpr int bias = 1023, fraction = 52, far = 768, scale = 128, tiny = 53, under = -1075, special = 2047;
};
template <class T>
int exponentField(T v) {
  if constexpr (sizeof(T) == 4)
    return static_cast<int>(bitsOf(v) >> 23 & 255);
  else
    return static_cast<int>(bitsOf(v) >> 52 & 2047);
}
template <class T>
bool isDenormal(T v) {
  return exponentField(v) == 0 && v != 0;
}

/// V_DIV_SCALE: scales numerator or denominator so that the division's iterations neither overflow nor lose bits.
template <class T>
T divScale(T s0, T s1, T s2, bool& vcc) {
  using D = Div<T>;
  // Zeros set VCC on hardware, though not in the document's pseudo-code; V_DIV_FIXUP replaces what comes of it.
  vcc = s2 == 0 || s1 == 0;
  if (vcc) return std::numeric_limits<T>::quiet_NaN();
  if (exponentField(s2) - exponentField(s1) >= D::far) {
    vcc = true;
    return s0 == s1 ? std::ldexp(s0, D::scale) : s0;
  }
  if (isDenormal(s1)) return std::ldexp(s0, D::scale);
  bool reciprocalTiny = isDenormal(T{1} / s1), quotientTiny = isDenormal(s2 / s1);
  // The document scales the denominator up here, which such large ones (above 2^126) would not survive; quotients are
  // only right with it scaled down.
  if (reciprocalTiny && quotientTiny) {
    vcc = true;
    return s0 == s1 ? std::ldexp(s0, -D::scale) : s0;
  }
  if (reciprocalTiny) return std::ldexp(s0, -D::scale);
  if (quotientTiny) {
    vcc = true;
    return s0 == s2 ? std::ldexp(s0, D::scale) : s0;
  }
  if (exponentField(s2) <= D::tiny) return std::ldexp(s0, D::scale);
  return s0;
}
template <class T>
T divFmas(T a, T b, T c, bool vcc) {
  if (!vcc) return std::fma(a, b, c);
  int scale = exponentField(c) > Div<T>::bias ? Div<T>::scale : -Div<T>::scale;
  // One rounding: a denormal quotient must not be rounded before it is scaled as well.
  if constexpr (sizeof(T) == 4)
    return static_cast<T>(
        std::ldexp(std::fma(static_cast<double>(a), static_cast<double>(b), static_cast<double>(c)), scale));
  else
    return std::ldexp(std::fma(a, b, c), scale);
}
/// V_DIV_FIXUP: special cases of quotient S0 of numerator S2 by denominator S1.
template <class T>
T divFixup(T s0, T s1, T s2) {
  using D = Div<T>;
  constexpr T inf = std::numeric_limits<T>::infinity();
  bool negative = std::signbit(s1) != std::signbit(s2);
  T sign = negative ? T{-1} : T{1};
  if (s2 != s2) return s2 + s2;
  if (s1 != s1) return s1 + s1;
  if ((s1 == 0 && s2 == 0) || (std::isinf(s1) && std::isinf(s2)))
    return std::copysign(std::numeric_limits<T>::quiet_NaN(), T{-1});
  if (s1 == 0 || std::isinf(s2)) return sign * inf;
  if (std::isinf(s1) || s2 == 0) return sign * T{0};
  if (exponentField(s2) - exponentField(s1) < D::under)
    return sign * std::numeric_limits<T>::min() * std::numeric_limits<T>::min();
  if (exponentField(s1) == D::special) return sign * inf;
  // A quotient beyond the format leaves inf - inf in the iterations: the result is an overflow.
  if (s0 != s0) return sign * inf;
  return std::copysign(s0, sign);
}

void divScale32(Wave& w, const Inst& in) {
  Row t0, t1, t2, out;
  const U* a = readF32(w, in.src[0], t0);
  const U* b = readF32(w, in.src[1], t1);
  const U* c = readF32(w, in.src[2], t2);
  UL mask = 0;
  for (int l = 0; l < w.lanes; ++l) {
    bool vcc;
    out[l] = bitsOf(divScale(asF32(a[l]), asF32(b[l]), asF32(c[l]), vcc));
    mask |= static_cast<UL>(vcc) << l;
  }
  writeB32(w, in.dst[0], out);
  setMask(w, in.dst[1], mask & w.mask);
}
void divScale64(Wave& w, const Inst& in) {
  Row64 a, b, c;
  readF64(w, in.src[0], a);
  readF64(w, in.src[1], b);
  readF64(w, in.src[2], c);
  UL mask = 0;
  for (int l = 0; l < w.lanes; ++l) {
    bool vcc;
    a[l] = bitsOf(divScale(asF64(a[l]), asF64(b[l]), asF64(c[l]), vcc));
    mask |= static_cast<UL>(vcc) << l;
  }
  writeB64(w, in.dst[0], a);
  setMask(w, in.dst[1], mask & w.mask);
}
void divFmas32(Wave& w, const Inst& in) {
  Row t0, t1, t2, out;
  const U* a = readF32(w, in.src[0], t0);
  const U* b = readF32(w, in.src[1], t1);
  const U* c = readF32(w, in.src[2], t2);
  UL vcc = w.vcc();
  RoundingScope rounding(round32(w));
  for (int l = 0; l < w.lanes; ++l) out[l] = bitsOf(divFmas(asF32(a[l]), asF32(b[l]), asF32(c[l]), vcc >> l & 1));
  writeF32(w, in, in.dst[0], out);
}
void divFmas64(Wave& w, const Inst& in) {
  Row64 a, b, c;
  readF64(w, in.src[0], a);
  readF64(w, in.src[1], b);
  readF64(w, in.src[2], c);
  UL vcc = w.vcc();
  RoundingScope rounding(round64(w));
  for (int l = 0; l < w.lanes; ++l) a[l] = bitsOf(divFmas(asF64(a[l]), asF64(b[l]), asF64(c[l]), vcc >> l & 1));
  writeF64(w, in, in.dst[0], a);
}
void divFixup16(Wave& w, const Inst& in) {
  Row a, b, c;
  readF16(w, in.src[0], a);
  readF16(w, in.src[1], b);
  readF16(w, in.src[2], c);
  for (int l = 0; l < w.lanes; ++l) a[l] = bitsOf(divFixup(asF32(a[l]), asF32(b[l]), asF32(c[l])));
  writeF16(w, in, in.dst[0], a);
}

}  // namespace

void addTranscendental(OpTable& t) {
  t.add("v_rcp_f32|v_rcp_iflag_f32", f32x1<([](float a) { return 1.0f / a; })>);
  t.add("v_rsq_f32", f32x1<rsq>);
  t.add("v_sqrt_f32", f32x1<([](float a) { return std::sqrt(a); })>);
  t.add("v_exp_f32|v_exp_legacy_f32", flushing<([](float a) { return std::exp2(a); })>);
  t.add("v_log_f32|v_log_legacy_f32", flushing<([](float a) { return std::log2(a); })>);
  t.add("v_sin_f32", flushing<sinTurns>);
  t.add("v_cos_f32", flushing<cosTurns>);
  t.add("v_rcp_f64", f64x1<([](double a) { return 1.0 / a; })>);
  t.add("v_rsq_f64", f64x1<([](double a) { return 1.0 / std::sqrt(a); })>);
  t.add("v_sqrt_f64", f64x1<([](double a) { return std::sqrt(a); })>);
  t.add("v_rcp_f16", f16x1<([](float a) { return 1.0f / a; })>);
  t.add("v_rsq_f16", f16x1<rsq>);
  t.add("v_sqrt_f16", f16x1<([](float a) { return std::sqrt(a); })>);
  t.add("v_exp_f16", f16x1<([](float a) { return std::exp2(a); })>);
  t.add("v_log_f16", f16x1<([](float a) { return std::log2(a); })>);
  t.add("v_sin_f16", f16x1<sinTurns>);
  t.add("v_cos_f16", f16x1<cosTurns>);
  t.add("v_frexp_mant_f32", f32x1<frexpMantissa<float>>);
  t.add("v_frexp_mant_f64", f64x1<frexpMantissa<double>>);
  t.add("v_frexp_mant_f16", f16x1<frexpMantissa<float>>);
  t.add("v_frexp_exp_i32_f32", frexpExp32);
  t.add("v_frexp_exp_i32_f64", frexpExp64);
  t.add("v_frexp_exp_i16_f16", frexpExp16);
  t.add("v_ldexp_f32", ldexp32);
  t.add("v_ldexp_f64", ldexp64);
  t.add("v_ldexp_f16", ldexp16);
  t.add("v_div_scale_f32", divScale32);
  t.add("v_div_scale_f64", divScale64);
  t.add("v_div_fmas_f32", divFmas32);
  t.add("v_div_fmas_f64", divFmas64);
  t.add("v_div_fixup_f32", f32x3<divFixup<float>>);
  t.add("v_div_fixup_f64", f64x3<divFixup<double>>);
  t.add("v_div_fixup_f16", divFixup16, kPreservesHi16);
  t.add("v_div_fixup_legacy_f16", divFixup16);
}

}  // namespace sardonyx::sim
