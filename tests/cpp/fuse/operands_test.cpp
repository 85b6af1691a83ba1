// Passes that rearrange operands of tile kernels and windows: pack_operands, fill_channels, merge_groups.
#include <fmt/format.h>
#include <gmock/gmock.h>

#include "pass_test.h"

namespace sardonyx {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;
using testing::Not;

FuseOptions packing() {
  FuseOptions o = any_device();
  o.contiguous_k = true;
  return o;
}

TEST(PackOperands, WeightsAreStoredWithKInnermost) {
  expect_pass("pack_operands", R"(%0 = input float32[n, 16]
%1 = constant float32[16, 8] {...}
%2 = matmul float32[i < n, j < 8; k < 16]: %0[i, k], %1[k, j]
return %2)",
              R"(%0 = input float32[n, 16]
%1 = constant float32[16, 8] {...}
%2 = loop float32[i < 16, j < 8] order(1, 0): %1[i, j]
%3 = matmul float32[i < n, j < 8; k < 16]: %0[i, k], %2[k, j]
return %3)",
              packing());
}

TEST(PackOperands, ActivationsAndPackedWeightsStay) {
  expect_unchanged("pack_operands", R"(%0 = input float32[n, 16]
%1 = constant float32[8, 16] {...}
%2 = input float32[16, 8]
%3 = matmul float32[i < n, j < 8; k < 16]: %0[i, k], %1[j, k]
%4 = matmul float32[i < n, j < 8; k < 16]: %0[i, k], %2[k, j]
return %3, %4)",
                   packing());
}

TEST(PackOperands, LearnedKeysHaveTheElementsOfAHeadInnermost) {
  const auto graph = [](const char* copy, const char* keys) {
    return fmt::format(R"(%0 = input float16[n, 8, 64, 32]
%1 = constant float16[8, 32, 48] {{...}}
{}%9 = attention float16[n, 8, 64, 32] over [b < n, h < 8, s < 64, t < 48, d < 32, e < 32] {{scale = 1.0, q = %0[b, h, s, d], k = {}[h, d, t], v = {}[h, e, t]}}
return %9)",
                       copy, keys, keys);
  };
  expect_pass("pack_operands", graph("", "%1"),
              graph("%2 = loop float16[h < 8, d < 32, t < 48] order(0, 2, 1): %1[h, d, t]\n", "%2"), packing());
}

// All channels of a plane at a place that is computed: side by side, if the loop's result has them so.
TEST(PackOperands, ChannelsOfGatheredPlacesAreNeighbours) {
  expect_pass("pack_operands", R"(%0 = input int64[n]
%1 = constant float32[16, 64] {...}
%2 = loop float32[i < n, c < 16]: %1[c, %0[i]] * 2.0
%3 = loop float32[c < 16, i < n]: %1[c, %0[i]] * 3.0
return %2, %3)",
              R"(%0 = input int64[n]
%1 = constant float32[16, 64] {...}
%2 = loop float32[c < 16, i < 64] order(1, 0): %1[c, i]
%3 = loop float32[i < n, c < 16]: %2[c, %0[i]] * 2.0
%4 = loop float32[c < 16, i < n]: %1[c, %0[i]] * 3.0
return %3, %4)",
              packing());
}

// A convolution along a line of one filter for each channel, channels last.
TEST(PackOperands, FiltersOfLinesAreStoredAsTheirChannelsAre) {
  expect_pass("pack_operands", R"(%0 = input float32[n, 10, 64]
%1 = constant float32[64, 3] {...}
%2 = loop float32[n < n, t < 8, c < 64]: sum{r < 3}(%0[n, t + r, c] * %1[c, r])
return %2)",
              R"(%0 = input float32[n, 10, 64]
%1 = constant float32[64, 3] {...}
%2 = loop float32[c < 64, r < 3] order(1, 0): %1[c, r]
%3 = loop float32[n < n, t < 8, c < 64]: sum{r < 3}(%0[n, t + r, c] * %2[c, r])
return %3)",
              packing());
  // Channels first: a filter's taps are the same for neighbouring outputs. And sums along rows.
  expect_unchanged("pack_operands", R"(%0 = input float32[n, 64, 10]
%1 = constant float32[64, 3] {...}
%2 = loop float32[n < n, c < 64, t < 8]: sum{r < 3}(%0[n, c, t + r] * %1[c, r])
%3 = constant float32[64, 10] {...}
%4 = loop float32[n < n, c < 64]: sum{r < 10}(%0[n, c, r] * %3[c, r])
return %2, %4)",
                   packing());
}

// A stack of windows is a kernel of its own, so the windows' own order counts.
TEST(PackOperands, FiltersOfStackedWindowsAreStoredAsTheirChannelsAre) {
  EXPECT_THAT(after_pass("pack_operands", R"(%0 = input float32[n, 10, 64]
%1 = constant float32[64, 3] {...}
%2 = loop float32[n < n, t < 8, c < 64]: sum{r < 3}(%0[n, t + r, c] * %1[c, r])
%3 = loop float32[n < n, p < 2, c < 64, t < 8]: select(p < 1, %2[n, t, c], %0[n, t, c])
return %3)",
                         packing()),
              testing::HasSubstr("order(1, 0): %1["));
}

FuseOptions filling() {
  FuseOptions o = any_device();
  o.fill_channels = true;
  return o;
}

TEST(FillChannels, NeighboursAndZerosBecomeChannels) {
  expect_pass("fill_channels", R"(%0 = input float32[1, 3, 8]
%1 = constant float32[200, 3, 2] {...}
%2 = conv float32[1, 200, 4]: %0, %1 {strides = [2]}
return %2)",
              R"(%0 = input float32[1, 3, 8]
%1 = constant float32[200, 3, 2] {...}
%2 = loop float32[o < 200, c < 8, x < 1]: select(mod(c, 4) < 3, %1[o, mod(c, 4), 2 * x + floordiv(c, 4)], 0.0)
%3 = loop float32[i < 1, c < 8, x < 4]: select(mod(c, 4) < 3, %0[i, mod(c, 4), 2 * x + floordiv(c, 4)], 0.0)
%4 = conv float32[1, 200, 4]: %3, %2
return %4)",
              filling());
}

TEST(FillChannels, FullVectorsStay) {
  expect_unchanged("fill_channels", R"(%0 = input float32[1, 4, 8]
%1 = constant float32[8, 4, 2] {...}
%2 = conv float32[1, 8, 4]: %0, %1 {strides = [2]}
return %2)",
                   filling());
}

FuseOptions short_vectors() {
  FuseOptions o = filling();
  o.short_vectors = true;
  return o;
}

// Two pixels of three channels are 12 bytes, at which windows begin with one more tap. The image is not filled.
TEST(FillChannels, ImageWithChannelsLastIsNotCopied) {
  expect_pass("fill_channels", R"(%0 = input float16[n, 8, 8, 3]
%1 = constant float16[64, 3, 7, 7] {...}
%2 = loop float16[i < n, c < 3, y < 8, x < 8]: %0[i, y, x, c]
%3 = conv float16[n, 64, 4, 4]: %2, %1 {strides = [2, 2], pads = [3, 3, 3, 3]}
return %3)",
              R"(%0 = input float16[n, 8, 8, 3]
%1 = constant float16[64, 3, 7, 7] {...}
%2 = loop float16[i < n, c < 3, y < 8, x < 8]: %0[i, y, x, c]
%3 = loop float16[o < 64, c < 8, y < 7, x < 4]: select(c < 6 && (0 <= 2 * x + floordiv(c, 3) - 1 && 2 * x + floordiv(c, 3) - 1 < 7), %1[o, mod(c, 3), y, 2 * x + floordiv(c, 3) - 1], 0.0:float16)
%4 = loop float16[i < n, c < 6, y < 8, x < 4]: %2[i, mod(c, 3), y, 2 * x + floordiv(c, 3)]
%5 = conv float16[n, 64, 4, 4]: %4, %3 {strides = [2, 1], pads = [3, 2, 3, 1], zeros = 2}
return %5)",
              short_vectors());
}

// In memory the channels are apart, or a row ends within a wide pixel: the image is copied, and filled on the way.
TEST(FillChannels, OtherImagesAreFilled) {
  EXPECT_THAT(after_pass("fill_channels", R"(%0 = input float16[n, 3, 8, 8]
%1 = constant float16[64, 3, 7, 7] {...}
%2 = conv float16[n, 64, 4, 4]: %0, %1 {strides = [2, 2], pads = [3, 3, 3, 3]}
return %2)",
                         short_vectors()),
              HasSubstr("[i0 < n, i1 < 8, i2 < 8, i3 < 7]"));
  EXPECT_THAT(after_pass("fill_channels", R"(%0 = input float16[n, 9, 9, 3]
%1 = constant float16[64, 3, 7, 7] {...}
%2 = loop float16[i < n, c < 3, y < 9, x < 9]: %0[i, y, x, c]
%3 = conv float16[n, 64, 5, 5]: %2, %1 {strides = [2, 2], pads = [3, 3, 3, 3]}
return %3)",
                         short_vectors()),
              HasSubstr("[i0 < n, i1 < 8, i2 < 9, i3 < 8]"));
}

FuseOptions copying() {
  FuseOptions o = filling();
  o.tensor_copy = true;
  return o;
}

// {0}: channels, {1}: output channels, {2}: type, {3}: taps along the last dim.
std::string image_of(int channels, int outputs, const char* type = "float16", int taps = 3) {
  return fmt::format(R"(%0 = input {2}[n, {0}, 8, 10]
%1 = constant {2}[{1}, {0}, 1, {3}] {{...}}
%2 = conv {2}[n, {1}, 8, {4}]: %0, %1
return %2)",
                     channels, outputs, type, taps, 11 - taps);
}

// 196 channels become 224, of which 64 bytes are copied at a time, and 56 become 64; 36 become 40, as 64 would be many.
// For three outputs, which other passes take apart, whole vectors are enough.
TEST(FillChannels, ManyChannelsSuitTheCopyEngine) {
  for (const auto& [channels, outputs, filled] :
       {std::tuple(196, 64, 224), std::tuple(56, 64, 64), std::tuple(36, 64, 40), std::tuple(36, 3, 40)})
    EXPECT_THAT(after_pass("fill_channels", image_of(channels, outputs), copying()),
                HasSubstr(fmt::format("float16[i0 < n, i1 < {}, i2 < 8, i3 < 10]", filled)));
  EXPECT_THAT(after_pass("fill_channels", image_of(196, 64), filling()), HasSubstr("i1 < 200"));
}

// The last convolution of a flow or depth decoder: matrix instructions, most of whose columns are unused, are faster.
TEST(FillChannels, FewOutputsOfLongSumsAreFilled) {
  EXPECT_THAT(after_pass("fill_channels", image_of(18, 3, "float16", 7), filling()), HasSubstr("i1 < 24"));
  EXPECT_THAT(after_pass("fill_channels", image_of(9, 2, "float16", 9), filling()), HasSubstr("i1 < 16"));
  for (const std::string& text : {image_of(18, 3), image_of(18, 3, "float32", 7), image_of(12, 3, "float16", 7)})
    expect_unchanged("fill_channels", text, filling());
}

// 27 elements of an RGB image's windows are a row of 32; strides, more channels and other devices fold pixels.
TEST(FillChannels, SmallWindowsOfFewChannelsBecomeChannels) {
  const auto graph = [](int channels, const char* out, const char* attributes) {
    return fmt::format(R"(%0 = input float16[n, {0}, 16, 16]
%1 = constant float16[64, {0}, 3, 3] {{...}}
%2 = conv float16[n, 64, {1}]: %0, %1 {2}
return %2)",
                       channels, out, attributes);
  };
  const std::string small = graph(3, "16, 16", "{pads = [1, 1, 1, 1]}");
  EXPECT_THAT(after_pass("fill_channels", small, copying()), HasSubstr("float16[i0 < n, i1 < 32, i2 < 16, i3 < 16]"));
  EXPECT_THAT(after_pass("fill_channels", small, filling()), Not(HasSubstr("i1 < 32, i2 < 16")));
  for (const std::string& other :
       {graph(3, "8, 8", "{strides = [2, 2], pads = [1, 1, 1, 1]}"), graph(12, "16, 16", "{pads = [1, 1, 1, 1]}")})
    EXPECT_THAT(after_pass("fill_channels", other, copying()), Not(HasSubstr("i1 < 32, i2 <"))) << other;
}

TEST(FillChannels, OneTapIsFilledForTheCopyEngineOnly) {
  EXPECT_THAT(after_pass("fill_channels", image_of(36, 36, "float16", 1), copying()), HasSubstr("i1 < 40"));
  expect_unchanged("fill_channels", image_of(36, 36, "float16", 1), filling());
}

TEST(FillChannels, ChannelsThatAreNoVectorsOfTheCopyEngineStay) {
  for (const std::string& text : {image_of(72, 64), image_of(40, 64), image_of(56, 8), image_of(96, 64),
                                  image_of(36, 3, "float32"), image_of(34, 3, "float32")})
    expect_unchanged("fill_channels", text, copying());
}

// The last loop of an epilogue lists what the whole epilogue loads, also what its own body does not mention.
TEST(PackOperands, OtherLoopsKeepTheirInputs) {
  const auto g = parse_graph(R"(%0 = input float32[n, 8]
%1 = loop float32[i < n, j < 8]: %0[i, j] * 2.0
%2 = loop float32[i < n, j < 8]: %0[i, j] + 1.0
return %1, %2)");
  Node& tail = *g->outputs[1]->producer;
  tail.inputs.push_back(g->outputs[0]);
  const FuseOptions options = any_device();
  PassState state{*g, options, {}};
  pass_named("pack_operands").run(state);
  EXPECT_EQ(tail.inputs, (std::vector<Value*>{g->inputs[0], g->outputs[0]}));
}

FuseOptions folding() {
  FuseOptions o = filling();
  o.fold_outputs = true;
  return o;
}

// Four outputs of 64 channels, which begin two pixels apart: a window of 16 pixels moves by 8.
TEST(FillChannels, OneWindowComputesSeveralOutputs) {
  expect_pass("fill_channels", R"(%0 = input int8[n, 3, 230, 230]
%1 = constant int8[64, 3, 7, 7] {...}
%2 = conv int32[n, 64, 112, 112]: %0, %1 {strides = [2, 2]}
return %2)",
              R"(%0 = input int8[n, 3, 230, 230]
%1 = constant int8[64, 3, 7, 7] {...}
%2 = loop int8[o < 256, c < 32, y < 7, x < 2]: select(0 <= 8 * x + floordiv(c, 4) - floordiv(o, 64) * 2 && (8 * x + floordiv(c, 4) - floordiv(o, 64) * 2 < 7 && mod(c, 4) < 3), %1[mod(o, 64), mod(c, 4), y, 8 * x + floordiv(c, 4) - floordiv(o, 64) * 2], 0:int8)
%3 = loop int8[i < n, c < 32, y < 230, x < 29]: select(8 * x + floordiv(c, 4) < 230 && mod(c, 4) < 3, %0[i, mod(c, 4), y, 8 * x + floordiv(c, 4)], 0:int8)
%4 = conv int32[n, 64, 112, 112]: %3, %2 {strides = [2, 1]}
return %4)",
              folding());
}

FuseOptions folding_copies() {
  FuseOptions o = folding();
  o.tensor_copy = true;
  return o;
}

// In 16 bits, eight outputs of eight channels fill a tile's columns, and eight pixels what is loaded at a time.
TEST(FillChannels, LongWindowsOfFewChannelsComputeSeveralOutputs) {
  const std::string out = after_pass("fill_channels", R"(%0 = input float16[n, 8, 20, 64]
%1 = constant float16[8, 8, 3, 39] {...}
%2 = conv float16[n, 8, 20, 64]: %0, %1 {pads = [1, 19, 1, 19]}
return %2)",
                                     folding_copies());
  EXPECT_THAT(out, HasSubstr("loop float16[i0 < 64, i1 < 64, i2 < 3, i3 < 6]"));
  EXPECT_THAT(out, HasSubstr("loop float16[i0 < n, i1 < 64, i2 < 20, i3 < 13]"));
}

// Short windows, results that fill a tile, odd widths, types of 32 bits, and bytes whose channels are whole vectors.
TEST(FillChannels, OtherWindowsOfFewChannelsStay) {
  const auto graph = [](const char* type, int channels, int outputs, int taps, int width) {
    return fmt::format(R"(%0 = input {0}[n, {1}, 20, {4}]
%1 = constant {0}[{2}, {1}, 3, {3}] {{...}}
%2 = conv {5}[n, {2}, 20, {4}]: %0, %1 {{pads = [1, {6}, 1, {6}]}}
return %2)",
                       type, channels, outputs, taps, width, std::string(type) == "int8" ? "int32" : type, taps / 2);
  };
  for (const std::string& text :
       {graph("float16", 8, 8, 1, 64), graph("float16", 8, 128, 39, 64), graph("float16", 8, 8, 39, 63),
        graph("float32", 8, 8, 39, 64), graph("int8", 16, 8, 39, 64)})
    expect_unchanged("fill_channels", text, folding_copies());
}

// Widths that are no multiple, and results that would fill a tile already.
TEST(FillChannels, OtherOutputsHaveWindowsOfTheirOwn) {
  for (const char* sizes : {"64, 3", "256, 3"}) {
    const std::string channels = sizes, out = channels.substr(0, channels.find(','));
    const int width = out == "64" ? 111 : 112;
    const std::string graph = fmt::format(R"(%0 = input int8[n, 3, 230, 230]
%1 = constant int8[{}, 7, 7] {{...}}
%2 = conv int32[n, {}, 112, {}]: %0, %1 {{strides = [2, 2]}}
return %2)",
                                          sizes, out, width);
    EXPECT_THAT(after_pass("fill_channels", graph, folding()), HasSubstr(fmt::format("i0 < {}, i1 < 16", out)));
  }
}

// A vector of eight would have seven zeros; taps along the last dim have five.
TEST(FillChannels, TapsOfOneChannelBecomeChannels) {
  expect_pass("fill_channels", R"(%0 = input float16[n, 1, 20, 20]
%1 = constant float16[64, 1, 3, 3] {...}
%2 = conv float16[n, 64, 20, 9]: %0, %1 {strides = [1, 2], pads = [1, 0, 1, 0]}
return %2)",
              R"(%0 = input float16[n, 1, 20, 20]
%1 = constant float16[64, 1, 3, 3] {...}
%2 = loop float16[o < 64, c < 8, y < 3, x < 1]: select(c < 3, %1[o, mod(c, 1), y, floordiv(c, 1)], 0.0:float16)
%3 = loop float16[i < n, c < 8, y < 20, x < 9]: select(x * 2 + c < 20 && c < 3, %0[i, 0, y, x * 2 + c], 0.0:float16)
%4 = conv float16[n, 64, 20, 9]: %3, %2 {strides = [1, 1], pads = [1, 0, 1, 0]}
return %4)",
              filling());
}

// Of a long signal, 251 copies would take more memory than they are worth.
TEST(FillChannels, ManyTapsOfOneChannelStay) {
  const char* graph = R"(%0 = input float16[n, 1, samples]
%1 = constant float16[80, 1, 251] {...}
%2 = conv float16[n, 80, samples - 250]: %0, %1 @"sinc"
return %2)";
  expect_unchanged("fill_channels", graph, filling());
  EXPECT_THAT(remarks_of("fill_channels", graph, filling()), ElementsAre("sinc: too many channels would be zeros"));
}

// With eight channels a line of seven taps would have 56 elements, 35 of them zeros.
TEST(FillChannels, TapsOfALargeWindowBecomeChannels) {
  EXPECT_THAT(after_pass("fill_channels", R"(%0 = input float16[n, 3, 38, 38]
%1 = constant float16[64, 3, 7, 7] {...}
%2 = conv float16[n, 64, 32, 32]: %0, %1
return %2)",
                         filling()),
              HasSubstr("[i0 < n, i1 < 24, i2 < 38, i3 < 32]"));
  EXPECT_THAT(after_pass("fill_channels", R"(%0 = input float16[n, 3, 34, 34]
%1 = constant float16[64, 3, 3, 3] {...}
%2 = conv float16[n, 64, 32, 32]: %0, %1
return %2)",
                         filling()),
              HasSubstr("[i0 < n, i1 < 8, i2 < 34, i3 < 34]"));
}

// Many channels get zeros, and keep their window.
TEST(FillChannels, ManyChannelsAreFilled) {
  const char* graph = R"(%0 = input float16[n, 150, 400]
%1 = constant float16[150, 150, {0}] {{...}}
%2 = conv float16[n, 150, {1}]: %0, %1
return %2)";
  expect_pass("fill_channels", fmt::format(fmt::runtime(graph), 3, 398),
              R"(%0 = input float16[n, 150, 400]
%1 = constant float16[150, 150, 3] {...}
%2 = loop float16[o < 150, c < 152, x < 3]: select(c < 150, %1[o, c, x], 0.0:float16)
%3 = loop float16[i < n, c < 152, x < 400]: select(c < 150, %0[i, c, x], 0.0:float16)
%4 = conv float16[n, 150, 398]: %3, %2
return %4)",
              filling());
  expect_unchanged("fill_channels", fmt::format(fmt::runtime(graph), 1, 400), filling());
}

TEST(FillChannels, GroupedConvolutionsAreAReason) {
  const char* graph = R"(%0 = input float32[1, 6, 8]
%1 = constant float32[8, 3, 2] {...}
%2 = conv float32[1, 8, 4]: %0, %1 {strides = [2], groups = 2} @"conv"
return %2)";
  expect_unchanged("fill_channels", graph, filling());
  EXPECT_THAT(remarks_of("fill_channels", graph, filling()), ElementsAre("conv: it is transposed or grouped"));
}

TEST(FillChannels, PatchesBecomeChannels) {
  expect_pass("fill_channels", R"(%0 = input float16[n, 3, 32, 32]
%1 = constant float16[64, 3, 16, 16] {...}
%2 = conv float16[n, 64, 2, 2]: %0, %1 {strides = [16, 16]}
return %2)",
              R"(%0 = input float16[n, 3, 32, 32]
%1 = constant float16[64, 3, 16, 16] {...}
%2 = loop float16[o < 64, k < 768, y < 1, x < 1]: %1[o, floordiv(k, 256), mod(floordiv(k, 16), 16), mod(k, 16)]
%3 = loop float16[b < n, k < 768, y < 2, x < 2]: %0[b, floordiv(k, 256), y * 16 + mod(floordiv(k, 16), 16), x * 16 + mod(k, 16)]
%4 = conv float16[n, 64, 2, 2]: %3, %2
return %4)",
              filling());
}

// The last patch reaches past the image.
TEST(FillChannels, PaddedPatchesAreFoldedAlongOneDim) {
  EXPECT_THAT(after_pass("fill_channels", R"(%0 = input float16[n, 3, 30, 30]
%1 = constant float16[64, 3, 16, 16] {...}
%2 = conv float16[n, 64, 2, 2]: %0, %1 {strides = [16, 16], pads = [0, 0, 2, 2]}
return %2)",
                         filling()),
              HasSubstr("strides = [16, 1], pads = [0, 0, 2, 0]"));
}

FuseOptions merging_groups() {
  FuseOptions o = any_device();
  o.merge_groups = true;
  return o;
}

TEST(MergeGroups, WeightsOfOtherGroupsAreZeros) {
  expect_pass("merge_groups", R"(%0 = input float16[n, 48, 9]
%1 = constant float16[96, 8, 3] {...}
%2 = conv float16[n, 96, 7]: %0, %1 {groups = 6}
return %2)",
              R"(%0 = input float16[n, 48, 9]
%1 = constant float16[96, 8, 3] {...}
%2 = loop float16[o < 96, i < 16, t < 3]: select(floordiv(i, 8) == mod(floordiv(o, 16), 2), %1[o, mod(i, 8), t], 0.0:float16)
%3 = conv float16[n, 96, 7]: %0, %2 {groups = 3}
return %3)",
              merging_groups());
}

TEST(MergeGroups, OnlyAsManyAsDivideTheirNumberAndAtMost32Channels) {
  for (const auto& [groups, channels, merged] : {std::tuple(3, 8, 3), std::tuple(32, 8, 8), std::tuple(12, 16, 6),
                                                 std::tuple(8, 24, 8), std::tuple(4, 12, 2), std::tuple(64, 4, 64)})
    EXPECT_THAT(after_pass("merge_groups",
                           fmt::format(R"(%0 = input float16[n, {0}, 9]
%1 = constant float16[{0}, {1}, 3] {{...}}
%2 = conv float16[n, {0}, 7]: %0, %1 {{groups = {2}}}
return %2)",
                                       groups * channels, channels, groups),
                           merging_groups()),
                HasSubstr(fmt::format("groups = {}}}", merged)))
        << groups << " of " << channels;
}

TEST(MergeGroups, OtherTypesAndWeightsThatAreComputedStay) {
  const char* wide = R"(%0 = input float32[n, 32, 9]
%1 = constant float32[32, 8, 3] {...}
%2 = conv float32[n, 32, 7]: %0, %1 {groups = 4} @"conv"
return %2)";
  expect_unchanged("merge_groups", wide, merging_groups());
  EXPECT_THAT(remarks_of("merge_groups", wide, merging_groups()),
              ElementsAre("conv: only 16-bit floats have matrix instructions to spare"));
  const char* computed = R"(%0 = input float16[n, 32, 9]
%1 = input float16[32, 8, 3]
%2 = conv float16[n, 32, 7]: %0, %1 {groups = 4} @"conv"
return %2)";
  expect_unchanged("merge_groups", computed, merging_groups());
  EXPECT_THAT(remarks_of("merge_groups", computed, merging_groups()),
              ElementsAre("conv: its weights are not constant"));
}

}  // namespace
}  // namespace sardonyx
