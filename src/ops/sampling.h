// Shared by operators that interpolate images: Resize, GridSample, RoiAlign.
#pragma once
#include "ops/element_math.h"
#include "ops/tensor.h"

namespace sardonyx::sampling {

using el::add, el::div, el::mul, el::sub;
inline Expr k(double v, const Expr& like) { return constant(v, like->dtype); }

/// The dtype in which images of t are interpolated: fp32, or fp64 where that could not hold the elements.
DType compute_type(DType t);
/// An interpolated value as an element of t: integers are rounded and held to their range.
Expr to_element(const Expr& v, DType t);

/// Keys' cubic convolution kernel with parameter a at distance d >= 0. Source: R. Keys, "Cubic convolution
/// interpolation for digital image processing", 1981.
Expr cubic_kernel(const Expr& d, double a);
/// 1 - d for a distance d in [0, 1], 0 beyond.
Expr linear_kernel(const Expr& d);

/// One element that an interpolation reads along an axis.
struct Tap {
  Expr index;   ///< int64
  Expr weight;  ///< float
};
/// The 2 or 4 taps around coordinate x (a float), at x's whole part and beyond; indices are not held to any range.
std::vector<Tap> linear_taps(const Expr& x);
std::vector<Tap> cubic_taps(const Expr& x, double a);

/// The sum over one tap per axis of the product of weights times element(indices).
Expr interpolate(const std::vector<std::vector<Tap>>& axes, const std::function<Expr(const Exprs&)>& element);

/// i held to [0, size).
Expr clamp_index(const Expr& i, const Expr& size);

}  // namespace sardonyx::sampling
