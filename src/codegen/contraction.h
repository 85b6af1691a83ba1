// GEMM and convolution as one problem: out[z, row, col] = epilogue(sum over k of a[z, row, k] * b[z, col, k]).
#pragma once
#include <array>
#include <cstdint>
#include <optional>
#include <string>

#include "fuse/schedule.h"

namespace sardonyx::codegen {

/// The input of a convolution, for loads of what lies under the taps of its filter: one group, 2-D, or 1-D as images of
/// height 1. Pairs are y, x.
struct Windows {
  const Value* images = nullptr;
  Expr offset;                ///< offset of an image's element, in elements, over the variables image, y, x and channel
  Expr image, y, x, channel;  ///< variables, whose extents are the sizes
  std::array<Expr, 2> out, pads, pads_end;
  std::array<std::int64_t, 2> taps{}, strides{}, dilations{};
};

/// What tile kernels of GPUs compute. Indices are variables: `z` counts independent GEMMs (batches, groups), `row` and
/// `col` the output's rows and columns, all flattened; `reduced` are the summed variables, outermost first.
struct Contraction {
  Expr z, row, col;
  Exprs reduced;
  DType type =
      DType::kFloat32;      ///< of operands: float32, float16, bfloat16, int8, float8 e4m3; uint8: of a, and b is int8
  Expr a, b;                ///< elements over (z, row, reduced) and (z, col, reduced)
  Expr inside;              ///< where a is not 0 (outside is a convolution's padding); empty: everywhere
  std::int64_t stored = 0;  ///< of the innermost reduced variable, where a is in memory; from there on it is 0. 0: all
  Exprs row_dims;           ///< extents whose product is that of `row`
  /// Set if each row belongs to one z only, whose rows follow one another (MatMulOp::end): over z, where they end.
  Expr end;
  std::optional<Windows> windows;  ///< of a, if its rows are image, y, x of the output and K is taps and channels
  Value* out = nullptr;
  Expr result;      ///< over z, row, col; a load of `accumulator` is the sum
  Exprs out_index;  ///< of out, likewise
  const Value* accumulator = nullptr;
  /// For TileKernel::pairs: `result` and `out_index` are over z, row and `pair`, which counts pairs of columns; a load
  /// of `second` is the sum of the second column.
  Expr pair;
  std::shared_ptr<Value> second;

  Expr batches() const { return z->args[0]; }
  Expr m() const { return row->args[0]; }
  Expr n() const { return col->args[0]; }
  Expr k() const;
};

/// Whether a tile kernel on GPUs can compute this node; `why` if not.
bool is_contraction(const Node& node, std::string& why);
/// Requires is_contraction(). `accumulator` stands for the sums in `result`; its dtype is set.
Contraction contraction_of(const TileKernel& kernel, Value& accumulator);

/// e with 16-bit float arithmetic done in float32, except where the model itself rounds.
Expr widen_halves_of(const Expr& e);
/// The same for what a kernel stores: in the type `out`, rounded as e is (see kCastSaturatesHalf).
Expr widened_result(const Expr& e, DType out);

}  // namespace sardonyx::codegen
