// Facts read from compiled kernels: registers, spills, instructions.
#include "compile/kernel_code.h"

#include <fmt/format.h>
#include <gtest/gtest.h>

#include "compile/ptx.h"
#include "support/error.h"

namespace sardonyx {
namespace {

constexpr char kSource[] = R"(
#if defined(__AMDGCN__)
extern "C" __attribute__((amdgpu_kernel)) void plain(float* x) { x[0] = 1; }
extern "C" __attribute__((amdgpu_kernel)) void scratchy(float* x, int n) {
  volatile float held[100];
  for (int k = 0; k < 100; ++k) held[k] = x[k];
  x[0] = held[n];
}
extern "C" __attribute__((amdgpu_kernel)) void shared(float* x, int n) {
  static __attribute__((address_space(3), loader_uninitialized)) volatile float held[256];
  held[n] = x[n];
  x[0] = held[n + 1];
}
#if defined(__gfx942__)
typedef float f4 __attribute__((ext_vector_type(4)));
extern "C" __attribute__((amdgpu_kernel)) void matrix(f4* x) {
  x[0] = __builtin_amdgcn_mfma_f32_4x4x1f32(1.0f, 2.0f, x[0], 0, 0, 0);
}
#endif
#else
extern "C" __attribute__((nvptx_kernel)) void plain(float* x) { x[0] = 1; }
#endif
)";

TEST(KernelCode, OfAmd) {
  const Target target = parse_target("gfx942");
  const auto kernels = read_kernel_code(compile(kSource, {}, target), target);
  ASSERT_EQ(kernels.size(), 4u);
  for (const KernelCode& k : kernels) {
    SCOPED_TRACE(k.symbol);
    EXPECT_GT(k.vgprs.value(), 0);
    EXPECT_GT(k.code_bytes, 0u);
    EXPECT_GT(k.instructions, 0u);
    EXPECT_EQ(k.vgpr_spills.value(), 0);
    EXPECT_EQ(k.scratch.value() >= 400, k.symbol == "scratchy");
    EXPECT_EQ(k.lds, k.symbol == "shared" ? 1024u : 0u);
    EXPECT_EQ(k.matrix_instructions, k.symbol == "matrix" ? 1u : 0u);
  }
}

TEST(KernelCode, OfPtx) {
  const Target target = parse_target("sm_90");
  const auto kernels = read_kernel_code(compile(kSource, {}, target), target);
  ASSERT_EQ(kernels.size(), 1u);
  EXPECT_EQ(kernels[0].symbol, "plain");
  EXPECT_FALSE(kernels[0].vgprs.has_value());
  EXPECT_GT(kernels[0].instructions, 0u);
}

// Each kernel waits for the launch before it, ahead of its first instruction; sm_80 has no such instruction.
TEST(KernelCode, PtxWaitsForTheLaunchBefore) {
  const std::string two = std::string(kSource) + R"(
#if defined(__NVPTX__)
extern "C" __attribute__((nvptx_kernel)) void second(float* x, const float* y, int n) {
  float held[4];
  for (int k = 0; k < n; ++k) held[k % 4] = y[k];
  x[0] = held[n % 4];
}
#endif
)";
  for (const char* arch : {"sm_90", "sm_90a"}) {
    const std::string ptx = compile(two, {}, parse_target(arch));
    std::size_t at = 0;
    for (int kernel = 0; kernel < 2; ++kernel) {
      at = ptx.find(".entry ", at + 1);
      const std::size_t wait = ptx.find("griddepcontrol.wait;", at), load = ptx.find("\tld.", at);
      ASSERT_NE(wait, std::string::npos);
      EXPECT_LT(wait, load);
      EXPECT_LT(wait, ptx.find("\n}", at));
    }
  }
  EXPECT_EQ(compile(two, {}, parse_target("sm_80")).find("griddepcontrol"), std::string::npos);
}

// Only kernels that multiply uint8 with int8 need a later driver.
TEST(KernelCode, PtxHasTheVersionThatItNeeds) {
  const Target target = parse_target("sm_90a");
  const auto version = [&](const char* types) {
    const std::string body = fmt::format(
        "asm volatile(\"// wgmma.mma_async.sync.aligned.m64n32k32.s32.{}\" ::: \"memory\"); x[0] = 2;", types);
    const std::string ptx = compile(std::string(kSource) + R"(
#if defined(__NVPTX__)
extern "C" __attribute__((nvptx_kernel)) void other(float* x) { )" +
                                        body + R"( }
#endif
)",
                                    {}, target);
    const std::size_t at = ptx.find(".version ");
    return ptx.substr(at, ptx.find('\n', at) - at);
  };
  EXPECT_EQ(version("s8.s8"), ".version 8.1");
  EXPECT_EQ(version("u8.s8"), ".version 8.4");
}

// ptxas lets the wrong half decide a comparison with a 16-bit minimum.
TEST(KernelCode, PtxHasNoMinimaOf16Bits) {
  EXPECT_EQ(with_wide_minima("\tadd.s32 \t%r1, %r2, 3;\n\tmin.s16 \t%rs2, %rs1, -3;\n\tret;"),
            "\tadd.s32 \t%r1, %r2, 3;\n\t{\n\t.reg .b16 \t%half<2>;\n\t.reg .b32 \t%wide<2>;\n"
            "\tmov.b16 \t%half0, %rs1;\n\tcvt.s32.s16 \t%wide0, %half0;\n"
            "\tmov.b16 \t%half1, -3;\n\tcvt.s32.s16 \t%wide1, %half1;\n"
            "\tmin.s32 \t%wide0, %wide0, %wide1;\n\tcvt.u16.u32 \t%rs2, %wide0;\n\t}\n\tret;");
  EXPECT_EQ(with_wide_minima("\tmax.u16 \t%rs2, %rs1, %rs3;\n").find("max.u16"), std::string::npos);
  EXPECT_EQ(with_wide_minima("\tmin.u16x2 \t%r2, %r1, %r3;\n"), "\tmin.u16x2 \t%r2, %r1, %r3;\n");
  const std::string source = std::string(kSource) + R"(
#if defined(__NVPTX__)
extern "C" __attribute__((nvptx_kernel)) void tiles(float* y, const unsigned short* x) {
  const unsigned short base = x[0] < 3 ? x[0] : 3;
  y[base] = base == 3 ? 1 : 2;
}
#endif
)";
  const std::string ptx = compile(source, {}, parse_target("sm_90a"));
  EXPECT_EQ(ptx.find("min.u16"), std::string::npos) << ptx;
  EXPECT_NE(ptx.find("min.u32"), std::string::npos) << ptx;
}

// ptxas converts a float whose low bits are stored to an integer.
TEST(KernelCode, PtxStoresLowBitsOfCopies) {
  EXPECT_EQ(with_untyped_stores("\tst.global.b8 \t[%rd1+4], %r2;\n"),
            "\t{\n\t.reg .b32 \t%copy0;\n\tmov.b32 \t%copy0, %r2;\n\tst.global.b8 \t[%rd1+4], %copy0;\n\t}\n");
  EXPECT_EQ(with_untyped_stores("\tst.global.v2.b8 \t[%rd1], {%rs2, %rs3};\n"),
            "\t{\n\t.reg .b16 \t%copy0;\n\tmov.b16 \t%copy0, %rs2;\n\t.reg .b16 \t%copy1;\n\tmov.b16 \t%copy1, %rs3;\n"
            "\tst.global.v2.b8 \t[%rd1], {%copy0, %copy1};\n\t}\n");
  for (const std::string same :
       {"\tst.global.b16 \t[%rd1], %rs2;\n", "\tst.global.v4.b32 \t[%rd1], {%r2, %r3, %r4, %r5};\n",
        "\tst.global.b8 \t[%rd1], 0;\n", "\tld.global.b8 \t%r1, [%rd2];\n"})
    EXPECT_EQ(with_untyped_stores(same), same);
  const std::string source = std::string(kSource) + R"(
#if defined(__NVPTX__)
extern "C" __attribute__((nvptx_kernel)) void low(signed char* y, const float* x) {
  y[0] = (signed char)__builtin_bit_cast(int, x[0] + 0x1.8p23f);
}
#endif
)";
  const std::string ptx = compile(source, {}, parse_target("sm_90a"));
  EXPECT_NE(ptx.find(", %copy0;"), std::string::npos) << ptx;
}

// A kernel may say where it waits; not after what touches memory that other launches write.
TEST(KernelCode, PtxWaitsWhereTheSourceSaysSo) {
  const auto source = [](const std::string& before) {
    return std::string(kSource) + R"(
#if defined(__NVPTX__)
extern "C" __attribute__((nvptx_kernel)) void late(float* x, const float* y, int n) {
  )" + before +
           R"(
  asm volatile("// the launch before" ::: "memory");
  x[0] = y[n];
}
#endif
)";
  };
  const auto wait_of = [](const std::string& ptx, const char* what) {
    const std::size_t at = ptx.find(".entry late");
    EXPECT_NE(at, std::string::npos);
    const std::size_t wait = ptx.find("griddepcontrol.wait;", at), other = ptx.find(what, at);
    EXPECT_NE(wait, std::string::npos);
    EXPECT_NE(other, std::string::npos);
    EXPECT_EQ(ptx.find("griddepcontrol.wait;", wait + 1), std::string::npos);
    return wait < other;
  };
  const Target target = parse_target("sm_90a");
  const char* barrier = "mbarrier.init.shared::cta.b64";
  const std::string own = source(R"(asm volatile("mbarrier.init.shared::cta.b64 [%0], 1;" ::"r"(n) : "memory");)");
  EXPECT_FALSE(wait_of(compile(own, {}, target), barrier));
  EXPECT_TRUE(wait_of(compile(own, {}, target), "st."));
  for (const char* touches :
       {"x[1] = 2;", R"(asm volatile("prefetch.global.L2 [%0];" ::"l"(y) : "memory"); x[1] = y[1];)"})
    EXPECT_TRUE(wait_of(compile(source(touches), {}, target), "st.")) << touches;
}

TEST(KernelCode, DamageIsRefused) {
  const Target target = parse_target("gfx942");
  const std::string code = compile(kSource, {}, target);
  EXPECT_THROW(read_kernel_code("", target), Error);
  EXPECT_THROW(read_kernel_code("no object", target), Error);
  EXPECT_THROW(read_kernel_code(code.substr(0, 700), target), Error);
  EXPECT_THROW(read_kernel_code(code, host_target()), Error);
}

}  // namespace
}  // namespace sardonyx
