// Matrix products and convolutions as one thing: out[z, row, col] = epilogue(sum over k of a[z, row, k] * b[z, col,
// k]).
#pragma once
#include <array>
#include <cstdint>
#include <optional>
#include <string>

#include "fuse/schedule.h"

namespace sardonyx::codegen {

/// What a convolution of one group over images (or over lines, as images of height 1) has under the taps of its filter.
/// Pairs are of y and x.
struct Windows {
  const Value* images = nullptr;
  Expr offset;                ///< of images' element at the variables image, y, x and channel, in elements
  Expr image, y, x, channel;  ///< variables, whose extents are the sizes
  std::array<Expr, 2> out, pads, pads_end;
  std::array<std::int64_t, 2> taps{}, strides{}, dilations{};
};

/// What tile kernels of GPUs compute. Indices are variables: `z` counts independent products (batches, groups), `row`
/// and `col` the output's rows and columns, all flattened; `reduced` are the summed variables, outermost first.
struct Contraction {
  Expr z, row, col;
  Exprs reduced;
  DType type = DType::kFloat32;    ///< of products: float32, float16, bfloat16, int8, float8 e4m3
  Expr a, b;                       ///< elements over (z, row, reduced) and (z, col, reduced)
  Expr inside;                     ///< where a is not 0 (the padding of a convolution); empty: everywhere
  Exprs row_dims;                  ///< extents that `row` is made of
  std::optional<Windows> windows;  ///< of a, whose rows are images, y and x of the output, and k's taps and channels
  Value* out = nullptr;
  Expr result;      ///< over z, row, col; a load of `accumulator` is the sum
  Exprs out_index;  ///< of out, likewise
  const Value* accumulator = nullptr;
  /// Of TileKernel::pairs: `result` and `out_index` are over z, row and `pair`, which counts pairs of columns; the sum
  /// of the second one is a load of `second`.
  Expr pair;
  std::shared_ptr<Value> second;

  Expr batches() const { return z->args[0]; }
  Expr m() const { return row->args[0]; }
  Expr n() const { return col->args[0]; }
  Expr k() const;
};

/// Whether a matrix product or convolution has a tile kernel on GPUs; the reason in `why` if not.
bool is_contraction(const Node& node, std::string& why);
/// Of a node for which is_contraction() holds. `accumulator` stands for the sums in `result`; its dtype is set.
Contraction contraction_of(const TileKernel& kernel, Value& accumulator);

/// e with arithmetic in float32 wherever it is in 16-bit floats, except where the model itself rounds.
Expr widen_halves_of(const Expr& e);
/// The same for what a kernel stores: in the type `out`, rounded as e is (see kCastSaturatesHalf).
Expr widened_result(const Expr& e, DType out);

}  // namespace sardonyx::codegen
