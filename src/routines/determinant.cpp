// det: determinants of square matrices.
#include <cmath>

#include "host/parallel.h"
#include "routines/elements.h"
#include "routines/families.h"

namespace sardonyx::routines {
namespace {

// By LU decomposition with partial pivoting, in place.
double determinant(std::vector<double>& a, std::int64_t n) {
  const auto at = [&](std::int64_t i, std::int64_t j) -> double& { return a[static_cast<std::size_t>(i * n + j)]; };
  double det = 1;
  for (std::int64_t k = 0; k < n; ++k) {
    std::int64_t pivot = k;
    for (std::int64_t i = k + 1; i < n; ++i)
      if (std::fabs(at(i, k)) > std::fabs(at(pivot, k))) pivot = i;
    if (at(pivot, k) == 0) return 0;
    if (pivot != k) {
      for (std::int64_t j = k; j < n; ++j) std::swap(at(k, j), at(pivot, j));
      det = -det;
    }
    det *= at(k, k);
    for (std::int64_t i = k + 1; i < n; ++i) {
      const double f = at(i, k) / at(k, k);
      for (std::int64_t j = k + 1; j < n; ++j) at(i, j) -= f * at(k, j);
    }
  }
  return det;
}

// det
//   inputs:  x [batch, n, n], floats
//   outputs: y [batch] of the same dtype, computed in double
void det(Call& c) {
  const Tensor& x = c.inputs[0];
  const std::int64_t n = x.dims[1];
  dispatch(x.dtype, "a determinant", [&](auto zero) {
    using T = decltype(zero);
    host::parallel_for(x.dims[0], 1 + 65536 / (1 + n * n * n), c.threads, [&](std::int64_t begin, std::int64_t end) {
      std::vector<double> a(static_cast<std::size_t>(n * n));
      for (std::int64_t b = begin; b < end; ++b) {
        for (std::int64_t k = 0; k < n * n; ++k)
          a[static_cast<std::size_t>(k)] = static_cast<double>(x.as<T>()[b * n * n + k]);
        c.outputs[0].as<T>()[b] = static_cast<T>(static_cast<compute_of<T>>(determinant(a, n)));
      }
    });
  });
}

}  // namespace

void register_determinant(Table& t) { t["det"] = det; }

}  // namespace sardonyx::routines
