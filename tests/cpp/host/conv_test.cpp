// Convolutions, compared with the reference on small integers: every sum is exact, so results must be equal.
#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>

#include "conv_cases.h"
#include "host/convert.h"
#include "host/merged_groups.h"
#include "host/simd.h"

namespace sardonyx::host::test {
namespace {

using Kind = PostOp::Kind;

TEST(Convolution, ChannelsAndKernels) {
  for (std::int64_t in : {1, 3, 8, 17, 32}) {
    for (std::int64_t out : {1, 5, 16, 33, 64}) {
      for (std::int64_t kernel : {1, 3}) {
        for (std::int64_t stride : {1, 2}) {
          ConvDesc d = plain(2, in, out, 9, kernel);
          d.batch = 2;
          d.stride = {stride, stride, 1};
          d.bias = true;
          set_out(d);
          expect_equal(d, fmt::format("{} to {} channels, kernel {}, stride {}", in, out, kernel, stride));
        }
      }
    }
  }
}

TEST(Convolution, PadsStridesDilations) {
  for (int bits = 0; bits < 16; ++bits) {
    for (std::int64_t groups : {1, 16}) {
      ConvDesc d = plain(2, 16, 16, 12, 3);
      d.groups = groups;
      if (bits & 1) d.pad_begin = {1, 2, 0}, d.pad_end = {2, 0, 0};
      if (bits & 2) d.stride = {2, 1, 1};
      if (bits & 4) d.dilation = {1, 3, 1};
      if (bits & 8) d.kernel = {2, 5, 1}, d.in = {15, 20, 0};
      set_out(d);
      expect_equal(d, fmt::format("variant {}, {} groups", bits, groups));
    }
  }
}

TEST(Convolution, Groups) {
  const std::int64_t cases[][3] = {{4, 8, 2},    {8, 8, 8}, {30, 30, 30},  {32, 32, 4},
                                   {12, 24, 12}, {6, 9, 3}, {128, 128, 32}};
  for (const auto& [in, out, groups] : cases) {
    for (std::int64_t kernel : {1, 3, 5}) {
      ConvDesc d = plain(2, in, out, 10, kernel);
      d.groups = groups;
      d.pad_begin = d.pad_end = {kernel / 2, kernel / 2, 0};
      d.bias = true;
      set_out(d);
      expect_equal(d, fmt::format("{} to {} channels in {} groups, kernel {}", in, out, groups, kernel));
    }
  }
}

TEST(Convolution, NarrowGroupsAreMerged) {
  const std::int64_t lanes = vector_level() == VectorLevel::kAvx512 ? 16 : 8;
  if (vector_level() == VectorLevel::kBaseline) GTEST_SKIP() << "a rule of AVX2 and AVX-512";
  // In, out, groups, and how many become one.
  const std::int64_t cases[][4] = {{64, 64, 32, lanes / 2},
                                   {128, 128, 32, lanes / 4},
                                   {16, 16, 16, 1},
                                   {lanes, lanes * 2, 2, 1},
                                   {24, 24, 6, 2},
                                   {18, 18, 6, 1},
                                   {8, 8, 2, 2}};
  for (const auto& [in, out, groups, merged] : cases) {
    ConvDesc d = plain(2, in, out, 9, 3);
    d.groups = groups;
    d.pad_begin = d.pad_end = {1, 1, 0};
    set_out(d);
    const std::string label = fmt::format("{} to {} channels in {} groups", in, out, groups);
    EXPECT_EQ(merged_groups(d), merged) << label;
    std::string why;
    const auto kernel = find_convolution(d, why);
    ASSERT_TRUE(kernel) << why;
    EXPECT_EQ(kernel->weights_form(), merged > 1 ? fmt::format("{} groups as one", merged) : "") << label;
    expect_equal(d, label);
    d.weights_constant = false;
    EXPECT_EQ(merged_groups(d), 1) << label;
  }
}

TEST(Convolution, GroupsOfOneChannelToSeveral) {
  for (const auto layout : {ImageLayout::kChannelsLast, ImageLayout::kChannelsFirst})
    for (const std::int64_t repeats : {2, 3, 8})
      for (const std::int64_t channels : {5, 48}) {
        ConvDesc d = plain(2, channels, channels * repeats, 9, 3);
        d.groups = channels;
        d.layout = layout;
        d.stride = {2, 1, 1};
        d.pad_begin = {1, 0, 0};
        d.pad_end = {1, 1, 0};
        set_out(d);
        const std::string label = fmt::format("{} channels, {} results each", channels, repeats);
        std::string why;
        const auto kernel = find_convolution(d, why);
        ASSERT_TRUE(kernel) << why;
        EXPECT_THAT(kernel->name(), testing::HasSubstr("of repeated channels")) << label;
        expect_equal(d, label);
      }
}

TEST(Convolution, NarrowGroupsOfHalves) {
  for (DType type : {DType::kFloat16, DType::kBFloat16}) {
    ConvDesc d = plain(2, 64, 64, 9, 3);
    d.groups = 32;
    set_out(d);
    const auto src = integers(d.in[0] * d.in[1] * 64, 2, 3), weights = integers(std::int64_t{64} * 2 * 9, 2, 5);
    const auto expected = convolution(d, src, weights, {}, {});
    d.src = d.weights = d.dst = type;
    const auto halves = [&](const std::vector<float>& values) {
      std::vector<std::uint16_t> h(values.size());
      from_float32(type, values.data(), h.data(), static_cast<std::int64_t>(values.size()), 1);
      return h;
    };
    const auto half_src = halves(src), half_weights = halves(weights);
    std::vector<std::uint16_t> half_out(expected.size());
    std::string why;
    const auto kernel = find_convolution(d, why);
    ASSERT_TRUE(kernel) << why;
    const auto packed = kernel->pack(half_weights.data());
    Buffer scratch(kernel->scratch_bytes());
    kernel->run({.src = half_src.data(), .packed = packed.get(), .out = half_out.data(), .scratch = scratch.data()});
    std::vector<float> out(expected.size());
    to_float32(type, half_out.data(), out.data(), static_cast<std::int64_t>(out.size()), 1);
    // Sums are integers of at most 72, which both types hold exactly.
    for (std::size_t i = 0; i < out.size(); ++i) ASSERT_EQ(out[i], expected[i]) << kernel->name();
  }
}

TEST(PackedWeights, LaterConversionsRunFirst) {
  const auto packed = PackedWeights::empty();
  const auto then = [](char c) {
    return [c](const void* original) {
      const auto* from = static_cast<const char*>(original);
      auto longer = std::make_shared<Buffer>(static_cast<std::size_t>(from[0]) + 1);
      auto* to = static_cast<char*>(longer->data());
      std::copy(from, from + from[0], to);  // the first byte is the length
      to[static_cast<int>(from[0])] = c;
      ++to[0];
      return std::shared_ptr<const Buffer>(std::move(longer));
    };
  };
  packed->convert_by(then('a'));
  packed->convert_by(then('b'));
  const char original[] = {1};
  const auto form = packed->form("copy", 3, original, 3, [](const void* plain, void* target) {
    std::copy_n(static_cast<const char*>(plain), 3, static_cast<char*>(target));
  });
  EXPECT_EQ(std::string(static_cast<const char*>(form->data()), 3), "\3ba");
}

TEST(Convolution, OneAndThreeAxes) {
  for (int spatial : {1, 3}) {
    for (std::int64_t channels : {3, 16, 20}) {
      for (std::int64_t groups : {std::int64_t{1}, channels}) {
        ConvDesc d = plain(spatial, channels, channels, 6, 3);
        d.groups = groups;
        d.pad_begin = {1, 0, 2}, d.pad_end = {0, 1, 1};
        d.stride = {2, 1, 2};
        set_out(d);
        Dims row(static_cast<std::size_t>(spatial) + 2, 1);
        row.back() = channels;
        d.post = {{.kind = Kind::kMulTensor, .dims = row}, {.kind = Kind::kAddTensor, .dims = out_dims(d)}};
        expect_equal(d, fmt::format("{} axes, {} channels in {} groups", spatial, channels, groups));
      }
    }
  }
}

TEST(Convolution, ChannelsFirst) {
  for (bool transposed : {false, true}) {
    for (std::int64_t groups : {1, 16}) {
      ConvDesc d = plain(2, 16, 32, 9, 3);
      d.layout = ImageLayout::kChannelsFirst;
      d.transposed = transposed;
      d.groups = groups;
      d.batch = 2;
      d.stride = {2, 1, 1};
      set_out(d);
      d.bias = true;
      d.post = {{.kind = Kind::kRelu}};
      expect_equal(d, fmt::format("transposed {}, {} groups", transposed, groups));
      d.post = {{.kind = Kind::kAddTensor, .dims = {1, 32, 1, 1}}, {.kind = Kind::kMaxTensor, .dims = out_dims(d)}};
      expect_equal(d, fmt::format("operands, transposed {}, {} groups", transposed, groups));
    }
  }
}

// Images of one column, which are computed as rows.
TEST(Convolution, Columns) {
  for (ImageLayout layout : {ImageLayout::kChannelsLast, ImageLayout::kChannelsFirst}) {
    for (bool transposed : {false, true}) {
      ConvDesc d = plain(2, 16, 32, 9, 3);
      d.layout = layout;
      d.transposed = transposed;
      d.batch = 2;
      d.in = {19, 1, 0};
      d.kernel = {5, 1, 0};
      d.stride = {2, 3, 1};
      d.dilation = {2, 1, 1};
      d.pad_begin = {3, 0, 0};
      d.pad_end = {2, 0, 0};
      d.bias = true;
      set_out(d);
      Dims row = out_dims(d);
      row[0] = 1, row[layout == ImageLayout::kChannelsLast ? 3 : 1] = 1;  // one value for each pixel
      d.post = {{.kind = Kind::kAddTensor, .dims = out_dims(d)}, {.kind = Kind::kMulTensor, .dims = row}};
      expect_equal(d, fmt::format("layout {}, transposed {}", static_cast<int>(layout), transposed));
    }
  }
}

TEST(Convolution, EpilogueOperands) {
  for (std::int64_t groups : {1, 32}) {
    for (std::int64_t kernel : {1, 3}) {
      ConvDesc d = plain(2, 32, 32, 8, kernel);
      d.groups = groups;
      d.batch = 2;
      d.bias = true;
      const Dims whole = out_dims(d);
      d.post = {{.kind = Kind::kAddTensor, .dims = whole}, {.kind = Kind::kRelu}};
      expect_equal(d, fmt::format("residual, {} groups, kernel {}", groups, kernel));
      d.post = {{.kind = Kind::kClip, .alpha = 0, .beta = 64},
                {.kind = Kind::kMulTensor, .dims = {1, 1, 1, 32}},
                {.kind = Kind::kSubTensor, .dims = {1, 1, 1, 1}}};
      expect_equal(d, fmt::format("channels and scalar, {} groups, kernel {}", groups, kernel));
      d.post = {{.kind = Kind::kLinear, .alpha = 0.5f, .beta = -3},
                {.kind = Kind::kMaxTensor, .dims = whole},
                {.kind = Kind::kMinTensor, .dims = {1, 1, 1, 32}},
                {.kind = Kind::kDivTensor, .dims = {1, 1, 1, 1}}};
      expect_equal(d, fmt::format("four steps, {} groups, kernel {}", groups, kernel));
    }
  }
}

TEST(Convolution, VariableWeights) {
  ConvDesc d = plain(2, 16, 40, 9, 3);
  d.weights_constant = false;
  expect_equal(d, "variable weights");
  d.transposed = true;
  set_out(d);
  expect_equal(d, "variable weights, transposed");
}

// Every kind of border, tail and thread's share of the panels' kernel, which must be the one that is chosen: a function
// with an exponential is what it is ahead in.
TEST(Convolution, Panels) {
  if (!simd().panel_gemm) GTEST_SKIP() << "a kernel of AVX2 and AVX-512";
  const std::int64_t channels[][2] = {{16, 16}, {33, 70}, {64, 255}, {130, 48}};
  for (const auto& [in, out] : channels) {
    for (int bits = 0; bits < 32; ++bits) {
      ConvDesc d = plain(2, in, out, 15, 3);
      if (bits & 1) d.pad_begin = {1, 2, 0}, d.pad_end = {2, 1, 0};
      if (bits & 2) d.batch = 2, d.threads = 3;
      if (bits & 4) d.dilation = {1, 2, 1};  // taps are no neighbours
      if (bits & 8) d.kernel = {1, 1, 1}, d.pad_begin = d.pad_end = {};
      if (bits & 16)
        d.stride = {2, 2, 1};
      else if (!(bits & 8))
        d.kernel = {2, 3, 1};
      d.exact = true;  // no Winograd
      set_out(d);
      d.bias = bits & 1;
      // Values are multiples of 128, and a sigmoid of those is 0 or 1 in float32 (and 3e-56 at -128 in the reference).
      d.post = {{.kind = Kind::kLinear, .alpha = 256, .beta = 128},
                {.kind = Kind::kSwish, .alpha = 1},
                {.kind = Kind::kAddTensor, .dims = out_dims(d)}};
      const Outcome outcome = compare(d);
      EXPECT_TRUE(outcome.kernel.starts_with("panel")) << outcome.kernel << " for " << in << " to " << out;
      EXPECT_LE(outcome.worst, 1e-40) << in << " to " << out << " channels, variant " << bits << outcome.refusal;
    }
  }
}

// K in several parts: of a tap, of several taps, and of each of several.
TEST(Convolution, DeepPanels) {
  if (!simd().panel_gemm) GTEST_SKIP() << "a kernel of AVX2 and AVX-512";
  for (std::int64_t in : {100, 641, 801}) {
    for (const ConvDesc::Extents& kernel : {ConvDesc::Extents{1, 1, 1}, {2, 1, 1}, {1, 3, 1}, {3, 1, 1}}) {
      for (std::int64_t dilation : {1, 2}) {
        ConvDesc d = plain(2, in, 70, 9, 1);
        d.kernel = kernel;
        d.dilation = {dilation, dilation, 1};
        d.pad_begin = {1, 1, 0};
        d.exact = true;  // no Winograd
        set_out(d);
        d.bias = true;
        d.post = {{.kind = Kind::kLinear, .alpha = 256, .beta = 128},
                  {.kind = Kind::kSwish, .alpha = 1},
                  {.kind = Kind::kAddTensor, .dims = out_dims(d)}};
        const Outcome outcome = compare(d);
        EXPECT_TRUE(outcome.kernel.starts_with("panel")) << outcome.kernel;
        EXPECT_LE(outcome.worst, 1e-40) << in << " channels, kernel " << kernel[0] << " x " << kernel[1]
                                        << ", dilation " << dilation << outcome.refusal;
      }
    }
  }
}

// As many results as pixels, and yet not the same ones.
TEST(Convolution, PanelsWithPaddingAndStride) {
  if (!simd().panel_gemm) GTEST_SKIP() << "a kernel of AVX2 and AVX-512";
  ConvDesc d = plain(2, 64, 64, 3, 1);
  d.in = {3, 1, 0};
  d.stride = {2, 2, 1};
  d.pad_begin = {1, 1, 0}, d.pad_end = {1, 0, 0};
  set_out(d);
  EXPECT_EQ(d.out[0], 3);
  EXPECT_EQ(d.out[1], 1);
  const Outcome outcome = compare(d);
  EXPECT_TRUE(outcome.kernel.starts_with("panel")) << outcome.kernel;
  EXPECT_EQ(outcome.worst, 0) << outcome.refusal;
}

// Kernels so wide that taps beside padding are copied, and so wide that they are too many for that. A sigmoid of -128
// is 0 in float32 and 3e-56 in the reference.
TEST(Convolution, PanelsOfWideKernels) {
  if (!simd().panel_gemm) GTEST_SKIP() << "a kernel of AVX2 and AVX-512";
  for (const std::int64_t width : {3, 11, 40}) {
    ConvDesc d = plain(2, 24, 32, 50, 1);
    d.kernel = {2, width, 1};
    d.pad_begin = {0, width / 2, 0}, d.pad_end = {1, width / 2, 0};
    d.exact = true;  // no Winograd
    set_out(d);
    d.post = {{.kind = Kind::kLinear, .alpha = 256, .beta = 128}, {.kind = Kind::kSigmoid}};
    const Outcome outcome = compare(d);
    EXPECT_TRUE(outcome.kernel.starts_with("panel")) << outcome.kernel;
    EXPECT_LE(outcome.worst, 1e-50) << "width " << width << outcome.refusal;
  }
}

TEST(Convolution, OnePackingServesEverySize) {
  const auto weights = integers(std::int64_t{64} * 64 * 9, 2, 3);
  std::shared_ptr<PackedWeights> packed;
  for (std::int64_t size : {1, 28, 3, 7, 14, 20, 28, 3}) {
    ConvDesc d = plain(2, 64, 64, size, 3);
    d.pad_begin = d.pad_end = {1, 1, 0};
    set_out(d);
    std::string why;
    auto kernel = find_convolution(d, why);
    ASSERT_TRUE(kernel) << why;
    if (!packed) packed = kernel->pack(weights.data());
    const auto src = integers(d.in[0] * d.in[1] * 64, 2, 7);
    const auto expected = convolution(d, src, weights, {}, {});
    std::vector<float> out(expected.size());
    Buffer scratch(kernel->scratch_bytes());
    kernel->run({.src = src.data(),
                 .weights = weights.data(),
                 .packed = packed.get(),
                 .out = out.data(),
                 .scratch = scratch.data()});
    const double near = is_winograd(kernel->name()) ? kWinogradError : 0;
    for (std::size_t i = 0; i < out.size(); ++i) ASSERT_NEAR(out[i], expected[i], near) << size;
  }
  // Never more than two layouts, one of 9 and one of 36 values a kernel.
  EXPECT_LE(packed->bytes(), 64 * 64 * (9 + 36) * sizeof(float));
}

TEST(Convolution, NoneOfManyRandomOnesIsRefused) {
  std::mt19937 random(7);
  const auto draw = [&](std::int64_t low, std::int64_t high) {
    return low + static_cast<std::int64_t>(random() % static_cast<unsigned>(high - low + 1));
  };
  for (int round = 0; round < 400; ++round) {
    ConvDesc d;
    d.spatial = static_cast<int>(draw(1, 3));
    d.batch = draw(1, 2);
    d.groups = draw(0, 2) == 0 ? draw(1, 20) : 1;
    d.in_channels = d.groups * draw(1, d.groups > 1 ? 3 : 20),
    d.out_channels = d.groups * draw(1, d.groups > 1 ? 3 : 20);
    d.transposed = draw(0, 3) == 0;
    d.layout = draw(0, 3) == 0 ? ImageLayout::kChannelsFirst : ImageLayout::kChannelsLast;
    d.bias = draw(0, 1);
    d.threads = 2;
    for (int i = 0; i < d.spatial; ++i) {
      d.kernel[i] = draw(1, 4), d.stride[i] = draw(1, 5), d.dilation[i] = draw(1, 3);
      d.pad_begin[i] = draw(0, 3), d.pad_end[i] = draw(0, 3);
      d.in[i] = draw(1, 9);
    }
    set_out(d);
    if (*std::min_element(d.out.begin(), d.out.begin() + d.spatial) < 1 ||
        d.in[0] + d.pad_begin[0] + d.pad_end[0] < (d.kernel[0] - 1) * d.dilation[0] + 1)
      continue;
    bool fits = true;
    for (int i = 0; i < d.spatial; ++i)
      fits &= d.transposed || d.in[i] + d.pad_begin[i] + d.pad_end[i] > (d.kernel[i] - 1) * d.dilation[i];
    if (!fits) continue;
    Dims operand = out_dims(d);
    for (auto& extent : operand) extent = draw(0, 1) ? extent : 1;
    d.post = {{.kind = Kind::kAddTensor, .dims = operand}};
    if (draw(0, 1)) d.post.push_back({.kind = Kind::kRelu});
    expect_equal(
        d, fmt::format("round {}: {} axes, {} to {} channels in {} groups, transposed {}, layout {}", round, d.spatial,
                       d.in_channels, d.out_channels, d.groups, d.transposed, static_cast<int>(d.layout)));
  }
}

TEST(Convolution, OnePositionAndOneChannel) {
  // oneDNN has no fast code for some of these in one of the layouts.
  for (const ImageLayout layout : {ImageLayout::kChannelsLast, ImageLayout::kChannelsFirst}) {
    for (std::int64_t batch : {1, 3}) {
      for (std::int64_t channels : {1, 128}) {
        ConvDesc d = plain(1, channels, 1, 1, 1);
        d.batch = batch;
        d.layout = layout;
        d.bias = true;
        PostOp relu;
        relu.kind = Kind::kRelu;
        d.post = {relu};
        expect_equal(d, fmt::format("{} channels, batch {}", channels, batch));
      }
    }
  }
}

TEST(Convolution, RefusesWhatDoesNotFit) {
  std::string why;
  ConvDesc d = plain(2, 8, 8, 6, 3);
  d.out[0] += 1;
  EXPECT_ANY_THROW(find_convolution(d, why));
  d = plain(2, 8, 8, 6, 3);
  d.groups = 3;
  EXPECT_ANY_THROW(find_convolution(d, why));
  d = plain(2, 8, 8, 6, 3);
  d.post = {{.kind = Kind::kAddTensor, .dims = {1, 1, 1, 5}}};
  EXPECT_ANY_THROW(find_convolution(d, why));
  d = plain(2, 8, 8, 6, 3);
  d.batch = 0;
  EXPECT_EQ(find_convolution(d, why), nullptr);
  EXPECT_NE(why, "");
}

}  // namespace
}  // namespace sardonyx::host::test
