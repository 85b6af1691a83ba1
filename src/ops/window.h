// The geometry of sliding windows (convolution and pooling), from a node's attributes, with symbolic sizes.
#pragma once
#include <vector>

#include "ops/op.h"

namespace sardonyx {

/// Spatial dims only; everything has one entry per spatial dim.
struct Window {
  Exprs input, kernel, output;
  std::vector<std::int64_t> strides, dilations;
  Exprs begin, end;  ///< padding; `end` may be exceeded by the last windows in ceil mode
  bool ceil_mode = false;

  std::size_t dims() const { return input.size(); }
  /// Extent of a window, including dilation: (kernel - 1) * dilation + 1.
  Expr extent(std::size_t d) const { return (kernel[d] - 1) * Expr(dilations[d]) + 1; }
  /// The input position of element `k` of the window of output `o`; may be in the padding.
  Exprs position(const Exprs& o, const Exprs& k) const;
  /// Whether a position is inside the input; constant true where there is no padding.
  Expr inside(const Exprs& position) const;
  bool padded(std::size_t d) const { return ceil_mode || !is_const(begin[d], 0) || !is_const(end[d], 0); }
};

/// Reads kernel_shape, strides, dilations, pads, auto_pad and ceil_mode for input x [N, C, spatial...]. `kernel` is
/// empty for pooling (then kernel_shape is required) or the sizes of the weights' window. Throws on malformed
/// attributes.
Window window_of(OpContext& c, const Value* x, const Exprs& kernel, bool ceil_mode = false);

/// AveragePool's attributes applied to x [N, C, spatial...]. Defined in pool.cpp.
Value* average_pool_of(OpContext& c, Value* x);

/// The attribute `name` as one positive number per spatial dim, 1 by default.
std::vector<std::int64_t> window_steps(OpContext& c, std::string_view name, std::size_t dims);
/// pads as [begin..., end...], zeros by default; never negative.
std::vector<std::int64_t> window_pads(OpContext& c, std::size_t dims);
/// Checks auto_pad's spelling.
std::string auto_pad_of(OpContext& c);

}  // namespace sardonyx
