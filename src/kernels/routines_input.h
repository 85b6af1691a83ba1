// Inputs of routines: in memory, or computed by the routine's own kernel (codegen/gpu_computed_input.cpp). A kernel
// reads both in the same way.
#pragma once
#include "gpu.h"

namespace sdx {

/// An input that the kernel computes: fetch<N>(at) loads what compute<N>(loaded, at) makes N elements of, from a
/// multiple of N on. N is at most Length; 1 unless `packed`.
template <class T, u32 Length, class Fetch, class Compute>
struct Computed {
  bool packed;
  Fetch fetch;
  Compute compute;
  i64 first;
};
template <class T, u32 Length, class Fetch, class Compute>
SDX_FN Computed<T, Length, Fetch, Compute> computed(bool packed, Fetch fetch, Compute compute) {
  return {packed, fetch, compute, 0};
}

namespace detail {
template <class X>
struct InputElement;
template <class T>
struct InputElement<const T*> {
  using Type = T;
};
template <class T, u32 L, class F, class C>
struct InputElement<Computed<T, L, F, C>> {
  using Type = T;
};
/// What is loaded for several packs.
template <class Part, u32 Count>
struct Parts {
  Part part[Count];
};
}  // namespace detail
template <class X>
using input_element = typename detail::InputElement<X>::Type;

/// The input from element `at` on.
template <class T>
SDX_FN const T* input_from(const T* x, i64 at) {
  return x + at;
}
template <class T, u32 L, class F, class C>
SDX_FN Computed<T, L, F, C> input_from(Computed<T, L, F, C> x, i64 at) {
  x.first += at;
  return x;
}

/// Whether packs of N elements may begin at any element.
template <class X, u32 N>
inline constexpr bool kPacksAnywhere = false;
template <class T, u32 N>
inline constexpr bool kPacksAnywhere<const T*, N> = kPackAlignment<T, N> == sizeof(T);
template <class T, class F, class C, u32 N>
inline constexpr bool kPacksAnywhere<Computed<T, 1, F, C>, N> = true;
/// Whether there are packs of N elements from multiples of N on.
template <u32 N, class T>
SDX_FN bool has_packs(const T* x) {
  return aligned(x);
}
template <u32 N, class T, u32 L, class F, class C>
SDX_FN bool has_packs(const Computed<T, L, F, C>& x) {
  return L == 1 || (x.packed && x.first % N == 0);
}

/// Loads what finish_pack() makes N elements of.
template <u32 N, class T>
SDX_FN Pack<T, N> fetch_pack(const T* x, i64 at) {
  return load_pack<N>(x + at);
}
template <u32 N, class T>
SDX_FN Pack<T, N> finish_pack(const T*, Pack<T, N> loaded, i64) {
  return loaded;
}
template <u32 N, class T, u32 L, class F, class C>
SDX_FN auto fetch_pack(const Computed<T, L, F, C>& x, i64 at) {
  constexpr u32 M = N < L ? N : L;
  detail::Parts<decltype(x.fetch.template operator()<M>(at)), N / M> all;
#pragma clang loop unroll(full)
  for (u32 k = 0; k < N / M; ++k) all.part[k] = x.fetch.template operator()<M>(x.first + at + k * M);
  return all;
}
template <u32 N, class T, u32 L, class F, class C, class Loaded>
SDX_FN Pack<T, N> finish_pack(const Computed<T, L, F, C>& x, const Loaded& loaded, i64 at) {
  constexpr u32 M = N < L ? N : L;
  Pack<T, N> all;
#pragma clang loop unroll(full)
  for (u32 k = 0; k < N / M; ++k) {
    const Pack<T, M> part = x.compute.template operator()<M>(loaded.part[k], x.first + at + k * M);
#pragma clang loop unroll(full)
    for (u32 l = 0; l < M; ++l) all[k * M + l] = part[l];
  }
  return all;
}

template <u32 N, class X>
SDX_FN Pack<input_element<X>, N> read_pack(const X& x, i64 at) {
  return finish_pack<N>(x, fetch_pack<N>(x, at), at);
}
template <class T>
SDX_FN T read_element(const T* x, i64 at) {
  return x[at];
}
template <class T, u32 L, class F, class C>
SDX_FN T read_element(const Computed<T, L, F, C>& x, i64 at) {
  return from_bits<T>(read_pack<1>(x, at)[0]);
}

}  // namespace sdx
