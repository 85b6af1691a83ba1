// Tile kernels as descriptions of the host's GEMM, convolution and attention, with symbolic sizes.
#pragma once
#include <optional>
#include <string>
#include <vector>

#include "epilogue/post_op.h"
#include "fuse/schedule.h"

namespace sardonyx::tiles {

/// PostOp with a symbolic operand.
struct PostStep {
  PostOp op;
  Value* operand = nullptr;
  Exprs dims;  ///< dims of the operand, in the output's axis order
};

/// The steps of an epilogue, unless operands are 8-bit integers: their epilogues are generated code.
struct GemmMatch {
  Value *a = nullptr, *b = nullptr, *out = nullptr;
  Exprs batch_a, batch_b;
  Expr m, n, k;
  bool trans_a = false, trans_b = false;
  bool integers = false;  ///< uint8 times int8
  std::vector<PostStep> post;
};

struct ConvMatch {
  Value *x = nullptr, *w = nullptr, *bias = nullptr, *out = nullptr;
  const ConvOp* op = nullptr;
  bool channels_last = true;  ///< memory order of x and out; of integers: of out only, x has its channels last
  bool integers = false;      ///< uint8 times int8
  std::vector<PostStep> post;
};

/// A tensor of attention. Elements lie at offset + strides . (batch, head, row, element).
struct HeadTensor {
  Value* value = nullptr;
  Expr offset;
  Exprs strides;  ///< 4 of them
};

struct AttentionMatch {
  HeadTensor q, k, v, bias, out;
  HeadTensor begin, end, sink;  ///< over batch, head, row
  /// If there is one: int64 numbers of pages over batch and (as row) page. Key t then lies in page t / page_rows, and
  /// the rows of k and v are those of page 0. Pages are k_page and v_page elements apart.
  HeadTensor pages;
  std::int64_t page_rows = 0;
  Expr k_page, v_page;
  /// If there are any, k and v are int8 in pages; float32 over batch, head and row, as far apart as these.
  HeadTensor k_scale, v_scale;
  Expr k_scale_page, v_scale_page;
  Expr batch, heads, queries, keys, head_dim, value_dim;
  std::int64_t group = 1;  ///< query heads that share a key and value head
  double scale = 1, softcap = 0;
  bool zero_empty = false;
};

/// Describes attention that the host supports, in float32. Empty otherwise, with the reason in `why`.
std::optional<AttentionMatch> match_attention(const TileKernel& kernel, std::string& why);
/// The host's GEMM for a matrix product and its epilogue. Empty if it does not compute exactly this, with the reason in
/// `why`.
std::optional<GemmMatch> match_gemm(const TileKernel& kernel, std::string& why);
/// `final_layout`: storage orders are final. Otherwise operands are assumed to get the output's order from the layout
/// pass.
std::optional<ConvMatch> match_conv(const TileKernel& kernel, bool final_layout, std::string& why);

/// The steps of an epilogue on `accumulator` (the tile node's output at `vars`). `order`: the output's axes, outermost
/// in memory first. Empty if it is not a chain of steps that the host has.
std::optional<std::vector<PostStep>> match_epilogue(const Expr& epilogue, const Value* accumulator, const Exprs& vars,
                                                    const std::vector<int>& order, bool final_layout, std::string& why);

/// Tells fusion what the host's kernels support.
FuseOptions host_fuse_options();

}  // namespace sardonyx::tiles
