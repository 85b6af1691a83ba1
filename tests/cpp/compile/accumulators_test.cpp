// Kernels that assign registers themselves (kernels/gemm_direct.h, loads_to_lds.h) are compiled without that if the
// compiler puts other values there.
#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "compile/compiler.h"
#include "support/error.h"

namespace sardonyx {
namespace {

// A kernel that keeps sums in a[0:3], with `inside` between their clearing and their use. Its other form has a kernel
// of another name.
constexpr const char* kSource = R"(
typedef float f4 __attribute__((ext_vector_type(4)));
typedef _Float16 h8 __attribute__((ext_vector_type(8)));
#if defined(SDX_NO_OWN_REGISTERS)
extern "C" [[clang::amdgpu_kernel]] void other_form(float* x, h8 a) {{ x[0] = 2; }}
#else
extern "C" [[clang::amdgpu_kernel]] void own_form(float* x, h8 a) {{
  const float y = x[1];
  asm volatile("{}_%=:" : :);
  asm volatile("v_accvgpr_write_b32 a0, 0\n v_accvgpr_write_b32 a1, 0");
  asm volatile("v_accvgpr_write_b32 a2, 0\n v_accvgpr_write_b32 a3, 0");
  {}
  asm volatile("v_mfma_f32_16x16x32_f16 a[0:3], %0, %0, a[0:3]" : : "v"(a));
  asm volatile("s_nop 15\n s_nop 7\n v_accvgpr_read_b32 %0, a0" : "=v"(x[0]));
}}
#endif
)";

bool has_own_form(std::string_view inside, std::string_view label = "sdx_own_accumulators") {
  const std::string code = compile(fmt::format(fmt::runtime(kSource), label, inside), {}, parse_target("gfx950"));
  const bool own = code.find("own_form") != std::string::npos;
  EXPECT_NE(own, code.find("other_form") != std::string::npos);
  return own;
}

TEST(Accumulators, OwnFormIsKept) {
  EXPECT_TRUE(has_own_form(""));
  EXPECT_TRUE(has_own_form(R"(asm volatile("v_accvgpr_read_b32 %0, a1" : "=v"(x[2]));)"));
  EXPECT_TRUE(has_own_form(R"(asm volatile("global_store_dword %0, a2, off" : : "v"(x));)"));
}

TEST(Accumulators, OtherWritesAreRefused) {
  // The compiler chooses the register.
  EXPECT_FALSE(has_own_form(R"(float z = y; asm volatile("" : "+a"(z)); x[3] = z;)"));
  for (const char* inside :
       {"v_accvgpr_write_b32 a1, %0", "v_accvgpr_write_b32 a7, %0",
        "v_accvgpr_write_b32 a1, 0",  // again
        "v_accvgpr_write_b32 a1, 1", "v_accvgpr_mov_b32 a1, a2", "global_load_dword a1, %1, off",
        "global_load_dwordx4 a[4:7], %1, off", "ds_read_b64 a[2:3], %0", "buffer_load_dword a1, %0, s[0:3], 0 offen",
        "scratch_load_dword a1, off, s0", "global_atomic_add a1, %1, a2, off sc0",
        "v_mfma_f32_16x16x32_f16 a[0:3], %2, %2, a[4:7]", "v_mfma_f32_16x16x32_f16 a[4:7], %2, %2, 0"}) {
    SCOPED_TRACE(inside);
    EXPECT_FALSE(has_own_form(fmt::format(R"(asm volatile("{}" : : "v"(y), "v"(x), "v"(a));)", inside)));
  }
}

TEST(Accumulators, OnlyOfKernelsWithTheLabel) {
  constexpr const char* kWrite = R"(asm volatile("v_accvgpr_write_b32 a1, 1");)";
  EXPECT_TRUE(has_own_form(kWrite, "another_label"));
}

TEST(OwnM0, LoadsToLdsAreKept) {
  for (const char* inside : {"s_mov_b32 m0, 64\\n s_nop 0\\n global_load_lds_dwordx4 %0, off",
                             "s_add_u32 m0, s0, 64\\n s_nop 0\\n buffer_load_dwordx4 %1, s[0:3], 0 offen lds",
                             "ds_write_b32 %1, %1", "ds_read_b128 v[4:7], %1", "ds_add_u32 %1, %1"}) {
    SCOPED_TRACE(inside);
    EXPECT_TRUE(has_own_form(fmt::format(R"(asm volatile("{}" : : "v"(x), "v"(y));)", inside), "sdx_own_m0"));
  }
}

TEST(OwnM0, OtherUsesAreRefused) {
  // The compiler's own, which selects an element by a number that it does not know.
  EXPECT_FALSE(has_own_form(R"(
    typedef float f32x32 __attribute__((ext_vector_type(32)));
    f32x32 z = *(const f32x32*)(x + 32);
    z[__builtin_amdgcn_readfirstlane(int(y))] = 7;
    *(f32x32*)(x + 64) = z;)",
                            "sdx_own_m0"));
  for (const char* inside : {"s_mov_b32 s0, m0", "v_readlane_b32 s0, %1, m0", "v_mov_b32 %1, m0",
                             "s_movrels_b32 s0, s1", "s_set_gpr_idx_on s0, gpr_idx(SRC0)", "ds_append %1",
                             "ds_gws_barrier v2 gds", "s_sendmsg sendmsg(MSG_INTERRUPT)", "s_lshl_b32 m0, s0, 1"}) {
    SCOPED_TRACE(inside);
    EXPECT_FALSE(has_own_form(fmt::format(R"(asm volatile("{}" : : "v"(x), "v"(y));)", inside), "sdx_own_m0"));
  }
}

TEST(Accumulators, BothFormsRefused) {
  const std::string source =
      fmt::format(fmt::runtime(kSource), "sdx_own_accumulators", R"(asm volatile("v_accvgpr_write_b32 a1, 1");)");
  try {
    compile("#undef SDX_NO_OWN_REGISTERS\n" + source, {}, parse_target("gfx950"));
    FAIL() << "compiled";
  } catch (const Error& e) {
    EXPECT_EQ(e.kind(), ErrorKind::kCompile);
    EXPECT_THAT(e.what(), testing::HasSubstr("uses registers that a kernel"));
  }
}

}  // namespace
}  // namespace sardonyx
