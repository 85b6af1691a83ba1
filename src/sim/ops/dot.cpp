// Dot products of the elements packed in one register. ISA documents, V_DOT2_F32_F16 and its relatives.
//
// Floats: one fused multiply-add an element, in the order the ISA documents write them (C first), each rounded to f32
// under MODE; results of 16 bits are rounded once more at the end. Integers: exact, and saturated to 32 bits by clamp.
#include <algorithm>

#include "sim/ops/families.h"
#include "sim/ops/lanes.h"
#include "sim/ops/small_floats.h"

namespace sardonyx::sim {
namespace {

using U = std::uint32_t;
using I = std::int32_t;
using IL = std::int64_t;

/// Half 0 or 1 of a packed source as raw bits: VOP3P chooses with op_sel and op_sel_hi, the other encodings do not.
void half16(Wave& w, const Inst& in, const Operand& o, int which, Row& out) {
  Row t;
  const U* a = readB32(w, o, t);
  bool high = in.format == Format::kVop3p ? (which ? o.opSelHi : o.opSel) : which;
  int shift = high ? 16 : 0;
  forLanes(w.lanes, [&](int l) { out[l] = a[l] >> shift & 0xffff; });
}
/// The same as f32 bits, with sign modifiers (of VOP3P: per half) and MODE's rule for 16-bit denormals.
template <bool kBf16>
void halfFloat(Wave& w, const Inst& in, const Operand& o, int which, Row& out) {
  bool packed = in.format == Format::kVop3p;
  bool neg = packed && which ? o.negHi : o.neg, abs = !packed && o.abs;
  if constexpr (kBf16) {
    half16(w, in, o, which, out);
    bool keep = keepsIn64(w);
    forLanes(w.lanes, [&](int l) {
      U v = out[l] << 16;
      v = (v & 0x7f800000) || keep ? v : v & 0x80000000;
      out[l] = (abs ? v & 0x7fffffff : v) ^ (neg ? 0x80000000u : 0);
    });
  } else {
    Operand half = o;
    half.hi = packed ? (which ? o.opSelHi : o.opSel) : which;
    half.neg = neg, half.abs = abs;
    readF16(w, half, out);
  }
}
/// f32 addend; VOP3P keeps its absolute value in neg_hi.
void addend(Wave& w, const Inst& in, const Operand& o, Row& out) {
  Operand c = o;
  if (in.format == Format::kVop3p) c.abs = o.negHi;
  Row t;
  const U* v = readF32(w, c, t);
  std::memcpy(out, v, static_cast<std::size_t>(w.lanes) * 4);
}
void step(const Wave& w, const Row& a, const Row& b, Row& sum) {
  RoundingScope rounding(round32(w));
  forLanes(w.lanes, [&](int l) {
    float x = asF32(a[l]), y = asF32(b[l]), z = asF32(sum[l]);
    sum[l] = canonical(bitsOf(std::fma(x, y, z)), (x != x) | (y != y) | (z != z));
  });
}

template <bool kBf16>
void dot2F32(Wave& w, const Inst& in) {
  Row a, b, sum;
  addend(w, in, in.src[2], sum);
  for (int i = 0; i < 2; ++i) {
    halfFloat<kBf16>(w, in, in.src[0], i, a);
    halfFloat<kBf16>(w, in, in.src[1], i, b);
    step(w, a, b, sum);
  }
  writeF32(w, in, in.dst[0], sum);
}
/// 16-bit C and D.
template <bool kBf16>
void dot2Half(Wave& w, const Inst& in) {
  Row a, b, sum;
  if constexpr (kBf16) {
    Row t;
    const U* c = readB16(w, in.src[2], t);
    U keep = in.src[2].abs ? 0x7fffffffu : ~0u, flip = in.src[2].neg ? 0x80000000u : 0;
    forLanes(w.lanes, [&](int l) { sum[l] = (c[l] << 16 & keep) ^ flip; });
  } else {
    readF16(w, in.src[2], sum);
  }
  for (int i = 0; i < 2; ++i) {
    halfFloat<kBf16>(w, in, in.src[0], i, a);
    halfFloat<kBf16>(w, in, in.src[1], i, b);
    step(w, a, b, sum);
  }
  if constexpr (kBf16) {
    forLanes(w.lanes, [&](int l) {
      U v = sum[l];
      bool nan = (v & 0x7fffffff) > 0x7f800000;
      sum[l] = nan ? (v >> 16 | 0x40) : (v + 0x7fff + (v >> 16 & 1)) >> 16;
    });
    writeB16(w, in, in.dst[0], sum);
  } else {
    writeF16(w, in, in.dst[0], sum);
  }
}

/// kBits a element; whether A and B are signed, or NEG_LO says it (kByModifier).
enum class Sign { kSigned, kUnsigned, kByModifier };
template <int kBits, Sign kSign>
void dotInt(Wave& w, const Inst& in) {
  Row ta, tb, tc, out;
  const U *a = ta, *b = tb;
  if constexpr (kBits == 16) {  // op_sel may swap the halves
    Row lo, hi;
    for (int s = 0; s < 2; ++s) {
      half16(w, in, in.src[s], 0, lo);
      half16(w, in, in.src[s], 1, hi);
      Row& to = s ? tb : ta;
      forLanes(w.lanes, [&](int l) { to[l] = lo[l] | hi[l] << 16; });
    }
  } else {
    a = readB32(w, in.src[0], ta);
    b = readB32(w, in.src[1], tb);
  }
  const U* c = readB32(w, in.src[2], tc);
  bool signedA = kSign == Sign::kSigned || (kSign == Sign::kByModifier && in.src[0].neg);
  bool signedB = kSign == Sign::kSigned || (kSign == Sign::kByModifier && in.src[1].neg);
  auto element = [](U v, int i, bool isSigned) {
    U field = v << (32 - kBits * (i + 1));
    return isSigned ? IL{static_cast<I>(field) >> (32 - kBits)} : IL{field >> (32 - kBits)};
  };
  for (int l = 0; l < w.lanes; ++l) {
    IL sum = kSign == Sign::kUnsigned ? IL{c[l]} : IL{static_cast<I>(c[l])};
    for (int i = 0; i < 32 / kBits; ++i) sum += element(a[l], i, signedA) * element(b[l], i, signedB);
    if (in.clamp)
      sum = kSign == Sign::kUnsigned ? std::min<IL>(sum, 0xffffffff) : std::clamp<IL>(sum, INT32_MIN, INT32_MAX);
    out[l] = static_cast<U>(sum);
  }
  writeB32(w, in.dst[0], out);
}

template <bool kABf8, bool kBBf8>
void dot4Fp8(Wave& w, const Inst& in) {
  const float* tableA = smallTable(kABf8 ? kBf8 : kFp8);
  const float* tableB = smallTable(kBBf8 ? kBf8 : kFp8);
  Row ta, tb, a, b, sum;
  const U* x = readB32(w, in.src[0], ta);
  const U* y = readB32(w, in.src[1], tb);
  addend(w, in, in.src[2], sum);
  for (int i = 0; i < 4; ++i) {
    for (int l = 0; l < w.lanes; ++l) {
      a[l] = bitsOf(tableA[x[l] >> (8 * i) & 255]);
      b[l] = bitsOf(tableB[y[l] >> (8 * i) & 255]);
    }
    step(w, a, b, sum);
  }
  writeF32(w, in, in.dst[0], sum);
}

}  // namespace

void addDot(OpTable& t) {
  t.add("v_dot2_f32_f16|v_dot2c_f32_f16|v_dot2acc_f32_f16", dot2F32<false>);
  t.add("v_dot2_f32_bf16|v_dot2c_f32_bf16|v_dot2acc_f32_bf16", dot2F32<true>);
  t.add("v_dot2_f16_f16", dot2Half<false>, kPreservesHi16);
  t.add("v_dot2_bf16_bf16", dot2Half<true>, kPreservesHi16);
  t.add("v_dot2_i32_i16|v_dot2c_i32_i16", dotInt<16, Sign::kSigned>);
  t.add("v_dot2_u32_u16", dotInt<16, Sign::kUnsigned>);
  t.add("v_dot4_i32_i8|v_dot4c_i32_i8", dotInt<8, Sign::kSigned>);
  t.add("v_dot4_u32_u8", dotInt<8, Sign::kUnsigned>);
  t.add("v_dot4_i32_iu8", dotInt<8, Sign::kByModifier>);
  t.add("v_dot8_i32_i4|v_dot8c_i32_i4", dotInt<4, Sign::kSigned>);
  t.add("v_dot8_u32_u4", dotInt<4, Sign::kUnsigned>);
  t.add("v_dot8_i32_iu4", dotInt<4, Sign::kByModifier>);
  t.add("v_dot4_f32_fp8_fp8", dot4Fp8<false, false>);
  t.add("v_dot4_f32_fp8_bf8", dot4Fp8<false, true>);
  t.add("v_dot4_f32_bf8_fp8", dot4Fp8<true, false>);
  t.add("v_dot4_f32_bf8_bf8", dot4Fp8<true, true>);
}

}  // namespace sardonyx::sim
