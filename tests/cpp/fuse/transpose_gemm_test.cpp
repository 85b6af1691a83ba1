// The pass transpose_gemm.
#include <fmt/format.h>
#include <gmock/gmock.h>

#include "pass_test.h"

namespace sardonyx {
namespace {

using testing::ElementsAre;

FuseOptions transposing() {
  FuseOptions o = any_device();
  o.transpose_gemm = true;
  return o;
}

// An MLP over tokens: its result is added to what is not transposed.
TEST(TransposeGemm, AReaderWithAnotherTensorInOrder) {
  constexpr const char* kGraph = R"(%0 = input float16[n, 96, 64]
%1 = input float16[n, 64, 128]
%2 = constant float16[96, 64] {...}
%3 = constant float16[64] {...}
%4 = matmul float16[n < n, c < 128, u < 64; t < 64]: %1[n, t, c], %2[u, t] @"mix"
%5 = loop float16[n < n, t < 64, c < 128]: %1[n, t, c] + %4[n, c, t] + %3[t] @"add"
return %5)";
  expect_pass("transpose_gemm", kGraph, R"(%0 = input float16[n, 96, 64]
%1 = input float16[n, 64, 128]
%2 = constant float16[96, 64] {...}
%3 = constant float16[64] {...}
%4 = matmul float16[n < n, u < 64, c < 128; t < 64]: %2[u, t], %1[n, t, c] @"mix"
%5 = loop float16[n < n, t < 64, c < 128]: %1[n, t, c] + %4[n, t, c] + %3[t] @"add"
return %5)",
              transposing());
  EXPECT_THAT(kernels_of(kGraph, transposing()), ElementsAre("tile mix + add"));
}

// A bias in between, and two readers: one sums over what was the rows.
TEST(TransposeGemm, ElementwiseLoopsFollow) {
  expect_pass("transpose_gemm", R"(%0 = input float16[n, 64, 128]
%1 = constant float16[64, 64] {...}
%2 = constant float16[64] {...}
%3 = matmul float16[n < n, c < 128, u < 64; t < 64]: %0[n, t, c], %1[u, t] @"mix"
%4 = loop float16[n < n, c < 128, u < 64]: %3[n, c, u] + %2[u] @"bias"
%5 = loop float16[n < n, t < 64, c < 128]: %0[n, t, c] + %4[n, c, t] @"add"
%6 = loop float16[n < n, t < 64]: sum{c < 128}(%4[n, c, t]) @"mean"
return %5, %6)",
              R"(%0 = input float16[n, 64, 128]
%1 = constant float16[64, 64] {...}
%2 = constant float16[64] {...}
%3 = matmul float16[n < n, u < 64, c < 128; t < 64]: %1[u, t], %0[n, t, c] @"mix"
%4 = loop float16[n < n, u < 64, c < 128]: %3[n, u, c] + %2[u] @"bias"
%5 = loop float16[n < n, t < 64, c < 128]: %0[n, t, c] + %4[n, t, c] @"add"
%6 = loop float16[n < n, t < 64]: sum{c < 128}(%4[n, t, c]) @"mean"
return %5, %6)",
              transposing());
}

TEST(TransposeGemm, WhatIsLeftAlone) {
  constexpr const char* kGraph = R"(%0 = input {0}[n, 64, 128]
%1 = constant {0}[{1}, 64] {{...}}
%2 = matmul {0}[n < n, c < 128, u < {1}; t < 64]: %0[n, t, c], %1[u, t] @"mix"
%3 = loop {0}[{2}]: {3} @"read"
return {4})";
  const auto unchanged = [&](const char* type, int width, const char* dims, const char* body, const char* out = "%3") {
    expect_unchanged("transpose_gemm", fmt::format(kGraph, type, width, dims, body, out), transposing());
  };
  constexpr const char* kTransposed = "n < n, t < 64, c < 128";
  unchanged("float16", 64, kTransposed, "tanh(%2[n, c, t])");                        // alone: for untranspose
  unchanged("float16", 64, "n < n, c < 128, t < 64", "%2[n, c, t] + %0[n, t, c]");   // read in the GEMM's order
  unchanged("float16", 64, kTransposed, "%2[n, c, t] + %0[n, t, c]", "%2, %3");      // an output as well
  unchanged("float32", 64, kTransposed, "%2[n, c, t] + %0[n, t, c]");                // no matrix units for both orders
  unchanged("float16", 64, kTransposed, "%0[n, t, c] + %2[n, c, t] + %2[n, t, t]");  // a reader in both orders
}

TEST(TransposeGemm, NarrowOnesAreAReason) {
  constexpr const char* kGraph = R"(%0 = input float16[n, 64, 128]
%1 = constant float16[32, 64] {...}
%2 = matmul float16[n < n, c < 128, u < 32; t < 64]: %0[n, t, c], %1[u, t] @"mix"
%3 = loop float16[n < n, t < 32, c < 128]: %0[n, t, c] + %2[n, c, t] @"add"
return %3)";
  expect_unchanged("transpose_gemm", kGraph, transposing());
  EXPECT_THAT(remarks_of("transpose_gemm", kGraph, transposing()),
              ElementsAre("mix: its result is read transposed, but its transpose would be too narrow"));
}

}  // namespace
}  // namespace sardonyx
