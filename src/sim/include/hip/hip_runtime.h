// HIP's language for programs compiled by plain clang without an SDK:
//   clang++ -x hip --offload-arch=gfx942 -nogpuinc -nogpulib -I <this folder's parent> program.cpp -L <lib>
//   -lamdhip64-sim
// Host side: the C API. Device side: work-item ids, barriers, lane exchange, atomics, and the math functions that clang
// expands without a device library.
#pragma once
#include "hip/hip_runtime_api.h"

#ifdef __cplusplus
#include <cmath>
#endif

#ifdef __HIP__
#define __host__ __attribute__((host))
#define __device__ __attribute__((device))
#define __global__ __attribute__((global))
#define __shared__ __attribute__((shared))
#define __constant__ __attribute__((constant))
#define __forceinline__ inline __attribute__((always_inline))
#if !__has_feature(cuda_noinline_keyword)  // else clang's own, which libstdc++'s attributes of this name do not hide
#define __noinline__ __attribute__((noinline))
#endif
#define __launch_bounds__(...) __attribute__((launch_bounds(__VA_ARGS__)))
#define HIP_DYNAMIC_SHARED(type, name) extern __shared__ type name[];
#define HIP_KERNEL_NAME(...) __VA_ARGS__
// HIP's older names.
#define hipThreadIdx_x (threadIdx.x)
#define hipThreadIdx_y (threadIdx.y)
#define hipThreadIdx_z (threadIdx.z)
#define hipBlockIdx_x (blockIdx.x)
#define hipBlockIdx_y (blockIdx.y)
#define hipBlockIdx_z (blockIdx.z)
#define hipBlockDim_x (blockDim.x)
#define hipBlockDim_y (blockDim.y)
#define hipBlockDim_z (blockDim.z)
#define hipGridDim_x (gridDim.x)
#define hipGridDim_y (gridDim.y)
#define hipGridDim_z (gridDim.z)
#define HIP_SYMBOL(x) x
#define hipLaunchKernelGGL(kernel, grid, block, sharedBytes, stream, ...) \
  kernel<<<(grid), (block), (sharedBytes), (stream)>>>(__VA_ARGS__)

extern "C" hipError_t __hipPushCallConfiguration(dim3 grid, dim3 block, size_t shared = 0, hipStream_t stream = 0);
extern "C" hipError_t __hipPopCallConfiguration(dim3* grid, dim3* block, size_t* shared, hipStream_t* stream);

namespace sardonyx_hip {
/// One component of threadIdx and its like, read through clang's builtins when used.
template <unsigned (*kRead)()>
struct Component {
  __device__ operator unsigned() const { return kRead(); }
};
__device__ inline unsigned threadX() { return __builtin_amdgcn_workitem_id_x(); }
__device__ inline unsigned threadY() { return __builtin_amdgcn_workitem_id_y(); }
__device__ inline unsigned threadZ() { return __builtin_amdgcn_workitem_id_z(); }
__device__ inline unsigned blockX() { return __builtin_amdgcn_workgroup_id_x(); }
__device__ inline unsigned blockY() { return __builtin_amdgcn_workgroup_id_y(); }
__device__ inline unsigned blockZ() { return __builtin_amdgcn_workgroup_id_z(); }
__device__ inline unsigned sizeX() { return __builtin_amdgcn_workgroup_size_x(); }
__device__ inline unsigned sizeY() { return __builtin_amdgcn_workgroup_size_y(); }
__device__ inline unsigned sizeZ() { return __builtin_amdgcn_workgroup_size_z(); }
__device__ inline unsigned gridX() { return __builtin_amdgcn_grid_size_x() / __builtin_amdgcn_workgroup_size_x(); }
__device__ inline unsigned gridY() { return __builtin_amdgcn_grid_size_y() / __builtin_amdgcn_workgroup_size_y(); }
__device__ inline unsigned gridZ() { return __builtin_amdgcn_grid_size_z() / __builtin_amdgcn_workgroup_size_z(); }
struct ThreadIdx {
  Component<threadX> x;
  Component<threadY> y;
  Component<threadZ> z;
};
struct BlockIdx {
  Component<blockX> x;
  Component<blockY> y;
  Component<blockZ> z;
};
struct BlockDim {
  Component<sizeX> x;
  Component<sizeY> y;
  Component<sizeZ> z;
};
struct GridDim {
  Component<gridX> x;
  Component<gridY> y;
  Component<gridZ> z;
};
}  // namespace sardonyx_hip
extern const __device__ __attribute__((weak)) sardonyx_hip::ThreadIdx threadIdx;
extern const __device__ __attribute__((weak)) sardonyx_hip::BlockIdx blockIdx;
extern const __device__ __attribute__((weak)) sardonyx_hip::BlockDim blockDim;
extern const __device__ __attribute__((weak)) sardonyx_hip::GridDim gridDim;

__device__ inline void __syncthreads() {
  __builtin_amdgcn_fence(__ATOMIC_RELEASE, "workgroup");
  __builtin_amdgcn_s_barrier();
  __builtin_amdgcn_fence(__ATOMIC_ACQUIRE, "workgroup");
}
__device__ inline void __threadfence() { __builtin_amdgcn_fence(__ATOMIC_SEQ_CST, "agent"); }
__device__ inline void __threadfence_block() { __builtin_amdgcn_fence(__ATOMIC_SEQ_CST, "workgroup"); }
__device__ inline void __threadfence_system() { __builtin_amdgcn_fence(__ATOMIC_SEQ_CST, ""); }
__device__ inline unsigned __lane_id() { return __builtin_amdgcn_mbcnt_hi(~0u, __builtin_amdgcn_mbcnt_lo(~0u, 0)); }
__device__ inline unsigned long long __ballot(int predicate) { return __builtin_amdgcn_ballot_w64(predicate != 0); }
__device__ inline int __any(int predicate) { return __ballot(predicate) != 0; }
__device__ inline int __all(int predicate) { return __ballot(predicate == 0) == 0; }
#define warpSize ((int)__builtin_amdgcn_wavefrontsize())

namespace sardonyx_hip {
template <class T>
__device__ inline T laneRead(T value, int lane) {
  static_assert(sizeof(T) == 4 || sizeof(T) == 8, "values of 4 or 8 bytes move between lanes");
  int words[sizeof(T) / 4];
  __builtin_memcpy(words, &value, sizeof(T));
  for (unsigned i = 0; i < sizeof(T) / 4; ++i) words[i] = __builtin_amdgcn_ds_bpermute(lane << 2, words[i]);
  __builtin_memcpy(&value, words, sizeof(T));
  return value;
}
}  // namespace sardonyx_hip
template <class T>
__device__ inline T __shfl(T v, int lane, int width = warpSize) {
  return sardonyx_hip::laneRead(v, (lane & (width - 1)) + ((int)__lane_id() & ~(width - 1)));
}
template <class T>
__device__ inline T __shfl_up(T v, unsigned delta, int width = warpSize) {
  int self = (int)__lane_id(), from = self - (int)delta;
  return sardonyx_hip::laneRead(v, from < (self & ~(width - 1)) ? self : from);
}
template <class T>
__device__ inline T __shfl_down(T v, unsigned delta, int width = warpSize) {
  int self = (int)__lane_id(), in = self & (width - 1);
  return sardonyx_hip::laneRead(v, in + (int)delta >= width ? self : self + (int)delta);
}
template <class T>
__device__ inline T __shfl_xor(T v, int mask, int width = warpSize) {
  int self = (int)__lane_id(), from = self ^ mask;
  return sardonyx_hip::laneRead(v, from >= ((self + width) & ~(width - 1)) ? self : from);
}

// The forms with a mask of lanes: all lanes named must be there, as the hardware runs them together anyway.
template <class T>
__device__ inline T __shfl_sync(unsigned long long, T v, int lane, int width = warpSize) {
  return __shfl(v, lane, width);
}
template <class T>
__device__ inline T __shfl_up_sync(unsigned long long, T v, unsigned delta, int width = warpSize) {
  return __shfl_up(v, delta, width);
}
template <class T>
__device__ inline T __shfl_down_sync(unsigned long long, T v, unsigned delta, int width = warpSize) {
  return __shfl_down(v, delta, width);
}
template <class T>
__device__ inline T __shfl_xor_sync(unsigned long long, T v, int mask, int width = warpSize) {
  return __shfl_xor(v, mask, width);
}
__device__ inline unsigned long long __activemask() { return __builtin_amdgcn_ballot_w64(true); }
__device__ inline unsigned long long __ballot_sync(unsigned long long, int predicate) { return __ballot(predicate); }

__device__ inline int __popc(unsigned v) { return __builtin_popcount(v); }
__device__ inline int __popcll(unsigned long long v) { return __builtin_popcountll(v); }
__device__ inline int __clz(int v) { return v ? __builtin_clz((unsigned)v) : 32; }
__device__ inline int __clzll(long long v) { return v ? __builtin_clzll((unsigned long long)v) : 64; }
__device__ inline int __ffs(int v) { return __builtin_ffs(v); }
__device__ inline int __ffsll(long long v) { return __builtin_ffsll(v); }
__device__ inline unsigned __brev(unsigned v) { return __builtin_bitreverse32(v); }
__device__ inline unsigned __umulhi(unsigned a, unsigned b) { return (unsigned)((unsigned long long)a * b >> 32); }
__device__ inline int __mulhi(int a, int b) { return (int)((long long)a * b >> 32); }
__device__ inline float __int_as_float(int v) { return __builtin_bit_cast(float, v); }
__device__ inline int __float_as_int(float v) { return __builtin_bit_cast(int, v); }
__device__ inline float __uint_as_float(unsigned v) { return __builtin_bit_cast(float, v); }
__device__ inline unsigned __float_as_uint(float v) { return __builtin_bit_cast(unsigned, v); }
__device__ inline double __longlong_as_double(long long v) { return __builtin_bit_cast(double, v); }
__device__ inline long long __double_as_longlong(double v) { return __builtin_bit_cast(long long, v); }
template <class T>
__device__ inline T __ldg(const T* p) {
  return *p;
}
__device__ inline long long clock64() { return (long long)__builtin_readcyclecounter(); }
__device__ inline long long clock() { return clock64(); }
__device__ inline long long wall_clock64() { return (long long)__builtin_readsteadycounter(); }
__device__ inline void __syncwarp() { __builtin_amdgcn_wave_barrier(); }

#define SARDONYX_ATOMIC(name, operation)                                               \
  template <class T>                                                                   \
  __device__ inline T name(T* p, T v) {                                                \
    return __hip_atomic_##operation(p, v, __ATOMIC_RELAXED, __HIP_MEMORY_SCOPE_AGENT); \
  }
SARDONYX_ATOMIC(atomicAdd, fetch_add)
SARDONYX_ATOMIC(atomicMin, fetch_min)
SARDONYX_ATOMIC(atomicMax, fetch_max)
SARDONYX_ATOMIC(atomicAnd, fetch_and)
SARDONYX_ATOMIC(atomicOr, fetch_or)
SARDONYX_ATOMIC(atomicXor, fetch_xor)
SARDONYX_ATOMIC(atomicExch, exchange)
#undef SARDONYX_ATOMIC
__device__ inline unsigned atomicInc(unsigned* p, unsigned limit) {
  return __builtin_amdgcn_atomic_inc32(p, limit, __ATOMIC_RELAXED, "agent");
}
__device__ inline unsigned atomicDec(unsigned* p, unsigned limit) {
  return __builtin_amdgcn_atomic_dec32(p, limit, __ATOMIC_RELAXED, "agent");
}
template <class T>
__device__ inline T atomicSub(T* p, T v) {
  return __hip_atomic_fetch_add(p, -v, __ATOMIC_RELAXED, __HIP_MEMORY_SCOPE_AGENT);
}
template <class T>
__device__ inline T atomicCAS(T* p, T compare, T value) {
  __hip_atomic_compare_exchange_strong(p, &compare, value, __ATOMIC_RELAXED, __ATOMIC_RELAXED,
                                       __HIP_MEMORY_SCOPE_AGENT);
  return compare;
}

#define SARDONYX_MATH1(name)                                                  \
  __device__ inline float name##f(float x) { return __builtin_##name##f(x); } \
  __device__ inline float name(float x) { return __builtin_##name##f(x); }    \
  __device__ inline double name(double x) { return __builtin_##name(x); }
SARDONYX_MATH1(sqrt)
SARDONYX_MATH1(fabs)
SARDONYX_MATH1(floor)
SARDONYX_MATH1(ceil)
SARDONYX_MATH1(trunc)
SARDONYX_MATH1(rint)
#undef SARDONYX_MATH1
__device__ inline float fmaf(float a, float b, float c) { return __builtin_fmaf(a, b, c); }
__device__ inline float fminf(float a, float b) { return __builtin_fminf(a, b); }
__device__ inline float fmaxf(float a, float b) { return __builtin_fmaxf(a, b); }
__device__ inline float expf(float x) { return __builtin_expf(x); }
__device__ inline float exp2f(float x) { return __builtin_exp2f(x); }
__device__ inline float logf(float x) { return __builtin_logf(x); }
__device__ inline float log2f(float x) { return __builtin_log2f(x); }
__device__ inline float rsqrtf(float x) { return 1.0f / __builtin_sqrtf(x); }
__device__ inline float log10f(float x) { return __builtin_log10f(x); }
__device__ inline float roundf(float x) { return __builtin_roundf(x); }
__device__ inline float copysignf(float x, float y) { return __builtin_copysignf(x, y); }
__device__ inline double fma(double a, double b, double c) { return __builtin_fma(a, b, c); }
__device__ inline double fmin(double a, double b) { return __builtin_fmin(a, b); }
__device__ inline double fmax(double a, double b) { return __builtin_fmax(a, b); }
__device__ inline float __expf(float x) { return __builtin_amdgcn_exp2f(x * 1.44269504f); }
__device__ inline float __logf(float x) { return __builtin_amdgcn_logf(x) * 0.693147181f; }
__device__ inline float __fdividef(float a, float b) { return a * __builtin_amdgcn_rcpf(b); }
__device__ inline float __frcp_rn(float x) { return 1.0f / x; }
// By the exponential: errors of a few units in the last place.
__device__ inline float tanhf(float x) {
  float a = __builtin_fabsf(x);
  if (a < 0.25f) {
    float s = x * x;  // the series to x^9
    return x + x * s * (-0.333333333f + s * (0.133333333f + s * (-0.0539682540f + s * 0.0218694885f)));
  }
  float e = __builtin_exp2f(a * -2.88539008f);
  return __builtin_copysignf((1.0f - e) / (1.0f + e), x);
}

#define SARDONYX_MIN_MAX(type)                                                            \
  __host__ __device__ constexpr inline type min(type a, type b) { return b < a ? b : a; } \
  __host__ __device__ constexpr inline type max(type a, type b) { return a < b ? b : a; }
SARDONYX_MIN_MAX(int)
SARDONYX_MIN_MAX(unsigned)
SARDONYX_MIN_MAX(long)
SARDONYX_MIN_MAX(unsigned long)
SARDONYX_MIN_MAX(long long)
SARDONYX_MIN_MAX(unsigned long long)
SARDONYX_MIN_MAX(float)
SARDONYX_MIN_MAX(double)
#undef SARDONYX_MIN_MAX

// Vectors of two to four: members x, y, z, w and element-wise arithmetic, as clang's vectors have them.
#define SARDONYX_VECTORS(type, name)                                                                      \
  typedef type name##2 __attribute__((ext_vector_type(2)));                                               \
  typedef type name##3 __attribute__((ext_vector_type(3)));                                               \
  typedef type name##4 __attribute__((ext_vector_type(4)));                                               \
  __host__ __device__ inline name##2 make_##name##2(type x, type y) { return name##2 {x, y}; }            \
  __host__ __device__ inline name##3 make_##name##3(type x, type y, type z) { return name##3 {x, y, z}; } \
  __host__ __device__ inline name##4 make_##name##4(type x, type y, type z, type w) { return name##4 {x, y, z, w}; }
SARDONYX_VECTORS(signed char, char)
SARDONYX_VECTORS(unsigned char, uchar)
SARDONYX_VECTORS(short, short)
SARDONYX_VECTORS(unsigned short, ushort)
SARDONYX_VECTORS(int, int)
SARDONYX_VECTORS(unsigned, uint)
SARDONYX_VECTORS(long long, longlong)
SARDONYX_VECTORS(unsigned long long, ulonglong)
SARDONYX_VECTORS(float, float)
SARDONYX_VECTORS(double, double)
#undef SARDONYX_VECTORS
#endif  // __HIP__
