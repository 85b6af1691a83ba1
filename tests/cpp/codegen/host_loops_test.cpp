// Loop kernels of the host: along which dim they run, and what is outside of their innermost loop.
#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "codegen/loop_codegen.h"
#include "graph_text/parse.h"

namespace sardonyx::codegen {
namespace {

using testing::AllOf;
using testing::HasSubstr;
using testing::Not;

std::string source(std::string_view text) {
  const auto g = parse_graph(text);
  const auto* l = g->outputs[0]->producer->as<LoopOp>();
  return generate_host_loop({{}, {Stage{g->outputs[0], l->vars, l->vars, l->body, true}}}).kernel.body;
}

std::string largest_of_neighbours(const char* image, const char* at) {
  return fmt::format(R"(%0 = input float32[{}]
%1 = loop float32[n < n, c < 128, p < 1024]: max{{k < 20}}(%0[{}])
return %1)",
                     image, at);
}

// Tiles of 64 results side by side, although the result's innermost dim is another one than the image's.
TEST(HostLoops, ReductionsRunAlongWhatTheyRead) {
  EXPECT_THAT(source(largest_of_neighbours("n, 1024, 20, 128", "n, p, k, c")), HasSubstr("[64];"));
  EXPECT_THAT(source(largest_of_neighbours("n, 20, 128, 1024", "n, k, c, p")), HasSubstr("[64];"));
  EXPECT_THAT(source(largest_of_neighbours("n, 128, 1024, 20", "n, c, p, k")), Not(HasSubstr("[64];")));
}

// clang would unroll loops of few values before it could vectorise them. Not where that is no gain: across memory.
TEST(HostLoops, ShortRunsAreNotUnrolled) {
  const auto loop = [](int channels, const char* at) {
    return source(fmt::format(R"(%0 = input float32[n, {0}]
%1 = input float32[{0}, {0}]
%2 = loop float32[n < n, c < {0}]: %0[n, c] * %1[{1}]
return %2)",
                              channels, at));
  };
  for (const int channels : {4, 8, 15}) EXPECT_THAT(loop(channels, "0, c"), HasSubstr("unroll(disable)")) << channels;
  for (const int channels : {3, 16, 64}) EXPECT_THAT(loop(channels, "0, c"), Not(HasSubstr("unroll"))) << channels;
  EXPECT_THAT(loop(8, "c, 0"), Not(HasSubstr("unroll")));
}

// An image of few channels that is stored with channels last is computed along its rows, if there is something to
// compute.
TEST(HostLoops, FewChannelsAreOutside) {
  const auto loop = [](const char* body, int channels = 3) {
    return source(
        fmt::format("%0 = input float32[n, {0}, 1024]\n%1 = loop float32[n < n, p < 1024, c < {0}]: {1}\n"
                    "return %1",
                    channels, body));
  };
  const auto along = HasSubstr("< i64(1024); ++");
  EXPECT_THAT(loop("max(min(%0[n, c, p] / 3.0 + 1.0, 9.0), 0.0)"), along);
  EXPECT_THAT(loop("%0[n, c, p]"), Not(along));
  EXPECT_THAT(loop("max(min(%0[n, c, p] / 3.0 + 1.0, 9.0), 0.0)", 64), Not(along));  // in square tiles
}

// Rows of tables that are stacked are copied: the table is chosen once for each row.
TEST(HostLoops, ChoicesAreOutsideOfTheInnermostLoop) {
  std::string tables, body = "0.0";
  for (int k = 12; k-- > 0;) {
    tables = fmt::format("%{} = input float32[1000, 64]\n", k + 1) + tables;
    body = fmt::format("select(t < {}, %{}[max(%0[n, {}], 0), c], {})", k + 1, k + 1, k, body);
  }
  const std::string text = source("%0 = input int64[n, 12]\n" + tables +
                                  "%13 = loop float32[n < n, t < 12, c < 64]: " + body + "\nreturn %13");
  std::size_t copies = 0;
  for (std::size_t at = 0; (at = text.find("__builtin_memcpy", at)) != std::string::npos; ++at) ++copies;
  EXPECT_EQ(copies, 12);
}

// Each loop takes milliseconds to compile, so choices of many computed sides stay inside.
TEST(HostLoops, ManyComputedSidesAreOneLoop) {
  const auto loops = [](int sides) {
    std::string body = "0.0";
    for (int k = 1; k < sides; ++k) body = fmt::format("select(t < {}, tanh(%0[n, c] * {}.0), {})", sides - k, k, body);
    const std::string text =
        source("%0 = input float32[n, 64]\n%1 = loop float32[n < n, t < 12, c < 64]: " + body + "\nreturn %1");
    std::size_t count = 0;
    for (std::size_t at = 0; (at = text.find("assume_safety", at)) != std::string::npos; ++at) ++count;
    return count;
  };
  EXPECT_EQ(loops(3), 3);
  EXPECT_EQ(loops(8), 1);
}

// Places of samples are computed once for all channels, although the result's innermost dim is another one; of rows
// that are only gathered, the result is written in order.
TEST(HostLoops, SamplesRunAlongChannels) {
  const auto samples = [](const char* type, const char* place) {
    return source(fmt::format(R"(%0 = input float32[n, 1000, 32]
%1 = input {}[n, 500]
%2 = loop float32[n < n, c < 32, q < 500]: tanh(%0[n, {}, c])
return %2)",
                              type, place));
  };
  const std::string text = samples("float32", "int64(floor(%1[n, q]))");
  EXPECT_LT(text.find("floor("), text.find("< i64(32); ++")) << text;
  EXPECT_THAT(samples("int64", "%1[n, q]"), HasSubstr("< i64(500); ++"));
}

// A loop for each part of a concatenation, also where something is computed with it.
TEST(HostLoops, ConcatenationsAreComputedPartByPart) {
  const auto loops = [](int parts) {
    std::string tensors, body = fmt::format("%{}[n, c]", parts - 1);
    for (int k = 0; k < parts; ++k) tensors += fmt::format("%{} = input float32[n, 320]\n", k);
    for (int k = parts - 1; k-- > 0;) body = fmt::format("select(c < {}, %{}[n, c], {})", (k + 1) * 32, k, body);
    const std::string text = source(fmt::format(
        "{}%{} = loop float32[n < n, c < 320]: tanh({} * 2.0) + 1.0\nreturn %{}", tensors, parts, body, parts));
    std::size_t count = 0;
    for (std::size_t at = 0; (at = text.find("assume_safety", at)) != std::string::npos; ++at) ++count;
    return count;
  };
  EXPECT_EQ(loops(2), 2);
  EXPECT_EQ(loops(4), 4);
  EXPECT_EQ(loops(8), 1);  // each loop takes milliseconds to compile
}

// Rounding to integers may depend on which products are contracted, and so would on how the loop is divided.
TEST(HostLoops, RoundedSumsOfProductsAreNotDivided) {
  const auto loops = [](const char* second) {
    const std::string text =
        source(fmt::format("%0 = input float32[n, 320]\n%1 = input float32[n, 320]\n"
                           "%2 = loop int8[n < n, c < 320]: int8(round(select(c < 32, %0[n, c], {})))\nreturn %2",
                           second));
    std::size_t count = 0;
    for (std::size_t at = 0; (at = text.find("assume_safety", at)) != std::string::npos; ++at) ++count;
    return count;
  };
  EXPECT_EQ(loops("%1[n, c]"), 2);
  EXPECT_EQ(loops("%1[n, c] * 0.25 + %0[n, c] * 0.75"), 1);
}

// One comparison after the other would take some cycles for each element.
TEST(HostLoops, LongRowsAreSearchedInLanes) {
  const auto text = [](int length) {
    return fmt::format(R"(%0 = input float32[n, {0}]
%1 = loop int64[n < n]: argmin{{k < {0}}}(%0[n, k])
return %1)",
                       length);
  };
  EXPECT_THAT(source(text(512)), HasSubstr("_[16]; i32"));
  EXPECT_THAT(source(text(20)), Not(HasSubstr("_[16]; i32")));
}

// Angles are tested in blocks, before they are reduced as large ones; not where some may not be computed.
TEST(HostLoops, AnglesAreTestedFirst) {
  const auto text = [](const char* body) {
    return fmt::format("%0 = input float32[n, 64]\n%1 = loop float32[n < n, c < 64]: {}\nreturn %1", body);
  };
  EXPECT_THAT(
      source(text("sin(30.0 * %0[n, c]) + cos(%0[n, c])")),
      AllOf(HasSubstr("< kBoundedAngle"), HasSubstr("bounded_sin("), HasSubstr("bounded_cos("), HasSubstr(" sin(")));
  EXPECT_THAT(source(text("select(c < n, sin(%0[n, c + 1]), 0.0)")), Not(HasSubstr("kBoundedAngle")));
  EXPECT_THAT(source(text("sin(exp(%0[n, c]))")), Not(HasSubstr("kBoundedAngle")));
}

}  // namespace
}  // namespace sardonyx::codegen
