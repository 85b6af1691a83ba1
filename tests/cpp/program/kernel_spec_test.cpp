// A kernel's spec as C++ source.
#include "program/kernel_spec.h"

#include <gtest/gtest.h>

namespace sardonyx {
namespace {

KernelSpec spec(std::vector<std::string> headers) {
  KernelSpec s;
  s.body = "(float* x) {}\n";
  s.headers = std::move(headers);
  return s;
}

TEST(KernelSpec, HostKernelsAreFunctions) {
  KernelSpec s = spec({});
  s.bounds = {256, 2, 2, 8};  // says nothing on the host
  EXPECT_EQ(definition_of(s, "k3", false), "extern \"C\" void k3(float* x) {}\n");
}

TEST(KernelSpec, GpuKernelsSayTheirLaunchBounds) {
  KernelSpec s = spec({});
  EXPECT_EQ(definition_of(s, "k3", true), "SDX_KERNEL void k3(float* x) {}\n");
  s.bounds = {.threads = 288, .cluster = 4};
  EXPECT_EQ(definition_of(s, "k3", true), "SDX_SIZED_KERNEL(288) SDX_CLUSTER(4) void k3(float* x) {}\n");
  s.bounds = {.min_blocks = 2, .min_waves = 3};
  EXPECT_EQ(definition_of(s, "k3", true), "SDX_KERNEL SDX_MIN_BLOCKS(2) SDX_MIN_WAVES(3) void k3(float* x) {}\n");
}

TEST(KernelSpec, HeadersOfATranslationUnitAreIncludedOnce) {
  const KernelSpec a = spec({"routines_order.h"}), b = spec({"attention.h", "routines_order.h"}), c = spec({});
  EXPECT_EQ(
      includes_of({&a, &b, &c}, true),
      "#include \"gpu_kernels.h\"\n#include \"attention.h\"\n#include \"routines_order.h\"\nusing namespace sdx;\n");
  EXPECT_EQ(includes_of({&c}, false), "#include \"prelude.h\"\nusing namespace sdx;\n");
}

TEST(KernelSpec, FamiliesHaveNames) {
  EXPECT_EQ(name(KernelFamily::kLoop), "loop");
  EXPECT_EQ(name(KernelFamily::kRoutine), "routine");
  EXPECT_EQ(name(KernelFamily::kGemm), "gemm");
  EXPECT_EQ(name(KernelFamily::kAttention), "attention");
}

}  // namespace
}  // namespace sardonyx
