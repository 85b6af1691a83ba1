// Loops that are unrolled in the source, because an index is a template argument or the compiler does not unroll so
// many instructions.
#pragma once
#include "gpu.h"

namespace sdx {

template <int Value>
struct Number {
  static constexpr int value = Value;
};

/// Calls f with Number<First>{} to Number<N - 1>{}.
template <int N, int First = 0, class F>
SDX_FN void each(const F& f) {
  if constexpr (N - First == 1) {
    f(Number<First>{});
  } else if constexpr (N > First) {
    constexpr int kMiddle = First + (N - First) / 2;
    each<kMiddle, First>(f);
    each<N, kMiddle>(f);
  }
}

}  // namespace sdx
