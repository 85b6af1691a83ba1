// Loads of rows that are put together from parts of several tensors (codegen/gpu_row_plan.cpp).
#pragma once
#include "gpu.h"

namespace sdx {

/// load_row() for the elements from `low` to before `high`, which are those of one part; others are 0. A pack is
/// completely inside or outside.
template <int V, class T, class I>
SDX_FN Pack<T, V> load_part(const T* row, I first, I step, I low, I high, bool packed) {
  Pack<T, V> x = 0;
  if (packed) {
    if (first >= low && first < high) x = load_pack<V>(row + first);
  } else {
#pragma clang loop unroll(full)
    for (int l = 0; l < V; ++l) {
      const I i = first + l * step;
      if (i >= low && i < high) x[l] = bit_cast<unsigned_of<T>>(row[i]);
    }
  }
  return x;
}

}  // namespace sdx
