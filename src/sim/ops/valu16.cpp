// 16-bit vector integers and floats (not packed).
#include <algorithm>

#include "sim/ops/families.h"
#include "sim/ops/floats.h"
#include "sim/ops/half.h"
#include "sim/ops/lanes.h"

namespace sardonyx::sim {
namespace {

using U = std::uint32_t;
using I = std::int32_t;

I s16(U v) { return static_cast<std::int16_t>(v); }

/// Adds and subtracts of 16 bits that saturate when clamped.
template <auto F, bool kSigned>
void saturating(Wave& w, const Inst& in) {
  Row t0, t1, out;
  const U* a = readB16(w, in.src[0], t0);
  const U* b = readB16(w, in.src[1], t1);
  auto widen = [](U v) { return kSigned ? s16(v) : static_cast<I>(v); };
  constexpr I lo = kSigned ? -0x8000 : 0, hi = kSigned ? 0x7fff : 0xffff;
  forLanes(w.lanes, [&](int l) {
    I r = F(widen(a[l]), widen(b[l]));
    out[l] = static_cast<U>(in.clamp ? std::clamp(r, lo, hi) : r) & 0xffff;
  });
  writeB16(w, in, in.dst[0], out);
}
template <bool kSigned>
void mad16(Wave& w, const Inst& in) {
  Row t0, t1, t2, out;
  const U* a = readB16(w, in.src[0], t0);
  const U* b = readB16(w, in.src[1], t1);
  const U* c = readB16(w, in.src[2], t2);
  for (int l = 0; l < w.lanes; ++l) {
    std::int64_t r = kSigned ? static_cast<std::int64_t>(s16(a[l])) * s16(b[l]) + s16(c[l])
                             : static_cast<std::int64_t>(static_cast<std::uint64_t>(a[l]) * b[l] + c[l]);
    if (in.clamp) r = kSigned ? std::clamp<std::int64_t>(r, -0x8000, 0x7fff) : std::min<std::int64_t>(r, 0xffff);
    out[l] = static_cast<U>(r) & 0xffff;
  }
  writeB16(w, in, in.dst[0], out);
}
/// 32-bit sum of a product of 16-bit integers.
template <bool kSigned>
void mad32from16(Wave& w, const Inst& in) {
  Row t0, t1, t2, out;
  const U* a = readB16(w, in.src[0], t0);
  const U* b = readB16(w, in.src[1], t1);
  const U* c = readB32(w, in.src[2], t2);
  forLanes(w.lanes, [&](int l) { out[l] = (kSigned ? static_cast<U>(s16(a[l]) * s16(b[l])) : a[l] * b[l]) + c[l]; });
  writeB32(w, in.dst[0], out);
}
/// Fused multiply-add with one rounding (half.h).
void fmaF16(Wave& w, const Inst& in) {
  Row a, b, c;
  readF16(w, in.src[0], a);
  readF16(w, in.src[1], b);
  readF16(w, in.src[2], c);
  forLanes(w.lanes, [&](int l) {
    float x = asF32(a[l]), y = asF32(b[l]), z = asF32(c[l]);
    a[l] = canonical(bitsOf(fmaForHalf(x, y, z)), (x != x) | (y != y) | (z != z));
  });
  writeF16(w, in, in.dst[0], a);
}
void fmamkF16(Wave& w, const Inst& in) {
  Row a, k, b;
  readF16(w, in.src[0], a);
  readF16(w, in.src[1], k);
  readF16(w, in.src[2], b);
  forLanes(w.lanes, [&](int l) {
    float x = asF32(a[l]), y = asF32(k[l]), z = asF32(b[l]);
    a[l] = canonical(bitsOf(fmaForHalf(x, y, z)), (x != x) | (y != y) | (z != z));
  });
  writeF16(w, in, in.dst[0], a);
}
template <auto F>
void f16x3(Wave& w, const Inst& in) {
  Row a, b, c;
  readF16(w, in.src[0], a);
  readF16(w, in.src[1], b);
  readF16(w, in.src[2], c);
  forLanes(w.lanes, [&](int l) { a[l] = bitsOf(F(asF32(a[l]), asF32(b[l]), asF32(c[l]))); });
  writeF16(w, in, in.dst[0], a);
}
template <auto F>
void b16x1(Wave& w, const Inst& in) {
  Row t0, out;
  const U* a = readB16(w, in.src[0], t0);
  forLanes(w.lanes, [&](int l) { out[l] = F(a[l]) & 0xffff; });
  writeB16(w, in, in.dst[0], out);
}
void cndmask16(Wave& w, const Inst& in) {
  Row t0, t1, out;
  const U* a = readB16(w, in.src[0], t0);
  const U* b = readB16(w, in.src[1], t1);
  std::uint64_t mask = maskOf(w, in.src[2]);
  auto modified = [](U v, const Operand& o) { return ((o.abs ? v & 0x7fff : v) ^ (o.neg ? 0x8000u : 0)); };
  for (int l = 0; l < w.lanes; ++l) out[l] = mask >> l & 1 ? modified(b[l], in.src[1]) : modified(a[l], in.src[0]);
  writeB16(w, in, in.dst[0], out);
}

void integers(OpTable& t) {
  t.add("v_mov_b16", b16x1<([](U a) { return a; })>);
  t.add("v_not_b16", b16x1<([](U a) { return ~a; })>);
  t.add("v_and_b16", b16x2<([](U a, U b) { return a & b; })>);
  t.add("v_or_b16", b16x2<([](U a, U b) { return a | b; })>);
  t.add("v_xor_b16", b16x2<([](U a, U b) { return a ^ b; })>);
  t.add("v_cndmask_b16", cndmask16);
  t.add("v_add_u16|v_add_nc_u16", saturating<([](I a, I b) { return a + b; }), false>);
  t.add("v_sub_u16|v_sub_nc_u16", saturating<([](I a, I b) { return a - b; }), false>);
  t.add("v_subrev_u16", saturating<([](I a, I b) { return b - a; }), false>);
  t.add("v_add_i16|v_add_nc_i16", saturating<([](I a, I b) { return a + b; }), true>);
  t.add("v_sub_i16|v_sub_nc_i16", saturating<([](I a, I b) { return a - b; }), true>);
  t.add("v_mul_lo_u16", b16x2<([](U a, U b) { return a * b; })>);
  t.add("v_lshlrev_b16", b16x2<([](U a, U b) { return b << (a & 15); })>);
  t.add("v_lshrrev_b16", b16x2<([](U a, U b) { return b >> (a & 15); })>);
  t.add("v_ashrrev_i16", b16x2<([](U a, U b) { return U(s16(b) >> (a & 15)); })>);
  t.add("v_min_u16", b16x2<([](U a, U b) { return std::min(a, b); })>);
  t.add("v_max_u16", b16x2<([](U a, U b) { return std::max(a, b); })>);
  t.add("v_min_i16", b16x2<([](U a, U b) { return U(std::min(s16(a), s16(b))); })>);
  t.add("v_max_i16", b16x2<([](U a, U b) { return U(std::max(s16(a), s16(b))); })>);
  t.add("v_min3_u16", b16x3<([](U a, U b, U c) { return std::min(a, std::min(b, c)); })>, kPreservesHi16);
  t.add("v_max3_u16", b16x3<([](U a, U b, U c) { return std::max(a, std::max(b, c)); })>, kPreservesHi16);
  t.add("v_min3_i16", b16x3<([](U a, U b, U c) { return U(std::min(s16(a), std::min(s16(b), s16(c)))); })>,
        kPreservesHi16);
  t.add("v_max3_i16", b16x3<([](U a, U b, U c) { return U(std::max(s16(a), std::max(s16(b), s16(c)))); })>,
        kPreservesHi16);
  t.add("v_med3_u16", b16x3<([](U a, U b, U c) { return std::max(std::min(a, b), std::min(std::max(a, b), c)); })>,
        kPreservesHi16);
  t.add("v_med3_i16", b16x3<([](U a, U b, U c) {
          return U(std::max(std::min(s16(a), s16(b)), std::min(std::max(s16(a), s16(b)), s16(c))));
        })>,
        kPreservesHi16);
  t.add("v_mad_u16", mad16<false>, kPreservesHi16);
  t.add("v_mad_i16", mad16<true>, kPreservesHi16);
  t.add("v_mad_u32_u16", mad32from16<false>);
  t.add("v_mad_i32_i16", mad32from16<true>);
}

void floats(OpTable& t) {
  t.add("v_add_f16", f16x2<([](float a, float b) { return a + b; })>);
  t.add("v_sub_f16", f16x2<([](float a, float b) { return a - b; })>);
  t.add("v_subrev_f16", f16x2<([](float a, float b) { return b - a; })>);
  t.add("v_mul_f16", f16x2<([](float a, float b) { return a * b; })>);
  t.add("v_min_f16|v_min_num_f16", f16x2<minNum<float>>);
  t.add("v_max_f16|v_max_num_f16", f16x2<maxNum<float>>);
  t.add("v_minimum_f16", f16x2<minimum<float>>);
  t.add("v_maximum_f16", f16x2<maximum<float>>);
  t.add("v_min3_f16|v_min3_num_f16", f16x3<([](float a, float b, float c) { return minNum(minNum(a, b), c); })>,
        kPreservesHi16);
  t.add("v_max3_f16|v_max3_num_f16", f16x3<([](float a, float b, float c) { return maxNum(maxNum(a, b), c); })>,
        kPreservesHi16);
  t.add("v_med3_f16|v_med3_num_f16", f16x3<med3<float>>, kPreservesHi16);
  t.add("v_maxmin_f16|v_maxmin_num_f16", f16x3<([](float a, float b, float c) { return minNum(maxNum(a, b), c); })>);
  t.add("v_minmax_f16|v_minmax_num_f16", f16x3<([](float a, float b, float c) { return maxNum(minNum(a, b), c); })>);
  t.add("v_minimum3_f16", f16x3<([](float a, float b, float c) { return minimum(minimum(a, b), c); })>);
  t.add("v_maximum3_f16", f16x3<([](float a, float b, float c) { return maximum(maximum(a, b), c); })>);
  t.add("v_maximumminimum_f16", f16x3<([](float a, float b, float c) { return minimum(maximum(a, b), c); })>);
  t.add("v_minimummaximum_f16", f16x3<([](float a, float b, float c) { return maximum(minimum(a, b), c); })>);
  t.add("v_fma_f16", fmaF16, kPreservesHi16);
  t.add("v_fmac_f16|v_fmaak_f16", fmaF16);
  t.add("v_fmamk_f16", fmamkF16);
  t.add("v_ceil_f16", f16x1<([](float a) { return std::ceil(a); })>);
  t.add("v_floor_f16", f16x1<([](float a) { return std::floor(a); })>);
  t.add("v_trunc_f16", f16x1<([](float a) { return std::trunc(a); })>);
  t.add("v_rndne_f16", f16x1<([](float a) { return __builtin_roundevenf(a); })>);
  t.add("v_fract_f16", f16x1<([](float a) {
          float r = a - std::floor(a);
          return r > 0x1.ffcp-1f ? 0x1.ffcp-1f : r;
        })>);
}

}  // namespace

void addValu16(OpTable& t) {
  integers(t);
  floats(t);
}

}  // namespace sardonyx::sim
