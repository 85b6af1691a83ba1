// Convolutions of few channels, whose image or weights are rearranged, compared with the reference.
#include <gtest/gtest.h>

#include "conv_cases.h"
#include "host/simd.h"

namespace sardonyx::host::test {
namespace {

using Kind = PostOp::Kind;

// Windows of whole rows: of signals side by side, of embeddings, and of all pixels. With and without Winograd.
TEST(Convolution, WindowsOfWholeRows) {
  for (const std::int64_t channels : {1, 3}) {
    for (const std::int64_t rows : {1, 3, 6, 20}) {
      for (const std::int64_t stride : {1, 2}) {
        ConvDesc d = plain(2, channels, 70, 1, 1);
        d.in = {20, 33, 0};
        d.kernel = {rows, 33, 1};
        d.stride = {stride, 3, 1};
        if (rows == 6) d.pad_begin = {2, 0, 0}, d.pad_end = {1, 0, 0}, d.dilation = {2, 1, 1};
        d.batch = 4;
        set_out(d);
        d.bias = true;
        d.post = {{.kind = Kind::kAddTensor, .dims = out_dims(d)}};
        const Outcome outcome = compare(d);
        EXPECT_TRUE(outcome.kernel.ends_with("rows as channels")) << outcome.kernel;
        EXPECT_LE(outcome.worst, is_winograd(outcome.kernel) ? kWinogradError : 0)
            << channels << " channels, " << rows << " rows, by " << outcome.kernel << outcome.refusal;
      }
    }
  }
}

// Few channels and more padding than oneDNN's direct kernels allow.
TEST(Convolution, MuchPaddingOfFewChannels) {
  if (vector_level() == VectorLevel::kBaseline) GTEST_SKIP() << "oneDNN has no direct kernels";
  for (const std::int64_t in : {1, 3}) {
    for (const std::int64_t height : {1, 5}) {
      ConvDesc d = plain(2, in, 64, 1, 1);
      d.in = {2 * height - 1, 90, 0};
      d.kernel = {height, 61, 1};
      d.stride = {1, 2, 1};
      d.pad_begin = {height / 2, 30, 0}, d.pad_end = {0, 29, 0};
      d.batch = 2;
      set_out(d);
      d.post = {{.kind = Kind::kAddTensor, .dims = out_dims(d)}};
      const Outcome outcome = compare(d);
      EXPECT_TRUE(outcome.kernel.ends_with("of a padded image")) << outcome.kernel;
      EXPECT_EQ(outcome.worst, 0) << outcome.kernel << outcome.refusal;
    }
  }
}

}  // namespace
}  // namespace sardonyx::host::test
