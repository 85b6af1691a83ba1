// Packed arithmetic: two 16-bit or two 32-bit lanes in one register or register pair, and multiply-adds of mixed
// precision. op_sel says which half of each source feeds the low result, op_sel_hi which feeds the high one; neg_lo and
// neg_hi negate them.
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

/// The 16 bits of each source that feed one half of the result, zero-extended.
void halves(Wave& w, const Operand& o, bool highResult, Row& out) {
  Row t;
  const U* a = readB32(w, o, t);
  int shift = (highResult ? o.opSelHi : o.opSel) ? 16 : 0;
  forLanes(w.lanes, [&](int l) { out[l] = a[l] >> shift & 0xffff; });
}
/// As floats, negated and with denormals flushed as the mode says.
void floatHalves(Wave& w, const Operand& o, bool highResult, Row& out) {
  // readF16 takes its half from `hi`, so a copy of the operand says which.
  Operand half = o;
  half.hi = highResult ? o.opSelHi : o.opSel;
  half.neg = highResult ? o.negHi : o.neg;
  half.abs = false;
  readF16(w, half, out);
}
void join(Wave& w, const Inst& in, const Row& low, const Row& high) {
  Row out;
  forLanes(w.lanes, [&](int l) { out[l] = (low[l] & 0xffff) | high[l] << 16; });
  writeB32(w, in.dst[0], out);
}
void clampHalf(const Wave& w, const Inst& in, Row& v) {
  if (!in.clamp) return;
  forLanes(w.lanes, [&](int l) {
    float x = asF32(v[l]);
    v[l] = bitsOf(x > 1.0f ? 1.0f : x > 0.0f ? x : 0.0f);
  });
}
void toHalves(const Wave& w, Row& v) {
  for (int l = 0; l < w.lanes; ++l) {
    U h = floatToHalf(asF32(v[l]), round64(w));
    v[l] = (h & 0x7c00) == 0 && !keepsOut64(w) ? h & 0x8000 : h;
  }
}

template <auto F>
void pkInt2(Wave& w, const Inst& in) {
  Row result[2];
  for (int half = 0; half < 2; ++half) {
    Row a, b;
    halves(w, in.src[0], half, a);
    halves(w, in.src[1], half, b);
    Row& r = result[half];
    forLanes(w.lanes, [&](int l) { r[l] = static_cast<U>(F(a[l], b[l], in.clamp)); });
  }
  join(w, in, result[0], result[1]);
}
template <auto F>
void pkInt3(Wave& w, const Inst& in) {
  Row result[2];
  for (int half = 0; half < 2; ++half) {
    Row a, b, c;
    halves(w, in.src[0], half, a);
    halves(w, in.src[1], half, b);
    halves(w, in.src[2], half, c);
    Row& r = result[half];
    for (int l = 0; l < w.lanes; ++l) r[l] = static_cast<U>(F(a[l], b[l], c[l], in.clamp));
  }
  join(w, in, result[0], result[1]);
}
template <auto F>
void pkF16x2(Wave& w, const Inst& in) {
  Row result[2];
  for (int half = 0; half < 2; ++half) {
    Row& a = result[half];
    Row b;
    floatHalves(w, in.src[0], half, a);
    floatHalves(w, in.src[1], half, b);
    RoundingScope rounding(round64(w));
    forLanes(w.lanes, [&](int l) {
      float x = asF32(a[l]), y = asF32(b[l]);
      a[l] = canonical(bitsOf(F(x, y)), (x != x) | (y != y));
    });
    clampHalf(w, in, a);
    toHalves(w, a);
  }
  join(w, in, result[0], result[1]);
}
template <auto F>
void pkF16x3(Wave& w, const Inst& in) {
  Row result[2];
  for (int half = 0; half < 2; ++half) {
    Row& a = result[half];
    Row b, c;
    floatHalves(w, in.src[0], half, a);
    floatHalves(w, in.src[1], half, b);
    floatHalves(w, in.src[2], half, c);
    forLanes(w.lanes, [&](int l) {
      float x = asF32(a[l]), y = asF32(b[l]), z = asF32(c[l]);
      a[l] = canonical(bitsOf(F(x, y, z)), (x != x) | (y != y) | (z != z));
    });
    clampHalf(w, in, a);
    toHalves(w, a);
  }
  join(w, in, result[0], result[1]);
}

/// One dword of a 64-bit packed source. Constants are the same in both.
const U* word(Wave& w, const Operand& o, bool highResult, Row& t) {
  int dword = (highResult ? o.opSelHi : o.opSel) ? 1 : 0;
  return readB32(w, o, t, o.file == RegFile::kImm ? 0 : dword);
}
void wordF32(Wave& w, const Operand& o, bool highResult, Row& out) {
  Row t;
  const U* a = word(w, o, highResult, t);
  U flip = (highResult ? o.negHi : o.neg) ? 0x80000000u : 0;
  bool keep = keepsIn32(w);
  forLanes(w.lanes, [&](int l) {
    U v = (a[l] & 0x7f800000) == 0 && !keep ? a[l] & 0x80000000u : a[l];
    out[l] = v ^ flip;
  });
}
template <auto F, int kSources>
void pkF32(Wave& w, const Inst& in) {
  Row result[2];
  RoundingScope rounding(round32(w));
  for (int half = 0; half < 2; ++half) {
    Row s[3] = {};
    for (int i = 0; i < kSources; ++i) wordF32(w, in.src[i], half, s[i]);
    Row& r = result[half];
    forLanes(w.lanes, [&](int l) {
      float x = asF32(s[0][l]), y = asF32(s[1][l]), z = asF32(s[2][l]);
      r[l] = canonical(bitsOf(F(x, y, z)), (x != x) | (y != y) | (z != z));
    });
  }
  Operand low = in.dst[0], high = in.dst[0];
  low.dwords = high.dwords = 1;
  ++high.index;
  writeF32(w, in, low, result[0]);
  writeF32(w, in, high, result[1]);
}
void pkMov(Wave& w, const Inst& in) {
  // The low result comes from S0, the high one from S1, each from the word its op_sel names.
  Row t0, t1, low, high;
  const U* a = readB32(w, in.src[0], t0, in.src[0].file != RegFile::kImm && in.src[0].opSel ? 1 : 0);
  const U* b = readB32(w, in.src[1], t1, in.src[1].file != RegFile::kImm && in.src[1].opSel ? 1 : 0);
  std::memcpy(low, a, static_cast<std::size_t>(w.lanes) * 4);
  std::memcpy(high, b, static_cast<std::size_t>(w.lanes) * 4);
  writeB32(w, in.dst[0], low, 0);
  writeB32(w, in.dst[0], high, 1);
}

/// V_FMA_MIX: each source is f32, or with op_sel_hi the half that op_sel names. neg_hi means absolute value here.
void mixSource(Wave& w, const Operand& o, Row& out) {
  Operand plain = o;
  plain.abs = o.negHi;
  if (o.opSelHi) {
    plain.hi = o.opSel;
    readF16(w, plain, out);
    return;
  }
  Row t;
  const U* a = readF32(w, plain, t);
  std::memcpy(out, a, static_cast<std::size_t>(w.lanes) * 4);
}
enum class Mix { kF32, kLow, kHigh };
template <Mix kMix>
void fmaMix(Wave& w, const Inst& in) {
  Row a, b, c;
  mixSource(w, in.src[0], a);
  mixSource(w, in.src[1], b);
  mixSource(w, in.src[2], c);
  {
    RoundingScope rounding(kMix == Mix::kF32 ? round32(w) : 0);
    forLanes(w.lanes, [&](int l) {
      float x = asF32(a[l]), y = asF32(b[l]), z = asF32(c[l]);
      float r = kMix == Mix::kF32 ? std::fma(x, y, z) : fmaForHalf(x, y, z);
      a[l] = canonical(bitsOf(r), (x != x) | (y != y) | (z != z));
    });
  }
  if constexpr (kMix == Mix::kF32) {
    writeF32(w, in, in.dst[0], a);
  } else {
    Operand d = in.dst[0];
    d.hi = kMix == Mix::kHigh;
    writeF16(w, in, d, a);
  }
}

}  // namespace

void addPacked(OpTable& t) {
  t.add("v_pk_mov_b32", pkMov, kNoCheckReads);
  t.add("v_pk_add_f32", pkF32<([](float a, float b, float) { return a + b; }), 2>);
  t.add("v_pk_mul_f32", pkF32<([](float a, float b, float) { return a * b; }), 2>);
  t.add("v_pk_fma_f32", pkF32<([](float a, float b, float c) { return std::fma(a, b, c); }), 3>);
  t.add("v_pk_add_f16", pkF16x2<([](float a, float b) { return a + b; })>);
  t.add("v_pk_mul_f16", pkF16x2<([](float a, float b) { return a * b; })>);
  t.add("v_pk_min_f16|v_pk_min_num_f16", pkF16x2<minNum<float>>);
  t.add("v_pk_max_f16|v_pk_max_num_f16", pkF16x2<maxNum<float>>);
  t.add("v_pk_minimum_f16", pkF16x2<minimum<float>>);
  t.add("v_pk_maximum_f16", pkF16x2<maximum<float>>);
  t.add("v_pk_minimum3_f16", pkF16x3<([](float a, float b, float c) { return minimum(minimum(a, b), c); })>);
  t.add("v_pk_maximum3_f16", pkF16x3<([](float a, float b, float c) { return maximum(maximum(a, b), c); })>);
  t.add("v_pk_fma_f16", pkF16x3<fmaForHalf>);
  t.add("v_fma_mix_f32|v_mad_mix_f32", fmaMix<Mix::kF32>);
  t.add("v_fma_mixlo_f16|v_mad_mixlo_f16", fmaMix<Mix::kLow>, kPreservesHi16);
  t.add("v_fma_mixhi_f16|v_mad_mixhi_f16", fmaMix<Mix::kHigh>, kPreservesHi16);
  t.add("v_pk_add_u16", pkInt2<([](U a, U b, bool clamp) { return clamp ? std::min(a + b, 0xffffu) : a + b; })>);
  t.add("v_pk_sub_u16", pkInt2<([](U a, U b, bool clamp) { return clamp && b > a ? 0u : a - b; })>);
  t.add("v_pk_add_i16", pkInt2<([](U a, U b, bool clamp) {
          return clamp ? std::clamp(s16(a) + s16(b), -32768, 32767) : s16(a) + s16(b);
        })>);
  t.add("v_pk_sub_i16", pkInt2<([](U a, U b, bool clamp) {
          return clamp ? std::clamp(s16(a) - s16(b), -32768, 32767) : s16(a) - s16(b);
        })>);
  t.add("v_pk_mul_lo_u16", pkInt2<([](U a, U b, bool) { return a * b; })>);
  t.add("v_pk_min_u16", pkInt2<([](U a, U b, bool) { return std::min(a, b); })>);
  t.add("v_pk_max_u16", pkInt2<([](U a, U b, bool) { return std::max(a, b); })>);
  t.add("v_pk_min_i16", pkInt2<([](U a, U b, bool) { return std::min(s16(a), s16(b)); })>);
  t.add("v_pk_max_i16", pkInt2<([](U a, U b, bool) { return std::max(s16(a), s16(b)); })>);
  t.add("v_pk_lshlrev_b16", pkInt2<([](U a, U b, bool) { return b << (a & 15); })>);
  t.add("v_pk_lshrrev_b16", pkInt2<([](U a, U b, bool) { return b >> (a & 15); })>);
  t.add("v_pk_ashrrev_i16", pkInt2<([](U a, U b, bool) { return s16(b) >> (a & 15); })>);
  t.add("v_pk_mad_u16", pkInt3<([](U a, U b, U c, bool clamp) {
          std::uint64_t r = static_cast<std::uint64_t>(a) * b + c;
          return static_cast<U>(clamp ? std::min<std::uint64_t>(r, 0xffff) : r);
        })>);
  t.add("v_pk_mad_i16", pkInt3<([](U a, U b, U c, bool clamp) {
          std::int64_t r = static_cast<std::int64_t>(s16(a)) * s16(b) + s16(c);
          return static_cast<I>(clamp ? std::clamp<std::int64_t>(r, -32768, 32767) : r);
        })>);
}

}  // namespace sardonyx::sim
