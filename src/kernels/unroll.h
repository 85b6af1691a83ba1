// Loops that are unrolled in the source, because an index is a template argument or the compiler does not unroll so
// many instructions.
#pragma once
#include "gpu.h"

namespace sdx {

template <int Value>
struct Number {
  static constexpr int value = Value;
};

namespace unroll_detail {

template <class T, T... Values>
struct Sequence {};

/// One function for all numbers. Halving the range makes as many more, and a GEMM has several hundred anyway.
template <int First, class F, int... Values>
SDX_FN void each(const F& f, Sequence<int, Values...>) {
  (f(Number<First + Values>{}), ...);
}

}  // namespace unroll_detail

/// Calls f with Number<First>{} to Number<N - 1>{}.
template <int N, int First = 0, class F>
SDX_FN void each(const F& f) {
  if constexpr (N > First) unroll_detail::each<First>(f, __make_integer_seq<unroll_detail::Sequence, int, N - First>{});
}

}  // namespace sdx
