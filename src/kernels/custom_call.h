// How the generated entry point of a launch passes arguments to the user's kernel: as objects that convert to the types
// of its parameters, but only to pointer and number types that fit.
#pragma once
#include "custom_half.h"
#include "custom_std.h"
#include "custom_threads.h"

namespace sdx::custom {

/// Whether memory of elements E may be seen as T: the same size and kind, or any class (float4, a struct) or void.
template <class T, class E>
constexpr bool fits() {
  if constexpr (__is_void(T) || __is_same(T, E))
    return true;
  else if constexpr (__is_class(T))
    return !__is_same(T, __half) && !__is_same(T, __nv_bfloat16);
  else if constexpr (__is_integral(T))
    return sizeof(T) == sizeof(E) && (__is_integral(E) || sizeof(E) == 2);
  else
    return __is_same(T, _Float16) && __is_same(E, __half);
}

/// A tensor with elements of type E, or null if an optional input is absent.
template <class E>
struct Tensor {
  void* p;
  template <class T>
    requires(fits<__remove_cv(T), E>())
  SDX_FN operator T*() const {
    return static_cast<T*>(p);
  }
};
template <>
struct Tensor<void> {
  void* p;
  template <class T>
  SDX_FN operator T*() const {
    return static_cast<T*>(p);
  }
};

/// A whole number.
struct Whole {
  i64 value;
  template <class T>
    requires(__is_arithmetic(T))
  SDX_FN operator T() const {
    return static_cast<T>(value);
  }
};

#if SDX_CUSTOM_GPU
/// Of a launch's entry point (compile/llvm/custom_entry.h); on GPUs with its largest block.
#define SDX_ENTRY(threads) __attribute__((global, annotate("sdx.entry=1"))) __attribute__((launch_bounds(threads)))
#else
#define SDX_ENTRY __attribute__((annotate("sdx.entry=1")))
/// Whether threads of a block can wait for each other, so that each needs a stack of its own (sdx_run_block); otherwise
/// they run one after another. compile/llvm/custom_entry.h defines it.
extern "C" const u32 sdx_waits;
/// Runs blocks [begin, end) of the grid. `sizes`: of the grid and of a block, 3 each.
template <class F>
SDX_FN void run_blocks(const i64* sizes, i64 begin, i64 end, F thread) {
  HostThread& here = *sdx_host_thread();
  const u32 x = u32(sizes[3]), y = u32(sizes[4]), z = u32(sizes[5]);
  for (int k = 0; k < 3; ++k) {
    here.grid_size[k] = Component(sizes[k]);
    here.block_size[k] = Component(sizes[3 + k]);
  }
  for (i64 b = begin; b < end; ++b) {
    here.block[0] = Component(b % sizes[0]);
    here.block[1] = Component(b / sizes[0] % sizes[1]);
    here.block[2] = Component(b / sizes[0] / sizes[1]);
    if (sdx_waits != 0) {
      sdx_run_block([](void* f) { (*static_cast<F*>(f))(); }, &thread);
      continue;
    }
    for (u32 k = 0; k < z; ++k)
      for (u32 j = 0; j < y; ++j) {
        here.thread[1] = Component(j);
        here.thread[2] = Component(k);
        for (u32 i = 0; i < x; ++i) {
          here.thread[0] = Component(i);
          thread();
        }
      }
  }
}
#endif

}  // namespace sdx::custom
