// Vector instructions that compilers of compute kernels hardly emit: cube maps, sums of absolute differences over
// sliding windows, the argument reduction of trigonometric functions, unfused multiply-adds of gfx9, and a few packed
// forms of gfx950. ISA documents, each instruction's pseudo-code.
#include <algorithm>
#include <limits>

#include "sim/ops/families.h"
#include "sim/ops/half.h"
#include "sim/ops/lanes.h"

namespace sardonyx::sim {
namespace {

using U = std::uint32_t;
using UL = std::uint64_t;
using I = std::int32_t;

bool zMajor(float x, float y, float z) { return std::fabs(z) >= std::fabs(x) && std::fabs(z) >= std::fabs(y); }
float cubeId(float x, float y, float z) {
  if (zMajor(x, y, z)) return z < 0 ? 5.0f : 4.0f;
  if (std::fabs(y) >= std::fabs(x)) return y < 0 ? 3.0f : 2.0f;
  return x < 0 ? 1.0f : 0.0f;
}
float cubeS(float x, float y, float z) {
  if (zMajor(x, y, z)) return z < 0 ? -x : x;
  if (std::fabs(y) >= std::fabs(x)) return x;
  return x < 0 ? z : -z;
}
float cubeT(float x, float y, float z) {
  if (zMajor(x, y, z)) return -y;
  if (std::fabs(y) >= std::fabs(x)) return y < 0 ? -z : z;
  return -y;
}
float cubeMajor(float x, float y, float z) {
  return 2.0f * (zMajor(x, y, z) ? z : std::fabs(y) >= std::fabs(x) ? y : x);
}
float mullit(float a, float b, float c) {
  constexpr float largest = std::numeric_limits<float>::max();
  if (b == -largest || b == -std::numeric_limits<float>::infinity() || b != b || !(c > 0)) return -largest;
  return a * b;
}

U sad(U a, U b, bool masked) {
  U r = 0;
  for (int i = 0; i < 32; i += 8) {
    U x = a >> i & 255, y = b >> i & 255;
    if (!masked || y) r += x > y ? x - y : y - x;
  }
  return r;
}
/// Four sums over windows that start at bytes 0 to 3 of S0, in 16 bits each.
template <bool kMasked>
void sadPk16(Wave& w, const Inst& in) {
  Row64 a, c;
  Row t1;
  readB64(w, in.src[0], a);
  const U* b = readB32(w, in.src[1], t1);
  readB64(w, in.src[2], c);
  for (int l = 0; l < w.lanes; ++l) {
    UL out = 0;
    for (int i = 0; i < 4; ++i) {
      U sum = sad(static_cast<U>(a[l] >> (8 * i)), b[l], kMasked) + static_cast<U>(c[l] >> (16 * i) & 0xffff);
      out |= static_cast<UL>(in.clamp ? std::min(sum, 0xffffu) : sum & 0xffff) << (16 * i);
    }
    c[l] = out;
  }
  writeB64(w, in.dst[0], c);
}
void mqsadU32(Wave& w, const Inst& in) {
  Row64 a;
  Row t1, out[4];
  readB64(w, in.src[0], a);
  const U* b = readB32(w, in.src[1], t1);
  for (int i = 0; i < 4; ++i) {
    Row t2;
    const U* c = readB32(w, in.src[2], t2, isRow(in.src[2]) ? i : 0);
    for (int l = 0; l < w.lanes; ++l) out[i][l] = sad(static_cast<U>(a[l] >> (8 * i)), b[l], true) + c[l];
  }
  for (int i = 0; i < 4; ++i) writeB32(w, in.dst[0], out[i], i);
}
void satPkU8(Wave& w, const Inst& in) {
  Row t, out;
  const U* a = readB32(w, in.src[0], t);
  auto saturate = [](I v) { return static_cast<U>(std::clamp(v, 0, 255)); };
  forLanes(w.lanes, [&](int l) {
    out[l] = saturate(static_cast<std::int16_t>(a[l])) | saturate(static_cast<std::int16_t>(a[l] >> 16)) << 8;
  });
  writeB16(w, in, in.dst[0], out);
}

/// The first 1201 bits of 2 / pi, from the top.
constexpr UL kTwoOverPi[19] = {
    0xa2f9836e4e441529ull, 0xfc2757d1f534ddc0ull, 0xdb6295993c439041ull, 0xfe5163abdebbc561ull, 0xb7246e3a424dd2e0ull,
    0x06492eea09d1921cull, 0xfe1deb1cb129a73eull, 0xe88235f52ebb4484ull, 0xe99c7026b45f7e41ull, 0x3991d639835339f4ull,
    0x9c845f8bbdf9283bull, 0x1ff897ffde05980full, 0xef2f118b5a0a6d1full, 0x6d367ecf27cb09b7ull, 0x4f463f669e5fea2dull,
    0x7527bac7ebe5f17bull, 0x3d0739f78a5292eaull, 0x6bfb5fb11f8d5d08ull, 0x56033046fc7b6babull};
/// V_TRIG_PREOP_F64: segment S1 of 53 bits of 2 / pi, scaled; the exponent of S0 says where segments start.
void trigPreop(Wave& w, const Inst& in) {
  Row64 a;
  Row t1;
  readB64(w, in.src[0], a);
  const U* segment = readB32(w, in.src[1], t1);
  for (int l = 0; l < w.lanes; ++l) {
    int exponent = static_cast<int>(a[l] >> 52 & 0x7ff), shift = static_cast<int>(segment[l] & 31) * 53;
    if (exponent > 1077) shift += exponent - 1077;
    UL window = 0;
    for (int i = 0; i < 53; ++i) {
      int at = shift + i;
      UL bit = at < 1201 ? kTwoOverPi[at / 64] >> (63 - at % 64) & 1 : 0;
      window = window << 1 | bit;
    }
    int scale = -53 - shift + (exponent >= 1968 ? 128 : 0);
    a[l] = bitsOf(std::ldexp(static_cast<double>(window), scale));
  }
  writeF64(w, in, in.dst[0], a);
}

/// gfx9's unfused multiply-adds of halves: the product is rounded to half as well.
void madF16(Wave& w, const Inst& in) {
  Row a, b, c;
  readF16(w, in.src[0], a);
  readF16(w, in.src[1], b);
  readF16(w, in.src[2], c);
  for (int l = 0; l < w.lanes; ++l) {
    float x = asF32(a[l]), y = asF32(b[l]), z = asF32(c[l]);
    float product = halfToFloat(floatToHalf(x * y, round64(w)));
    a[l] = canonical(bitsOf(product + z), (x != x) | (y != y) | (z != z));
  }
  writeF16(w, in, in.dst[0], a);
}
template <bool kSigned>
void madLegacy16(Wave& w, const Inst& in) {
  Row t0, t1, t2, out;
  const U* a = readB16(w, in.src[0], t0);
  const U* b = readB16(w, in.src[1], t1);
  const U* c = readB16(w, in.src[2], t2);
  auto widen = [](U v) { return kSigned ? std::int64_t{static_cast<std::int16_t>(v)} : std::int64_t{v}; };
  for (int l = 0; l < w.lanes; ++l) {
    std::int64_t r = widen(a[l]) * widen(b[l]) + widen(c[l]);
    if (in.clamp) r = kSigned ? std::clamp<std::int64_t>(r, -0x8000, 0x7fff) : std::min<std::int64_t>(r, 0xffff);
    out[l] = static_cast<U>(r) & 0xffff;
  }
  writeB16(w, in, in.dst[0], out);
}
void fmaF16(Wave& w, const Inst& in) {
  Row a, b, c;
  readF16(w, in.src[0], a);
  readF16(w, in.src[1], b);
  readF16(w, in.src[2], c);
  for (int l = 0; l < w.lanes; ++l) {
    float x = asF32(a[l]), y = asF32(b[l]), z = asF32(c[l]);
    a[l] = canonical(bitsOf(fmaForHalf(x, y, z)), (x != x) | (y != y) | (z != z));
  }
  writeF16(w, in, in.dst[0], a);
}
/// V_PK_FMAC_F16 is VOP2: no op_sel; D is the addend.
void pkFmacF16(Wave& w, const Inst& in) {
  Row half[2];
  for (int h = 0; h < 2; ++h) {
    Row b, c;
    Operand s0 = in.src[0], s1 = in.src[1], d = in.dst[0];
    s0.hi = s1.hi = d.hi = h;
    readF16(w, s0, half[h]);
    readF16(w, s1, b);
    readF16(w, d, c);
    for (int l = 0; l < w.lanes; ++l) {
      float x = asF32(half[h][l]), y = asF32(b[l]), z = asF32(c[l]);
      U r = floatToHalf(asF32(canonical(bitsOf(fmaForHalf(x, y, z)), (x != x) | (y != y) | (z != z))), round64(w));
      half[h][l] = (r & 0x7c00) == 0 && !keepsOut64(w) ? r & 0x8000 : r;
    }
  }
  Row out;
  forLanes(w.lanes, [&](int l) { out[l] = half[0][l] | half[1][l] << 16; });
  writeB32(w, in.dst[0], out);
}
/// Byte S1 of D becomes the rounded S0; the others are kept.
void pkAccumU8(Wave& w, const Inst& in) {
  Row t0, t1, out;
  const U* a = readF32(w, in.src[0], t0);
  const U* b = readB32(w, in.src[1], t1);
  const U* old = w.row(in.dst[0]);
  RoundingScope rounding(round32(w));
  for (int l = 0; l < w.lanes; ++l) {
    float f = asF32(a[l]);
    U byte = f != f ? 0 : static_cast<U>(std::clamp(std::nearbyint(f), 0.0f, 255.0f)), shift = 8 * (b[l] & 3);
    out[l] = (old[l] & ~(255u << shift)) | byte << shift;
  }
  writeB32(w, in.dst[0], out);
}
template <int kLow, int kHigh>
void ashrPk(Wave& w, const Inst& in) {
  Row t0, t1, t2, out;
  const U* a = readB32(w, in.src[0], t0);
  const U* b = readB32(w, in.src[1], t1);
  const U* n = readB32(w, in.src[2], t2);
  auto saturate = [](U v, U count) {
    return static_cast<U>(std::clamp(static_cast<I>(v) >> (count & 31), kLow, kHigh)) & 255;
  };
  forLanes(w.lanes, [&](int l) { out[l] = saturate(a[l], n[l]) | saturate(b[l], n[l]) << 8; });
  writeB16(w, in, in.dst[0], out);
}
void bitop3B16(Wave& w, const Inst& in) {
  Row t0, t1, t2, out;
  const U* a = readB16(w, in.src[0], t0);
  const U* b = readB16(w, in.src[1], t1);
  const U* c = readB16(w, in.src[2], t2);
  // The truth table is spread over OMOD, ABS and NEG.
  U table = (in.raw[1] >> 27 & 3) << 6 | (in.raw[0] >> 8 & 7) << 3 | in.raw[1] >> 29;
  for (int l = 0; l < w.lanes; ++l) {
    U r = 0;
    for (U i = 0; i < 8; ++i)
      if (table >> i & 1) r |= (i & 4 ? a[l] : ~a[l]) & (i & 2 ? b[l] : ~b[l]) & (i & 1 ? c[l] : ~c[l]);
    out[l] = r & 0xffff;
  }
  writeB16(w, in, in.dst[0], out);
}
void swapB16(Wave& w, const Inst& in) {
  Row a, b;
  Row ta, tb;
  std::memcpy(a, readB16(w, in.dst[0], ta), static_cast<std::size_t>(w.lanes) * 4);
  std::memcpy(b, readB16(w, in.dst[1], tb), static_cast<std::size_t>(w.lanes) * 4);
  writeB16(w, in, in.dst[0], b);
  writeB16(w, in, in.dst[1], a);
}

}  // namespace

void addRare(OpTable& t) {
  t.add("v_cubeid_f32", f32x3<cubeId>);
  t.add("v_cubesc_f32", f32x3<cubeS>);
  t.add("v_cubetc_f32", f32x3<cubeT>);
  t.add("v_cubema_f32", f32x3<cubeMajor>);
  t.add("v_mullit_f32", f32x3<mullit>);
  t.add("v_qsad_pk_u16_u8", sadPk16<false>);
  t.add("v_mqsad_pk_u16_u8", sadPk16<true>);
  t.add("v_mqsad_u32_u8", mqsadU32);
  t.add("v_sat_pk_u8_i16", satPkU8);
  t.add("v_trig_preop_f64", trigPreop);
  t.add("v_mad_f16", madF16, kPreservesHi16);
  t.add("v_mac_f16|v_madak_f16|v_madmk_f16|v_mad_legacy_f16", madF16);
  t.add("v_mad_legacy_u16", madLegacy16<false>);
  t.add("v_mad_legacy_i16", madLegacy16<true>);
  t.add("v_fma_legacy_f16", fmaF16);
  t.add("v_pk_fmac_f16", pkFmacF16);
  t.add("v_cvt_pkaccum_u8_f32", pkAccumU8);
  t.add("v_ashr_pk_i8_i32", ashrPk<-128, 127>, kPreservesHi16);
  t.add("v_ashr_pk_u8_i32", ashrPk<0, 255>, kPreservesHi16);
  t.add("v_bitop3_b16", bitop3B16, kPreservesHi16);
  t.add("v_swap_b16", swapB16, kPreservesHi16);
  t.add("v_clrexcp", [](Wave&, const Inst&) {});  // exceptions are not modelled: none is ever pending
}

}  // namespace sardonyx::sim
