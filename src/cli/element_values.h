// Elements of any dtype as numbers: to generate, show and compare tensors.
#pragma once
#include <cstdint>

#include "support/dtype.h"

namespace sardonyx::cli {

/// Element k as a double (64-bit integers may round). Complex elements: k counts real and imaginary parts alternately.
double decode(DType t, const void* data, std::int64_t k);
/// Stores v as element k: rounded to the nearest value (ties to even), clamped to the range of t, NaN kept where t has
/// one (0 in integers).
void encode(DType t, void* data, std::int64_t k, double v);
/// Position of floating-point element k among all values of its type in order: neighbours differ by 1, and both zeros
/// are 0. NaN has none.
std::int64_t ordinal(DType t, const void* data, std::int64_t k);
/// Distance from 1 to the next larger value of a floating-point type.
double epsilon(DType t);
/// float32 for complex64, float64 for complex128, otherwise t: the type that decode() reads.
DType part_type(DType t);

}  // namespace sardonyx::cli
