// The dialect of custom operators (docs/custom-operators.md): CUDA's and HIP's device language, on every target. On
// GPUs clang compiles it as CUDA (NVIDIA) or HIP (AMD), for the device only; on the host as C++, where
// compile/host_threads.h runs the threads of a block. A warp has 32 lanes everywhere.
//
// Names with SDX_ or in namespace sdx are ours; everything else is CUDA's. Nothing is taken from a vendor's header.
#pragma once

#if defined(__CUDA__) || defined(__HIP__)
#define SDX_CUSTOM_GPU 1
#pragma clang force_cuda_host_device begin
#else
#define SDX_CUSTOM_GPU 0
#endif

#include "custom_atomics.h"
#include "custom_call.h"
#include "custom_half.h"
#include "custom_integers.h"
#include "custom_math.h"
#include "custom_rounding.h"
#include "custom_simd.h"
#include "custom_std.h"
#include "custom_threads.h"
#include "custom_traits.h"
#include "custom_vectors.h"
#include "custom_warp.h"
#include "prelude.h"

namespace sdx::custom {
/// What no target can do from a kernel of an operator. A use is an error at its line.
#define SDX_REFUSED(text) __attribute__((unavailable(text)))
}  // namespace sdx::custom

template <class... A>
SDX_REFUSED("a custom operator can't print; write values to an output instead")
int printf(const char*, A...);
SDX_REFUSED("a custom operator can't stop the program; report errors through an output")
inline void __trap() {}
SDX_REFUSED("an operator's launches can't wait for the whole grid; divide the kernel into several launches")
inline void __sdx_grid_sync() {}
#if SDX_CUSTOM_GPU
#pragma clang force_cuda_host_device end
/// Around a source in plain C++, without kernels.
#define SDX_PLAIN_BEGIN _Pragma("clang force_cuda_host_device begin")
#define SDX_PLAIN_END _Pragma("clang force_cuda_host_device end")
#define __host__ __attribute__((host))
#define __device__ __attribute__((device))
#define __shared__ __attribute__((shared))
/// const, so that one without a value is an error: no host code can copy one to it.
#define __constant__ __attribute__((constant)) const
#else
#define SDX_PLAIN_BEGIN
#define SDX_PLAIN_END
#define __host__
#define __device__
/// One OS thread runs a block from its first to its last instruction, so memory of the thread is memory of the block.
/// compile/host_threads.h provides it.
#define __shared__ thread_local
#define __constant__ const
#endif
#define SDX_NO_MEMORY SDX_REFUSED("a custom operator can't allocate memory; declare a workspace instead")
SDX_NO_MEMORY __device__ void* operator new(size_t);
SDX_NO_MEMORY __device__ void* operator new[](size_t);
template <class... A>
SDX_NO_MEMORY __device__ void* malloc(A...);
#undef SDX_NO_MEMORY
/// Of memory that is there.
__device__ inline void* operator new(size_t, void* p) noexcept { return p; }
__device__ inline void* operator new[](size_t, void* p) noexcept { return p; }

/// The entry point of a launch is generated (codegen/custom_kernels.h), and calls the kernel as a function.
#define __global__ __device__
#define __forceinline__ inline __attribute__((always_inline))
#define __noinline__ __attribute__((noinline))
#define __align__(n) __attribute__((aligned(n)))
/// The operator's definition says how many threads a block has.
#define __launch_bounds__(...)
#define __maxnreg__(...)
#define __grid_constant__
#define __builtin_align__(n) __attribute__((aligned(n)))
#define __managed__ _Static_assert(false, "__managed__ variables are not supported; pass an input");

// HIP's older names.
#define hipThreadIdx_x threadIdx.x
#define hipThreadIdx_y threadIdx.y
#define hipThreadIdx_z threadIdx.z
#define hipBlockIdx_x blockIdx.x
#define hipBlockIdx_y blockIdx.y
#define hipBlockIdx_z blockIdx.z
#define hipBlockDim_x blockDim.x
#define hipBlockDim_y blockDim.y
#define hipBlockDim_z blockDim.z
#define hipGridDim_x gridDim.x
#define hipGridDim_y gridDim.y
#define hipGridDim_z gridDim.z
#define HIP_DYNAMIC_SHARED(type, name) extern __shared__ type name[];

/// Identifies this compiler to sources that also serve others.
#define __SARDONYX__ 1
#ifndef __CUDACC__
#define __CUDACC__ 1
#endif

// After our own headers, which use assembly.
#define SDX_NO_ASSEMBLY \
  _Static_assert(false, "inline assembly (PTX) is not supported in custom operators; write it in C++");
#define asm SDX_NO_ASSEMBLY
#define __asm__ SDX_NO_ASSEMBLY
#define __asm SDX_NO_ASSEMBLY
