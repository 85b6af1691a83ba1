// HIP's language for programs compiled by plain clang without an SDK:
//   clang++ -x hip --offload-arch=gfx942 -nogpuinc -nogpulib -I <this folder's parent> program.cpp -L <lib>
//   -lamdhip64-sim
// Host side: the C API. Device side: work-item ids, barriers, lane exchange, atomics, and the math functions that clang
// expands without a device library.
#pragma once
#include "hip/hip_runtime_api.h"

#ifdef __HIP__
#define __host__ __attribute__((host))
#define __device__ __attribute__((device))
#define __global__ __attribute__((global))
#define __shared__ __attribute__((shared))
#define __constant__ __attribute__((constant))
#define __forceinline__ inline __attribute__((always_inline))
#define __noinline__ __attribute__((noinline))
#define __launch_bounds__(...) __attribute__((launch_bounds(__VA_ARGS__)))
#define HIP_DYNAMIC_SHARED(type, name) extern __shared__ type name[];

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

#ifdef __HIP_DEVICE_COMPILE__
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
#endif
#endif  // __HIP__

#ifdef __cplusplus
template <class T>
inline hipError_t hipMalloc(T** pointer, size_t size) {
  return hipMalloc(reinterpret_cast<void**>(pointer), size);
}
template <class T>
inline hipError_t hipHostMalloc(T** pointer, size_t size, unsigned int flags = hipHostMallocDefault) {
  return hipHostMalloc(reinterpret_cast<void**>(pointer), size, flags);
}
template <class T>
inline hipError_t hipMallocManaged(T** pointer, size_t size, unsigned int flags = hipMemAttachGlobal) {
  return hipMallocManaged(reinterpret_cast<void**>(pointer), size, flags);
}
#endif
