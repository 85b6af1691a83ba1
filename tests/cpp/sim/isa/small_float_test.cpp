// Conversions between f32, 16-bit and smaller floats: CDNA3 and CDNA4 ISA documents, "V_CVT_*_FP8", "V_CVT_SCALEF32_*";
// RDNA4 ISA document, "V_CVT_PK_F32_FP8". Formats: OCP FP8 and Microscaling specifications; FNUZ as the CDNA3 document.
#include <cmath>

#include "matrix_reference.h"
#include "sim/ops/small_floats.h"

using sardonyx::sim::encodeSmall;
using sardonyx::sim::Overflow;
using sardonyx::sim::SmallFormat;

namespace {

/// All numbers of a format, by the formula of the specification.
double valueOf(const Format& f, std::uint32_t code) {
  int e = static_cast<int>(code >> f.fractionBits & ((1u << f.exponentBits) - 1));
  double m = code & ((1u << f.fractionBits) - 1);
  double v =
      e ? std::ldexp(1 + std::ldexp(m, -f.fractionBits), e - f.bias) : std::ldexp(m, 1 - f.bias - f.fractionBits);
  return code >> (f.bits - 1) & 1 ? -v : v;
}

struct Named {
  const char* chip;
  bool bf8;
  Format format;
  std::uint32_t largest;  ///< code
};
const Named kEight[] = {{"gfx942", false, kFp8FnuzFormat, 0x7f}, {"gfx942", true, kBf8FnuzFormat, 0x7f},
                        {"gfx950", false, kFp8Format, 0x7e},     {"gfx950", true, kBf8Format, 0x7b},
                        {"gfx1201", false, kFp8Format, 0x7e},    {"gfx1201", true, kBf8Format, 0x7b}};

std::string name(const char* before, bool bf8, const char* after) {
  return std::string(before) + (bf8 ? "bf8" : "fp8") + after;
}

TEST(EightBit, EveryCodeToF32) {
  for (const Named& n : kEight) {
    Lab lab(n.chip);
    bool fnuz = std::string(n.chip) == "gfx942";
    for (std::uint32_t code = 0; code < 256; ++code) {
      lab.fill(1, code | 0x12345600u);
      lab.run(name("v_cvt_f32_", n.bf8, "_e32 v0, v1"));
      bool nan = fnuz ? code == 0x80 : (code & 0x7f) > (n.bf8 ? 0x7cu : 0x7eu);
      bool infinite = !fnuz && n.bf8 && (code & 0x7f) == 0x7c;
      if (nan) {
        EXPECT_NE(lab.f(0), lab.f(0)) << n.chip << code;
      } else if (infinite) {
        EXPECT_EQ(lab.f(0), code & 0x80 ? -INFINITY : INFINITY);
      } else {
        EXPECT_EQ(static_cast<double>(lab.f(0)), valueOf(n.format, code)) << n.chip << " " << code;
      }
      lab.fill(1, code << 8 | 0x12340000u);
      lab.run(name("v_cvt_pk_f32_", n.bf8, "_e32 v[2:3], v1"));
      EXPECT_EQ(lab.f(2), 0.0f);
      if (!nan && !infinite) {
        EXPECT_EQ(static_cast<double>(lab.f(3)), valueOf(n.format, code));
      }
    }
  }
}

TEST(EightBit, ByteSelection) {
  for (const char* chip : {"gfx942", "gfx950", "gfx1201"}) {
    Lab lab(chip);
    bool fnuz = std::string(chip) == "gfx942", gfx12 = std::string(chip) == "gfx1201";
    std::uint32_t one = fnuz ? 0x40 : 0x38, step = 8;  // 1, 2, 4, 8 in E4M3
    lab.fill(1, one | (one + step) << 8 | (one + 2 * step) << 16 | (one + 3 * step) << 24);
    for (int byte = 0; byte < 4; ++byte) {
      std::string b = std::to_string(byte);
      lab.run(gfx12 ? "v_cvt_f32_fp8_e64 v0, v1 byte_sel:" + b : "v_cvt_f32_fp8_sdwa v0, v1 src0_sel:BYTE_" + b);
      EXPECT_EQ(lab.f(0), std::ldexp(1.0f, byte)) << chip << " " << byte;
    }
    lab.run(gfx12 ? "v_cvt_pk_f32_fp8_e64 v[2:3], v1 op_sel:[1,0]"
                  : "v_cvt_pk_f32_fp8_sdwa v[2:3], v1 src0_sel:WORD_1");
    EXPECT_EQ(lab.f(2), 4.0f) << chip;
    EXPECT_EQ(lab.f(3), 8.0f) << chip;
  }
}

TEST(EightBit, FromF32RoundsToNearestEven) {
  for (const Named& n : kEight) {
    Lab lab(n.chip);
    lab.setMode(3, true);  // MODE's rounding is not read
    std::string text = name("v_cvt_pk_", n.bf8, "_f32 v0, v1, v2");
    for (std::uint32_t code = 0; code < n.largest; ++code) {
      double low = valueOf(n.format, code), high = valueOf(n.format, code + 1), middle = (low + high) / 2;
      lab.fill(0, 0xccccddddu);
      lab.fill(1, static_cast<float>(middle)), lab.fill(2, static_cast<float>(-(middle * 3 + high) / 4));
      lab.run(text);
      std::uint32_t even = code & 1 ? code + 1 : code;
      ASSERT_EQ(lab.v(0), 0xcccc0000u | (0x80 | (code + 1)) << 8 | even) << n.chip << " " << code;
      lab.fill(1, static_cast<float>(low));
      lab.run(text + " op_sel:[0,0,1]");  // the upper word
      ASSERT_EQ(lab.v(0) >> 16 & 0xff, code);
      ASSERT_EQ(lab.v(0) & 0xff, even);
    }
  }
}

TEST(EightBit, TooLargeAndSpecial) {
  for (const Named& n : kEight) {
    Lab lab(n.chip);
    bool fnuz = std::string(n.chip) == "gfx942";
    std::string text = name("v_cvt_pk_", n.bf8, "_f32 v0, v1, v2");
    std::uint32_t nan = fnuz ? 0x80 : n.bf8 ? 0x7e : 0x7f, infinity = fnuz ? 0x80 : n.bf8 ? 0x7c : 0x7f;
    lab.fill(1, 1e6f), lab.fill(2, NAN);
    lab.run(text);
    EXPECT_EQ(lab.v(0), infinity | nan << 8) << n.chip << n.bf8;
    lab.fill(1, INFINITY), lab.fill(2, -0.0f);
    lab.run(text);
    EXPECT_EQ(lab.v(0), infinity | (fnuz ? 0u : 0x8000u)) << n.chip << n.bf8;
    // FP16_OVFL saturates.
    lab.wave.mode |= 1u << 23;
    lab.fill(1, 1e6f), lab.fill(2, -1e6f);
    lab.run(text);
    EXPECT_EQ(lab.v(0), n.largest | (n.largest | 0x80) << 8) << n.chip << n.bf8;
  }
}

// V_CVT_SR_*: the upper bits of S1 are added below the last place, then the sum is cut off.
TEST(EightBit, StochasticRounding) {
  for (const Named& n : kEight) {
    Lab lab(n.chip);
    std::uint32_t code = n.bf8 ? 0x3d : 0x39;
    double low = valueOf(n.format, code), high = valueOf(n.format, code + 1);
    auto v = static_cast<float>(low + (high - low) * 0.25);
    bool gfx12 = std::string(n.chip) == "gfx1201";
    for (int byte = 0; byte < 4; ++byte) {
      lab.fill(0, 0xeeeeeeeeu);
      lab.fill(1, v), lab.fill(2, 0xbfffffffu);  // just below three quarters: stays
      std::string text = name("v_cvt_sr_", n.bf8, "_f32 v0, v1, v2") +
                         (gfx12 ? " byte_sel:" + std::to_string(byte)
                                : " op_sel:[0,0," + std::to_string(byte & 1) + "," + std::to_string(byte >> 1) + "]");
      lab.run(text);
      EXPECT_EQ(lab.v(0), (0xeeeeeeeeu & ~(255u << (8 * byte))) | code << (8 * byte)) << text;
      lab.fill(2, 0xc0000000u);  // three quarters: up
      lab.run(text);
      EXPECT_EQ(lab.v(0) >> (8 * byte) & 255, code + 1) << text;
    }
  }
}

TEST(SixteenBit, Gfx950) {
  Lab lab("gfx950");
  lab.setMode(3, true);
  lab.fill(1, 0x3f808000u), lab.fill(2, 0x3f818000u);  // ties: to even
  lab.run("v_cvt_pk_bf16_f32 v0, v1, v2");
  EXPECT_EQ(lab.v(0), 0x3f823f80u);
  lab.fill(1, 0x3f801000u), lab.fill(2, 70000.0f);
  lab.run("v_cvt_pk_f16_f32 v0, v1, v2");
  EXPECT_EQ(lab.v(0), 0x7c003c00u);
  lab.fill(1, NAN), lab.fill(2, -INFINITY);
  lab.run("v_cvt_pk_bf16_f32 v0, v1, v2");
  EXPECT_EQ(lab.v(0), 0xff807fc0u);
  lab.fill(0, 0xaaaaaaaau), lab.fill(1, 0x3f804000u), lab.fill(2, 0xc0000000u);
  lab.run("v_cvt_sr_bf16_f32 v0, v1, v2 op_sel:[0,0,1]");  // a quarter and three quarters: up
  EXPECT_EQ(lab.v(0), 0x3f81aaaau);
  lab.fill(2, 0xbfffffffu);
  lab.run("v_cvt_sr_bf16_f32 v0, v1, v2");
  EXPECT_EQ(lab.v(0), 0x3f813f80u);
  lab.fill(1, 0x3f800800u), lab.fill(2, 0xc0000000u);  // a quarter of the last place of f16
  lab.run("v_cvt_sr_f16_f32 v0, v1, v2");
  EXPECT_EQ(lab.v(0) & 0xffff, 0x3c01u);
  lab.fill(1, 0x4000c040u);
  lab.run("v_cvt_f32_bf16_e32 v0, v1");
  EXPECT_EQ(lab.v(0), 0xc0400000u);
  lab.run("v_cvt_f32_bf16_sdwa v0, v1 src0_sel:WORD_1");
  EXPECT_EQ(lab.f(0), 2.0f);
}

// CDNA4 ISA document, V_CVT_SCALEF32_*: to a small format, S / 2^(exponent of the scale - 127); from one, times it.
TEST(Scaled, EightBit) {
  Lab lab("gfx950");
  lab.fill(1, 12.0f), lab.fill(2, -20.0f), lab.fill(3, 5.5f);  // scale: exponent 2, so 4; the fraction is not read
  lab.fill(0, 0xaaaaaaaau);
  lab.run("v_cvt_scalef32_pk_fp8_f32 v0, v1, v2, v3 op_sel:[0,0,0,1]");
  EXPECT_EQ(lab.v(0), (encode(kFp8Format, 3) | encode(kFp8Format, -5) << 8) << 16 | 0xaaaa);
  lab.run("v_cvt_scalef32_pk_bf8_f32 v0, v1, v2, v3");
  EXPECT_EQ(lab.v(0) & 0xffff, encode(kBf8Format, 3) | encode(kBf8Format, -5) << 8);
  lab.fill(1, 0xcd004a00u);  // halves 12, -20
  lab.run("v_cvt_scalef32_pk_fp8_f16 v0, v1, v3");
  EXPECT_EQ(lab.v(0) & 0xffff, encode(kFp8Format, 3) | encode(kFp8Format, -5) << 8);
  lab.fill(1, 0xc1a04140u);  // bf16 12, -20
  lab.run("v_cvt_scalef32_pk_bf8_bf16 v0, v1, v3");
  EXPECT_EQ(lab.v(0) & 0xffff, encode(kBf8Format, 3) | encode(kBf8Format, -5) << 8);
  lab.fill(0, 0xaaaaaaaau), lab.fill(1, 13.0f), lab.fill(2, 0u);
  lab.run("v_cvt_scalef32_sr_fp8_f32 v0, v1, v2, v3 op_sel:[0,0,1,0]");  // 3.25 exactly
  EXPECT_EQ(lab.v(0), 0xaaaa00aau | encode(kFp8Format, 3.25) << 8);
  // Back: byte and word by op_sel.
  lab.fill(1, encode(kFp8Format, 3) << 16 | encode(kFp8Format, -5) << 24);
  lab.run("v_cvt_scalef32_pk_f32_fp8 v[4:5], v1, v3 op_sel:[1,0,0]");
  EXPECT_EQ(lab.f(4), 12.0f);
  EXPECT_EQ(lab.f(5), -20.0f);
  lab.run("v_cvt_scalef32_f32_fp8 v0, v1, v3 op_sel:[1,1,0]");
  EXPECT_EQ(lab.f(0), -20.0f);
  lab.run("v_cvt_scalef32_pk_f16_fp8 v0, v1, v3 op_sel:[1,0,0]");
  EXPECT_EQ(lab.v(0), 0xcd004a00u);
  lab.run("v_cvt_scalef32_pk_bf16_fp8 v0, v1, v3 op_sel:[1,0,0]");
  EXPECT_EQ(lab.v(0), 0xc1a04140u);
  lab.fill(0, 0xaaaaaaaau);
  lab.run("v_cvt_scalef32_f16_fp8 v0, v1, v3 op_sel:[0,1,1]");  // byte 2, upper half
  EXPECT_EQ(lab.v(0), 0x4a00aaaau);
  lab.fill(3, 0x7f800000u);  // exponent 255
  lab.run("v_cvt_scalef32_f32_fp8 v0, v1, v3");
  EXPECT_NE(lab.f(0), lab.f(0));
}

TEST(Scaled, FourBit) {
  Lab lab("gfx950");
  lab.fill(0, 0xaaaaaaaau), lab.fill(1, 3.0f), lab.fill(2, -100.0f), lab.fill(3, 0.5f);  // 6 and, saturated, -6
  lab.run("v_cvt_scalef32_pk_fp4_f32 v0, v1, v2, v3 op_sel:[0,0,1,1]");
  EXPECT_EQ(lab.v(0), 0xf7aaaaaau);
  lab.run("v_cvt_scalef32_pk_f32_fp4 v[4:5], v0, v3 op_sel:[1,1,0]");
  EXPECT_EQ(lab.f(4), 3.0f);
  EXPECT_EQ(lab.f(5), -3.0f);
  lab.run("v_cvt_scalef32_pk_f16_fp4 v6, v0, v3 op_sel:[1,1,0]");
  EXPECT_EQ(lab.v(6), 0xc2004200u);
  lab.run("v_cvt_scalef32_pk_bf16_fp4 v6, v0, v3 op_sel:[1,1,0]");
  EXPECT_EQ(lab.v(6), 0xc0404040u);
  lab.fill(1, 0xc2004200u);
  lab.run("v_cvt_scalef32_pk_fp4_f16 v0, v1, v3");
  EXPECT_EQ(lab.v(0), 0xf7aaaaf7u);
  // Stochastic, two values: the second uses the next random word (V_PRNG_B32). 2.25 of 0.5 + 2.5: halfway to 3 and 5
  // / 4.
  lab.fill(4, 1.25f), lab.fill(5, 1.25f), lab.fill(3, 1.0f), lab.fill(2, 0x80000000u);
  // 1.25 is 1 and half a place: 0x80000000 rounds up to 1.5, its successor 0xc5 does not.
  lab.run("v_cvt_scalef32_sr_pk_fp4_f32 v0, v[4:5], v2, v3");
  EXPECT_EQ(lab.v(0) & 0xff, 0x23u);
}

TEST(Scaled, ThirtyTwoOfSixBits) {
  Lab lab("gfx950");
  for (const char* type : {"fp6", "bf6"}) {
    const Format& f = type[0] == 'f' ? kFp6Format : kBf6Format;
    std::vector<double> values(32);
    for (int i = 0; i < 32; ++i)
      values[static_cast<std::size_t>(i)] = valueOf(f, static_cast<std::uint32_t>(i * 2 + i / 16) & 63);
    auto code = [&](int i) {
      std::uint32_t c = 0;
      for (int b = 0; b < 6; ++b) c |= (lab.v(100 + (6 * i + b) / 32) >> ((6 * i + b) & 31) & 1) << b;
      return c;
    };
    auto same = [&](int i) {
      double v = values[static_cast<std::size_t>(i)];
      return v == 0 ? (code(i) & 31) == 0 : code(i) == encode(f, v);
    };
    lab.fill(3, 8.0f), lab.fill(99, 0u);
    // 2xpk16 interleaves its two sources.
    for (int i = 0; i < 32; ++i)
      lab.fill((i & 1 ? 36 : 20) + i / 2, static_cast<float>(values[static_cast<std::size_t>(i)] * 8));
    lab.run(std::string("v_cvt_scalef32_2xpk16_") + type + "_f32 v[100:105], v[20:35], v[36:51], v3");
    for (int i = 0; i < 32; ++i) EXPECT_TRUE(same(i)) << type << " " << i;
    for (int i = 0; i < 32; ++i) lab.fill(20 + i, static_cast<float>(values[static_cast<std::size_t>(i)] * 8));
    lab.run(std::string("v_cvt_scalef32_sr_pk32_") + type + "_f32 v[100:105], v[20:51], v99, v3");
    for (int i = 0; i < 32; ++i) EXPECT_TRUE(same(i)) << type << " sr " << i;
    lab.run(std::string("v_cvt_scalef32_pk32_f32_") + type + " v[60:91], v[100:105], v3");
    for (int i = 0; i < 32; ++i)
      EXPECT_EQ(static_cast<double>(lab.f(60 + i)), values[static_cast<std::size_t>(i)] * 8) << type << " " << i;
    lab.run(std::string("v_cvt_scalef32_pk32_f16_") + type + " v[60:75], v[100:105], v3");
    lab.run(std::string("v_cvt_scalef32_pk32_") + type + "_f16 v[100:105], v[60:75], v3");
    for (int i = 0; i < 32; ++i) EXPECT_TRUE(same(i)) << type << " f16 " << i;
    lab.run(std::string("v_cvt_scalef32_pk32_bf16_") + type + " v[60:75], v[100:105], v3");
    lab.run(std::string("v_cvt_scalef32_sr_pk32_") + type + "_bf16 v[100:105], v[60:75], v99, v3");
    for (int i = 0; i < 32; ++i) EXPECT_TRUE(same(i)) << type << " bf16 " << i;
  }
}

TEST(Scaled, PseudoRandom) {
  Lab lab("gfx950");
  lab.fill(1, 0x80000001u), lab.fill(2, 0x40000001u);
  lab.run("v_prng_b32_e32 v0, v1\nv_prng_b32_e32 v3, v2");
  EXPECT_EQ(lab.v(0), 2u ^ 197u);
  EXPECT_EQ(lab.v(3), 0x80000002u);
}

// The library's encoder against a search for the nearest number, ties to the even code.
TEST(SmallFloats, EncoderAgainstSearch) {
  struct Pair {
    SmallFormat library;
    Format test;
    std::uint32_t largest;
  };
  const Pair pairs[] = {{sardonyx::sim::kFp8, kFp8Format, 0x7e},
                        {sardonyx::sim::kBf8, kBf8Format, 0x7b},
                        {sardonyx::sim::kFp8Fnuz, kFp8FnuzFormat, 0x7f},
                        {sardonyx::sim::kBf8Fnuz, kBf8FnuzFormat, 0x7f},
                        {sardonyx::sim::kFp6, kFp6Format, 0x1f},
                        {sardonyx::sim::kBf6, kBf6Format, 0x1f},
                        {sardonyx::sim::kFp4, kFp4Format, 7}};
  Numbers numbers{3};
  for (const Pair& p : pairs)
    for (int n = 0; n < 3000; ++n) {
      auto v = static_cast<double>(std::bit_cast<float>((numbers.next() & 0x07ffffff) | 0x3a000000u));
      if (v > valueOf(p.test, p.largest)) continue;
      std::uint32_t best = 0;
      for (std::uint32_t c = 1; c <= p.largest; ++c) {
        double d = std::fabs(valueOf(p.test, c) - v), e = std::fabs(valueOf(p.test, best) - v);
        if (d < e || (d == e && !(c & 1))) best = c;
      }
      ASSERT_EQ(encodeSmall(p.library, v, Overflow::kSaturate), best) << p.test.name << " " << v;
    }
}

}  // namespace
