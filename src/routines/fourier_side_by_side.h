// Fourier transforms of several lines at a time, one in each lane of a vector.
#pragma once
#include <cstdint>
#include <vector>

#include "routines/fourier_passes.h"

namespace sardonyx::routines::dft {

/// to[k][i] = from[i * row + k] for k below `count`, a multiple of kLanes.
void transpose_rows(const float* from, std::int64_t row, std::int64_t count, Vector* to);
/// to[i * row + k] = from[k][i], the same in the other direction.
void transpose_columns(const Vector* from, std::int64_t count, std::int64_t row, float* to);

/// Memory for transforming kLanes lines, and how. Sums are those of a single line, in the same order.
class SideBySide {
 public:
  SideBySide(const Transform& f, const Tables& tables);
  /// Where the numbers of the lines are put: f.inputs() times f.components.
  Vector* numbers() { return reinterpret_cast<Vector*>(a_.data()); }
  /// Transforms the first `have` samples or bins of each line; the others are 0. The result's numbers, in order.
  const Vector* run(std::int64_t have);

 private:
  Transform f_;
  const Tables& tables_;
  std::vector<Lanes> a_, b_, elements_;
};

}  // namespace sardonyx::routines::dft
