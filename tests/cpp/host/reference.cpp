// Reference implementations; see reference.h.
#include "reference.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cstring>

#include "host/parallel.h"

namespace sardonyx::host::test {
namespace {

double sigmoid(double x) { return 1 / (1 + std::exp(-x)); }

std::vector<std::vector<float>> operands_of(const std::vector<PostOp>& post, unsigned seed) {
  std::vector<std::vector<float>> operands;
  for (const PostOp& op : post) {
    if (!op.has_operand()) continue;
    operands.push_back(integers(product(op.dims), 4, seed + 17 * static_cast<unsigned>(operands.size()) + 5));
    // Powers of two keep quotients exact.
    if (op.kind == PostOp::Kind::kDivTensor) {
      for (float& x : operands.back()) x = std::exp2(x);
    }
  }
  return operands;
}

struct Problem {
  std::vector<float> src, weights, bias;
  std::vector<double> expected;
};

Problem problem_of(const GemmDesc& d, const std::vector<std::vector<float>>& operands, unsigned seed) {
  Problem p{integers(product(d.batch_a) * d.m * d.k, 4, seed),
            integers(product(d.batch_b) * d.k * d.n, 4, seed + 1),
            d.bias ? integers(d.n, 4, seed + 2) : std::vector<float>{},
            {}};
  p.expected = gemm(d, p.src, p.weights, p.bias, operands);
  return p;
}

std::int64_t volume(const ConvDesc& d, const ConvDesc::Extents& e) {
  return product(Dims(e.begin(), e.begin() + d.spatial));
}

Problem problem_of(const ConvDesc& d, const std::vector<std::vector<float>>& operands, unsigned seed) {
  Problem p{integers(d.batch * d.in_channels * volume(d, d.in), 4, seed),
            integers(d.out_channels * d.in_channels / d.groups * volume(d, d.kernel), 4, seed + 1),
            d.bias ? integers(d.out_channels, 4, seed + 2) : std::vector<float>{},
            {}};
  p.expected = convolution(d, p.src, p.weights, p.bias, operands);
  return p;
}

std::shared_ptr<const TileKernel> find(const GemmDesc& d, std::string& why) { return find_gemm(d, why); }
std::shared_ptr<const TileKernel> find(const ConvDesc& d, std::string& why) { return find_convolution(d, why); }
bool constant(const GemmDesc& d) { return d.b_constant; }
bool constant(const ConvDesc& d) { return d.weights_constant; }

/// Index into a tensor of `dims` broadcast to the output, at output element `at`.
std::int64_t broadcast_index(const Dims& dims, const Dims& at) {
  std::int64_t index = 0;
  for (std::size_t i = 0; i < dims.size(); ++i) index = index * dims[i] + (dims[i] == 1 ? 0 : at[i]);
  return index;
}

bool next(Dims& at, const Dims& dims) {
  for (std::size_t i = dims.size(); i-- > 0;) {
    if (++at[i] < dims[i]) return true;
    at[i] = 0;
  }
  return false;
}

}  // namespace

double apply(const PostOp& op, double x, double y) {
  using Kind = PostOp::Kind;
  const double a = op.alpha, b = op.beta;
  switch (op.kind) {
    case Kind::kAddTensor:
      return x + y;
    case Kind::kSubTensor:
      return x - y;
    case Kind::kMulTensor:
      return x * y;
    case Kind::kDivTensor:
      return x / y;
    case Kind::kMaxTensor:
      return std::max(x, y);
    case Kind::kMinTensor:
      return std::min(x, y);
    case Kind::kRelu:
      return std::max(x, 0.0);
    case Kind::kLeakyRelu:
      return x > 0 ? x : a * x;
    case Kind::kClip:
      return std::min(std::max(x, a), b);
    case Kind::kSigmoid:
      return sigmoid(x);
    case Kind::kTanh:
      return std::tanh(x);
    case Kind::kSwish:
      return x * sigmoid(a * x);
    case Kind::kHardSwish:
      return x * std::min(std::max(a * x + b, 0.0), 1.0);
    case Kind::kHardSigmoid:
      return std::min(std::max(a * x + b, 0.0), 1.0);
    case Kind::kGeluErf:
      return 0.5 * x * std::erfc(-x / std::sqrt(2.0));
    case Kind::kGeluTanh:
      return 0.5 * x * (1 + std::tanh(std::sqrt(2 / M_PI) * (x + 0.044715 * x * x * x)));
    case Kind::kElu:
      return x > 0 ? x : a * std::expm1(x);
    case Kind::kMish:
      return x * std::tanh(std::max(x, 0.0) + std::log1p(std::exp(-std::abs(x))));
    case Kind::kExp:
      return std::exp(x);
    case Kind::kSqrt:
      return std::sqrt(x);
    case Kind::kAbs:
      return std::abs(x);
    case Kind::kSquare:
      return x * x;
    case Kind::kLinear:
      return a * x + b;
    case Kind::kPow:
      return a * std::pow(x, b);
    case Kind::kRound:
      return std::nearbyint(x);
  }
  return NAN;
}

void apply_all(const std::vector<PostOp>& post, const std::vector<std::vector<float>>& operands, const Dims& dims,
               std::vector<double>& out) {
  Dims at(dims.size());
  for (double& x : out) {
    std::size_t operand = 0;
    for (const PostOp& op : post) {
      const double y =
          op.has_operand() ? operands[operand++][static_cast<std::size_t>(broadcast_index(op.dims, at))] : 0;
      x = apply(op, x, y);
    }
    next(at, dims);
  }
}

Dims out_dims(const GemmDesc& d) {
  Dims dims(std::max(d.batch_a.size(), d.batch_b.size()), 1);
  for (const Dims* batch : {&d.batch_a, &d.batch_b}) {
    for (std::size_t i = 0; i < batch->size(); ++i) {
      std::int64_t& extent = dims[dims.size() - batch->size() + i];
      extent = extent == 1 ? (*batch)[i] : extent;
    }
  }
  dims.insert(dims.end(), {d.m, d.n});
  return dims;
}

std::vector<double> gemm(const GemmDesc& d, const std::vector<float>& a, const std::vector<float>& b,
                         const std::vector<float>& bias, const std::vector<std::vector<float>>& operands) {
  const Dims dims = out_dims(d);
  const std::size_t rank = dims.size() - 2;
  auto with_ones = [&](const Dims& batch) {
    Dims result(rank - batch.size(), 1);
    result.insert(result.end(), batch.begin(), batch.end());
    return result;
  };
  const Dims batch_a = with_ones(d.batch_a), batch_b = with_ones(d.batch_b);
  std::vector<double> out;
  Dims at(dims.size());
  for (std::int64_t i = 0; i < product(dims); ++i) {
    const Dims batch(at.begin(), at.end() - 2);
    const std::int64_t row = at[rank], column = at[rank + 1];
    const float* pa = a.data() + broadcast_index(batch_a, batch) * d.m * d.k;
    const float* pb = b.data() + broadcast_index(batch_b, batch) * d.k * d.n;
    double sum = d.bias ? bias[static_cast<std::size_t>(column)] : 0;
    for (std::int64_t k = 0; k < d.k; ++k) {
      sum +=
          double{pa[d.trans_a ? k * d.m + row : row * d.k + k]} * pb[d.trans_b ? column * d.k + k : k * d.n + column];
    }
    out.push_back(sum);
    next(at, dims);
  }
  apply_all(d.post, operands, dims, out);
  return out;
}

Dims out_dims(const ConvDesc& d) {
  Dims dims{d.batch};
  const bool last = d.layout == ImageLayout::kChannelsLast;
  if (!last) dims.push_back(d.out_channels);
  dims.insert(dims.end(), d.out.begin(), d.out.begin() + d.spatial);
  if (last) dims.push_back(d.out_channels);
  return dims;
}

void set_out(ConvDesc& d, std::int64_t output_padding) {
  for (int i = 0; i < d.spatial; ++i) {
    const std::int64_t reach = (d.kernel[i] - 1) * d.dilation[i] + 1, pad = d.pad_begin[i] + d.pad_end[i];
    d.out[i] = d.transposed ? (d.in[i] - 1) * d.stride[i] + reach - pad + output_padding
                            : (d.in[i] + pad - reach) / d.stride[i] + 1;
  }
}

std::vector<double> convolution(const ConvDesc& d, const std::vector<float>& src, const std::vector<float>& weights,
                                const std::vector<float>& bias, const std::vector<std::vector<float>>& operands) {
  // Everything in three spatial axes.
  ConvDesc::Extents in{1, 1, 1}, out{1, 1, 1}, kernel{1, 1, 1}, stride{1, 1, 1}, dilation{1, 1, 1}, pad{0, 0, 0};
  for (int i = 0; i < d.spatial; ++i) {
    const int to = 3 - d.spatial + i;
    in[to] = d.in[i], out[to] = d.out[i], kernel[to] = d.kernel[i];
    stride[to] = d.stride[i], dilation[to] = d.dilation[i], pad[to] = d.pad_begin[i];
  }
  auto pixel = [](const ConvDesc::Extents& e, std::int64_t z, std::int64_t y, std::int64_t x) {
    return (z * e[1] + y) * e[2] + x;
  };
  auto element = [&](ImageLayout layout, std::int64_t channels, const ConvDesc::Extents& e, std::int64_t n,
                     std::int64_t c, std::int64_t at) {
    const std::int64_t size = e[0] * e[1] * e[2];
    return static_cast<std::size_t>(layout == ImageLayout::kChannelsLast ? (n * size + at) * channels + c
                                                                         : (n * channels + c) * size + at);
  };
  const std::int64_t gin = d.in_channels / d.groups, gout = d.out_channels / d.groups,
                     taps = kernel[0] * kernel[1] * kernel[2];
  std::vector<double> result(static_cast<std::size_t>(product(out_dims(d))), 0.0);
  for (std::int64_t n = 0; n < d.batch; ++n)
    for (std::int64_t g = 0; g < d.groups; ++g)
      for (std::int64_t o = 0; o < gout; ++o)
        for (std::int64_t i = 0; i < gin; ++i)
          for (std::int64_t tap = 0; tap < taps; ++tap) {
            const std::int64_t t[3] = {tap / (kernel[1] * kernel[2]), tap / kernel[2] % kernel[1], tap % kernel[2]};
            const float w = weights[static_cast<std::size_t>(
                (d.transposed ? (g * gin + i) * gout + o : (g * gout + o) * gin + i) * taps + tap)];
            // `from` walks the output of a convolution, the input of a transposed one; `to` is the other side's place.
            const ConvDesc::Extents& from = d.transposed ? in : out;
            const ConvDesc::Extents& to = d.transposed ? out : in;
            for (std::int64_t z = 0; z < from[0]; ++z)
              for (std::int64_t y = 0; y < from[1]; ++y)
                for (std::int64_t x = 0; x < from[2]; ++x) {
                  const std::int64_t p[3] = {z * stride[0] - pad[0] + t[0] * dilation[0],
                                             y * stride[1] - pad[1] + t[1] * dilation[1],
                                             x * stride[2] - pad[2] + t[2] * dilation[2]};
                  if (p[0] < 0 || p[1] < 0 || p[2] < 0 || p[0] >= to[0] || p[1] >= to[1] || p[2] >= to[2]) continue;
                  const std::int64_t here = pixel(from, z, y, x), there = pixel(to, p[0], p[1], p[2]);
                  result[element(d.layout, d.out_channels, out, n, g * gout + o, d.transposed ? there : here)] +=
                      double{w} *
                      src[element(d.layout, d.in_channels, in, n, g * gin + i, d.transposed ? here : there)];
                }
          }
  if (d.bias) {
    const std::int64_t size = out[0] * out[1] * out[2];
    for (std::int64_t n = 0; n < d.batch; ++n)
      for (std::int64_t c = 0; c < d.out_channels; ++c)
        for (std::int64_t p = 0; p < size; ++p) {
          result[element(d.layout, d.out_channels, out, n, c, p)] += bias[static_cast<std::size_t>(c)];
        }
  }
  apply_all(d.post, operands, out_dims(d), result);
  return result;
}

template <typename Desc>
Outcome compare(const Desc& desc, unsigned seed) {
  Outcome outcome;
  auto kernel = find(desc, outcome.refusal);
  if (!kernel) {
    outcome.worst = INFINITY;
    return outcome;
  }
  outcome.kernel = kernel->name();
  const auto operands = operands_of(desc.post, seed);
  const Problem p = problem_of(desc, operands, seed);
  std::vector<const void*> pointers;
  for (const auto& operand : operands) pointers.push_back(operand.data());
  Buffer out(p.expected.size() * sizeof(float)), scratch(kernel->scratch_bytes());
  std::shared_ptr<PackedWeights> packed;
  TileArgs args;
  args.src = p.src.data();
  args.bias = desc.bias ? p.bias.data() : nullptr;
  args.operands = pointers;
  args.out = out.data();
  args.scratch = scratch.data();
  if (constant(desc)) {
    packed = kernel->pack(p.weights.data());
    args.packed = packed.get();
  } else {
    args.weights = p.weights.data();
  }
  kernel->run(args);
  // A run that stays in its thread (solo.h) may divide the work otherwise, but must give the same bits.
  Buffer alone(out.bytes());
  args.out = alone.data();
  const bool before = stay_in_thread(true);
  kernel->run(args);
  stay_in_thread(before);
  EXPECT_EQ(std::memcmp(out.data(), alone.data(), out.bytes()), 0) << outcome.kernel << " alone in its thread";
  for (std::size_t i = 0; i < p.expected.size(); ++i) {
    const double difference = std::abs(static_cast<const float*>(out.data())[i] - p.expected[i]);
    outcome.worst = difference <= outcome.worst ? outcome.worst : difference;  // NaN counts as a difference
  }
  return outcome;
}

template Outcome compare<GemmDesc>(const GemmDesc&, unsigned);
template Outcome compare<ConvDesc>(const ConvDesc&, unsigned);

}  // namespace sardonyx::host::test
