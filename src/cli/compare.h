// Comparing a tensor with a reference.
#pragma once
#include <cstdint>
#include <optional>
#include <string>

#include "runtime/executor.h"

namespace sardonyx::cli {

struct Tolerance {
  std::optional<double> rtol, atol;  ///< absent: default_rtol, and rtol times the root of the reference's mean square
};

struct Comparison {
  bool matches = false;
  std::string difference;  ///< in dtype or shape; then nothing else is set
  std::int64_t elements = 0;
  std::int64_t wrong = 0;                           ///< elements outside the tolerance
  std::int64_t first = -1;                          ///< the first of them, row-major
  double ours = 0, reference = 0;                   ///< there
  double max_abs = 0;                               ///< largest |ours - reference| of finite elements
  double relative = 0;                              ///< root mean square of the difference, over that of the reference
  double rtol = 0, atol = 0;                        ///< used
  double ulp_median = 0, ulp_p99 = 0, ulp_max = 0;  ///< of floating-point elements
};

/// 1e-4 for float32: rounding errors of sums of thousands of terms in another order are smaller, wrong terms are
/// larger. 1e-9 for float64; four units in the last place for 16-bit and smaller types; 0 for integers and booleans.
double default_rtol(DType t);

/// An element matches if |ours - reference| <= atol + rtol * |reference|, if both are NaN, or if they are equal
/// infinities.
Comparison compare(const Tensor& ours, const Tensor& reference, const Tolerance& tolerance);

}  // namespace sardonyx::cli
