// gfx950's conversions between f32, f16, bf16 and the 4-, 6- and 8-bit floats of the Microscaling formats, with a
// scale. CDNA4 ISA document, V_CVT_SCALEF32_*. The scale is the exponent of an f32: a conversion to a small format
// divides by 2^(exponent - 127), one from a small format multiplies; exponent 255 gives NaN. To nearest even or
// stochastically; MODE's rounding is not read. 4- and 6-bit results saturate; 8-bit ones as in convert_small.cpp.
#include "sim/ops/families.h"
#include "sim/ops/fields.h"
#include "sim/ops/lanes.h"
#include "sim/ops/small_floats.h"

namespace sardonyx::sim {
namespace {

using U = std::uint32_t;

enum class Wide { kF32, kF16, kBf16 };

/// V_PRNG_B32: the next of a sequence of random words.
U nextRandom(U v) { return v << 1 ^ (v >> 31 ? 197u : 0u); }

constexpr int bitsOf(Wide t) { return t == Wide::kF32 ? 32 : 16; }
double decodeWide(Wide t, U v) {
  if (t == Wide::kF32) return static_cast<double>(asF32(v));
  return t == Wide::kF16 ? static_cast<double>(halfToFloat(static_cast<std::uint16_t>(v)))
                         : static_cast<double>(asF32(v << 16));
}
U encodeWide(Wide t, double v) {
  if (t == Wide::kF32) {
    float f = static_cast<float>(v);
    return f != f ? 0x7fc00000u : sardonyx::sim::bitsOf(f);
  }
  return encodeSmall(t == Wide::kF16 ? kHalf : kBfloat16, v, Overflow::kToNanOrInfinity);
}
/// 2^(exponent - 127) of a scale operand.
double scaleOf(U v) {
  int exponent = static_cast<int>(v >> 23 & 255);
  return exponent == 255 ? std::numeric_limits<double>::quiet_NaN() : std::ldexp(1.0, exponent - 127);
}

/// Bit strings over the registers of one lane.
U getBits(Wave& w, const Operand& o, int lane, int at, int bits) {
  if (!isRow(o)) return scalar32(w, o) >> (at & 31) & (bits == 32 ? ~0u : (1u << bits) - 1);
  std::uint64_t v = w.row(o, at >> 5)[lane];
  if ((at & 31) + bits > 32) v |= static_cast<std::uint64_t>(w.row(o, (at >> 5) + 1)[lane]) << 32;
  return static_cast<U>(v >> (at & 31)) & (bits == 32 ? ~0u : (1u << bits) - 1);
}
struct Registers {
  U word[32] = {};
  void put(int at, int bits, U v) {
    word[at >> 5] |= v << (at & 31);
    if ((at & 31) + bits > 32) word[(at >> 5) + 1] |= v >> (32 - (at & 31));
  }
};

Overflow overflowOf(const Wave& w, const Inst& in) {
  return in.clamp || (w.mode >> 23 & 1) ? Overflow::kSaturate : Overflow::kToNanOrInfinity;
}

/// kCount values of kTo from kCount of kFrom. Where the values come from and which operand is the scale depends on the
/// form:
///   to a small format from f32, two values: S0 and S1, scale S2 (kTwo); else packed in S0, scale S1
///   2xpk16: S0 and S1 of 16 values each, interleaved, scale S2
///   stochastic: S0, random word S1, scale S2
enum class Form { kPacked, kTwo, kTwice16, kStochastic };
template <const SmallFormat& kTo, Wide kFrom, int kCount, Form kForm>
void narrow(Wave& w, const Inst& in) {
  constexpr int kBits = kTo.exponentBits + kTo.fractionBits + 1, kTotal = kCount * kBits;
  const Operand& scales = in.src[kForm == Form::kPacked ? 1 : 2];
  Overflow overflow = overflowOf(w, in);
  Row ts, tr;
  const U* scale = readB32(w, scales, ts);
  const U* seed = kForm == Form::kStochastic ? readB32(w, in.src[1], tr) : nullptr;
  // Up to 16 bits go into the word or byte that op_sel names; the rest of the register is kept.
  unsigned sel = opSelBits(in);
  int at = kTotal == 16 ? (sel & 8 ? 16 : 0) : kTotal == 8 ? static_cast<int>(sel >> 2) * 8 : 0;
  // A single 16-bit source is in the half that op_sel[0] names.
  int from = kCount == 1 && kFrom != Wide::kF32 && (sel & 1) ? 16 : 0;
  forActive(w.mask, [&](int l) {
    double inverse = 1.0 / scaleOf(scale[l]);
    U random = seed ? seed[l] : 0;
    Registers out;
    for (int i = 0; i < kCount; ++i) {
      const Operand& source = (kForm == Form::kTwo || kForm == Form::kTwice16) && (i & 1) ? in.src[1] : in.src[0];
      int index = kForm == Form::kTwo ? 0 : kForm == Form::kTwice16 ? i / 2 : i;
      U raw = getBits(w, source, l, from + index * bitsOf(kFrom), bitsOf(kFrom));
      if (kForm == Form::kTwo || kCount == 1) {
        U sign = kFrom == Wide::kF32 ? 0x80000000u : 0x8000u;
        raw = (source.abs ? raw & ~sign : raw) ^ (source.neg ? sign : 0);
      }
      U code = encodeSmall(kTo, decodeWide(kFrom, raw) * inverse, overflow, seed ? &random : nullptr);
      random = nextRandom(random);
      out.put(i * kBits, kBits, code);
    }
    if (kTotal <= 16) {
      U& d = w.row(in.dst[0])[l];
      U mask = ((1u << kTotal) - 1) << at;
      d = (d & ~mask) | (out.word[0] << at & mask);
    } else {
      for (int r = 0; r < kTotal / 32; ++r) w.row(in.dst[0], r)[l] = out.word[r];
    }
  });
}

template <const SmallFormat& kFrom, Wide kTo, int kCount>
void widen(Wave& w, const Inst& in) {
  constexpr int kBits = kFrom.exponentBits + kFrom.fractionBits + 1, kTotal = kCount * kBits;
  Row ts;
  const U* scale = readB32(w, in.src[1], ts);
  unsigned sel = opSelBits(in);
  int from = kTotal == 16 ? static_cast<int>(sel & 1) * 16 : kTotal == 8 ? static_cast<int>(sel & 3) * 8 : 0;
  forActive(w.mask, [&](int l) {
    double factor = scaleOf(scale[l]);
    Registers out;
    for (int i = 0; i < kCount; ++i) {
      U code = getBits(w, in.src[0], l, from + i * kBits, kBits);
      out.put(i * bitsOf(kTo), bitsOf(kTo), encodeWide(kTo, decodeSmall(kFrom, code) * factor));
    }
    constexpr int kOut = kCount * bitsOf(kTo);
    if (kOut == 16) {  // op_sel[3] names the half
      U& d = w.row(in.dst[0])[l];
      d = sel & 8 ? (d & 0xffff) | out.word[0] << 16 : (d & 0xffff0000) | out.word[0];
    } else {
      for (int r = 0; r < kOut / 32; ++r) w.row(in.dst[0], r)[l] = out.word[r];
    }
  });
}

}  // namespace

void addConvertScaled(OpTable& t) {
  using enum Wide;
  t.add("v_prng_b32", b32x1<nextRandom>);
  t.add("v_cvt_scalef32_pk_fp8_f32", narrow<kFp8, kF32, 2, Form::kTwo>);
  t.add("v_cvt_scalef32_pk_bf8_f32", narrow<kBf8, kF32, 2, Form::kTwo>);
  t.add("v_cvt_scalef32_pk_fp8_f16", narrow<kFp8, kF16, 2, Form::kPacked>);
  t.add("v_cvt_scalef32_pk_bf8_f16", narrow<kBf8, kF16, 2, Form::kPacked>);
  t.add("v_cvt_scalef32_pk_fp8_bf16", narrow<kFp8, kBf16, 2, Form::kPacked>);
  t.add("v_cvt_scalef32_pk_bf8_bf16", narrow<kBf8, kBf16, 2, Form::kPacked>);
  t.add("v_cvt_scalef32_sr_fp8_f32", narrow<kFp8, kF32, 1, Form::kStochastic>);
  t.add("v_cvt_scalef32_sr_bf8_f32", narrow<kBf8, kF32, 1, Form::kStochastic>);
  t.add("v_cvt_scalef32_sr_fp8_f16", narrow<kFp8, kF16, 1, Form::kStochastic>);
  t.add("v_cvt_scalef32_sr_bf8_f16", narrow<kBf8, kF16, 1, Form::kStochastic>);
  t.add("v_cvt_scalef32_sr_fp8_bf16", narrow<kFp8, kBf16, 1, Form::kStochastic>);
  t.add("v_cvt_scalef32_sr_bf8_bf16", narrow<kBf8, kBf16, 1, Form::kStochastic>);
  t.add("v_cvt_scalef32_pk_fp4_f32", narrow<kFp4, kF32, 2, Form::kTwo>);
  t.add("v_cvt_scalef32_pk_fp4_f16", narrow<kFp4, kF16, 2, Form::kPacked>);
  t.add("v_cvt_scalef32_pk_fp4_bf16", narrow<kFp4, kBf16, 2, Form::kPacked>);
  t.add("v_cvt_scalef32_sr_pk_fp4_f32", narrow<kFp4, kF32, 2, Form::kStochastic>);
  t.add("v_cvt_scalef32_sr_pk_fp4_f16", narrow<kFp4, kF16, 2, Form::kStochastic>);
  t.add("v_cvt_scalef32_sr_pk_fp4_bf16", narrow<kFp4, kBf16, 2, Form::kStochastic>);
  t.add("v_cvt_scalef32_2xpk16_fp6_f32", narrow<kFp6, kF32, 32, Form::kTwice16>);
  t.add("v_cvt_scalef32_2xpk16_bf6_f32", narrow<kBf6, kF32, 32, Form::kTwice16>);
  t.add("v_cvt_scalef32_pk32_fp6_f16", narrow<kFp6, kF16, 32, Form::kPacked>);
  t.add("v_cvt_scalef32_pk32_fp6_bf16", narrow<kFp6, kBf16, 32, Form::kPacked>);
  t.add("v_cvt_scalef32_pk32_bf6_f16", narrow<kBf6, kF16, 32, Form::kPacked>);
  t.add("v_cvt_scalef32_pk32_bf6_bf16", narrow<kBf6, kBf16, 32, Form::kPacked>);
  t.add("v_cvt_scalef32_sr_pk32_fp6_f32", narrow<kFp6, kF32, 32, Form::kStochastic>);
  t.add("v_cvt_scalef32_sr_pk32_bf6_f32", narrow<kBf6, kF32, 32, Form::kStochastic>);
  t.add("v_cvt_scalef32_sr_pk32_fp6_f16", narrow<kFp6, kF16, 32, Form::kStochastic>);
  t.add("v_cvt_scalef32_sr_pk32_bf6_f16", narrow<kBf6, kF16, 32, Form::kStochastic>);
  t.add("v_cvt_scalef32_sr_pk32_fp6_bf16", narrow<kFp6, kBf16, 32, Form::kStochastic>);
  t.add("v_cvt_scalef32_sr_pk32_bf6_bf16", narrow<kBf6, kBf16, 32, Form::kStochastic>);
  t.add("v_cvt_scalef32_pk_f32_fp8", widen<kFp8, kF32, 2>);
  t.add("v_cvt_scalef32_pk_f32_bf8", widen<kBf8, kF32, 2>);
  t.add("v_cvt_scalef32_pk_f16_fp8", widen<kFp8, kF16, 2>);
  t.add("v_cvt_scalef32_pk_f16_bf8", widen<kBf8, kF16, 2>);
  t.add("v_cvt_scalef32_pk_bf16_fp8", widen<kFp8, kBf16, 2>);
  t.add("v_cvt_scalef32_pk_bf16_bf8", widen<kBf8, kBf16, 2>);
  t.add("v_cvt_scalef32_f32_fp8", widen<kFp8, kF32, 1>);
  t.add("v_cvt_scalef32_f32_bf8", widen<kBf8, kF32, 1>);
  t.add("v_cvt_scalef32_f16_fp8", widen<kFp8, kF16, 1>);
  t.add("v_cvt_scalef32_f16_bf8", widen<kBf8, kF16, 1>);
  t.add("v_cvt_scalef32_pk_f32_fp4", widen<kFp4, kF32, 2>);
  t.add("v_cvt_scalef32_pk_f16_fp4", widen<kFp4, kF16, 2>);
  t.add("v_cvt_scalef32_pk_bf16_fp4", widen<kFp4, kBf16, 2>);
  t.add("v_cvt_scalef32_pk32_f32_fp6", widen<kFp6, kF32, 32>);
  t.add("v_cvt_scalef32_pk32_f32_bf6", widen<kBf6, kF32, 32>);
  t.add("v_cvt_scalef32_pk32_f16_fp6", widen<kFp6, kF16, 32>);
  t.add("v_cvt_scalef32_pk32_f16_bf6", widen<kBf6, kF16, 32>);
  t.add("v_cvt_scalef32_pk32_bf16_fp6", widen<kFp6, kBf16, 32>);
  t.add("v_cvt_scalef32_pk32_bf16_bf6", widen<kBf6, kBf16, 32>);
}

}  // namespace sardonyx::sim
