// Dot products: CDNA3, CDNA4, RDNA3 and RDNA4 ISA documents, "VOP3P" (V_DOT2_F32_F16 and its relatives) and "VOP2"
// (V_DOT2C_*). Values are worked out in the comments.
#include "lab.h"

namespace {

// (1, 2) . (3, 4) + 5 = 16
TEST(Dot2, HalfToFloat) {
  for (const char* chip : kChips) {
    Lab lab(chip);
    lab.fill(1, 0x40003c00u), lab.fill(2, 0x44004200u), lab.fill(3, 5.0f);
    lab.setExec(~1ull);
    lab.run("v_dot2_f32_f16 v0, v1, v2, v3");
    EXPECT_EQ(lab.f(0, 1), 16.0f) << chip;
    EXPECT_EQ(lab.v(0, 0), 0u) << chip;  // off
    // op_sel swaps the halves of S0: (2, 1) . (3, 4) = 10; neg_lo and neg_hi of S1: -3 and -4.
    // gfx942 and gfx950 take no op_sel here.
    if (std::string(chip) != "gfx942" && std::string(chip) != "gfx950") {
      lab.run("v_dot2_f32_f16 v0, v1, v2, v3 op_sel:[1,0,0] op_sel_hi:[0,1,1]");
      EXPECT_EQ(lab.f(0, 1), 15.0f) << chip;
    }
    lab.run("v_dot2_f32_f16 v0, v1, v2, v3 neg_lo:[0,1,0]");  // -3 + 8 + 5
    EXPECT_EQ(lab.f(0, 1), 10.0f) << chip;
    lab.run("v_dot2_f32_f16 v0, v1, v2, v3 neg_hi:[0,1,0]");  // 3 - 8 + 5
    EXPECT_EQ(lab.f(0, 1), 0.0f) << chip;
    lab.run("v_dot2_f32_f16 v0, v1, v2, v3 neg_lo:[0,0,1]");  // 11 - 5
    EXPECT_EQ(lab.f(0, 1), 6.0f) << chip;
    lab.run("v_dot2_f32_f16 v0, v1, v2, v3 clamp");
    EXPECT_EQ(lab.f(0, 1), 1.0f) << chip;
  }
}

TEST(Dot2, SpecialValuesAndDenormals) {
  for (const char* chip : kChips) {
    Lab lab(chip);
    lab.fill(1, 0x7c003c00u), lab.fill(2, 0x3c003c00u), lab.fill(3, 0.0f);  // infinity
    lab.run("v_dot2_f32_f16 v0, v1, v2, v3");
    EXPECT_EQ(lab.v(0), 0x7f800000u) << chip;
    lab.fill(3, 0xff800000u);  // infinity - infinity
    lab.run("v_dot2_f32_f16 v0, v1, v2, v3");
    EXPECT_EQ(lab.v(0), 0x7fc00000u) << chip;
    // 2^-24 * 2^10: the denormal counts unless MODE flushes it.
    lab.fill(1, 0x00000001u), lab.fill(2, 0x00006400u), lab.fill(3, 0.0f);
    lab.run("v_dot2_f32_f16 v0, v1, v2, v3");
    EXPECT_EQ(lab.f(0), 0x1p-14f) << chip;
    lab.setMode(0, false);
    lab.run("v_dot2_f32_f16 v0, v1, v2, v3");
    EXPECT_EQ(lab.f(0), 0.0f) << chip;
  }
}

TEST(Dot2, Bfloat16ToFloat) {
  for (const char* chip : {"gfx950", "gfx1100", "gfx1201"}) {
    Lab lab(chip);
    lab.fill(1, 0x40003f80u), lab.fill(2, 0x40804040u), lab.fill(3, 5.0f);  // (1, 2) . (3, 4) + 5
    lab.run("v_dot2_f32_bf16 v0, v1, v2, v3");
    EXPECT_EQ(lab.f(0), 16.0f) << chip;
    lab.run("v_dot2_f32_bf16 v0, v1, v2, v3 neg_lo:[1,0,0] neg_hi:[0,1,0]");  // -3 - 8 + 5
    EXPECT_EQ(lab.f(0), -6.0f) << chip;
  }
}

TEST(Dot2, SixteenBitResults) {
  for (const char* chip : {"gfx1100", "gfx1201"}) {
    Lab lab(chip);
    lab.fill(1, 0x40003c00u), lab.fill(2, 0x44004200u), lab.fill(3, 0x45004600u),
        lab.fill(0, 0xaaaabbbbu);  // + 6 or + 5
    lab.run("v_dot2_f16_f16 v0, v1, v2, v3");
    EXPECT_EQ(lab.v(0), 0xaaaa4c40u) << chip;  // 17
    lab.run("v_dot2_f16_f16 v0, v1, v2, v3 op_sel:[0,0,1,1]");
    EXPECT_EQ(lab.v(0), 0x4c004c40u) << chip;  // 16 in the upper half
    lab.fill(1, 0x40003f80u), lab.fill(2, 0x40804040u), lab.fill(3, 0x40a040c0u), lab.fill(0, 0xaaaabbbbu);
    lab.run("v_dot2_bf16_bf16 v0, v1, v2, v3");
    EXPECT_EQ(lab.v(0), 0xaaaa4188u) << chip;  // 17
    lab.run("v_dot2_bf16_bf16 v0, v1, v2, v3 op_sel:[0,0,1,1]");
    EXPECT_EQ(lab.v(0), 0x41804188u) << chip;  // 16
  }
}

TEST(Dot2, AccumulatesInTheDestination) {
  for (const char* chip : kChips) {
    const std::string name = chip;
    if (name.rfind("gfx12", 0) == 0) continue;  // has it only as half of a dual instruction
    Lab lab(chip);
    lab.fill(1, 0x40003c00u), lab.fill(2, 0x44004200u), lab.fill(0, 5.0f);
    lab.run(std::string(name.rfind("gfx11", 0) == 0 ? "v_dot2acc_f32_f16" : "v_dot2c_f32_f16") + " v0, v1, v2");
    EXPECT_EQ(lab.f(0), 16.0f) << chip;
  }
  for (const char* chip : {"gfx1100", "gfx1201"}) {
    Lab lab(chip);
    lab.fill(1, 0x40003c00u), lab.fill(2, 0x44004200u), lab.fill(0, 5.0f), lab.fill(4, 7.0f);
    lab.run("v_dual_dot2acc_f32_f16 v0, v1, v2 :: v_dual_mov_b32 v3, v4");
    EXPECT_EQ(lab.f(0), 16.0f) << chip;
    EXPECT_EQ(lab.f(3), 7.0f) << chip;
  }
  Lab lab("gfx950");
  lab.fill(1, 0x40003f80u), lab.fill(2, 0x40804040u), lab.fill(0, 5.0f);
  lab.run("v_dot2c_f32_bf16 v0, v1, v2");
  EXPECT_EQ(lab.f(0), 16.0f);
}

TEST(DotIntegers, Gfx9) {
  for (const char* chip : {"gfx90a", "gfx942", "gfx950"}) {
    Lab lab(chip);
    lab.fill(1, 0xfffe0003u), lab.fill(2, 0x00050007u), lab.fill(3, 100u);  // (3, -2) . (7, 5) + 100
    lab.run("v_dot2_i32_i16 v0, v1, v2, v3");
    EXPECT_EQ(lab.v(0), 111u) << chip;
    lab.run("v_dot2_u32_u16 v0, v1, v2, v3");
    EXPECT_EQ(lab.v(0), 21u + 65534 * 5 + 100) << chip;
    lab.fill(1, 0xff02fe03u), lab.fill(2, 0x01020304u);  // (3, -2, 2, -1) . (4, 3, 2, 1) + 100
    lab.run("v_dot4_i32_i8 v0, v1, v2, v3");
    EXPECT_EQ(lab.v(0), 109u) << chip;
    lab.run("v_dot4_u32_u8 v0, v1, v2, v3");
    EXPECT_EQ(lab.v(0), 12u + 254 * 3 + 4 + 255 + 100) << chip;
    lab.fill(1, 0xf0000012u), lab.fill(2, 0x80000034u);  // (2, 1, ..., -1) . (4, 3, ..., -8) + 100
    lab.run("v_dot8_i32_i4 v0, v1, v2, v3");
    EXPECT_EQ(lab.v(0), 119u) << chip;
    lab.run("v_dot8_u32_u4 v0, v1, v2, v3");
    EXPECT_EQ(lab.v(0), 11u + 120 + 100) << chip;
    // Without clamp the sum wraps; with it, it saturates.
    lab.fill(1, 0x7f7f7f7fu), lab.fill(2, 0x7f7f7f7fu), lab.fill(3, 0x7fffffffu);
    lab.run("v_dot4_i32_i8 v0, v1, v2, v3");
    EXPECT_EQ(lab.v(0), 0x7fffffffu + 4 * 127 * 127) << chip;
    lab.run("v_dot4_i32_i8 v0, v1, v2, v3 clamp");
    EXPECT_EQ(lab.v(0), 0x7fffffffu) << chip;
    lab.fill(3, 0xffffffffu);
    lab.run("v_dot4_u32_u8 v0, v1, v2, v3 clamp");
    EXPECT_EQ(lab.v(0), 0xffffffffu) << chip;
    lab.fill(0, 10u), lab.fill(1, 0xfffe0003u), lab.fill(2, 0x00050007u);
    lab.run("v_dot2c_i32_i16 v0, v1, v2");
    EXPECT_EQ(lab.v(0), 21u) << chip;
    lab.fill(0, 10u), lab.fill(1, 0xff02fe03u), lab.fill(2, 0x01020304u);
    lab.run("v_dot4c_i32_i8 v0, v1, v2");
    EXPECT_EQ(lab.v(0), 19u) << chip;
    lab.fill(0, 10u), lab.fill(1, 0xf0000012u), lab.fill(2, 0x80000034u);
    lab.run("v_dot8c_i32_i4 v0, v1, v2");
    EXPECT_EQ(lab.v(0), 29u) << chip;
    // DPP: S0 from the neighbouring lane.
    for (int l = 0; l < 64; ++l) lab.v(1, l) = static_cast<std::uint32_t>(l);
    lab.fill(0, 0u), lab.fill(2, 1u);
    lab.run("v_dot4c_i32_i8_dpp v0, v1, v2 quad_perm:[1,0,3,2] row_mask:0xf bank_mask:0xf");
    EXPECT_EQ(lab.v(0, 4), 5u) << chip;
  }
}

TEST(DotIntegers, SignednessByModifier) {
  for (const char* chip : {"gfx1100", "gfx1201"}) {
    Lab lab(chip);
    lab.fill(1, 0x000000ffu), lab.fill(2, 0x00000080u), lab.fill(3, 1u);
    lab.run("v_dot4_i32_iu8 v0, v1, v2, v3");
    EXPECT_EQ(lab.v(0), 255u * 128 + 1) << chip;
    lab.run("v_dot4_i32_iu8 v0, v1, v2, v3 neg_lo:[1,0,0]");  // -1 * 128 + 1
    EXPECT_EQ(lab.v(0), 0u - 127) << chip;
    lab.run("v_dot4_i32_iu8 v0, v1, v2, v3 neg_lo:[0,1,0]");  // 255 * -128 + 1
    EXPECT_EQ(lab.v(0), 0u - 32639) << chip;
    lab.run("v_dot4_i32_iu8 v0, v1, v2, v3 neg_lo:[1,1,0]");
    EXPECT_EQ(lab.v(0), 129u) << chip;
    lab.fill(1, 0xf0000000u), lab.fill(2, 0x80000000u);
    lab.run("v_dot8_i32_iu4 v0, v1, v2, v3");
    EXPECT_EQ(lab.v(0), 121u) << chip;
    lab.run("v_dot8_i32_iu4 v0, v1, v2, v3 neg_lo:[1,1,0]");
    EXPECT_EQ(lab.v(0), 9u) << chip;
    lab.run("v_dot4_u32_u8 v0, v1, v2, v3");
    EXPECT_EQ(lab.v(0), 0xf0u * 0x80 + 1) << chip;
    lab.run("v_dot8_u32_u4 v0, v1, v2, v3");
    EXPECT_EQ(lab.v(0), 121u) << chip;
  }
}

// fp8 (E4M3): 0x38 is 1, 0x40 is 2, 0x44 is 3; bf8 (E5M2): 0x3c is 1, 0x40 is 2, 0x42 is 3.
TEST(Dot4, EightBitFloats) {
  Lab lab("gfx1201");
  lab.fill(3, 0.5f);
  lab.fill(1, 0x38444038u), lab.fill(2, 0x3c3c4042u);  // fp8 (1, 2, 3, 1), bf8 (3, 2, 1, 1): 3 + 4 + 3 + 1
  lab.run("v_dot4_f32_fp8_bf8 v0, v1, v2, v3");
  EXPECT_EQ(lab.f(0), 11.5f);
  lab.run("v_dot4_f32_bf8_fp8 v0, v2, v1, v3");
  EXPECT_EQ(lab.f(0), 11.5f);
  lab.fill(2, 0x38384044u);
  lab.run("v_dot4_f32_fp8_fp8 v0, v1, v2, v3");
  EXPECT_EQ(lab.f(0), 11.5f);
  lab.fill(1, 0x3c42403cu), lab.fill(2, 0x3c3c4042u);
  lab.run("v_dot4_f32_bf8_bf8 v0, v1, v2, v3");
  EXPECT_EQ(lab.f(0), 11.5f);
  lab.fill(1, 0x0000007fu);  // NaN
  lab.run("v_dot4_f32_fp8_bf8 v0, v1, v2, v3");
  EXPECT_NE(lab.f(0), lab.f(0));
}

}  // namespace
