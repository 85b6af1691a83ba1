#include <gtest/gtest.h>

#include "expr/expr.h"

namespace sardonyx {
namespace {

Expr sym(int id) { return symbol(id, std::string(1, static_cast<char>('a' + id))); }

TEST(Index, PolynomialsCancel) {
  const Expr n = sym(0), m = sym(1);
  EXPECT_TRUE(is_const(n * m - m * n, 0));
  EXPECT_TRUE(same((n + 1) * (m + 2), n * m + 2 * n + m + 2));
}

TEST(Index, ReshapeRoundTripIsTheIdentity) {
  const Expr n = sym(0), h = sym(1), w = sym(2);
  const Exprs shape = {n, 3, h, w};
  Exprs vars;
  for (const Expr& d : shape) vars.push_back(loop_var(d));
  const Exprs flat = {n, idx::mul(idx::mul(3, h), w)};
  const Exprs there = idx::delinearize(idx::linearize(vars, shape), flat);
  const Exprs back = idx::delinearize(idx::linearize(there, flat), shape);
  for (std::size_t k = 0; k < shape.size(); ++k) EXPECT_TRUE(same(back[k], vars[k])) << to_string(back[k]);
}

TEST(Index, ADimOfOneTakesNoPartInAnOffset) {
  const Expr n = sym(0);
  const Expr one = loop_var(1), row = loop_var(n), column = loop_var(8);
  const Expr offset = idx::linearize({one, row, column}, {1, n, 8});
  EXPECT_TRUE(same(offset, row * 8 + column)) << to_string(offset);
  EXPECT_TRUE(idx::provably_equal(offset, idx::linearize({Expr(0), row, column}, {1, n, 8})));
}

TEST(Index, SplitHeadsKeepsDivisionFree) {
  const Expr b = sym(0), s = sym(1);
  const Exprs merged = {b, s, 768}, split = {b, s, 12, 64};
  Exprs v;
  for (const Expr& d : split) v.push_back(loop_var(d));
  const Exprs at = idx::delinearize(idx::linearize(v, split), merged);
  EXPECT_TRUE(same(at[0], v[0])) << to_string(at[0]);
  EXPECT_TRUE(same(at[1], v[1])) << to_string(at[1]);
  EXPECT_TRUE(same(at[2], v[2] * 64 + v[3])) << to_string(at[2]);
}

// The frames of a signal: their number is a difference.
TEST(Index, AReshapeOfExtentsThatAreDifferencesDividesNothing) {
  const Expr n = sym(0), frames = idx::sub(idx::floordiv(sym(1) + 128, 160), 3);
  const Exprs shape = {n, 257, frames}, with_one = {n, 1, 257, frames};
  Exprs v;
  for (const Expr& d : shape) v.push_back(loop_var(d));
  const Exprs there = idx::delinearize(idx::linearize(v, shape), with_one);
  EXPECT_TRUE(same(there[0], v[0])) << to_string(there[0]);
  EXPECT_TRUE(same(there[2], v[1])) << to_string(there[2]);
  EXPECT_TRUE(same(there[3], v[2])) << to_string(there[3]);
  // What lies outside for some values is not simplified: one more row, one less in all, and a negative beginning.
  const Expr row = loop_var(258), column = loop_var(frames);
  EXPECT_FALSE(is_const(idx::floordiv(row * frames + column, idx::mul(257, frames))));
  EXPECT_FALSE(is_const(idx::floordiv(v[1] * frames + column, idx::sub(idx::mul(257, frames), 1))));
  EXPECT_FALSE(is_const(idx::floordiv(v[1] * frames + column - 1, idx::mul(257, frames))));
  EXPECT_TRUE(is_const(idx::floordiv(v[1] * frames + column, idx::mul(257, frames)), 0));
}

TEST(Index, IndicesTakenApartComeTogetherAgain) {
  const Expr n = sym(0), h = sym(1), w = sym(2);
  const Expr offset = loop_var(n);  // n elements seen as [?, h, w]: nothing is known of how they divide
  const Exprs shape = {idx::floordiv(n, h * w), h, w};
  EXPECT_TRUE(same(idx::linearize(idx::delinearize(offset, shape), shape), offset));
}

TEST(Index, FloorDivisionRoundsDown) {
  EXPECT_TRUE(is_const(idx::floordiv(-7, 2), -4));
  EXPECT_TRUE(is_const(idx::mod(-7, 4), 1));
  const Expr i = loop_var(10);
  EXPECT_TRUE(is_const(idx::floordiv(i, 10), 0));
  EXPECT_FALSE(is_const(idx::floordiv(i, 9)));
  EXPECT_TRUE(same(idx::mod(i + 20, 10), i));
}

TEST(Index, EvaluationAgreesWithSimplification) {
  // Every simplification must keep the value: compare with plain arithmetic over many points.
  const Expr n = sym(0), m = sym(1);
  const Expr e = idx::floordiv(n * 6 + m * 4 + 5, 4) + idx::mod(n * m + 7, 3) * idx::max(n - m, 2) - idx::min(m, 5);
  for (int a = 0; a < 12; ++a)
    for (int b = 0; b < 12; ++b) {
      SymbolValues v;
      v.set(0, a);
      v.set(1, b);
      EXPECT_EQ(evaluate(e, v), (a * 6 + b * 4 + 5) / 4 + (a * b + 7) % 3 * std::max(a - b, 2) - std::min(b, 5));
    }
}

TEST(Index, ComparisonsKnowThatDimsAreNotNegative) {
  const Expr n = sym(0);
  EXPECT_TRUE(is_const(compare(Op::kEq, n, Expr(-1)), 0));
  EXPECT_FALSE(is_const(compare(Op::kEq, n, Expr(1))));
  const Expr data = data_symbol(5, "k");
  EXPECT_FALSE(is_const(compare(Op::kEq, data, Expr(-1))));
}

TEST(Index, OverflowIsAnError) {
  const Expr n = sym(0);
  SymbolValues v;
  v.set(0, std::int64_t{1} << 40);
  EXPECT_ANY_THROW(evaluate(n * n, v));
}

TEST(Fold, PowersByConstantsAreProducts) {
  const Expr x = loop_var(Expr(4)), f = cast(x, DType::kFloat32);
  for (const double power : {1.0, 2.0, 3.0, 4.0, 5.0, 8.0, 9.0}) {
    const Expr e = binary(Op::kPow, f, constant(power, DType::kFloat32));
    visit(e, [&](const Expr& n) { EXPECT_NE(n->op, Op::kPow) << power; });
  }
  for (const double power : {2.5, 8.5, 10.0, -1.0})
    EXPECT_EQ(binary(Op::kPow, f, constant(power, DType::kFloat32))->op, Op::kPow) << power;
}

TEST(Fold, AComparisonOfASelectedConstantIsItsCondition) {
  const Expr small = binary(Op::kLt, loop_var(Expr(4)), Expr(2));
  const Expr zero = constant_float(0, DType::kFloat32), one = constant_float(1, DType::kFloat32);
  const Expr mask = select(small, one, zero);
  EXPECT_TRUE(same(compare(Op::kEq, mask, zero), logical_not(small)));
  EXPECT_TRUE(same(compare(Op::kNe, mask, zero), small));
  EXPECT_TRUE(same(compare(Op::kLt, zero, mask), small));
  EXPECT_TRUE(same(compare(Op::kGe, mask, zero), constant_bool(true)));
  EXPECT_TRUE(same(compare(Op::kGt, mask, one), constant_bool(false)));
}

TEST(Fold, ATruthOfASelectedConstantIsItsCondition) {
  const Expr small = binary(Op::kLt, loop_var(Expr(4)), Expr(2));
  const Expr zero = constant_float(0, DType::kFloat32), low = constant_float(-1e38, DType::kFloat32);
  EXPECT_TRUE(same(cast(select(small, low, zero), DType::kBool), small));
  EXPECT_TRUE(same(cast(select(small, zero, low), DType::kBool), logical_not(small)));
  EXPECT_TRUE(same(cast(select(small, low, low), DType::kBool), constant_bool(true)));
  const Expr other = cast(loop_var(Expr(4)), DType::kFloat32);
  EXPECT_EQ(cast(select(small, other, zero), DType::kBool)->op, Op::kCast);
}

TEST(Fold, FloatsRoundInTheirOwnPrecision) {
  const Expr a = constant_float(0.1, DType::kFloat32), b = constant_float(0.2, DType::kFloat32);
  EXPECT_EQ(binary(Op::kAdd, a, b)->f, static_cast<double>(0.1f + 0.2f));
  EXPECT_EQ(round_to(65520.0, DType::kFloat16), std::numeric_limits<double>::infinity());
  EXPECT_EQ(round_to(65519.0, DType::kFloat16), 65504.0);
  EXPECT_EQ(round_to(5.9604644775390625e-08, DType::kFloat16), 5.9604644775390625e-08);  // the smallest subnormal
}

}  // namespace
}  // namespace sardonyx
