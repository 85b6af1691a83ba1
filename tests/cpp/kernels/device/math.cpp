// Loops over the prelude's functions, like those of generated code. SUFFIX tells the instruction sets apart that this
// file is compiled for.
#include "prelude.h"

using namespace sdx;

#define JOIN2(a, b) a##b
#define JOIN(a, b) JOIN2(a, b)
#define UNARY_OF(name, T)                                                                   \
  extern "C" void JOIN(name##_##T, SUFFIX)(const T* __restrict x, T* __restrict y, i64 n) { \
    for (i64 i = 0; i < n; i++) y[i] = name(x[i]);                                          \
  }
#define BINARY_OF(name, T)                                                                                         \
  extern "C" void JOIN(name##_##T, SUFFIX)(const T* __restrict x, const T* __restrict z, T* __restrict y, i64 n) { \
    for (i64 i = 0; i < n; i++) y[i] = name(x[i], z[i]);                                                           \
  }
#define UNARY(name) UNARY_OF(name, f32) UNARY_OF(name, f64)
#define BINARY(name) BINARY_OF(name, f32) BINARY_OF(name, f64)
#define INTEGER(name) \
  BINARY_OF(name, i8) \
  BINARY_OF(name, u8) BINARY_OF(name, i32) BINARY_OF(name, u32) BINARY_OF(name, i64) BINARY_OF(name, u64)
#include "../integer_kernels.inc"
#include "../math_kernels.inc"
UNARY_OF(bounded_sin, f32)
UNARY_OF(bounded_cos, f32)
UNARY_OF(exp, f16)
UNARY_OF(gelu, f16)
UNARY_OF(gelu, bf16)

extern "C" void JOIN(clamp_f32, SUFFIX)(const f32* __restrict x, f32* __restrict y, i64 n) {
  for (i64 i = 0; i < n; i++) y[i] = clamp(x[i], -1.0f, 2.0f);
}
// Four words of random bits per block: the counter's index, its upper words and the key given.
extern "C" void JOIN(philox, SUFFIX)(u32 c1, u32 c2, u32 c3, u32 k0, u32 k1, u32 first, u32* __restrict y, i64 n) {
  for (i64 i = 0; i < n; i++) {
    const u32x4 r = philox({first + u32(i), c1, c2, c3}, k0, k1);
    y[4 * i] = r.x;
    y[4 * i + 1] = r.y;
    y[4 * i + 2] = r.z;
    y[4 * i + 3] = r.w;
  }
}
extern "C" void JOIN(normal, SUFFIX)(u64 seed, f32* __restrict y, i64 n) {
  for (i64 i = 0; i < n; i++) {
    const u32x4 r = random_bits(seed, 1, u64(i));
    y[i] = normal_f32(r.x, r.y);
  }
}
extern "C" void JOIN(uniform, SUFFIX)(u64 seed, f32* __restrict y, f64* __restrict z, i64 n) {
  for (i64 i = 0; i < n; i++) {
    const u32x4 r = random_bits(seed, 2, u64(i));
    y[i] = uniform_f32(r.x);
    z[i] = uniform_f64(r.y, r.z);
  }
}
extern "C" void JOIN(random_uniform, SUFFIX)(u64 seed, f32* __restrict y, i64 n) {
  for (i64 i = 0; i < n; i++) y[i] = random_uniform(seed, i);
}
