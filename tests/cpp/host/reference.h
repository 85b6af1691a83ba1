// Reference implementations of GEMM and convolution in double, and data of small integers on which float32 is exact.
#pragma once
#include <cmath>
#include <cstdint>
#include <random>
#include <vector>

#include "host/buffer.h"
#include "host/conv.h"
#include "host/gemm.h"

namespace sardonyx::host::test {

using Dims = std::vector<std::int64_t>;

inline std::int64_t product(const Dims& dims) {
  std::int64_t n = 1;
  for (std::int64_t d : dims) n *= d;
  return n;
}

/// Integers in [-limit, limit]. Their products and the sums of these stay below 2^24 in every test that asks for
/// equality, so that float32 sums are exact in any order.
inline std::vector<float> integers(std::int64_t count, int limit, unsigned seed) {
  std::mt19937 random(seed);
  std::uniform_int_distribution<int> draw(-limit, limit);
  std::vector<float> v(static_cast<std::size_t>(count));
  for (float& x : v) x = static_cast<float>(draw(random));
  return v;
}

inline std::vector<float> uniform(std::int64_t count, float low, float high, unsigned seed) {
  std::mt19937 random(seed);
  std::uniform_real_distribution<float> draw(low, high);
  std::vector<float> v(static_cast<std::size_t>(count));
  for (float& x : v) x = draw(random);
  return v;
}

/// One step of an epilogue in double; y is its operand's value here.
double apply(const PostOp& op, double x, double y);

/// Applies `post` to every element of `out`, whose extents are `dims`.
void apply_all(const std::vector<PostOp>& post, const std::vector<std::vector<float>>& operands, const Dims& dims,
               std::vector<double>& out);

/// [batch..., M, N] as GemmDesc says; bias may be empty.
std::vector<double> gemm(const GemmDesc& d, const std::vector<float>& a, const std::vector<float>& b,
                         const std::vector<float>& bias, const std::vector<std::vector<float>>& operands);

/// In dst's layout, as ConvDesc says.
std::vector<double> convolution(const ConvDesc& d, const std::vector<float>& src, const std::vector<float>& weights,
                                const std::vector<float>& bias, const std::vector<std::vector<float>>& operands);

/// Sets d.out from the other fields. output_padding is added for transposed ones.
void set_out(ConvDesc& d, std::int64_t output_padding = 0);

/// The output's extents in memory's order.
Dims out_dims(const GemmDesc& d);
Dims out_dims(const ConvDesc& d);

/// Random integers for everything that `desc` needs, run through its kernel, against the reference.
/// Returns the largest absolute difference; fails the test if there is no kernel.
struct Outcome {
  double worst = 0;
  std::string kernel, refusal;
};
template <typename Desc>
Outcome compare(const Desc& desc, unsigned seed = 1);

}  // namespace sardonyx::host::test
