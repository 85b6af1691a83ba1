// Where a thread of a custom operator is, and the barriers of its block.
#pragma once
#include "custom_vectors.h"

#if !SDX_CUSTOM_GPU
// compile/host_threads.h defines these.
namespace sdx::custom {
/// A type of its own, so that what a kernel stores as unsigned is known not to change it.
enum Component : u32 {};
struct HostThread {
  Component thread[3], block[3], block_size[3], grid_size[3];
};
}  // namespace sdx::custom
extern "C" sdx::custom::HostThread* sdx_host_thread() __attribute__((const));
extern "C" sdx::u64 sdx_block_wait(sdx::u32 predicate);
extern "C" void sdx_run_block(void (*thread)(void*), void* argument);
#endif

namespace sdx::custom {

#if defined(__AMDGCN__)
SDX_FN uint3 thread_index() {
  return {__builtin_amdgcn_workitem_id_x(), __builtin_amdgcn_workitem_id_y(), __builtin_amdgcn_workitem_id_z()};
}
SDX_FN uint3 block_index() {
  return {__builtin_amdgcn_workgroup_id_x(), __builtin_amdgcn_workgroup_id_y(), __builtin_amdgcn_workgroup_id_z()};
}
// The dispatch packet of HSA's queues: 16-bit workgroup sizes at byte 4, 32-bit grid sizes (in threads) at byte 12.
SDX_FN uint3 block_size() {
  const auto* p = (const __attribute__((address_space(4))) u16*)__builtin_amdgcn_dispatch_ptr();
  return {p[2], p[3], p[4]};
}
SDX_FN uint3 grid_size() {
  const auto* p = (const __attribute__((address_space(4))) u32*)__builtin_amdgcn_dispatch_ptr();
  const uint3 b = block_size();
  return {p[3] / b.x, p[4] / b.y, p[5] / b.z};
}
/// See kernels/gpu.h: clang 22 drops the wait of a release fence in some loops.
SDX_FN void wait_for_shared() {
#if defined(__GFX12__)
  asm volatile("s_wait_dscnt 0x0" ::: "memory");
#else
  asm volatile("s_waitcnt lgkmcnt(0)" ::: "memory");
#endif
}
SDX_FN void block_barrier() {
  __builtin_amdgcn_fence(__ATOMIC_RELEASE, "workgroup");
  wait_for_shared();
  __builtin_amdgcn_s_barrier();
  __builtin_amdgcn_fence(__ATOMIC_ACQUIRE, "workgroup");
}
#elif defined(__NVPTX__)
SDX_FN uint3 thread_index() {
  return {u32(__nvvm_read_ptx_sreg_tid_x()), u32(__nvvm_read_ptx_sreg_tid_y()), u32(__nvvm_read_ptx_sreg_tid_z())};
}
SDX_FN uint3 block_index() {
  return {u32(__nvvm_read_ptx_sreg_ctaid_x()), u32(__nvvm_read_ptx_sreg_ctaid_y()),
          u32(__nvvm_read_ptx_sreg_ctaid_z())};
}
SDX_FN uint3 block_size() {
  return {u32(__nvvm_read_ptx_sreg_ntid_x()), u32(__nvvm_read_ptx_sreg_ntid_y()), u32(__nvvm_read_ptx_sreg_ntid_z())};
}
SDX_FN uint3 grid_size() {
  return {u32(__nvvm_read_ptx_sreg_nctaid_x()), u32(__nvvm_read_ptx_sreg_nctaid_y()),
          u32(__nvvm_read_ptx_sreg_nctaid_z())};
}
SDX_FN void block_barrier() { __syncthreads(); }
#else
SDX_FN uint3 components(const Component (&c)[3]) { return {c[0], c[1], c[2]}; }
SDX_FN uint3 thread_index() { return components(sdx_host_thread()->thread); }
SDX_FN uint3 block_index() { return components(sdx_host_thread()->block); }
SDX_FN uint3 block_size() { return components(sdx_host_thread()->block_size); }
SDX_FN uint3 grid_size() { return components(sdx_host_thread()->grid_size); }
SDX_FN void block_barrier() { sdx_block_wait(0); }
#endif

/// The thread's number in its block, x fastest; lanes and warps follow it.
SDX_FN u32 thread_rank() {
  const uint3 t = thread_index(), n = block_size();
  return t.x + n.x * (t.y + n.y * t.z);
}
SDX_FN u32 block_threads() {
  const uint3 n = block_size();
  return n.x * n.y * n.z;
}

/// How many threads of the block gave a predicate that is not 0, and how many took part: in the low and high half.
#if SDX_CUSTOM_GPU
inline __attribute__((shared)) u32 block_votes[2];
SDX_FN u64 block_vote(u32 predicate) {
  if (thread_rank() == 0) block_votes[0] = block_votes[1] = 0;
  block_barrier();
  __scoped_atomic_fetch_add(&block_votes[predicate ? 0 : 1], 1u, __ATOMIC_RELAXED, __MEMORY_SCOPE_WRKGRP);
  block_barrier();
  const u64 yes = block_votes[0], no = block_votes[1];
  block_barrier();
  return yes | (yes + no) << 32;
}
#else
SDX_FN u64 block_vote(u32 predicate) { return sdx_block_wait(predicate != 0); }
#endif

}  // namespace sdx::custom

#define threadIdx (::sdx::custom::thread_index())
#define blockIdx (::sdx::custom::block_index())
#define blockDim (::sdx::custom::block_size())
#define gridDim (::sdx::custom::grid_size())

#if !defined(__NVPTX__)  // where it is a builtin of clang
SDX_FN void __syncthreads() { sdx::custom::block_barrier(); }
#endif
SDX_FN int __syncthreads_count(int predicate) { return int(unsigned(sdx::custom::block_vote(predicate != 0))); }
SDX_FN int __syncthreads_or(int predicate) { return unsigned(sdx::custom::block_vote(predicate != 0)) != 0; }
SDX_FN int __syncthreads_and(int predicate) {
  const sdx::u64 votes = sdx::custom::block_vote(predicate != 0);
  return unsigned(votes) == unsigned(votes >> 32);
}

#if defined(__AMDGCN__)
SDX_FN void __threadfence() { __builtin_amdgcn_fence(__ATOMIC_SEQ_CST, "agent"); }
SDX_FN void __threadfence_block() { __builtin_amdgcn_fence(__ATOMIC_SEQ_CST, "workgroup"); }
SDX_FN void __threadfence_system() { __builtin_amdgcn_fence(__ATOMIC_SEQ_CST, ""); }
#elif defined(__NVPTX__)
SDX_FN void __threadfence() { __nvvm_membar_gl(); }
SDX_FN void __threadfence_block() { __nvvm_membar_cta(); }
SDX_FN void __threadfence_system() { __nvvm_membar_sys(); }
#else
SDX_FN void __threadfence() { __atomic_thread_fence(__ATOMIC_SEQ_CST); }
SDX_FN void __threadfence_block() { __atomic_thread_fence(__ATOMIC_SEQ_CST); }
SDX_FN void __threadfence_system() { __atomic_thread_fence(__ATOMIC_SEQ_CST); }
#endif
SDX_FN void __nanosleep(unsigned) {}

// --- <cuda_pipeline.h>: copies that are complete at once
template <class T, class F>
SDX_FN void __pipeline_memcpy_async(T* to, const F* from, size_t bytes, size_t zeros = 0) {
  auto* out = reinterpret_cast<unsigned char*>(to);
  __builtin_memcpy(out, from, bytes - zeros);
  __builtin_memset(out + (bytes - zeros), 0, zeros);
}
SDX_FN void __pipeline_commit() {}
SDX_FN void __pipeline_wait_prior(size_t) {}
