// V_MFMA_*_F8F6F4 and V_MFMA_SCALE_* of gfx950: every pair of types, every choice of the scales' bytes.
#include <cmath>

#include "matrix_reference.h"

namespace {

// CDNA4 ISA document, V_MFMA_*_F8F6F4: CBSZ and BLGP name the types; 8-bit types in two runs of 16 K elements, the
// others in one of
// 32. Scales: E8M0, row i and 32 K elements of block b in lane i + m * b, the byte chosen by op_sel and op_sel_hi.
TEST(MfmaF8f6f4, AllTypesAndScales) {
  const Format types[] = {kFp8Format, kBf8Format, kFp6Format, kBf6Format, kFp4Format};
  for (int m : {16, 32})
    for (int ta = 0; ta < 5; ++ta)
      for (int tb = 0; tb < 5; ++tb)
        for (int byte = -1; byte < 4; ++byte) {
          if (byte >= 0 && ta != tb && (ta + tb) % 3) continue;  // scales with some of the mixed types
          Lab lab("gfx950");
          Numbers numbers{static_cast<std::uint32_t>(1000 * m + ta * 100 + tb * 10 + byte + 2)};
          int k = m == 16 ? 128 : 64, blocks = k / 32;
          auto where = [&](const Format& f, int kk, int& lane, int& element) {
            if (f.bits == 8) {
              lane = kk % (k / 2) / 16, element = kk / (k / 2) * 16 + kk % 16;
            } else {
              lane = kk / 32, element = kk % 32;
            }
            lane *= m;
          };
          std::vector<double> a(static_cast<std::size_t>(m * k)), b(a), sa(static_cast<std::size_t>(m * blocks)),
              sb(sa);
          for (int i = 0; i < m; ++i)
            for (int kk = 0; kk < k; ++kk) {
              int lane, element;
              where(types[ta], kk, lane, element);
              double v = a[static_cast<std::size_t>(i * k + kk)] = pick(types[ta], numbers.next());
              putElement(lab, kA, lane + i, element, types[ta].bits, encode(types[ta], v));
              where(types[tb], kk, lane, element);
              v = b[static_cast<std::size_t>(kk * m + i)] = pick(types[tb], numbers.next());
              putElement(lab, kB, lane + i, element, types[tb].bits, encode(types[tb], v));
            }
          std::string text = "v[128:" + std::to_string(127 + m * m / 64) + "], " + regs("v", kA, types[ta].bits) +
                             ", " + regs("v", kB, types[tb].bits) + ", 1.0";
          std::string name = m == 16 ? "f32_16x16x128_f8f6f4 " : "f32_32x32x64_f8f6f4 ";
          std::string tail = " cbsz:" + std::to_string(ta) + " blgp:" + std::to_string(tb);
          if (byte < 0) {
            std::fill(sa.begin(), sa.end(), 1), std::fill(sb.begin(), sb.end(), 1);
            lab.run("v_mfma_" + name + text + tail);
          } else {
            int other = 3 - byte;
            for (int l = 0; l < 64; ++l) {
              int ea = static_cast<int>(numbers.next() >> 8) % 5 - 2,
                  eb = static_cast<int>(numbers.next() >> 8) % 5 - 2;
              lab.v(200, l) = (numbers.next() & ~(255u << (8 * byte))) | static_cast<std::uint32_t>(ea + 127)
                                                                             << (8 * byte);
              lab.v(201, l) = (numbers.next() & ~(255u << (8 * other))) | static_cast<std::uint32_t>(eb + 127)
                                                                              << (8 * other);
              sa[static_cast<std::size_t>(l)] = std::ldexp(1, ea), sb[static_cast<std::size_t>(l)] = std::ldexp(1, eb);
            }
            lab.run("v_mfma_scale_" + name + text + ", v200, v201 op_sel:[" + std::to_string(byte & 1) + "," +
                    std::to_string(other & 1) + ",0] op_sel_hi:[" + std::to_string(byte >> 1) + "," +
                    std::to_string(other >> 1) + ",0]" + tail);
          }
          for (int i = 0; i < m; ++i)
            for (int j = 0; j < m; ++j) {
              double want = 1;
              for (int kk = 0; kk < k; ++kk)
                want += a[static_cast<std::size_t>(i * k + kk)] * b[static_cast<std::size_t>(kk * m + j)] *
                        sa[static_cast<std::size_t>(i + m * (kk / 32))] *
                        sb[static_cast<std::size_t>(j + m * (kk / 32))];
              int reg = m == 32 ? 4 * (i / 8) + i % 4 : i % 4,
                  lane = m == 32 ? (32 * (i / 4)) % 64 + j : 16 * (i / 4) + j;
              ASSERT_EQ(static_cast<double>(lab.f(128 + reg, lane)), want)
                  << m << " types " << ta << " " << tb << " byte " << byte << " row " << i << " column " << j;
            }
        }
}

TEST(MfmaF8f6f4, ScaleOf255IsNan) {
  Lab lab("gfx950");
  for (int r = 0; r < 4; ++r) lab.fill(kA + r, 0x22222222u), lab.fill(kB + r, 0x22222222u);  // 1.0 in E2M1
  lab.fill(200, 127u), lab.fill(201, 127u);
  lab.v(200, 3) = 255;  // row 3, k below 32
  lab.run(
      "v_mfma_scale_f32_16x16x128_f8f6f4 v[128:131], v[2:5], v[34:37], 0, v200, v201 op_sel_hi:[0,0,0] cbsz:4 blgp:4");
  for (int j = 0; j < 16; ++j) {
    EXPECT_EQ(lab.v(131, j), 0x7fc00000u);
    EXPECT_EQ(lab.f(130, j), 128.0f);
  }
}

}  // namespace
