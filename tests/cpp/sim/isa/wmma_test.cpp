// V_WMMA_* and V_SWMMAC_*: layouts for both wave sizes against the formulas of AMD's "Matrix Instruction Calculator"
// (RDNA3, RDNA4) and the ISA documents' "Wave Matrix Multiply Accumulate"; signs, modifiers, clamp, numerics.
#include <cmath>

#include "matrix_reference.h"

namespace {

struct Case {
  const char* chip;
  int wave;
  const char* name;
  int k;
  Format a, b;
  const char* out;
  bool sparse;
};
void PrintTo(const Case& c, std::ostream* os) { *os << c.chip << " wave" << c.wave << " " << c.name; }

std::vector<Case> cases() {
  std::vector<Case> out;
  for (int wave : {32, 64}) {
    for (const char* chip : {"gfx1100", "gfx1201"})
      for (const Case& c : std::initializer_list<Case>{
               {chip, wave, "v_wmma_f32_16x16x16_f16", 16, kF16Format, kF16Format, "f32", false},
               {chip, wave, "v_wmma_f32_16x16x16_bf16", 16, kBf16Format, kBf16Format, "f32", false},
               {chip, wave, "v_wmma_f16_16x16x16_f16", 16, kF16Format, kF16Format, "f16", false},
               {chip, wave, "v_wmma_bf16_16x16x16_bf16", 16, kBf16Format, kBf16Format, "bf16", false},
               {chip, wave, "v_wmma_i32_16x16x16_iu8", 16, kI8Format, kU8Format, "i32", false},
               {chip, wave, "v_wmma_i32_16x16x16_iu4", 16, kU4Format, kI4Format, "i32", false}})
        out.push_back(c);
    const char* chip = "gfx1201";
    for (const Case& c : std::initializer_list<Case>{
             {chip, wave, "v_wmma_i32_16x16x32_iu4", 32, kI4Format, kI4Format, "i32", false},
             {chip, wave, "v_wmma_f32_16x16x16_fp8_fp8", 16, kFp8Format, kFp8Format, "f32", false},
             {chip, wave, "v_wmma_f32_16x16x16_fp8_bf8", 16, kFp8Format, kBf8Format, "f32", false},
             {chip, wave, "v_wmma_f32_16x16x16_bf8_fp8", 16, kBf8Format, kFp8Format, "f32", false},
             {chip, wave, "v_wmma_f32_16x16x16_bf8_bf8", 16, kBf8Format, kBf8Format, "f32", false},
             {chip, wave, "v_swmmac_f32_16x16x32_f16", 32, kF16Format, kF16Format, "f32", true},
             {chip, wave, "v_swmmac_f32_16x16x32_bf16", 32, kBf16Format, kBf16Format, "f32", true},
             {chip, wave, "v_swmmac_f16_16x16x32_f16", 32, kF16Format, kF16Format, "f16", true},
             {chip, wave, "v_swmmac_bf16_16x16x32_bf16", 32, kBf16Format, kBf16Format, "bf16", true},
             {chip, wave, "v_swmmac_i32_16x16x32_iu8", 32, kU8Format, kI8Format, "i32", true},
             {chip, wave, "v_swmmac_i32_16x16x32_iu4", 32, kI4Format, kU4Format, "i32", true},
             {chip, wave, "v_swmmac_i32_16x16x64_iu4", 64, kI4Format, kI4Format, "i32", true},
             {chip, wave, "v_swmmac_f32_16x16x32_fp8_fp8", 32, kFp8Format, kFp8Format, "f32", true},
             {chip, wave, "v_swmmac_f32_16x16x32_fp8_bf8", 32, kFp8Format, kBf8Format, "f32", true},
             {chip, wave, "v_swmmac_f32_16x16x32_bf8_fp8", 32, kBf8Format, kFp8Format, "f32", true},
             {chip, wave, "v_swmmac_f32_16x16x32_bf8_bf8", 32, kBf8Format, kBf8Format, "f32", true}})
      out.push_back(c);
  }
  return out;
}

/// Where A[i][k] lies on gfx12, as the calculator states it: register and first bit, lane.
struct Place {
  int reg, bit, lane;
};
Place gfx12A(int bits, int k, bool w32, int row, int kk) {
  if (bits == 16)
    return w32 ? Place{2 * (kk / 8) + kk / 2 % 2, 16 * (kk % 2), 16 * (kk / 4 % 2) + row}
               : Place{kk / 2 % 2, 16 * (kk % 2), 32 * (kk / 8 % 2) + 16 * (kk / 4 % 2) + row};
  if (bits == 8)
    return w32 ? Place{kk / 4 % 2, 8 * (kk % 4), 16 * (kk / 8) + row}
               : Place{0, 8 * (kk % 4), 32 * (kk / 4 % 2) + 16 * (kk / 8 % 2) + row};
  if (k == 16) return {0, 4 * (kk % 8), 16 * (kk / 8) + row};
  return w32 ? Place{kk / 8 % 2, 4 * (kk % 8), 16 * (kk / 16) + row}
             : Place{0, 4 * (kk % 8), 32 * (kk / 8 % 2) + 16 * (kk / 16 % 2) + row};
}
Place gfx12SparseB(int bits, int k, bool w32, int column, int kk) {
  if (bits == 16)
    return w32 ? Place{4 * (kk / 16) + kk / 2 % 4, 16 * (kk % 2), 16 * (kk / 8 % 2) + column}
               : Place{kk / 2 % 4, 16 * (kk % 2), 16 * (kk / 8) + column};
  if (bits == 8)
    return w32 ? Place{kk / 4 % 4, 8 * (kk % 4), 16 * (kk / 16) + column}
               : Place{kk / 4 % 2, 8 * (kk % 4), 32 * (kk / 8 % 2) + 16 * (kk / 16) + column};
  if (k == 32)
    return w32 ? Place{kk / 8 % 2, 4 * (kk % 8), 16 * (kk / 16) + column}
               : Place{0, 4 * (kk % 8), 32 * (kk / 8 % 2) + 16 * (kk / 16) + column};
  return w32 ? Place{kk / 8 % 4, 4 * (kk % 8), 16 * (kk / 32) + column}
             : Place{kk / 8 % 2, 4 * (kk % 8), 32 * (kk / 16 % 2) + 16 * (kk / 32) + column};
}
/// The pair stored for K four, and the bits of its indices in the first set.
Place gfx12SparseA(int bits, int k, bool w32, int row, int kk, int& indexBit) {
  if (bits == 16) {
    indexBit = w32 ? 8 * (kk / 16) + 4 * (kk / 4 % 2) : 4 * (kk / 4 % 2);
    return w32 ? Place{2 * (kk / 16) + kk / 4 % 2, 0, 16 * (kk / 8 % 2) + row}
               : Place{kk / 4 % 2, 0, 16 * (kk / 8) + row};
  }
  if (bits == 8) {
    indexBit = w32 ? 4 * (kk / 4 % 4) : 4 * (kk / 4 % 2);
    return w32 ? Place{kk / 8 % 2, 16 * (kk / 4 % 2), 16 * (kk / 16) + row}
               : Place{0, 16 * (kk / 4 % 2), 32 * (kk / 8 % 2) + 16 * (kk / 16) + row};
  }
  if (k == 32) {
    indexBit = 4 * (kk / 4 % 4);
    return {0, 8 * (kk / 4 % 4), 16 * (kk / 16) + row};
  }
  indexBit = w32 ? 4 * (kk / 4 % 8) : 4 * (kk / 4 % 4);
  return w32 ? Place{kk / 16 % 2, 8 * (kk / 4 % 4), 16 * (kk / 32) + row}
             : Place{0, 8 * (kk / 4 % 4), 32 * (kk / 16 % 2) + 16 * (kk / 32) + row};
}

void putBits(Lab& lab, int reg, const Place& p, int bits, std::uint32_t code) {
  std::uint32_t mask = (1u << bits) - 1;
  std::uint32_t& word = lab.v(reg + p.reg, p.lane);
  word = (word & ~(mask << p.bit)) | code << p.bit;
}

class Wmma : public testing::TestWithParam<Case> {
 protected:
  const Case& c = GetParam();
  bool old = std::string(c.chip) == "gfx1100", w32 = c.wave == 32;
  bool half = std::string(c.out) == "f16" || std::string(c.out) == "bf16", integer = std::string(c.out) == "i32";
  Format outFormat = std::string(c.out) == "f16" ? kF16Format : std::string(c.out) == "bf16" ? kBf16Format : kF32Format;

  Place placeOfD(int i, int j, bool high) const {
    if (old) {
      int groups = c.wave / 16;
      return {i / groups, half && high ? 16 : 0, 16 * (i % groups) + j};
    }
    int r = w32 ? i % 8 : i % 4, lane = w32 ? 16 * (i / 8) + j : 32 * (i / 4 % 2) + 16 * (i / 8) + j;
    return half ? Place{r / 2, 16 * (r % 2), lane} : Place{r, 0, lane};
  }
  int registersD() const { return (old || !half ? 256 : 128) / c.wave; }
  int registers(const Format& f, int k) const {
    return std::max(1, old ? k * f.bits / 32 : k * 16 / c.wave * f.bits / 32);
  }
  double decode(std::uint32_t code) const {
    if (integer) return static_cast<double>(static_cast<std::int32_t>(code));
    if (!half) return static_cast<double>(std::bit_cast<float>(code));
    int e = static_cast<int>(code >> outFormat.fractionBits & ((1u << outFormat.exponentBits) - 1));
    double m = code & ((1u << outFormat.fractionBits) - 1);
    double v = e ? std::ldexp(1 + std::ldexp(m, -outFormat.fractionBits), e - outFormat.bias)
                 : std::ldexp(m, 1 - outFormat.bias - outFormat.fractionBits);
    return code >> 15 ? -v : v;
  }
  /// Numbers small enough that every result is exact in the type of D.
  double number(const Format& f, std::uint32_t r) const {
    if (!half) return pick(f, r);
    static const double values[] = {0, 1, -1, 0.5, -0.5, 1, -1, 0};
    return values[r >> 8 & 7];
  }
};
INSTANTIATE_TEST_SUITE_P(All, Wmma, testing::ValuesIn(cases()), [](const auto& info) {
  return std::string(info.param.chip) + "_w" + std::to_string(info.param.wave) + "_" + (info.param.name + 2);
});

TEST_P(Wmma, Product) {
  int held = c.sparse ? (c.a.bits == 4 && c.k == 32 ? 8 : c.k * 8 / c.wave) : 0;
  int sets = c.sparse ? 32 / (2 * held) : old && half ? 2 : 1;
  for (int set = 0; set < sets; ++set) {
    Lab lab(c.chip, c.wave);
    Numbers numbers{5u + static_cast<std::uint32_t>(set)};
    std::vector<double> a(static_cast<std::size_t>(16 * c.k)), b(a), d(256);
    for (int r = 60; r < 80; ++r)
      for (int l = 0; l < c.wave; ++l) lab.v(r, l) = numbers.next();
    for (int i = 0; i < 16; ++i)
      for (int k = 0; k < c.k; ++k) {
        double vb = b[static_cast<std::size_t>(k * 16 + i)] = number(c.b, numbers.next());
        if (old) {
          for (int g = 0; g < c.wave / 16; ++g) putElement(lab, 34, 16 * g + i, k, c.b.bits, encode(c.b, vb));
        } else {
          putBits(lab, 34, c.sparse ? gfx12SparseB(c.b.bits, c.k, w32, i, k) : gfx12A(c.b.bits, c.k, w32, i, k),
                  c.b.bits, encode(c.b, vb));
        }
        if (c.sparse) continue;
        double va = a[static_cast<std::size_t>(i * c.k + k)] = number(c.a, numbers.next());
        if (old) {
          for (int g = 0; g < c.wave / 16; ++g) putElement(lab, 2, 16 * g + i, k, c.a.bits, encode(c.a, va));
        } else {
          putBits(lab, 2, gfx12A(c.a.bits, c.k, w32, i, k), c.a.bits, encode(c.a, va));
        }
      }
    if (c.sparse) {
      for (int l = 0; l < c.wave; ++l) lab.v(200, l) = numbers.next();
      for (int i = 0; i < 16; ++i)
        for (int four = 0; four < c.k; four += 4) {
          int first = static_cast<int>(numbers.next() >> 8) % 3,
              second = first + 1 + static_cast<int>(numbers.next() >> 8) % (3 - first);
          int indexBit = 0;
          Place p = gfx12SparseA(c.a.bits, c.k, w32, i, four, indexBit);
          indexBit += set * 2 * held;
          for (int which = 0; which < 2; ++which) {
            int position = which ? second : first;
            double v = a[static_cast<std::size_t>(i * c.k + four + position)] = number(c.a, numbers.next());
            Place q = p;
            q.bit += which * c.a.bits;
            putBits(lab, 2, q, c.a.bits, encode(c.a, v));
          }
          std::uint32_t& word = lab.v(200, p.lane);
          word = (word & ~(15u << indexBit)) | static_cast<std::uint32_t>(first | second << 2) << indexBit;
        }
    }
    bool high = old && half && set == 1;
    for (int i = 0; i < 16; ++i)
      for (int j = 0; j < 16; ++j) {
        double v = d[static_cast<std::size_t>(i * 16 + j)] = static_cast<double>(numbers.next() % 16) - 8;
        Place p = placeOfD(i, j, high);
        std::uint32_t code = integer ? static_cast<std::uint32_t>(static_cast<int>(v)) : encode(outFormat, v);
        std::uint32_t& word = lab.v(64 + p.reg, p.lane);
        word = half ? (word & ~(0xffffu << p.bit)) | code << p.bit : code;
      }
    std::vector<std::uint32_t> before(8 * 64);
    for (int r = 0; r < registersD(); ++r)
      for (int l = 0; l < c.wave; ++l) before[static_cast<std::size_t>(r * 64 + l)] = lab.v(64 + r, l);
    std::string text = std::string(c.name) + " " + regs("v", 64, registersD()) + ", " +
                       regs("v", 2,
                            registers(c.a, c.sparse && !(c.a.bits == 4 && c.k == 32) ? c.k / 2
                                           : c.sparse                                ? 16
                                                                                     : c.k)) +
                       ", " + regs("v", 34, registers(c.b, c.k)) + ", " +
                       (c.sparse ? "v200" : regs("v", 64, registersD()));
    if (high) text += " op_sel:[0,0,1]";
    if (c.sparse && set) text += " index_key:" + std::to_string(set);
    if (integer && (c.a.isSigned || c.b.isSigned))
      text += std::string(" neg_lo:[") + (c.a.isSigned ? "1" : "0") + "," + (c.b.isSigned ? "1" : "0") + ",0]";
    lab.setExec(1);  // EXEC is ignored
    lab.run(text);
    for (int i = 0; i < 16; ++i)
      for (int j = 0; j < 16; ++j) {
        double want = d[static_cast<std::size_t>(i * 16 + j)];
        for (int k = 0; k < c.k; ++k)
          want += a[static_cast<std::size_t>(i * c.k + k)] * b[static_cast<std::size_t>(k * 16 + j)];
        Place p = placeOfD(i, j, high);
        std::uint32_t word = lab.v(64 + p.reg, p.lane);
        ASSERT_EQ(decode(half ? word >> p.bit & 0xffff : word), want)
            << "set " << set << " row " << i << " column " << j;
        if (old && half) {
          ASSERT_EQ(word >> (16 - p.bit) & 0xffff,
                    before[static_cast<std::size_t>(p.reg * 64 + p.lane)] >> (16 - p.bit) & 0xffff);
        }
      }
  }
}

std::string operands(const char* chip, int wave, const char* out, int bits) {
  bool old = std::string(chip) == "gfx1100", half = std::string(out) == "f16" || std::string(out) == "bf16";
  int n = old ? bits / 2 : 8 * bits / wave, d = (old || !half ? 256 : 128) / wave;
  return regs("v", 64, d) + ", " + regs("v", 2, n) + ", " + regs("v", 34, n) + ", " + regs("v", 80, d);
}

// ISA documents, "VOP3P": NEG_LO and NEG_HI negate the low and the high halves of A and B; of C, NEG_LO negates and
// NEG_HI takes the absolute value.
TEST(WmmaModifiers, Negation) {
  for (const char* chip : {"gfx1100", "gfx1201"})
    for (int wave : {32, 64})
      for (int bits = 0; bits < 64; ++bits) {
        Lab lab(chip, wave);
        for (int r = 0; r < 8; ++r) {
          lab.fill(2 + r, 0x40003c00u);   // even k: 1, odd k: 2
          lab.fill(34 + r, 0x44004200u);  // even k: 3, odd k: 4
          lab.fill(80 + r, -5.0f);
        }
        int lo = bits & 7, hi = bits >> 3;
        auto list = [](int v) {
          return "[" + std::to_string(v & 1) + "," + std::to_string(v >> 1 & 1) + "," + std::to_string(v >> 2) + "]";
        };
        lab.run("v_wmma_f32_16x16x16_f16 " + operands(chip, wave, "f32", 16) + " neg_lo:" + list(lo) +
                " neg_hi:" + list(hi));
        double even = (lo & 1 ? -1 : 1) * (lo & 2 ? -3 : 3), odd = (hi & 1 ? -2 : 2) * (hi & 2 ? -4 : 4);
        double c = hi & 4 ? 5 : -5;
        if (lo & 4) c = -c;
        ASSERT_EQ(lab.f(64, 7), 8 * even + 8 * odd + c) << chip << " wave" << wave << " " << lo << " " << hi;
      }
}

// ISA documents, V_WMMA_I32_16X16X16_IU8: CLAMP saturates to the range of a signed integer.
TEST(WmmaModifiers, IntegerClamp) {
  for (const char* chip : {"gfx1100", "gfx1201"}) {
    Lab lab(chip);
    for (int r = 0; r < 4; ++r) lab.fill(2 + r, ~0u), lab.fill(34 + r, ~0u);  // 255 * 255 * 16 = 1040400
    for (int r = 0; r < 8; ++r) lab.fill(80 + r, 0x7ffffff0u);
    std::string text = "v_wmma_i32_16x16x16_iu8 " + operands(chip, 32, "i32", 8);
    lab.run(text);
    EXPECT_EQ(lab.v(64), 0x7ffffff0u + 1040400u);
    lab.run(text + " clamp");
    EXPECT_EQ(lab.v(64), 0x7fffffffu);
    for (int r = 0; r < 8; ++r) lab.fill(80 + r, 0x80000001u);
    lab.run(text + " neg_lo:[1,0,0] clamp");  // A is -1
    EXPECT_EQ(lab.v(64), 0x80000000u);
  }
}

// RDNA3 ISA document, "Wave Matrix Multiply Accumulate": A and B are repeated in the other halves of the wave.
TEST(WmmaChecks, Gfx11OperandsAreRepeated) {
  Lab lab("gfx1100");
  lab.v(2, 17) = 1;
  EXPECT_NE(lab.fault("v_wmma_f32_16x16x16_f16 " + operands("gfx1100", 32, "f32", 16)).find("repeat"),
            std::string::npos);
}

// The choice that matrix.h documents: one rounding, to the type of D.
TEST(WmmaNumerics, OneRounding) {
  for (const char* chip : {"gfx1100", "gfx1201"}) {
    Lab lab(chip);
    // Every product is 1; C = 2048: 2064 in f16 is exact only without rounding 2048 + 1 in between (f16 has steps of 2
    // there).
    for (int r = 0; r < 8; ++r)
      lab.fill(2 + r, 0x3c003c00u), lab.fill(34 + r, 0x3c003c00u), lab.fill(80 + r, 0x68006800u);
    lab.run("v_wmma_f16_16x16x16_f16 " + operands(chip, 32, "f16", 16));
    EXPECT_EQ(lab.v(64) & 0xffff, 0x6808u) << chip;
    // bf16: 256 + 16 = 272 with steps of 2 from 256 on.
    for (int r = 0; r < 8; ++r)
      lab.fill(2 + r, 0x3f803f80u), lab.fill(34 + r, 0x3f803f80u), lab.fill(80 + r, 0x43804380u);
    lab.run("v_wmma_bf16_16x16x16_bf16 " + operands(chip, 32, "bf16", 16));
    EXPECT_EQ(lab.v(64) & 0xffff, 0x4388u) << chip;
  }
}

TEST(WmmaNumerics, SpecialValues) {
  for (const char* chip : {"gfx1100", "gfx1201"}) {
    Lab lab(chip);
    for (int r = 0; r < 8; ++r) lab.fill(2 + r, 0x00010001u), lab.fill(34 + r, 0x3c003c00u), lab.fill(80 + r, 0u);
    lab.run("v_wmma_f32_16x16x16_f16 " + operands(chip, 32, "f32", 16));
    EXPECT_EQ(lab.f(64), 0x1p-20f) << chip;  // denormal inputs are kept
    lab.fill(2, 0x7c007c00u);
    lab.run("v_wmma_f32_16x16x16_f16 " + operands(chip, 32, "f32", 16));
    EXPECT_EQ(lab.v(64), 0x7f800000u) << chip;
    lab.fill(2, 0xfc007c00u);
    lab.run("v_wmma_f16_16x16x16_f16 " + operands(chip, 32, "f16", 16));
    EXPECT_EQ(lab.v(64) & 0xffff, 0x7e00u) << chip;
  }
}

}  // namespace
