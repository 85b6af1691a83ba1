// Winograd convolution, compared with the reference: every kind of border, padding, stride and epilogue.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include "conv_cases.h"
#include "host/winograd_plan.h"

namespace sardonyx::host::test {
namespace {

using Kind = PostOp::Kind;

// Every kind of border, tail and epilogue of Winograd's kernel, which must be the one that is chosen.
TEST(Convolution, Winograd) {
  const std::int64_t channels[][2] = {{32, 32}, {64, 48}, {40, 70}, {19, 96}, {96, 60}};
  for (const auto& [in, out] : channels) {
    for (int bits = 0; bits < 8; ++bits) {
      ConvDesc d = plain(2, in, out, 21, 3);
      if (bits & 1) d.pad_begin = {1, 2, 0}, d.pad_end = {2, 0, 0};
      if (bits & 2) d.batch = 2;
      if (bits & 4) d.in = {30, 33, 0}, d.dilation = {2, 1, 1};
      set_out(d);
      d.bias = bits & 1;
      d.post = {{.kind = Kind::kMulTensor, .dims = {1, 1, 1, out}}, {.kind = Kind::kAddTensor, .dims = out_dims(d)}};
      if (bits & 2) d.post.push_back({.kind = Kind::kClip, .alpha = -40, .beta = 64});
      const Outcome outcome = compare(d);
      EXPECT_TRUE(is_winograd(outcome.kernel)) << outcome.kernel << " for " << in << " to " << out;
      EXPECT_LE(outcome.worst, kWinogradError) << in << " to " << out << " channels, variant " << bits;
    }
  }
}

// The same with stride 2, in tiles of 4 x 4 results, and of 2 x 2 where there are few pixels and many channels.
TEST(Convolution, WinogradStrided) {
  struct Case {
    std::int64_t in, out, size;
    const char* kernel;
  };
  for (const Case& c : {Case{64, 64, 95, "winograd 4x4 stride 2"}, Case{20, 200, 79, "winograd 4x4 stride 2"},
                        Case{250, 256, 30, "winograd 2x2 stride 2"}}) {
    for (const int bits : {0, 1, 3}) {
      ConvDesc d = plain(2, c.in, c.out, c.size, 3);
      if (bits & 1) d.pad_begin = {1, 2, 0}, d.pad_end = {2, 0, 0};
      if (bits & 2 && c.size > 40) d.batch = 2;  // larger batches have tiles enough
      d.stride = {2, 2, 1};
      set_out(d);
      d.bias = bits & 1;
      d.post = {{.kind = Kind::kMulTensor, .dims = {1, 1, 1, c.out}}, {.kind = Kind::kAddTensor, .dims = out_dims(d)}};
      const Outcome outcome = compare(d);
      EXPECT_TRUE(outcome.kernel.starts_with(c.kernel)) << outcome.kernel << ", not " << c.kernel;
      EXPECT_LE(outcome.worst, kWinogradError) << outcome.kernel << ", variant " << bits;
    }
  }
}

// Groups: of whole and of partial panels and vectors, several transformed together, and several merged into one.
TEST(Convolution, WinogradOfGroups) {
  if (vector_level() == VectorLevel::kBaseline) GTEST_SKIP() << "other groups are worth it";
  const std::int64_t cases[][3] = {{128, 128, 4}, {96, 192, 4},  {240, 240, 5},
                                   {216, 216, 9}, {360, 120, 3}, {256, 256, 4}};
  for (const auto& [in, out, groups] : cases) {
    for (const int bits : {0, 3, 5}) {
      ConvDesc d = plain(2, in, out, 22, 3);
      d.groups = groups;
      if (bits & 1) d.pad_begin = {1, 2, 0}, d.pad_end = {2, 0, 0};
      if (bits & 2) d.batch = 2;
      if (bits & 4) d.dilation = {2, 1, 1};
      d.threads = bits == 5 ? 3 : 2;
      set_out(d);
      d.bias = bits & 1;
      d.post = {{.kind = Kind::kMulTensor, .dims = {1, 1, 1, out}}, {.kind = Kind::kAddTensor, .dims = out_dims(d)}};
      const Outcome outcome = compare(d);
      const std::string label = fmt::format("{} to {} channels in {} groups, variant {}", in, out, groups, bits);
      EXPECT_TRUE(is_winograd(outcome.kernel)) << outcome.kernel << ", " << label;
      EXPECT_LE(outcome.worst, kWinogradError) << outcome.kernel << ", " << label;
    }
  }
  ConvDesc narrow = plain(2, 128, 128, 56, 3);
  narrow.groups = 32;
  narrow.pad_begin = narrow.pad_end = {1, 1, 0};
  set_out(narrow);
  const Outcome outcome = compare(narrow);
  EXPECT_TRUE(is_winograd(outcome.kernel) && outcome.kernel.ends_with("groups as one")) << outcome.kernel;
  EXPECT_LE(outcome.worst, kWinogradError);
}

// Images of few channels with stride 2, whose 2 x 2 blocks of pixels are folded into channels: every kind of padding.
TEST(Convolution, WinogradSpaceToDepth) {
  if (vector_level() == VectorLevel::kAvx2) GTEST_SKIP() << "these sizes take oneDNN's direct convolution";
  struct Case {
    std::int64_t in, out, kernel;
    const char* name;
  };
  for (const Case& c : {Case{3, 32, 6, "winograd 4x4 space-to-depth"}, Case{4, 70, 5, "winograd 4x4 space-to-depth"},
                        Case{3, 64, 7, "winograd 3x3 space-to-depth"}, Case{1, 80, 7, "winograd 3x3 space-to-depth"}}) {
    for (const std::int64_t pad : {0, 1, 2, 3}) {
      ConvDesc d = plain(2, c.in, c.out, 69, c.kernel);
      d.batch = pad == 3 ? 2 : 1;
      d.stride = {2, 2, 1};
      d.pad_begin = {pad, pad, 0}, d.pad_end = {3 - pad, pad, 0};
      set_out(d);
      d.bias = pad & 1;
      d.post = {{.kind = Kind::kMulTensor, .dims = {1, 1, 1, c.out}}, {.kind = Kind::kAddTensor, .dims = out_dims(d)}};
      const Outcome outcome = compare(d);
      // A kernel of even size has half a square before it if the padding is odd.
      const bool shifted = c.kernel == 6 && pad % 2 == 1;
      EXPECT_TRUE(outcome.kernel.starts_with(shifted ? "winograd 3x3 space-to-depth" : c.name))
          << outcome.kernel << ", not " << c.name << ", padding " << pad;
      EXPECT_LE(outcome.worst, kWinogradError) << outcome.kernel << ", padding " << pad;
    }
  }
}

// Signals: tiles of 4 results.
TEST(Convolution, WinogradOverOneAxis) {
  const std::int64_t channels[][2] = {{32, 64}, {96, 256}, {19, 130}};
  for (const auto& [in, out] : channels) {
    for (int bits = 0; bits < 8; ++bits) {
      ConvDesc d = plain(1, in, out, 301, 3);
      if (bits & 1) d.pad_begin = {1, 0, 0}, d.pad_end = {2, 0, 0};
      if (bits & 2) d.batch = 2;
      if (bits & 4) d.stride = {2, 1, 1};
      if (bits == 3) d.dilation = {3, 1, 1};
      set_out(d);
      d.post = {{.kind = Kind::kMulTensor, .dims = {1, 1, out}}, {.kind = Kind::kAddTensor, .dims = out_dims(d)}};
      const Outcome outcome = compare(d);
      EXPECT_TRUE(outcome.kernel.starts_with("winograd 1x4")) << outcome.kernel << " for " << in << " to " << out;
      EXPECT_LE(outcome.worst, kWinogradError) << in << " to " << out << " channels, variant " << bits;
    }
  }
}

// Filters of more than 3 taps are sums of pieces of 3: every number of taps that a last piece lacks, channels that do
// not fill vectors, and both axes.
TEST(Convolution, WinogradOfPieces) {
  struct Case {
    std::int64_t in, out, height, width;
    const char* kernel;
  };
  const Case cases[] = {{64, 128, 1, 5, "winograd 1x4 of 2 pieces"}, {35, 96, 1, 8, "winograd 1x4 of 3 pieces"},
                        {64, 48, 9, 1, "winograd 4x1 of 3 pieces"},  {96, 130, 3, 1, "winograd 4x1"},
                        {33, 64, 5, 5, "winograd 4x4 of 4 pieces"},  {24, 64, 4, 7, "winograd 4x4 of 6 pieces"}};
  for (const Case& c : cases) {
    for (const int bits : {0, 3, 5, 6}) {
      ConvDesc d = plain(2, c.in, c.out, 0, 1);
      d.in = {41, 45, 0}, d.kernel = {c.height, c.width, 1};
      for (std::size_t i = 0; i < 2; ++i) {
        if (bits & 1 && d.kernel[i] > 1) d.pad_begin[i] = d.kernel[i] / 2, d.pad_end[i] = d.kernel[i] - 2;
        if (bits & 4) d.dilation[i] = 2;
      }
      if (bits & 2) d.batch = 2, d.threads = 3;
      set_out(d);
      d.bias = bits & 1;
      d.post = {{.kind = Kind::kMulTensor, .dims = {1, 1, 1, c.out}}, {.kind = Kind::kAddTensor, .dims = out_dims(d)}};
      const Outcome outcome = compare(d);
      EXPECT_TRUE(outcome.kernel.starts_with(c.kernel)) << outcome.kernel << ", not " << c.kernel;
      EXPECT_LE(outcome.worst, kWinogradError) << outcome.kernel << ", variant " << bits;
    }
  }
}

// Weights of pieces that are too many for the caches, channels that are too few for vectors, and strides.
TEST(Convolution, NoWinogradOfPieces) {
  ConvDesc large = plain(2, 256, 256, 14, 5), few = plain(2, 4, 128, 40, 5), strided = plain(2, 64, 64, 40, 5);
  strided.stride = {2, 2, 1};
  for (ConvDesc* d : {&large, &few, &strided}) {
    set_out(*d);
    const Outcome outcome = compare(*d);
    EXPECT_FALSE(is_winograd(outcome.kernel)) << outcome.kernel;
    EXPECT_EQ(outcome.worst, 0) << outcome.kernel;
  }
}

// Few tiles, and weights that do not fit the caches (in two blocks): threads divide the channels of results.
TEST(Convolution, WinogradThreadsShareTiles) {
  ConvDesc few = plain(2, 160, 224, 12, 3), many = plain(2, 320, 384, 30, 3);
  for (ConvDesc* d : {&few, &many}) {
    d->pad_begin = d->pad_end = {1, 1, 0};
    d->threads = 3;
    set_out(*d);
    d->post = {{.kind = Kind::kRelu}};
    const Outcome outcome = compare(*d);
    EXPECT_TRUE(is_winograd(outcome.kernel)) << outcome.kernel;
    EXPECT_LE(outcome.worst, kWinogradError);
  }
}

// With a dilation near the image's extent most of the taps are in the padding, which a direct kernel skips.
TEST(Convolution, WinogradWhereTapsAreInTheImage) {
  for (const std::int64_t dilation : {1, 4, 12, 24}) {
    ConvDesc d = plain(2, 128, 128, 33, 3);
    d.dilation = d.pad_begin = d.pad_end = {dilation, dilation, 0};
    set_out(d);
    std::string why;
    const auto kernel = find_convolution(d, why);
    ASSERT_TRUE(kernel) << why;
    EXPECT_EQ(is_winograd(kernel->name()), dilation < 12) << kernel->name() << ", dilation " << dilation;
  }
  ConvDesc far = plain(2, 128, 128, 33, 3);
  far.dilation = far.pad_begin = far.pad_end = {std::int64_t{1} << 60, std::int64_t{1} << 60, 0};
  set_out(far);
  EXPECT_EQ(far.out[0], 33);
  EXPECT_FALSE(plan_winograd(far));
}

TEST(Convolution, NoWinogradForExactSums) {
  if (vector_level() == VectorLevel::kBaseline) GTEST_SKIP() << "other groups are worth it";
  for (const std::int64_t groups : {1, 5}) {
    ConvDesc d = plain(2, 240, 240, 22, 3);
    d.groups = groups;
    EXPECT_TRUE(plan_winograd(d)) << groups;
    d.exact = true;
    EXPECT_FALSE(plan_winograd(d)) << groups;
  }
}

TEST(Convolution, WinogradEpilogues) {
  for (const Kind kind : {Kind::kAddTensor, Kind::kSubTensor, Kind::kMulTensor, Kind::kMaxTensor, Kind::kMinTensor,
                          Kind::kRelu, Kind::kLeakyRelu, Kind::kClip, Kind::kSigmoid, Kind::kTanh, Kind::kSwish,
                          Kind::kHardSwish, Kind::kHardSigmoid, Kind::kLinear, Kind::kAbs}) {
    ConvDesc d = plain(2, 32, 32, 20, 3);
    d.post = {{.kind = Kind::kLinear, .alpha = 0.0625f, .beta = -0.25f}, {.kind = kind, .alpha = 0.25f, .beta = 0.5f}};
    if (d.post[1].has_operand()) d.post[1].dims = {1, 1, 1, kind == Kind::kSubTensor ? 1 : 32};
    const Outcome outcome = compare(d);
    EXPECT_TRUE(is_winograd(outcome.kernel)) << outcome.kernel;
    EXPECT_LE(outcome.worst, kWinogradError) << static_cast<int>(kind);
  }
  // What the kernel has no step for is left to oneDNN.
  ConvDesc d = plain(2, 32, 32, 20, 3);
  d.post = {{.kind = Kind::kMish}};
  EXPECT_FALSE(is_winograd(compare(d).kernel));
}

}  // namespace
}  // namespace sardonyx::host::test
