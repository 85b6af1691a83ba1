// gfx12's scalar floats and 64-bit integers, and V_S_*: RDNA4 ISA document, "SALU" instructions; relative moves and GPR
// indexing; rarely used vector instructions. Values are worked out in the comments.
#include <cmath>

#include "lab.h"

namespace {

float half(std::uint32_t h) {
  float m = static_cast<float>(h & 0x3ff);
  int e = static_cast<int>(h >> 10 & 31);
  float v = e ? std::ldexp(1 + m / 1024, e - 15) : std::ldexp(m, -24);
  return h & 0x8000 ? -v : v;
}

struct Scalar {
  const char* text;
  std::uint32_t a, b, want;
};

TEST(ScalarFloats, ArithmeticOfHalves) {
  Lab lab("gfx1201");
  // s1 and s2 hold a and b; s0 starts as 0x12343c00 (1.0 with rubbish above).
  const Scalar cases[] = {
      {"s_add_f16 s0, s1, s2", 0x3c00, 0x4000, 0x4200},      // 1 + 2
      {"s_sub_f16 s0, s1, s2", 0x3c00, 0x4000, 0xbc00},      // 1 - 2
      {"s_mul_f16 s0, s1, s2", 0x4200, 0x4200, 0x4880},      // 3 * 3
      {"s_fmac_f16 s0, s1, s2", 0x4200, 0x4200, 0x4900},     // 9 + 1
      {"s_min_num_f16 s0, s1, s2", 0x7e00, 0x4000, 0x4000},  // a number beats a NaN
      {"s_max_num_f16 s0, s1, s2", 0x8000, 0x0000, 0x0000},  // +0 above -0
      {"s_minimum_f16 s0, s1, s2", 0x7e00, 0x4000, 0x7e00},  // a NaN wins
      {"s_maximum_f16 s0, s1, s2", 0x4000, 0x7c01, 0x7e01},  // and is made quiet
      {"s_ceil_f16 s0, s1", 0x3e00, 0, 0x4000},              // 1.5
      {"s_floor_f16 s0, s1", 0xbe00, 0, 0xc000},             // -1.5
      {"s_trunc_f16 s0, s1", 0xbe00, 0, 0xbc00},
      {"s_rndne_f16 s0, s1", 0x4100, 0, 0x4000},         // 2.5
      {"s_add_f16 s0, s1, s2", 0x7bff, 0x7bff, 0x7c00},  // overflow
      {"s_add_f16 s0, s1, s2", 0x7c00, 0xfc00, 0x7e00},  // infinity - infinity
      {"s_mul_f16 s0, s1, s2", 0x0001, 0x4000, 0x0002},  // denormals are kept
      {"s_cvt_f16_f32 s0, s1", 0x3f800000, 0, 0x3c00},
      {"s_cvt_f32_f16 s0, s1", 0xaaaa4200, 0, 0x40400000},
      {"s_cvt_hi_f32_f16 s0, s1", 0x4200aaaa, 0, 0x40400000},
      {"s_cvt_pk_rtz_f16_f32 s0, s1, s2", 0x3f801fff, 0x477fffff, 0x7bff3c00},  // toward zero: no infinity
      {"s_minimum_f32 s0, s1, s2", 0x7fc00000, 0x3f800000, 0x7fc00000},
      {"s_maximum_f32 s0, s1, s2", 0x80000000, 0x00000000, 0x00000000},
      {"v_s_rcp_f32 s0, s1", 0x40000000, 0, 0x3f000000},
      {"v_s_rcp_f32 s0, -s1", 0x40000000, 0, 0xbf000000},
      {"v_s_rsq_f32 s0, s1", 0x40800000, 0, 0x3f000000},
      {"v_s_sqrt_f32 s0, s1", 0x41100000, 0, 0x40400000},
      {"v_s_exp_f32 s0, s1", 0x40400000, 0, 0x41000000},
      {"v_s_log_f32 s0, s1", 0x41000000, 0, 0x40400000},
      {"v_s_exp_f32 s0, s1 clamp", 0x40400000, 0, 0x3f800000},
      {"v_s_rcp_f16 s0, s1", 0x4000, 0, 0x3800},
      {"v_s_rsq_f16 s0, s1", 0x4400, 0, 0x3800},
      {"v_s_sqrt_f16 s0, s1", 0x4880, 0, 0x4200},
      {"v_s_exp_f16 s0, |s1|", 0xc000, 0, 0x4400},
      {"v_s_log_f16 s0, s1", 0x4800, 0, 0x4200},
      {"s_add_f32 s0, s1, s2", 0x3f800000, 0x40000000, 0x40400000},
      {"s_fmamk_f32 s0, s1, 0x40000000, s2", 0x40400000, 0x3f800000, 0x40e00000},  // 3 * 2 + 1
      {"s_fmaak_f32 s0, s1, s2, 0x40000000", 0x40400000, 0x3f800000, 0x40a00000},  // 3 * 1 + 2
  };
  for (const Scalar& c : cases) {
    lab.s(0) = std::string(c.text).find("fmac") == std::string::npos ? 0x12343c00 : 0x3c00;
    lab.s(1) = c.a, lab.s(2) = c.b;
    lab.run(c.text);
    EXPECT_EQ(lab.s(0), c.want) << c.text << std::hex << " " << c.a << " " << c.b;
  }
  lab.setMode(0, false);
  lab.s(1) = 1, lab.s(2) = 0x4000;
  lab.run("s_mul_f16 s0, s1, s2");
  EXPECT_EQ(lab.s(0), 0u);
  lab.setMode(1, true);  // upwards
  lab.s(1) = 0x3c00, lab.s(2) = 0x0001;
  lab.run("s_add_f16 s0, s1, s2");
  EXPECT_EQ(lab.s(0), 0x3c01u);
  lab.s(1) = 0x3f800000, lab.s(2) = 0x00000001;
  lab.run("s_add_f32 s0, s1, s2");
  EXPECT_EQ(lab.s(0), 0x3f800001u);
}

// V_RNDNE is to nearest even whatever MODE says; sums of halves are rounded once, also upwards.
TEST(VectorFloats, DirectedRounding) {
  for (const char* chip : kChips) {
    Lab lab(chip);
    lab.setMode(1, true);
    lab.fill(1, 2.5f), lab.fill(2, 0x3c00u), lab.fill(3, 0x0001u), lab.fill64(4, 2.5);
    lab.run("v_rndne_f32 v0, v1\nv_add_f16 v6, v2, v3\nv_rndne_f64 v[8:9], v[4:5]\nv_pk_add_f16 v7, v2, v3");
    EXPECT_EQ(lab.f(0), 2.0f) << chip;
    EXPECT_EQ(lab.v(6) & 0xffff, 0x3c01u) << chip;
    EXPECT_EQ(lab.v(7) & 0xffff, 0x3c01u) << chip;
    EXPECT_EQ(lab.d(8), 2.0) << chip;
  }
}

TEST(ScalarFloats, Compares) {
  Lab lab("gfx1201");
  const char* names[] = {"lt", "eq", "le", "gt", "lg", "ge", "o", "u", "nge", "nlg", "ngt", "nle", "neq", "nlt"};
  auto relation = [](int i, float a, float b) {
    switch (i) {
      case 0:
        return a < b;
      case 1:
        return a == b;
      case 2:
        return a <= b;
      case 3:
        return a > b;
      case 4:
        return a < b || a > b;
      case 5:
        return a >= b;
      case 6:
        return a == a && b == b;
      case 7:
        return a != a || b != b;
      case 8:
        return !(a >= b);
      case 9:
        return !(a < b || a > b);
      case 10:
        return !(a > b);
      case 11:
        return !(a <= b);
      case 12:
        return a != b;
      default:
        return !(a < b);
    }
  };
  const std::uint32_t values[] = {0x0000, 0x8000, 0x3c00, 0xbc00, 0x7c00, 0x7e00};
  for (int i = 0; i < 14; ++i)
    for (std::uint32_t a : values)
      for (std::uint32_t b : values) {
        lab.s(1) = a, lab.s(2) = b;
        lab.run(std::string("s_cmp_") + names[i] + "_f16 s1, s2");
        float x = a == 0x7e00   ? NAN
                  : a == 0x7c00 ? INFINITY
                                : half(a),
              y = b == 0x7e00   ? NAN
                  : b == 0x7c00 ? INFINITY
                                : half(b);
        EXPECT_EQ(lab.wave.scc, relation(i, x, y)) << names[i] << " " << a << " " << b;
      }
}

TEST(ScalarIntegers, SixtyFourBits) {
  Lab lab("gfx1201");
  lab.s(2) = 0xffffffffu, lab.s(3) = 1, lab.s(4) = 3, lab.s(5) = 0;
  lab.run("s_add_nc_u64 s[0:1], s[2:3], s[4:5]");
  EXPECT_EQ(lab.s(0), 2u);
  EXPECT_EQ(lab.s(1), 2u);
  lab.run("s_sub_nc_u64 s[0:1], s[4:5], s[2:3]");
  EXPECT_EQ(lab.s(0), 4u);
  EXPECT_EQ(lab.s(1), 0xfffffffeu);
  lab.run("s_mul_u64 s[0:1], s[2:3], s[4:5]");  // 0x1ffffffff * 3
  EXPECT_EQ(lab.s(0), 0xfffffffdu);
  EXPECT_EQ(lab.s(1), 5u);
}

// ISA documents, "Relative addressing": M0 shifts register numbers.
TEST(Relative, ScalarAndVectorMoves) {
  for (const char* chip : {"gfx1100", "gfx1201"}) {
    Lab lab(chip);
    for (int r = 0; r < 20; ++r)
      lab.s(r) = static_cast<std::uint32_t>(100 + r), lab.fill(r, static_cast<std::uint32_t>(200 + r));
    lab.run("s_mov_b32 m0, 3\ns_movrels_b32 s30, s4\ns_movreld_b32 s40, s5\ns_movrels_b64 s[32:33], s[6:7]");
    EXPECT_EQ(lab.s(30), 107u);
    EXPECT_EQ(lab.s(43), 105u);
    EXPECT_EQ(lab.s(32), 109u);
    EXPECT_EQ(lab.s(33), 110u);
    lab.run("v_movrels_b32 v30, v4\nv_movreld_b32 v40, v5\nv_movrelsd_b32 v50, v6");
    EXPECT_EQ(lab.v(30, 5), 207u);
    EXPECT_EQ(lab.v(43, 5), 205u);
    EXPECT_EQ(lab.v(53, 5), 209u);
    lab.run("s_mov_b32 m0, 0x20001\ns_movrelsd_2_b32 s50, s8\nv_movrelsd_2_b32 v60, v8\nv_swaprel_b32 v70, v9");
    EXPECT_EQ(lab.s(52), 109u);
    EXPECT_EQ(lab.v(62), 209u);
    EXPECT_EQ(lab.v(72), 210u);
    EXPECT_EQ(lab.v(10), 0u);
    EXPECT_NE(lab.fault("s_mov_b32 m0, 300\nv_movrels_b32 v30, v4").find("M0"), std::string::npos);
  }
}

TEST(Relative, GprIndexing) {
  for (const char* chip : {"gfx90a", "gfx942", "gfx950"}) {
    Lab lab(chip);
    for (int r = 0; r < 20; ++r) lab.fill(r, static_cast<std::uint32_t>(200 + r));
    lab.s(0) = 3;
    lab.run("s_set_gpr_idx_on s0, gpr_idx(SRC0)\nv_mov_b32 v30, v4\ns_set_gpr_idx_off\nv_mov_b32 v31, v4");
    EXPECT_EQ(lab.v(30), 207u) << chip;
    EXPECT_EQ(lab.v(31), 204u) << chip;
    lab.run("s_set_gpr_idx_on s0, gpr_idx(DST)\nv_mov_b32 v40, v4\ns_set_gpr_idx_off");
    EXPECT_EQ(lab.v(43), 204u) << chip;
    EXPECT_EQ(lab.v(40), 0u) << chip;
    lab.s(1) = 1;
    lab.run(
        "s_set_gpr_idx_on s0, gpr_idx(SRC0,SRC1,DST)\ns_set_gpr_idx_idx s1\nv_add_u32 v50, v4, v6\n"
        "s_set_gpr_idx_mode gpr_idx(SRC1)\nv_add_u32 v60, v4, v6\ns_set_gpr_idx_off");
    EXPECT_EQ(lab.v(51), 205u + 207u) << chip;
    EXPECT_EQ(lab.v(60), 204u + 207u) << chip;
  }
}

struct Vector {
  const char* text;
  std::uint32_t a, b, c, want;
};

TEST(RareVector, OnEveryChip) {
  for (const char* chip : kChips) {
    Lab lab(chip);
    bool gfx9 = std::string(chip).compare(0, 4, "gfx9") == 0;
    auto f = [](float v) { return std::bit_cast<std::uint32_t>(v); };
    const Vector cases[] = {
        {"v_cubeid_f32 v0, v1, v2, v3", f(1), f(-3), f(2), f(3)},  // -y
        {"v_cubesc_f32 v0, v1, v2, v3", f(-4), f(1), f(2), f(2)},  // -x: s = z
        {"v_cubetc_f32 v0, v1, v2, v3", f(1), f(3), f(2), f(2)},   // +y: t = z
        {"v_cubema_f32 v0, v1, v2, v3", f(1), f(3), f(-5), f(-10)},
        {"v_sat_pk_u8_i16 v0, v1", 0x0123ff80u, 0, 0, 0x0000ff00u},  // -128 and 291
    };
    for (const Vector& t : cases) {
      lab.fill(0, 0u), lab.fill(1, t.a), lab.fill(2, t.b), lab.fill(3, t.c);
      lab.run(t.text);
      EXPECT_EQ(lab.v(0), t.want) << chip << " " << t.text;
    }
    // Sums of absolute differences over four windows of the eight bytes 0, 10, 20, ... 70.
    lab.fill64(4, std::uint64_t{0x463c32281e140a00}), lab.fill(2, 0x00010203u),
        lab.fill64(6, std::uint64_t{0x0004000300020001});
    lab.run("v_qsad_pk_u16_u8 v[8:9], v[4:5], v2, v[6:7]");
    // Window 0: |0-3| + |10-2| + |20-1| + |30-0| = 60, each later one 40 - 2 * (...) as its bytes exceed S1: +46, +40,
    // +40.
    EXPECT_EQ(lab.v64(8), (60ull + 1) | (94ull + 2) << 16 | (134ull + 3) << 32 | (174ull + 4) << 48) << chip;
    lab.run("v_mqsad_pk_u16_u8 v[8:9], v[4:5], v2, v[6:7]");  // without the byte where S1 is zero: 30, 40, 50, 60 less
    EXPECT_EQ(lab.v64(8), (30ull + 1) | (54ull + 2) << 16 | (84ull + 3) << 32 | (114ull + 4) << 48) << chip;
    for (int r = 0; r < 4; ++r) lab.fill(12 + r, static_cast<std::uint32_t>(r + 1));
    lab.run("v_mqsad_u32_u8 v[16:19], v[4:5], v2, v[12:15]");
    EXPECT_EQ(lab.v(16), 31u) << chip;
    EXPECT_EQ(lab.v(19), 118u) << chip;
    // 2 / pi in pieces of 53 bits.
    lab.fill64(4, 1.0), lab.fill(2, 0u), lab.fill(3, 1u);
    lab.run("v_trig_preop_f64 v[8:9], v[4:5], v2\nv_trig_preop_f64 v[10:11], v[4:5], v3");
    EXPECT_EQ(lab.d(8), std::ldexp(0xa2f9836e4e441p1, -53)) << chip;
    EXPECT_NEAR(static_cast<double>(0.636619772367581343075535053490057448L - static_cast<long double>(lab.d(8))),
                lab.d(10), 1e-19)
        << chip;
    lab.fill(0, 0x3c003c00u), lab.fill(1, 0x42004000u), lab.fill(2, 0x42004200u);
    lab.run("v_pk_fmac_f16 v0, v1, v2");  // 2 * 3 + 1, 3 * 3 + 1
    EXPECT_EQ(lab.v(0), 0x49004700u) << chip;
    if (gfx9) {
      lab.fill(0, 0xaabbccddu), lab.fill(1, 7.6f), lab.fill(2, 2u);
      lab.run("v_cvt_pkaccum_u8_f32 v0, v1, v2");
      EXPECT_EQ(lab.v(0), 0xaa08ccddu) << chip;
      lab.fill(1, 0x4200u), lab.fill(2, 0x4200u), lab.fill(3, 0x3c00u);
      lab.run("v_mad_f16 v0, v1, v2, v3");
      EXPECT_EQ(lab.v(0) & 0xffff, 0x4900u) << chip;
      lab.run("v_mad_legacy_f16 v0, v1, v2, v3\nv_fma_legacy_f16 v5, v1, v2, v3");
      EXPECT_EQ(lab.v(0), 0x4900u) << chip;
      EXPECT_EQ(lab.v(5), 0x4900u) << chip;
      lab.run("v_exp_legacy_f32 v0, 2.0\nv_log_legacy_f32 v5, 4.0");
      EXPECT_EQ(lab.f(0), 4.0f) << chip;
      EXPECT_EQ(lab.f(5), 2.0f) << chip;
    } else {
      lab.fill(1, 3.0f), lab.fill(2, 2.0f), lab.fill(3, 1.0f);
      lab.run("v_mullit_f32 v0, v1, v2, v3");
      EXPECT_EQ(lab.f(0), 6.0f) << chip;
      lab.fill(3, 0.0f);
      lab.run("v_mullit_f32 v0, v1, v2, v3");
      EXPECT_EQ(lab.v(0), 0xff7fffffu) << chip;
    }
  }
}

// CDNA4 ISA document: V_ASHR_PK_*, V_BITOP3_*, V_PERMLANE*_SWAP.
TEST(RareVector, Gfx950) {
  Lab lab("gfx950");
  lab.fill(0, 0xaaaaaaaau), lab.fill(1, 0xfffff000u), lab.fill(2, 0x00000450u),
      lab.fill(3, 36u);  // -4096 and 1104, by 4
  lab.run("v_ashr_pk_i8_i32 v0, v1, v2, v3");
  EXPECT_EQ(lab.v(0), 0xaaaa4580u);
  EXPECT_EQ(0x450 >> 4, 0x45);
  lab.run("v_ashr_pk_u8_i32 v0, v1, v2, v3 op_sel:[0,0,0,1]");
  EXPECT_EQ(lab.v(0), 0x45004580u);
  lab.fill(1, 0xf0f0u), lab.fill(2, 0xccccu), lab.fill(3, 0xaaaau), lab.fill(0, 0x11112222u);
  for (std::uint32_t table : {0x01u, 0x80u, 0x96u, 0xe8u, 0xcau, 0x1bu}) {
    std::uint32_t want = 0;
    for (int i = 0; i < 16; ++i) {
      std::uint32_t index = (0xf0f0u >> i & 1) << 2 | (0xccccu >> i & 1) << 1 | (0xaaaau >> i & 1);
      want |= (table >> index & 1) << i;
    }
    lab.run("v_bitop3_b16 v0, v1, v2, v3 bitop3:" + std::to_string(table));
    EXPECT_EQ(lab.v(0), 0x11110000u | want) << table;
    lab.run("v_bitop3_b32 v4, v1, v2, v3 bitop3:" + std::to_string(table));
    EXPECT_EQ(lab.v(4) & 0xffff, want) << table;
  }
  for (int l = 0; l < 64; ++l)
    lab.v(1, l) = static_cast<std::uint32_t>(l), lab.v(2, l) = static_cast<std::uint32_t>(100 + l);
  lab.run("v_permlane16_swap_b32 v1, v2");  // odd rows of v1 against even rows of v2
  EXPECT_EQ(lab.v(1, 20), 104u);
  EXPECT_EQ(lab.v(2, 4), 20u);
  EXPECT_EQ(lab.v(1, 4), 4u);
  EXPECT_EQ(lab.v(2, 20), 120u);
  for (int l = 0; l < 64; ++l)
    lab.v(1, l) = static_cast<std::uint32_t>(l), lab.v(2, l) = static_cast<std::uint32_t>(100 + l);
  lab.run("v_permlane32_swap_b32 v1, v2");
  EXPECT_EQ(lab.v(1, 40), 108u);
  EXPECT_EQ(lab.v(2, 8), 40u);
}

TEST(RareVector, Gfx12HalfMinima) {
  Lab lab("gfx1201");
  lab.fill(1, 0x4000u), lab.fill(2, 0x4200u), lab.fill(3, 0x4100u);  // 2, 3, 2.5
  lab.run("v_maximumminimum_f16 v0, v1, v2, v3");
  EXPECT_EQ(lab.v(0) & 0xffff, 0x4100u);
  lab.run("v_minimummaximum_f16 v0, v1, v2, v3");
  EXPECT_EQ(lab.v(0) & 0xffff, 0x4100u);
  lab.fill(3, 0x7e00u);
  lab.run("v_minimummaximum_f16 v0, v1, v2, v3");
  EXPECT_EQ(lab.v(0) & 0xffff, 0x7e00u);
}

// What hardware does where the documents' pseudo-code is silent or differs (seen on gfx11 in public tests run on
// GPUs).
TEST(SeenOnHardware, ClampOfCarries) {
  for (const char* chip : kChips) {
    Lab lab(chip);
    lab.fill(1, ~0u), lab.fill(2, 1u), lab.fill(3, 0u);
    std::string mask = lab.lanes() == 64 ? "s[10:11]" : "s10", in = lab.lanes() == 64 ? "s[12:13]" : "s12";
    bool gfx9 = std::string(chip).compare(0, 4, "gfx9") == 0;
    lab.run("v_add_co_u32_e64 v0, " + mask + ", v1, v2 clamp");
    EXPECT_EQ(lab.v(0), ~0u) << chip;
    EXPECT_EQ(lab.s(10), ~0u) << chip;
    lab.run("v_sub_co_u32_e64 v0, " + mask + ", v3, v2 clamp");
    EXPECT_EQ(lab.v(0), 0u) << chip;
    lab.run("v_subrev_co_u32_e64 v0, " + mask + ", v2, v3 clamp");
    EXPECT_EQ(lab.v(0), 0u) << chip;
    lab.run(std::string(gfx9 ? "v_addc_co_u32_e64" : "v_add_co_ci_u32_e64") + " v0, " + mask + ", v1, v2, " + in +
            " clamp");
    EXPECT_EQ(lab.v(0), ~0u) << chip;
    lab.run("v_add_co_u32_e64 v0, " + mask + ", v1, v2");
    EXPECT_EQ(lab.v(0), 0u) << chip;
  }
}

TEST(SeenOnHardware, OutputModifiersAndIeeeMode) {
  for (const char* chip : {"gfx90a", "gfx942", "gfx950", "gfx1100"}) {
    Lab lab(chip);
    lab.fill(1, 3.0f);
    lab.run("v_add_f32_e64 v0, v1, 1.0 mul:2");  // denormals are kept: no effect
    EXPECT_EQ(lab.f(0), 4.0f) << chip;
    lab.setMode(0, false);
    lab.run("v_add_f32_e64 v0, v1, 1.0 mul:2");
    EXPECT_EQ(lab.f(0), 8.0f) << chip;
    lab.wave.mode |= 0x200;  // IEEE
    lab.run("v_add_f32_e64 v0, v1, 1.0 mul:2");
    EXPECT_EQ(lab.f(0), 4.0f) << chip;
  }
}

TEST(SeenOnHardware, Permlane64IsNothingOnWave32) {
  Lab lab("gfx1100");
  lab.fill(0, 7u), lab.fill(1, 9u);
  lab.run("v_permlane64_b32 v1, v0");
  EXPECT_EQ(lab.v(1), 9u);
}

TEST(SeenOnHardware, AccumulatorOfTheSecondDualHalf) {
  Lab lab("gfx1100");
  lab.fill(0, 0x40003c00u), lab.fill(1, 0x44004200u), lab.fill(2, 100.0f), lab.fill(3, 10.0f), lab.fill(5, 1.0f);
  lab.run("v_dual_mov_b32 v4, v5 :: v_dual_dot2acc_f32_f16 v3, v0, v1");  // 3 + 8 + 10
  EXPECT_EQ(lab.f(3), 21.0f);
}

TEST(SeenOnHardware, DivScaleOfZeroSetsVcc) {
  for (const char* chip : kChips) {
    Lab lab(chip);
    lab.fill(1, 1.0f), lab.fill(2, 0.0f);
    lab.run("v_div_scale_f32 v0, vcc" + std::string(lab.lanes() == 32 ? "_lo" : "") + ", v1, v2, v1");
    EXPECT_NE(lab.f(0), lab.f(0)) << chip;
    EXPECT_EQ(lab.s(106), ~0u) << chip;
  }
}

}  // namespace
