// Index arithmetic of GPU kernels: which expressions are known to fit 32 bits, and division by multiplication.
#include <gtest/gtest.h>

#include "codegen/index_range.h"
#include "codegen/loop_codegen.h"

namespace sardonyx::codegen {
namespace {

// fast_quotient of kernels/gpu.h.
std::int32_t quotient(std::int32_t n, std::uint64_t by) {
  const std::uint32_t product = static_cast<std::uint32_t>(
      (std::uint64_t{static_cast<std::uint32_t>(n)} * 2 * static_cast<std::uint32_t>(by)) >> 32);
  return static_cast<std::int32_t>(product >> (by >> 32));
}

TEST(Divisor, EveryQuotientIsExact) {
  std::vector<std::int64_t> edges = {1,    2,    3,     5,     7,          10,         641,        1023,
                                     1024, 1025, 65535, 65536, 0x3fffffff, 0x40000000, 0x7ffffffe, 0x7fffffff};
  std::uint64_t state = 1;
  for (int k = 0; k < 300; ++k)
    edges.push_back(
        static_cast<std::int64_t>((state = state * 6364136223846793005U + 1442695040888963407U) >> 33 >> k % 31) | 1);
  for (const std::int64_t d : edges) {
    const std::uint64_t by = divisor_argument(d);
    for (const std::int64_t base : edges)
      for (const std::int64_t n : {base - 1, base, base / d * d - 1, base / d * d, base / d * d + d - 1}) {
        if (n < 0 || n > 0x7fffffff) continue;
        ASSERT_EQ(quotient(static_cast<std::int32_t>(n), by), n / d) << n << " / " << d;
      }
  }
  EXPECT_EQ(quotient(7, divisor_argument(0)), 7);  // no crash, no hang
}

bool trusted(std::int64_t id) { return id < 10; }

TEST(IndexRange, ConstantSizesAreDecidedAtOnce) {
  IndexRange r(trusted);
  const Expr i = loop_var(1 << 15), j = loop_var(1 << 14), k = loop_var(1 << 20);
  EXPECT_TRUE(r.narrow(i * Expr(1 << 14) + j));
  EXPECT_FALSE(r.narrow(k * Expr(1 << 14) + j));
  EXPECT_TRUE(r.narrow(idx::mod(k * Expr(1 << 14) + j, 100)));  // its operand is not
  EXPECT_FALSE(r.limit());
}

// Where a resized image reads: floats of indices, which are no larger than what they are computed from allows.
TEST(IndexRange, FloatsOfIndicesAreBounded) {
  IndexRange r(trusted);
  const auto f = [](double v) { return constant_float(v, DType::kFloat32); };
  const auto index = [](const Expr& x) { return cast(unary(Op::kFloor, x), DType::kInt64); };
  const Expr i = loop_var(1 << 15), x = cast(i, DType::kFloat32);
  const Expr at = binary(Op::kSub, binary(Op::kMul, binary(Op::kAdd, x, f(0.5)), f(0.3)), f(0.5));
  EXPECT_TRUE(r.narrow(index(at)));
  EXPECT_TRUE(r.narrow(index(binary(Op::kDiv, x, f(-3)))));
  EXPECT_TRUE(r.narrow(idx::max(0, idx::min(127, index(at) + Expr(1)))));
  EXPECT_FALSE(r.narrow(index(binary(Op::kMul, x, f(1e6)))));
  EXPECT_FALSE(r.narrow(index(binary(Op::kSub, binary(Op::kMul, x, f(1e6)), binary(Op::kMul, x, f(1e6))))));
  EXPECT_FALSE(r.narrow(index(binary(Op::kDiv, x, x))));  // 0 / 0
  EXPECT_FALSE(r.narrow(index(unary(Op::kExp, x))));
  EXPECT_FALSE(r.narrow(index(cast(loop_var(symbol(0, "n")), DType::kFloat32))));  // of a size that is not known
  EXPECT_FALSE(r.limit());
}

TEST(IndexRange, SymbolicSizesGiveALimit) {
  IndexRange r(trusted);
  const Expr n = symbol(0, "n"), m = symbol(1, "m");
  const Expr i = loop_var(n), j = loop_var(m);
  ASSERT_TRUE(r.narrow(i * m + j));
  ASSERT_TRUE(r.limit());
  SymbolValues s;
  s.set(0, 1000);
  s.set(1, 1000);
  EXPECT_LE(evaluate(r.limit(), s), IndexRange::kLargest);
  s.set(0, 1 << 20);
  s.set(1, 1 << 12);
  EXPECT_GT(evaluate(r.limit(), s), IndexRange::kLargest);
}

// A flattened index of [m, n, 32] taken apart and put together again is below the tensor's size, not below its square.
TEST(IndexRange, QuotientsBySizesAreBounded) {
  IndexRange r(trusted);
  const Expr n = symbol(0, "n"), m = symbol(1, "m");
  const Expr at = loop_var(n * m);
  ASSERT_TRUE(r.narrow(idx::floordiv(at, n - 3) * ((n - 3) * 32) + idx::mod(at, n - 3) * 32));
  SymbolValues s;
  s.set(0, 1 << 12);
  s.set(1, 1 << 12);
  EXPECT_LE(evaluate(r.limit(), s), IndexRange::kLargest);
  s.set(0, 1 << 14);
  s.set(1, 1 << 14);
  EXPECT_GT(evaluate(r.limit(), s), IndexRange::kLargest);
  s.set(0, 3);  // the divisor is 0: such a tensor is empty
  s.set(1, 5);
  EXPECT_LE(evaluate(r.limit(), s), IndexRange::kLargest);
}

TEST(IndexRange, WhatDependsOnDataIsWide) {
  IndexRange r(trusted);
  EXPECT_FALSE(r.narrow(loop_var(symbol(11, "found"))));  // a size that only a run tells
  Value v;
  v.dtype = DType::kInt64;
  v.shape = {8};
  const Expr x = load(&v, DType::kInt64, {loop_var(8)});
  EXPECT_FALSE(r.narrow(x));
  EXPECT_TRUE(r.narrow(idx::max(idx::min(x, 7), 0)));  // but for these bounds
}

TEST(IndexRange, ProductsOfLargeConstantsDoNotWrap) {
  IndexRange r(trusted);
  const Expr i = loop_var(4);
  Expr e = i;
  for (int k = 0; k < 6; ++k) e = binary(Op::kMul, idx::max(e, loop_var(8)), Expr(std::int64_t{1} << 30));
  EXPECT_FALSE(r.narrow(e));
}

}  // namespace
}  // namespace sardonyx::codegen
