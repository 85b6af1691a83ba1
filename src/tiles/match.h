// Tile kernels as the host library describes them, with sizes still symbolic.
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
  Exprs dims;  ///< of the operand, in the output's axis order
};

struct GemmMatch {
  Value *a = nullptr, *b = nullptr, *out = nullptr;
  Exprs batch_a, batch_b;
  Expr m, n, k;
  bool trans_a = false, trans_b = false;
  std::vector<PostStep> post;
};

struct ConvMatch {
  Value *x = nullptr, *w = nullptr, *bias = nullptr, *out = nullptr;
  const ConvOp* op = nullptr;
  bool channels_last = true;  ///< in memory, x and out
  std::vector<PostStep> post;
};

/// A tensor of attention: its elements stand at offset + strides . (batch, head, row, element).
struct HeadTensor {
  Value* value = nullptr;
  Expr offset;
  Exprs strides;  ///< 4
};

struct AttentionMatch {
  HeadTensor q, k, v, bias, out;
  HeadTensor begin, end, sink;  ///< over batch, head, row
  Expr batch, heads, queries, keys, head_dim, value_dim;
  std::int64_t group = 1;  ///< query heads that share a key and value head
  double scale = 1, softcap = 0;
  bool zero_empty = false;
};

/// The library's attention. Only in float32.
std::optional<AttentionMatch> match_attention(const TileKernel& kernel, std::string& why);
/// The library's gemm for a matrix product with its epilogue. Empty, with the reason in `why`, if it can't do exactly
/// this.
std::optional<GemmMatch> match_gemm(const TileKernel& kernel, std::string& why);
/// `final_layout`: storage orders have been chosen; otherwise operands are taken to follow the output's order, which
/// the layout pass sees to.
std::optional<ConvMatch> match_conv(const TileKernel& kernel, bool final_layout, std::string& why);

/// The steps of an epilogue over `accumulator` (the tile node's output at `vars`). `order`: axes of the output,
/// outermost in memory first. Empty if it is no chain of steps that the library has.
std::optional<std::vector<PostStep>> match_epilogue(const Expr& epilogue, const Value* accumulator, const Exprs& vars,
                                                    const std::vector<int>& order, bool final_layout, std::string& why);

/// For fusion: what the host takes.
FuseOptions host_fuse_options();

}  // namespace sardonyx::tiles
