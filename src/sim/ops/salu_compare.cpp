// Scalar compares (SOPC, and the SOPK forms with a constant) and selects on SCC.
#include "sim/ops/families.h"
#include "sim/ops/lanes.h"

namespace sardonyx::sim {
namespace {

using U = std::uint32_t;
using UL = std::uint64_t;
using I = std::int32_t;

template <auto F>
void cmp(Wave& w, const Inst& in) {
  w.scc = F(scalar32(w, in.src[0]), scalar32(w, in.src[1]));
}
template <auto F>
void cmp64(Wave& w, const Inst& in) {
  w.scc = F(scalar64(w, in.src[0]), scalar64(w, in.src[1]));
}
/// The register is the only operand besides SIMM16, sign-extended or not.
template <auto F, bool kSigned>
void cmpk(Wave& w, const Inst& in) {
  U k = kSigned ? static_cast<U>(static_cast<std::int16_t>(in.imm)) : static_cast<U>(in.imm) & 0xffff;
  w.scc = F(scalar32(w, in.src[0]), k);
}
template <auto F>
void cmpF(Wave& w, const Inst& in) {
  auto value = [&](const Operand& o) {
    U v = scalar32(w, o);
    return (v & 0x7f800000) == 0 && !keepsIn32(w) ? asF32(v & 0x80000000) : asF32(v);
  };
  w.scc = F(value(in.src[0]), value(in.src[1]));
}

void select32(Wave& w, const Inst& in) { setScalar32(w, in.dst[0], scalar32(w, in.src[w.scc ? 0 : 1])); }
void select64(Wave& w, const Inst& in) { setScalar64(w, in.dst[0], scalar64(w, in.src[w.scc ? 0 : 1])); }
template <int kBit>
void bitcmp32(Wave& w, const Inst& in) {
  w.scc = (scalar32(w, in.src[0]) >> (scalar32(w, in.src[1]) & 31) & 1) == kBit;
}
template <int kBit>
void bitcmp64(Wave& w, const Inst& in) {
  w.scc = (scalar64(w, in.src[0]) >> (scalar32(w, in.src[1]) & 63) & 1) == kBit;
}

}  // namespace

void addSaluCompare(OpTable& t) {
  t.add("s_cselect_b32", select32);
  t.add("s_cselect_b64", select64);
  t.add("s_cmp_eq_i32|s_cmp_eq_u32", cmp<([](U a, U b) { return a == b; })>);
  t.add("s_cmp_lg_i32|s_cmp_lg_u32", cmp<([](U a, U b) { return a != b; })>);
  t.add("s_cmp_gt_i32", cmp<([](U a, U b) { return I(a) > I(b); })>);
  t.add("s_cmp_ge_i32", cmp<([](U a, U b) { return I(a) >= I(b); })>);
  t.add("s_cmp_lt_i32", cmp<([](U a, U b) { return I(a) < I(b); })>);
  t.add("s_cmp_le_i32", cmp<([](U a, U b) { return I(a) <= I(b); })>);
  t.add("s_cmp_gt_u32", cmp<([](U a, U b) { return a > b; })>);
  t.add("s_cmp_ge_u32", cmp<([](U a, U b) { return a >= b; })>);
  t.add("s_cmp_lt_u32", cmp<([](U a, U b) { return a < b; })>);
  t.add("s_cmp_le_u32", cmp<([](U a, U b) { return a <= b; })>);
  t.add("s_cmp_eq_u64", cmp64<([](UL a, UL b) { return a == b; })>);
  t.add("s_cmp_lg_u64", cmp64<([](UL a, UL b) { return a != b; })>);
  t.add("s_cmpk_eq_i32", cmpk<([](U a, U b) { return a == b; }), true>);
  t.add("s_cmpk_lg_i32", cmpk<([](U a, U b) { return a != b; }), true>);
  t.add("s_cmpk_gt_i32", cmpk<([](U a, U b) { return I(a) > I(b); }), true>);
  t.add("s_cmpk_ge_i32", cmpk<([](U a, U b) { return I(a) >= I(b); }), true>);
  t.add("s_cmpk_lt_i32", cmpk<([](U a, U b) { return I(a) < I(b); }), true>);
  t.add("s_cmpk_le_i32", cmpk<([](U a, U b) { return I(a) <= I(b); }), true>);
  t.add("s_cmpk_eq_u32", cmpk<([](U a, U b) { return a == b; }), false>);
  t.add("s_cmpk_lg_u32", cmpk<([](U a, U b) { return a != b; }), false>);
  t.add("s_cmpk_gt_u32", cmpk<([](U a, U b) { return a > b; }), false>);
  t.add("s_cmpk_ge_u32", cmpk<([](U a, U b) { return a >= b; }), false>);
  t.add("s_cmpk_lt_u32", cmpk<([](U a, U b) { return a < b; }), false>);
  t.add("s_cmpk_le_u32", cmpk<([](U a, U b) { return a <= b; }), false>);
  t.add("s_bitcmp0_b32", bitcmp32<0>);
  t.add("s_bitcmp1_b32", bitcmp32<1>);
  t.add("s_bitcmp0_b64", bitcmp64<0>);
  t.add("s_bitcmp1_b64", bitcmp64<1>);
  t.add("s_cmp_lt_f32", cmpF<([](float a, float b) { return a < b; })>);
  t.add("s_cmp_eq_f32", cmpF<([](float a, float b) { return a == b; })>);
  t.add("s_cmp_le_f32", cmpF<([](float a, float b) { return a <= b; })>);
  t.add("s_cmp_gt_f32", cmpF<([](float a, float b) { return a > b; })>);
  t.add("s_cmp_lg_f32", cmpF<([](float a, float b) { return a < b || a > b; })>);
  t.add("s_cmp_ge_f32", cmpF<([](float a, float b) { return a >= b; })>);
  t.add("s_cmp_o_f32", cmpF<([](float a, float b) { return a == a && b == b; })>);
  t.add("s_cmp_u_f32", cmpF<([](float a, float b) { return a != a || b != b; })>);
  t.add("s_cmp_nge_f32", cmpF<([](float a, float b) { return !(a >= b); })>);
  t.add("s_cmp_nlg_f32", cmpF<([](float a, float b) { return !(a < b || a > b); })>);
  t.add("s_cmp_ngt_f32", cmpF<([](float a, float b) { return !(a > b); })>);
  t.add("s_cmp_nle_f32", cmpF<([](float a, float b) { return !(a <= b); })>);
  t.add("s_cmp_neq_f32", cmpF<([](float a, float b) { return !(a == b); })>);
  t.add("s_cmp_nlt_f32", cmpF<([](float a, float b) { return !(a < b); })>);
}

}  // namespace sardonyx::sim
