#include "cli/compare.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <vector>

#include "cli/element_values.h"

namespace sardonyx::cli {

double default_rtol(DType t) {
  t = part_type(t);
  if (!is_float(t)) return 0;
  if (t == DType::kFloat32) return 1e-4;
  if (t == DType::kFloat64) return 1e-9;
  return 4 * epsilon(t);
}

Comparison compare(const Tensor& ours, const Tensor& reference, const Tolerance& tolerance) {
  Comparison c;
  if (ours.dtype != reference.dtype) {
    c.difference = fmt::format("dtype {} instead of {}", name(ours.dtype), name(reference.dtype));
    return c;
  }
  if (ours.dims != reference.dims) {
    c.difference =
        fmt::format("shape [{}] instead of [{}]", fmt::join(ours.dims, ", "), fmt::join(reference.dims, ", "));
    return c;
  }
  const DType t = ours.dtype;
  const bool real = is_float(part_type(t));
  const std::int64_t n = ours.elements() * (part_type(t) == t ? 1 : 2);
  c.elements = n;
  double squares = 0;
  std::int64_t finite = 0;
  for (std::int64_t k = 0; k < n; ++k) {
    const double r = decode(t, reference.data, k);
    if (!std::isfinite(r)) continue;
    squares += r * r;
    ++finite;
  }
  const double rms = finite ? std::sqrt(squares / static_cast<double>(finite)) : 0;
  c.rtol = tolerance.rtol.value_or(default_rtol(t));
  c.atol = tolerance.atol.value_or(real ? c.rtol * rms : 0);
  double difference_squares = 0;
  std::vector<double> ulps;
  if (real) ulps.reserve(static_cast<std::size_t>(n));
  for (std::int64_t k = 0; k < n; ++k) {
    const double a = decode(t, ours.data, k), r = decode(t, reference.data, k);
    bool ok = true;
    if (!std::isfinite(a) || !std::isfinite(r)) {
      ok = (std::isnan(a) && std::isnan(r)) || a == r;
    } else {
      double d = std::fabs(a - r);
      // 64-bit integers that are equal as doubles may differ.
      if (d == 0 && size_of(t) == 8 && !real &&
          static_cast<const std::int64_t*>(ours.data)[k] != static_cast<const std::int64_t*>(reference.data)[k])
        d = 1;
      c.max_abs = std::max(c.max_abs, d);
      difference_squares += d * d;
      ok = d <= c.atol + c.rtol * std::fabs(r);
      if (real)
        ulps.push_back(std::fabs(static_cast<double>(ordinal(t, ours.data, k)) -
                                 static_cast<double>(ordinal(t, reference.data, k))));
    }
    if (ok) continue;
    if (c.wrong++ == 0) {
      c.first = k;
      c.ours = a;
      c.reference = r;
    }
  }
  if (finite)
    c.relative = difference_squares == 0 ? 0
                 : rms > 0               ? std::sqrt(difference_squares / static_cast<double>(finite)) / rms
                                         : INFINITY;
  if (!ulps.empty()) {
    const auto rank = [&](double p) {
      const auto at = ulps.begin() + static_cast<std::ptrdiff_t>(p * static_cast<double>(ulps.size() - 1));
      std::nth_element(ulps.begin(), at, ulps.end());
      return *at;
    };
    c.ulp_median = rank(0.5);
    c.ulp_p99 = rank(0.99);
    c.ulp_max = rank(1);
  }
  c.matches = c.wrong == 0;
  return c;
}

}  // namespace sardonyx::cli
