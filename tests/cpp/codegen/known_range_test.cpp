// Which numbers are known to fit 32 bits.
#include "codegen/known_range.h"

#include <gtest/gtest.h>

#include <cmath>

namespace sardonyx::codegen {
namespace {

Expr real(double x) { return constant_float(x, DType::kFloat32); }

// A coordinate of an image whose pixels are resized by a constant.
Expr source(const Expr& pixel, double scale) {
  const Expr at = binary(Op::kAdd, cast(pixel, DType::kFloat32), real(0.5));
  return unary(Op::kFloor, binary(Op::kSub, binary(Op::kDiv, at, real(scale)), real(0.5)));
}

TEST(KnownRange, CoordinatesOfConstantExtentsFit) {
  const Expr pixel = loop_var(1 << 20);
  EXPECT_TRUE(fits_32_bits(pixel));
  EXPECT_TRUE(fits_32_bits(source(pixel, 8)));
  EXPECT_TRUE(fits_32_bits(source(pixel, -0.25)));
  EXPECT_TRUE(fits_32_bits(binary(Op::kMul, pixel, Expr(-1000))));
  EXPECT_TRUE(fits_32_bits(cast(source(pixel, 8), DType::kInt64)));
}

TEST(KnownRange, LargeProductsAndQuotientsDoNotFit) {
  const Expr pixel = loop_var(1 << 20);
  EXPECT_FALSE(fits_32_bits(binary(Op::kMul, pixel, Expr(1025))));
  EXPECT_FALSE(fits_32_bits(binary(Op::kMul, pixel, Expr(-1025))));
  EXPECT_FALSE(fits_32_bits(source(pixel, 1e-4)));
  EXPECT_FALSE(fits_32_bits(loop_var((std::int64_t{1} << 30) + 2)));
  EXPECT_FALSE(fits_32_bits(real(3e9)));
  EXPECT_FALSE(fits_32_bits(real(std::nan(""))));
  EXPECT_FALSE(fits_32_bits(real(INFINITY)));
}

// Divisors that may be 0, sizes of the input, and types that would wrap or saturate on the way.
TEST(KnownRange, WhatDependsOnInputsOrWrapsDoesNotFit) {
  const Expr pixel = loop_var(64);
  const Expr real_pixel = cast(pixel, DType::kFloat32);
  EXPECT_FALSE(fits_32_bits(binary(Op::kDiv, real(1), real_pixel)));
  EXPECT_TRUE(fits_32_bits(binary(Op::kDiv, real(1), binary(Op::kAdd, real_pixel, real(1)))));
  EXPECT_FALSE(fits_32_bits(symbol(0, "n")));
  EXPECT_FALSE(fits_32_bits(loop_var(symbol(0, "n"))));
  EXPECT_FALSE(fits_32_bits(cast(pixel, DType::kInt8)));
}

}  // namespace
}  // namespace sardonyx::codegen
