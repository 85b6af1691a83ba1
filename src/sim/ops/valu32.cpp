// 32-bit vector integers, bits and floats: the VOP1, VOP2 and VOP3 operations whose operands and results are 32 bits
// wide.
#include <algorithm>

#include "sim/ops/families.h"
#include "sim/ops/floats.h"
#include "sim/ops/lanes.h"

namespace sardonyx::sim {
namespace {

using U = std::uint32_t;
using UL = std::uint64_t;
using I = std::int32_t;
using IL = std::int64_t;

I s24(U v) { return static_cast<I>(v << 8) >> 8; }

/// Adds and subtracts that saturate when the clamp bit is set. F computes in 64 bits; the result is cut to [lo, hi].
template <auto F, bool kSigned>
void saturating2(Wave& w, const Inst& in) {
  Row t0, t1, out;
  const U* a = readB32(w, in.src[0], t0);
  const U* b = readB32(w, in.src[1], t1);
  auto widen = [](U v) { return kSigned ? static_cast<IL>(static_cast<I>(v)) : static_cast<IL>(v); };
  constexpr IL lo = kSigned ? -0x80000000ll : 0, hi = kSigned ? 0x7fffffffll : 0xffffffffll;
  if (in.clamp)
    forLanes(w.lanes, [&](int l) { out[l] = static_cast<U>(std::clamp(F(widen(a[l]), widen(b[l])), lo, hi)); });
  else
    forLanes(w.lanes, [&](int l) { out[l] = static_cast<U>(F(widen(a[l]), widen(b[l]))); });
  writeB32(w, in.dst[0], out);
}
/// Multiply-adds of 24-bit integers, saturating when clamped.
template <auto F, bool kSigned>
void saturating3(Wave& w, const Inst& in) {
  Row t0, t1, t2, out;
  const U* a = readB32(w, in.src[0], t0);
  const U* b = readB32(w, in.src[1], t1);
  const U* c = readB32(w, in.src[2], t2);
  constexpr IL lo = kSigned ? -0x80000000ll : 0, hi = kSigned ? 0x7fffffffll : 0xffffffffll;
  if (in.clamp)
    forLanes(w.lanes, [&](int l) { out[l] = static_cast<U>(std::clamp<IL>(F(a[l], b[l], c[l]), lo, hi)); });
  else
    forLanes(w.lanes, [&](int l) { out[l] = static_cast<U>(F(a[l], b[l], c[l])); });
  writeB32(w, in.dst[0], out);
}

/// D = mask bit of the lane ? S1 : S0. The VOP3 form may negate or take absolute values.
void cndmask(Wave& w, const Inst& in) {
  Row t0, t1, out;
  const U* a = readB32(w, in.src[0], t0);
  const U* b = readB32(w, in.src[1], t1);
  UL mask = maskOf(w, in.src[2]);
  auto keep = [](const Operand& o) { return o.abs ? 0x7fffffffu : ~0u; };
  auto flip = [](const Operand& o) { return o.neg ? 0x80000000u : 0u; };
  U ka = keep(in.src[0]), fa = flip(in.src[0]), kb = keep(in.src[1]), fb = flip(in.src[1]);
  for (int block = 0; block < w.lanes; block += 32) {
    auto half = static_cast<U>(mask >> block);
    for (int l = block; l < block + 32; ++l) out[l] = half >> (l & 31) & 1 ? (b[l] & kb) ^ fb : (a[l] & ka) ^ fa;
  }
  writeB32(w, in.dst[0], out);
}

void swap(Wave& w, const Inst& in) {
  Row a, b;
  std::memcpy(a, w.row(in.dst[0]), static_cast<std::size_t>(w.lanes) * 4);
  std::memcpy(b, w.row(in.dst[1]), static_cast<std::size_t>(w.lanes) * 4);
  writeB32(w, in.dst[0], b);
  writeB32(w, in.dst[1], a);
}

U alignBit(U hi, U lo, U shift) { return static_cast<U>(((static_cast<UL>(hi) << 32) | lo) >> (shift & 31)); }
U alignByte(U hi, U lo, U shift) { return static_cast<U>(((static_cast<UL>(hi) << 32) | lo) >> (8 * (shift & 3))); }
/// V_PERM_B32: each selector byte picks a byte of {S0, S1}, a replicated sign, 0x00 or 0xff.
U permByte(UL data, U sel) {
  if (sel >= 13) return 0xff;
  if (sel == 12) return 0;
  if (sel >= 8) {
    int at = sel == 8 ? 15 : sel == 9 ? 31 : sel == 10 ? 47 : 63;
    return data >> at & 1 ? 0xff : 0;
  }
  return static_cast<U>(data >> (8 * sel)) & 0xff;
}
U perm(U s0, U s1, U sel) {
  UL data = static_cast<UL>(s0) << 32 | s1;
  return permByte(data, sel & 255) | permByte(data, sel >> 8 & 255) << 8 | permByte(data, sel >> 16 & 255) << 16 |
         permByte(data, sel >> 24) << 24;
}
U bfe(U v, U offset, U width) {
  offset &= 31, width &= 31;
  return width ? v >> offset & ((1u << width) - 1) : 0;
}
U bfeSigned(U v, U offset, U width) {
  offset &= 31, width &= 31;
  if (!width) return 0;
  IL wide = static_cast<IL>(static_cast<I>(v)) >> offset;
  return static_cast<U>(static_cast<I>(static_cast<U>(wide) << (32 - width)) >> (32 - width));
}
U absDiff(U a, U b) { return a > b ? a - b : b - a; }
U sadBytes(U a, U b) {
  U r = 0;
  for (int i = 0; i < 32; i += 8) r += absDiff(a >> i & 255, b >> i & 255);
  return r;
}
U msadBytes(U a, U b) {
  U r = 0;
  for (int i = 0; i < 32; i += 8)
    if (b >> i & 255) r += absDiff(a >> i & 255, b >> i & 255);
  return r;
}
U lerp(U a, U b, U c) {
  U r = 0;
  for (int i = 0; i < 32; i += 8) r |= (((a >> i & 255) + (b >> i & 255) + (c >> i & 1)) >> 1) << i;
  return r;
}
/// V_BITOP3_B32: any function of three bits by its truth table, bit (a << 2 | b << 1 | c).
U bitop3(U a, U b, U c, U table) {
  U r = 0;
  for (U i = 0; i < 8; ++i)
    if (table >> i & 1) r |= (i & 4 ? a : ~a) & (i & 2 ? b : ~b) & (i & 1 ? c : ~c);
  return r;
}
void bitop3B32(Wave& w, const Inst& in) {
  Row t0, t1, t2, out;
  const U* a = readB32(w, in.src[0], t0);
  const U* b = readB32(w, in.src[1], t1);
  const U* c = readB32(w, in.src[2], t2);
  auto table = static_cast<U>(in.imm) & 255;
  forLanes(w.lanes, [&](int l) { out[l] = bitop3(a[l], b[l], c[l], table); });
  writeB32(w, in.dst[0], out);
}
U reverse(U v) {
  v = (v & 0x55555555) << 1 | (v >> 1 & 0x55555555);
  v = (v & 0x33333333) << 2 | (v >> 2 & 0x33333333);
  v = (v & 0x0f0f0f0f) << 4 | (v >> 4 & 0x0f0f0f0f);
  return __builtin_bswap32(v);
}

/// The shift is a 16-bit operand, of which either half may be named.
template <auto F>
void alignBy(Wave& w, const Inst& in) {
  Row t0, t1, t2, out;
  const U* a = readB32(w, in.src[0], t0);
  const U* b = readB32(w, in.src[1], t1);
  const U* c = readB16(w, in.src[2], t2);
  forLanes(w.lanes, [&](int l) { out[l] = F(a[l], b[l], c[l]); });
  writeB32(w, in.dst[0], out);
}

void integers(OpTable& t) {
  t.add("v_mov_b32", b32x1<([](U a) { return a; })>, kNoCheckReads);
  t.add("v_nop|v_pipeflush", [](Wave&, const Inst&) {});
  t.add("v_not_b32", b32x1<([](U a) { return ~a; })>);
  t.add("v_bfrev_b32", b32x1<reverse>);
  t.add("v_ffbh_u32|v_clz_i32_u32", b32x1<([](U a) { return a ? static_cast<U>(std::countl_zero(a)) : ~0u; })>);
  t.add("v_ffbl_b32|v_ctz_i32_b32", b32x1<([](U a) { return a ? static_cast<U>(std::countr_zero(a)) : ~0u; })>);
  t.add("v_ffbh_i32|v_cls_i32", b32x1<([](U a) {
          U x = static_cast<I>(a) < 0 ? ~a : a;
          return x ? static_cast<U>(std::countl_zero(x)) : ~0u;
        })>);
  t.add("v_add_u32|v_add_nc_u32", saturating2<([](IL a, IL b) { return a + b; }), false>);
  t.add("v_sub_u32|v_sub_nc_u32", saturating2<([](IL a, IL b) { return a - b; }), false>);
  t.add("v_subrev_u32|v_subrev_nc_u32", saturating2<([](IL a, IL b) { return b - a; }), false>);
  t.add("v_add_i32|v_add_nc_i32", saturating2<([](IL a, IL b) { return a + b; }), true>);
  t.add("v_sub_i32|v_sub_nc_i32", saturating2<([](IL a, IL b) { return a - b; }), true>);
  t.add("v_mul_lo_u32", b32x2<([](U a, U b) { return a * b; })>);
  t.add("v_mul_hi_u32", b32x2<([](U a, U b) { return static_cast<U>(static_cast<UL>(a) * b >> 32); })>);
  t.add("v_mul_hi_i32", b32x2<([](U a, U b) { return static_cast<U>(static_cast<IL>(I(a)) * I(b) >> 32); })>);
  t.add("v_mul_i32_i24", b32x2<([](U a, U b) { return static_cast<U>(static_cast<IL>(s24(a)) * s24(b)); })>);
  t.add("v_mul_hi_i32_i24", b32x2<([](U a, U b) { return static_cast<U>(static_cast<IL>(s24(a)) * s24(b) >> 32); })>);
  t.add("v_mul_u32_u24", b32x2<([](U a, U b) { return (a & 0xffffff) * (b & 0xffffff); })>);
  t.add("v_mul_hi_u32_u24",
        b32x2<([](U a, U b) { return static_cast<U>(static_cast<UL>(a & 0xffffff) * (b & 0xffffff) >> 32); })>);
  t.add("v_mad_i32_i24", saturating3<([](U a, U b, U c) { return static_cast<IL>(s24(a)) * s24(b) + I(c); }), true>);
  t.add("v_mad_u32_u24",
        saturating3<([](U a, U b, U c) { return static_cast<IL>(static_cast<UL>(a & 0xffffff) * (b & 0xffffff) + c); }),
                    false>);
  t.add("v_add3_u32", b32x3<([](U a, U b, U c) { return a + b + c; })>);
  t.add("v_lshl_add_u32", b32x3<([](U a, U b, U c) { return (a << (b & 31)) + c; })>);
  t.add("v_add_lshl_u32", b32x3<([](U a, U b, U c) { return (a + b) << (c & 31); })>);
  t.add("v_xad_u32", b32x3<([](U a, U b, U c) { return (a ^ b) + c; })>);
  t.add("v_min_i32", b32x2<([](U a, U b) { return I(a) < I(b) ? a : b; })>);
  t.add("v_max_i32", b32x2<([](U a, U b) { return I(a) > I(b) ? a : b; })>);
  t.add("v_min_u32", b32x2<([](U a, U b) { return a < b ? a : b; })>);
  t.add("v_max_u32", b32x2<([](U a, U b) { return a > b ? a : b; })>);
  t.add("v_min3_i32", b32x3<([](U a, U b, U c) { return U(std::min(I(a), std::min(I(b), I(c)))); })>);
  t.add("v_max3_i32", b32x3<([](U a, U b, U c) { return U(std::max(I(a), std::max(I(b), I(c)))); })>);
  t.add("v_min3_u32", b32x3<([](U a, U b, U c) { return std::min(a, std::min(b, c)); })>);
  t.add("v_max3_u32", b32x3<([](U a, U b, U c) { return std::max(a, std::max(b, c)); })>);
  t.add("v_med3_i32",
        b32x3<([](U a, U b, U c) { return U(std::max(std::min(I(a), I(b)), std::min(std::max(I(a), I(b)), I(c)))); })>);
  t.add("v_med3_u32", b32x3<([](U a, U b, U c) { return std::max(std::min(a, b), std::min(std::max(a, b), c)); })>);
  t.add("v_maxmin_i32", b32x3<([](U a, U b, U c) { return U(std::min(std::max(I(a), I(b)), I(c))); })>);
  t.add("v_minmax_i32", b32x3<([](U a, U b, U c) { return U(std::max(std::min(I(a), I(b)), I(c))); })>);
  t.add("v_maxmin_u32", b32x3<([](U a, U b, U c) { return std::min(std::max(a, b), c); })>);
  t.add("v_minmax_u32", b32x3<([](U a, U b, U c) { return std::max(std::min(a, b), c); })>);
  t.add("v_sad_u8", b32x3<([](U a, U b, U c) { return sadBytes(a, b) + c; })>);
  t.add("v_sad_hi_u8", b32x3<([](U a, U b, U c) { return (sadBytes(a, b) << 16) + c; })>);
  t.add("v_sad_u16",
        b32x3<([](U a, U b, U c) { return absDiff(a & 0xffff, b & 0xffff) + absDiff(a >> 16, b >> 16) + c; })>);
  t.add("v_sad_u32", b32x3<([](U a, U b, U c) { return absDiff(a, b) + c; })>);
  t.add("v_msad_u8", b32x3<([](U a, U b, U c) { return msadBytes(a, b) + c; })>);
  t.add("v_lerp_u8", b32x3<lerp>);
  t.add("v_swap_b32", swap);
  t.add("v_cndmask_b32", cndmask);
}

void bits(OpTable& t) {
  t.add("v_and_b32", b32x2<([](U a, U b) { return a & b; })>);
  t.add("v_or_b32", b32x2<([](U a, U b) { return a | b; })>);
  t.add("v_xor_b32", b32x2<([](U a, U b) { return a ^ b; })>);
  t.add("v_xnor_b32", b32x2<([](U a, U b) { return ~(a ^ b); })>);
  t.add("v_lshlrev_b32", b32x2<([](U a, U b) { return b << (a & 31); })>);
  t.add("v_lshrrev_b32", b32x2<([](U a, U b) { return b >> (a & 31); })>);
  t.add("v_ashrrev_i32", b32x2<([](U a, U b) { return U(I(b) >> (a & 31)); })>);
  t.add("v_bfm_b32", b32x2<([](U a, U b) { return ((1u << (a & 31)) - 1) << (b & 31); })>);
  t.add("v_bcnt_u32_b32", b32x2<([](U a, U b) { return U(std::popcount(a)) + b; })>);
  t.add("v_bfe_u32", b32x3<bfe>);
  t.add("v_bfe_i32", b32x3<bfeSigned>);
  t.add("v_bfi_b32", b32x3<([](U a, U b, U c) { return (a & b) | (~a & c); })>);
  t.add("v_alignbit_b32", alignBy<alignBit>);
  t.add("v_alignbyte_b32", alignBy<alignByte>);
  t.add("v_bitop3_b32", bitop3B32);
  t.add("v_perm_b32", b32x3<perm>);
  t.add("v_and_or_b32", b32x3<([](U a, U b, U c) { return (a & b) | c; })>);
  t.add("v_or3_b32", b32x3<([](U a, U b, U c) { return a | b | c; })>);
  t.add("v_xor3_b32", b32x3<([](U a, U b, U c) { return a ^ b ^ c; })>);
  t.add("v_lshl_or_b32", b32x3<([](U a, U b, U c) { return (a << (b & 31)) | c; })>);
}

float legacyProduct(float a, float b) { return a == 0 || b == 0 ? 0.0f : a * b; }

void floats(OpTable& t) {
  t.add("v_add_f32", f32x2<([](float a, float b) { return a + b; })>);
  t.add("v_sub_f32", f32x2<([](float a, float b) { return a - b; })>);
  t.add("v_subrev_f32", f32x2<([](float a, float b) { return b - a; })>);
  t.add("v_mul_f32", f32x2<([](float a, float b) { return a * b; })>);
  t.add("v_mul_legacy_f32|v_mul_dx9_zero_f32", f32x2<legacyProduct>);
  t.add("v_fma_f32|v_fmac_f32|v_fmaak_f32", f32x3<([](float a, float b, float c) { return std::fma(a, b, c); })>);
  t.add("v_fmamk_f32", f32x3<([](float a, float k, float b) { return std::fma(a, k, b); })>);
  t.add("v_fma_legacy_f32|v_fma_dx9_zero_f32|v_fmac_legacy_f32|v_fmac_dx9_zero_f32",
        f32x3<([](float a, float b, float c) { return a == 0 || b == 0 ? c : std::fma(a, b, c); })>);
  // MAD rounds the product, and flushes denormals whatever the mode says; the compiler uses it only where they are
  // flushed.
  t.add("v_mad_f32|v_mac_f32|v_madak_f32", f32x3<([](float a, float b, float c) { return a * b + c; })>);
  t.add("v_madmk_f32", f32x3<([](float a, float k, float b) { return a * k + b; })>);
  t.add("v_mad_legacy_f32|v_mac_legacy_f32",
        f32x3<([](float a, float b, float c) { return legacyProduct(a, b) + c; })>);
  t.add("v_min_f32|v_min_num_f32", f32x2<minNum<float>>);
  t.add("v_max_f32|v_max_num_f32", f32x2<maxNum<float>>);
  t.add("v_min3_f32|v_min3_num_f32", f32x3<([](float a, float b, float c) { return minNum(minNum(a, b), c); })>);
  t.add("v_max3_f32|v_max3_num_f32", f32x3<([](float a, float b, float c) { return maxNum(maxNum(a, b), c); })>);
  t.add("v_med3_f32|v_med3_num_f32", f32x3<med3<float>>);
  t.add("v_maxmin_f32|v_maxmin_num_f32", f32x3<([](float a, float b, float c) { return minNum(maxNum(a, b), c); })>);
  t.add("v_minmax_f32|v_minmax_num_f32", f32x3<([](float a, float b, float c) { return maxNum(minNum(a, b), c); })>);
  t.add("v_minimum_f32", f32x2<minimum<float>>);
  t.add("v_maximum_f32", f32x2<maximum<float>>);
  t.add("v_minimum3_f32", f32x3<([](float a, float b, float c) { return minimum(minimum(a, b), c); })>);
  t.add("v_maximum3_f32", f32x3<([](float a, float b, float c) { return maximum(maximum(a, b), c); })>);
  t.add("v_maximumminimum_f32", f32x3<([](float a, float b, float c) { return minimum(maximum(a, b), c); })>);
  t.add("v_minimummaximum_f32", f32x3<([](float a, float b, float c) { return maximum(minimum(a, b), c); })>);
  t.add("v_ceil_f32", f32x1<([](float a) { return std::ceil(a); })>);
  t.add("v_floor_f32", f32x1<([](float a) { return std::floor(a); })>);
  t.add("v_trunc_f32", f32x1<([](float a) { return std::trunc(a); })>);
  t.add("v_rndne_f32", f32x1<([](float a) { return __builtin_roundevenf(a); })>);
  t.add("v_fract_f32", f32x1<([](float a) {
          float r = a - std::floor(a);  // below 1 even when the subtraction would round up to it
          return r >= 1.0f ? 0x1.fffffep-1f : r;
        })>);
}

}  // namespace

void addValu32(OpTable& t) {
  integers(t);
  bits(t);
  floats(t);
}

}  // namespace sardonyx::sim
