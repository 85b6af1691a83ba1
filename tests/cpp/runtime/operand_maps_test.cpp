// Tensor maps of a GEMM's operands and of a convolution's images.
#include "runtime/operand_maps.h"

#include <gtest/gtest.h>

#include "sardonyx/error.h"

namespace sardonyx {
namespace {

TEST(OperandMaps, DimsAndBoxes) {
  CopiedOperands operands;
  operands.a = {1, 16, 2304, 230400};
  operands.b = {0, 0, 768, 768 * 512};
  GpuTiling t;
  t.rows = 128;
  t.cols = 192;
  t.tma = true;
  const auto maps = operand_maps(operands, t, {3, 100, 512, 700}, {}, 2);
  ASSERT_EQ(maps.size(), 2U);
  const TensorMapInfo &a = maps[0].info, &b = maps[1].info;
  EXPECT_EQ(maps[0].buffer, 1U);
  EXPECT_EQ(maps[0].offset, 32U);
  EXPECT_EQ(a.rank, 3);
  EXPECT_EQ(a.dims, (decltype(a.dims){700, 100, 3}));
  EXPECT_EQ(a.strides, (decltype(a.strides){2, 4608, 460800}));
  EXPECT_EQ(a.box, (decltype(a.box){64, 128, 1}));
  EXPECT_EQ(maps[1].buffer, 0U);
  EXPECT_EQ(b.dims, (decltype(b.dims){700, 512, 3}));
  EXPECT_EQ(b.box, (decltype(b.box){64, 192, 1}));
}

// A copy has 128 bytes of K: 128 elements of 8 bits.
TEST(OperandMaps, ElementsOfOneByte) {
  CopiedOperands operands;
  operands.a = {1, 16, 2304, 230400};
  operands.b = {0, 0, 768, 0};
  GpuTiling t;
  t.rows = 128;
  t.cols = 192;
  t.tma = true;
  const auto maps = operand_maps(operands, t, {3, 100, 512, 704}, {}, 1);
  const TensorMapInfo& a = maps.at(0).info;
  EXPECT_EQ(a.bytes, 1U);
  EXPECT_EQ(maps[0].offset, 16U);
  EXPECT_EQ(a.dims, (decltype(a.dims){704, 100, 3}));
  EXPECT_EQ(a.strides, (decltype(a.strides){1, 2304, 230400}));
  EXPECT_EQ(a.box, (decltype(a.box){128, 128, 1}));
}

TEST(OperandMaps, OneBatchHasSomeStride) {
  CopiedOperands operands;
  operands.a = operands.b = {0, 0, 768, 0};
  GpuTiling t;
  t.rows = t.cols = 128;
  t.tma = true;
  for (const GpuCall::Map& m : operand_maps(operands, t, {1, 100, 512, 768}, {}, 2))
    EXPECT_EQ(m.info.strides[2], 1536U);
}

// Rows and columns that are contiguous: dims are line, k, batch, and a copy has 64 of both.
TEST(OperandMaps, ContiguousLines) {
  CopiedOperands operands;
  operands.a = {0, 0, 64, 64 * 196, true, 64};  // 4 matrices of 196 x 64: 256 rows
  operands.b = {1, 8, 384, 0, true};            // shared by all batches
  GpuTiling t;
  t.rows = t.cols = 128;
  t.tma = true;
  const auto maps = operand_maps(operands, t, {1, 256, 384, 196}, {}, 2);
  const TensorMapInfo &a = maps[0].info, &b = maps[1].info;
  EXPECT_EQ(a.dims, (decltype(a.dims){64, 196, 4}));
  EXPECT_EQ(a.strides, (decltype(a.strides){2, 128, 128 * 196}));
  EXPECT_EQ(a.box, (decltype(a.box){64, 64, 1}));
  EXPECT_EQ(maps[1].offset, 16U);
  EXPECT_EQ(b.dims, (decltype(b.dims){384, 196, 1}));
  EXPECT_EQ(b.box, (decltype(b.box){64, 64, 1}));
  EXPECT_EQ(operand_maps(operands, t, {8, 256, 384, 196}, {}, 2)[1].info.dims[2], 1U);
}

// Heads between tokens: batches have two dims.
TEST(OperandMaps, BatchesOfHeads) {
  CopiedOperands operands;
  operands.a = {.buffer = 0, .offset = 8, .pitch = 2048, .batch = 500 * 2048, .heads = 4, .head = 512};
  operands.b = {.buffer = 1, .pitch = 6144, .batch = 504 * 6144, .across = true, .heads = 4, .head = 512};
  GpuTiling t;
  t.rows = t.cols = 128;
  t.tma = true;
  const auto maps = operand_maps(operands, t, {32, 500, 512, 504}, {}, 2);
  const TensorMapInfo &a = maps[0].info, &b = maps[1].info;
  EXPECT_EQ(a.rank, 4);
  EXPECT_EQ(a.dims, (decltype(a.dims){504, 500, 4, 8}));
  EXPECT_EQ(a.strides, (decltype(a.strides){2, 4096, 1024, 500 * 4096}));
  EXPECT_EQ(a.box, (decltype(a.box){64, 128, 1, 1}));
  EXPECT_EQ(b.dims, (decltype(b.dims){512, 504, 4, 8}));
  EXPECT_EQ(b.strides, (decltype(b.strides){2, 12288, 1024, 504 * 12288}));
  EXPECT_EQ(b.box, (decltype(b.box){64, 64, 1, 1}));
  // The stride of a dim of one group is not used.
  EXPECT_EQ(operand_maps(operands, t, {4, 500, 512, 504}, {}, 2)[0].info.strides[3], 1024U);
}

// 3 images of 56 x 40 pixels with 128 channels under a filter of 3 x 3 with padding 1.
struct Images {
  CopiedOperands operands;
  GpuTiling tiling;
  SymbolValues symbols;
  Images() {
    operands.a = {2};
    operands.b = {0, 0, 1152, 0};
    CopiedWindows w;
    w.offset = Expr(64);
    w.images = symbol(0, "n");
    w.sizes = {Expr(56), Expr(40)};
    w.out = {Expr(56), Expr(40)};
    w.pitches = {Expr(128), Expr(128 * 56)};
    w.pitch = Expr(128 * 56 * 40);
    w.pads = {Expr(1), Expr(1)};
    w.strides = {1, 1};
    w.channels = 128;
    operands.windows.push_back(w);
    tiling.rows = 128;
    tiling.cols = 64;
    tiling.tma = true;
    symbols.set(0, 3);
  }
  CopiedWindows& windows() { return operands.windows[0]; }
  GpuCall::Map map(std::size_t bytes = 2) const {
    return operand_maps(operands, tiling, {1, 3 * 56 * 40, 64, 1152}, symbols, bytes).at(0);
  }
};

TEST(OperandMaps, ImagesOfOneByte) {
  Images images;
  const GpuCall::Map map = images.map(1);
  EXPECT_EQ(map.info.bytes, 1U);
  EXPECT_EQ(map.offset, 64U);
  EXPECT_EQ(map.info.strides[1], 128U);
  EXPECT_EQ(map.info.box[0], 128U);  // all 128 channels at a time
  images.windows().channels = 64;
  EXPECT_EQ(images.map(1).info.box[0], 64U);
  EXPECT_EQ(images.map(2).info.box[0], 64U);
}

TEST(OperandMaps, ImagesUnderWindows) {
  const GpuCall::Map map = Images().map();
  const TensorMapInfo& i = map.info;
  EXPECT_EQ(map.buffer, 2U);
  EXPECT_EQ(map.offset, 128U);
  EXPECT_TRUE(i.windows);
  EXPECT_EQ(i.rank, 4);
  EXPECT_EQ(i.dims, (decltype(i.dims){128, 56, 40, 3}));
  EXPECT_EQ(i.strides[1], 256U);
  EXPECT_EQ(i.strides[2], 256U * 56);
  EXPECT_EQ(i.strides[3], 256U * 56 * 40);
  EXPECT_EQ(i.box[0], 64U);
  EXPECT_EQ(i.box[1], 128U);
  EXPECT_EQ(i.lower, (decltype(i.lower){-1, -1}));
  EXPECT_EQ(i.upper, (decltype(i.upper){-1, -1}));
}

TEST(OperandMaps, WindowsEndWithTheLastOutput) {
  Images images;
  images.windows().strides = {2, 2};
  images.windows().out = {Expr(28), Expr(20)};
  images.windows().pads = {Expr(0), Expr(1)};
  const TensorMapInfo i = images.map().info;
  // As many places as outputs from lower to upper: (56 + upper - lower - 1) / 2 + 1 = 28.
  EXPECT_EQ(i.lower, (decltype(i.lower){0, -1}));
  EXPECT_EQ(i.upper, (decltype(i.upper){-1, -2}));
  EXPECT_EQ(i.steps, (decltype(i.steps){2, 2}));
}

TEST(OperandMaps, OneImageHasSomeStride) {
  Images images;
  images.symbols.set(0, 1);
  images.windows().pitch = Expr(std::int64_t{0});
  EXPECT_EQ(images.map().info.strides[3], 256U * 56);
}

TEST(OperandMaps, WindowsBeyondWhatMapsCountAreRefused) {
  Images far, none, high;
  far.windows().pads = {Expr(200), Expr(1)};
  none.symbols.set(0, 0);
  high.windows().out = {Expr(400), Expr(40)};
  for (const Images* i : {&far, &none, &high}) EXPECT_THROW((void)i->map(), Error);
}

}  // namespace
}  // namespace sardonyx
