// Integer GEMM, compared with loops: results must be equal, also at the extremes of both types.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <algorithm>

#include "host/integer_gemm.h"
#include "reference.h"

namespace sardonyx::host::test {
namespace {

/// Random bytes, half of them the type's extremes, so that instructions that saturate are found out.
std::vector<std::uint8_t> bytes(std::int64_t count, DType type, unsigned seed) {
  std::mt19937 random(seed);
  std::vector<std::uint8_t> v(static_cast<std::size_t>(count));
  for (auto& x : v) {
    const unsigned r = random();
    const std::uint8_t extreme = r & 1 ? (type == DType::kInt8 ? 0x80 : 0xff) : (type == DType::kInt8 ? 0x7f : 0);
    x = r & 2 ? extreme : static_cast<std::uint8_t>(r >> 8);
  }
  return v;
}

std::int32_t value(const std::vector<std::uint8_t>& v, DType type, std::int64_t i) {
  const std::uint8_t x = v[static_cast<std::size_t>(i)];
  return type == DType::kInt8 ? static_cast<std::int8_t>(x) : x;
}

std::int32_t zero(const std::vector<std::uint8_t>& v, DType type, ZeroPoints kind, std::int64_t i) {
  return kind == ZeroPoints::kNone ? 0 : value(v, type, kind == ZeroPoints::kOne ? 0 : i);
}

void expect_equal(const IntegerGemmDesc& d, const std::string& label) {
  const auto a = bytes(product(d.batch_a) * d.m * d.k, d.a, 1), b = bytes(product(d.batch_b) * d.k * d.n, d.b, 2);
  const auto zero_a = bytes(std::max<std::int64_t>(1, d.m), d.a, 3),
             zero_b = bytes(std::max<std::int64_t>(1, d.n), d.b, 4);
  // The reference takes floats: differences are below 256 in size, and double sums are exact.
  GemmDesc f;
  f.batch_a = d.batch_a, f.batch_b = d.batch_b;
  f.m = d.m, f.n = d.n, f.k = d.k, f.trans_b = d.trans_b;
  std::vector<float> fa(a.size()), fb(b.size());
  for (std::size_t i = 0; i < a.size(); ++i) {
    const auto at = static_cast<std::int64_t>(i);
    fa[i] = static_cast<float>(value(a, d.a, at) - zero(zero_a, d.a, d.zero_a, at / d.k % d.m));
  }
  for (std::size_t i = 0; i < b.size(); ++i) {
    const auto at = static_cast<std::int64_t>(i);
    fb[i] = static_cast<float>(value(b, d.b, at) - zero(zero_b, d.b, d.zero_b, d.trans_b ? at / d.k % d.n : at % d.n));
  }
  const auto expected = gemm(f, fa, fb, {}, {});
  for (bool packed : {false, true}) {
    std::vector<std::int32_t> out(expected.size(), -1);
    Buffer scratch(integer_gemm_scratch(d, packed));
    IntegerGemmArgs args{.a = a.data(), .zero_a = zero_a.data(), .out = out.data(), .scratch = scratch.data()};
    std::shared_ptr<const PackedIntegers> weights;
    if (packed) {
      weights = pack_integers(d, b.data(), zero_b.data());
      args.packed = weights.get();
    } else {
      args.b = b.data(), args.zero_b = zero_b.data();
    }
    integer_gemm(d, args);
    for (std::size_t i = 0; i < out.size(); ++i) ASSERT_EQ(out[i], expected[i]) << label << " element " << i;
  }
}

IntegerGemmDesc plain(std::int64_t m, std::int64_t n, std::int64_t k) {
  IntegerGemmDesc d;
  d.m = m, d.n = n, d.k = k;
  d.threads = 2;
  return d;
}

TEST(IntegerGemm, TypesZeroPointsAndSizes) {
  const std::int64_t sizes[][3] = {{1, 1, 1}, {1, 33, 70}, {13, 31, 5}, {40, 64, 257}, {200, 65, 16}};
  for (const auto& [m, n, k] : sizes) {
    for (int bits = 0; bits < 8; ++bits) {
      for (ZeroPoints za : {ZeroPoints::kNone, ZeroPoints::kOne, ZeroPoints::kEach}) {
        for (ZeroPoints zb : {ZeroPoints::kNone, ZeroPoints::kOne, ZeroPoints::kEach}) {
          IntegerGemmDesc d = plain(m, n, k);
          d.a = bits & 1 ? DType::kInt8 : DType::kUInt8, d.b = bits & 2 ? DType::kInt8 : DType::kUInt8;
          d.trans_b = bits & 4;
          d.zero_a = za, d.zero_b = zb;
          expect_equal(d, fmt::format("{}x{}x{} variant {}", m, n, k, bits));
        }
      }
    }
  }
}

TEST(IntegerGemm, Batches) {
  const Dims batches[][2] = {{{3}, {3}}, {{2, 3}, {3}}, {{2, 3}, {}}, {{}, {4}}, {{2, 1}, {1, 3}}};
  for (const auto& [a, b] : batches) {
    for (ZeroPoints zero : {ZeroPoints::kOne, ZeroPoints::kEach}) {
      IntegerGemmDesc d = plain(7, 20, 11);
      d.batch_a = a, d.batch_b = b;
      d.zero_a = d.zero_b = zero;
      expect_equal(d, fmt::format("batches of rank {} and {}", a.size(), b.size()));
    }
  }
}

TEST(IntegerGemm, EmptySumsAreZero) {
  IntegerGemmDesc d = plain(3, 5, 0);
  std::vector<std::int32_t> out(15, -1);
  Buffer scratch(integer_gemm_scratch(d, false));
  integer_gemm(d, {.a = out.data(), .b = out.data(), .out = out.data(), .scratch = scratch.data()});
  EXPECT_EQ(out, std::vector<std::int32_t>(15, 0));
}

TEST(IntegerGemm, RefusesOtherTypes) {
  IntegerGemmDesc d = plain(3, 5, 2);
  d.b = DType::kInt16;
  EXPECT_ANY_THROW(integer_gemm_scratch(d, false));
}

}  // namespace
}  // namespace sardonyx::host::test
