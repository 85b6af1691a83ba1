// Scalar half floats, minima and maxima of gfx12, and its transcendental functions on scalar registers (V_S_*). RDNA4
// ISA document, "SALU floating point". f32 arithmetic is in salu.cpp, f32 compares in salu_compare.cpp. A 16-bit result
// clears the upper half of its register.
#include "sim/ops/families.h"
#include "sim/ops/floats.h"
#include "sim/ops/half.h"
#include "sim/ops/lanes.h"

namespace sardonyx::sim {
namespace {

using U = std::uint32_t;

float flush32(U bits, bool keep) { return (bits & 0x7f800000) == 0 && !keep ? asF32(bits & 0x80000000) : asF32(bits); }
float half(const Wave& w, U bits) {
  bits &= 0xffff;
  if ((bits & 0x7c00) == 0 && !keepsIn64(w)) bits &= 0x8000;
  return halfToFloat(static_cast<std::uint16_t>(bits));
}
U toHalf(const Wave& w, float v, bool nanInput) {
  U h = floatToHalf(asF32(canonical(bitsOf(v), nanInput)), round64(w));
  return (h & 0x7c00) == 0 && !keepsOut64(w) ? h & 0x8000 : h;
}

template <auto F>
void f16(Wave& w, const Inst& in) {
  float x[3] = {};
  bool nan = false;
  for (int i = 0; i < in.nsrc && i < 3; ++i) {
    x[i] = half(w, scalar32(w, in.src[i]));
    nan |= x[i] != x[i];
  }
  float r;
  {
    // Directed rounding must start here: f32 holds sums of halves exactly enough only for rounding to nearest.
    RoundingScope rounding(round64(w));
    r = here(F(here(x[0]), here(x[1]), here(x[2])));
  }
  setScalar32(w, in.dst[0], toHalf(w, r, nan));
}
void fmacF16(Wave& w, const Inst& in) {
  float a = half(w, scalar32(w, in.src[0])), b = half(w, scalar32(w, in.src[1])), c = half(w, scalar32(w, in.src[2]));
  setScalar32(w, in.dst[0], toHalf(w, fmaForHalf(a, b, c), (a != a) | (b != b) | (c != c)));
}
template <auto F>
void compareF16(Wave& w, const Inst& in) {
  w.scc = F(half(w, scalar32(w, in.src[0])), half(w, scalar32(w, in.src[1])));
}
template <auto F>
void f32x2Scalar(Wave& w, const Inst& in) {
  float a = flush32(scalar32(w, in.src[0]), keepsIn32(w)), b = flush32(scalar32(w, in.src[1]), keepsIn32(w));
  setScalar32(w, in.dst[0], bitsOf(flush32(bitsOf(F(a, b)), keepsOut32(w))));
}

/// Source and output modifiers of VOP3, on one value.
float modified(const Operand& o, float v) {
  if (o.abs) v = std::fabs(v);
  return o.neg ? -v : v;
}
float finished(const Inst& in, bool keepsDenormals, float v) {
  if (in.omod && !keepsDenormals) v *= in.omod == 1 ? 2.0f : in.omod == 2 ? 4.0f : 0.5f;
  if (in.clamp) v = v > 1.0f ? 1.0f : v > 0.0f ? v : 0.0f;
  return v;
}
/// F on f32; exponentials and logarithms flush denormals whatever MODE says, as their vector forms do.
template <auto F, bool kFlushes>
void vs32(Wave& w, const Inst& in) {
  float x = modified(in.src[0], flush32(scalar32(w, in.src[0]), !kFlushes && keepsIn32(w)));
  U r = canonical(bitsOf(F(x)), x != x);
  float v = finished(in, keepsOut32(w), asF32(r));
  setScalar32(w, in.dst[0], bitsOf(flush32(bitsOf(v), !kFlushes && keepsOut32(w))));
}
template <auto F>
void vs16(Wave& w, const Inst& in) {
  float x = modified(in.src[0], half(w, scalar32(w, in.src[0])));
  float r = asF32(canonical(bitsOf(F(x)), x != x));
  setScalar32(w, in.dst[0], toHalf(w, finished(in, keepsOut64(w), r), x != x));
}

float rcp(float x) { return 1.0f / x; }
float rsq(float x) { return static_cast<float>(1.0 / std::sqrt(static_cast<double>(x))); }
float sqrt(float x) { return std::sqrt(x); }
float exp2(float x) { return std::exp2(x); }
float log2(float x) { return std::log2(x); }

}  // namespace

void addSaluFloat(OpTable& t) {
  t.add("s_add_f16", f16<([](float a, float b, float) { return a + b; })>);
  t.add("s_sub_f16", f16<([](float a, float b, float) { return a - b; })>);
  t.add("s_mul_f16", f16<([](float a, float b, float) { return a * b; })>);
  t.add("s_fmac_f16", fmacF16);
  t.add("s_min_f16|s_min_num_f16", f16<([](float a, float b, float) { return minNum(a, b); })>);
  t.add("s_max_f16|s_max_num_f16", f16<([](float a, float b, float) { return maxNum(a, b); })>);
  t.add("s_minimum_f16", f16<([](float a, float b, float) { return minimum(a, b); })>);
  t.add("s_maximum_f16", f16<([](float a, float b, float) { return maximum(a, b); })>);
  t.add("s_ceil_f16", f16<([](float a, float, float) { return std::ceil(a); })>);
  t.add("s_floor_f16", f16<([](float a, float, float) { return std::floor(a); })>);
  t.add("s_trunc_f16", f16<([](float a, float, float) { return std::trunc(a); })>);
  t.add("s_rndne_f16", f16<([](float a, float, float) { return __builtin_roundevenf(a); })>);
  t.add("s_minimum_f32", f32x2Scalar<minimum<float>>);
  t.add("s_maximum_f32", f32x2Scalar<maximum<float>>);
  t.add("s_cmp_lt_f16", compareF16<([](float a, float b) { return a < b; })>);
  t.add("s_cmp_eq_f16", compareF16<([](float a, float b) { return a == b; })>);
  t.add("s_cmp_le_f16", compareF16<([](float a, float b) { return a <= b; })>);
  t.add("s_cmp_gt_f16", compareF16<([](float a, float b) { return a > b; })>);
  t.add("s_cmp_lg_f16", compareF16<([](float a, float b) { return a < b || a > b; })>);
  t.add("s_cmp_ge_f16", compareF16<([](float a, float b) { return a >= b; })>);
  t.add("s_cmp_o_f16", compareF16<([](float a, float b) { return a == a && b == b; })>);
  t.add("s_cmp_u_f16", compareF16<([](float a, float b) { return a != a || b != b; })>);
  t.add("s_cmp_nge_f16", compareF16<([](float a, float b) { return !(a >= b); })>);
  t.add("s_cmp_nlg_f16", compareF16<([](float a, float b) { return !(a < b || a > b); })>);
  t.add("s_cmp_ngt_f16", compareF16<([](float a, float b) { return !(a > b); })>);
  t.add("s_cmp_nle_f16", compareF16<([](float a, float b) { return !(a <= b); })>);
  t.add("s_cmp_neq_f16", compareF16<([](float a, float b) { return !(a == b); })>);
  t.add("s_cmp_nlt_f16", compareF16<([](float a, float b) { return !(a < b); })>);
  t.add("s_cvt_f16_f32", [](Wave& w, const Inst& in) {
    float x = flush32(scalar32(w, in.src[0]), keepsIn32(w));
    setScalar32(w, in.dst[0], toHalf(w, x, x != x));
  });
  t.add("s_cvt_f32_f16",
        [](Wave& w, const Inst& in) { setScalar32(w, in.dst[0], bitsOf(half(w, scalar32(w, in.src[0])))); });
  t.add("s_cvt_hi_f32_f16",
        [](Wave& w, const Inst& in) { setScalar32(w, in.dst[0], bitsOf(half(w, scalar32(w, in.src[0]) >> 16))); });
  t.add("s_cvt_pk_rtz_f16_f32", [](Wave& w, const Inst& in) {
    float a = flush32(scalar32(w, in.src[0]), keepsIn32(w)), b = flush32(scalar32(w, in.src[1]), keepsIn32(w));
    setScalar32(w, in.dst[0], floatToHalf(a, 3) | static_cast<U>(floatToHalf(b, 3)) << 16);
  });
  t.add("v_s_rcp_f32", vs32<rcp, false>);
  t.add("v_s_rsq_f32", vs32<rsq, false>);
  t.add("v_s_sqrt_f32", vs32<sqrt, false>);
  t.add("v_s_exp_f32", vs32<exp2, true>);
  t.add("v_s_log_f32", vs32<log2, true>);
  t.add("v_s_rcp_f16", vs16<rcp>);
  t.add("v_s_rsq_f16", vs16<rsq>);
  t.add("v_s_sqrt_f16", vs16<sqrt>);
  t.add("v_s_exp_f16", vs16<exp2>);
  t.add("v_s_log_f16", vs16<log2>);
}

}  // namespace sardonyx::sim
