// What kernels on GPUs need beside the prelude: who a thread is, barriers, sums over a workgroup. Workgroups have 256
// threads along x.
#pragma once
#include "prelude.h"

#if defined(__AMDGCN__)
#define SDX_KERNEL extern "C" [[clang::amdgpu_kernel]] __attribute__((amdgpu_flat_work_group_size(256, 256)))
#elif defined(__NVPTX__)
#define SDX_KERNEL extern "C" [[clang::nvptx_kernel]]
#endif
/// Memory shared by a workgroup.
#define SDX_SHARED __attribute__((address_space(3), loader_uninitialized))

namespace sdx {

inline constexpr u32 kThreads = 256;

#if defined(__AMDGCN__)
SDX_FN u32 thread_id() { return __builtin_amdgcn_workitem_id_x(); }
SDX_FN u32 block_id() { return __builtin_amdgcn_workgroup_id_x(); }
SDX_FN u32 block_count() { return __builtin_amdgcn_grid_size_x() / kThreads; }
/// All threads of the workgroup arrive before any goes on; what they wrote is then visible to all of them.
SDX_FN void barrier() {
  __builtin_amdgcn_fence(__ATOMIC_RELEASE, "workgroup");
  __builtin_amdgcn_s_barrier();
  __builtin_amdgcn_fence(__ATOMIC_ACQUIRE, "workgroup");
}
#elif defined(__NVPTX__)
SDX_FN u32 thread_id() { return __nvvm_read_ptx_sreg_tid_x(); }
SDX_FN u32 block_id() { return __nvvm_read_ptx_sreg_ctaid_x(); }
SDX_FN u32 block_count() { return __nvvm_read_ptx_sreg_nctaid_x(); }
SDX_FN void barrier() { __syncthreads(); }
#endif

/// q % n, and q becomes q / n. Not negative; in 32 bits where they suffice, which is many times as fast.
SDX_FN i64 take_digit(i64& q, i64 n) {
  if (((u64(q) | u64(n)) >> 32) == 0) {
    const u32 digit = u32(q) % u32(n);
    q = u32(q) / u32(n);
    return digit;
  }
  const u64 digit = u64(q) % u64(n);
  q = i64(u64(q) / u64(n));
  return i64(digit);
}

static SDX_SHARED u64 reduce_scratch[kThreads];

/// x of all threads of the workgroup combined, in every thread.
template <class T, class F>
SDX_FN T reduce_workgroup(T x, F combine) {
  auto* all = (__attribute__((address_space(3))) T*)reduce_scratch;
  const u32 t = thread_id();
  all[t] = x;
  barrier();
  for (u32 h = kThreads / 2; h > 0; h /= 2) {
    if (t < h) all[t] = combine(all[t], all[t + h]);
    barrier();
  }
  const T sum = all[0];
  barrier();
  return sum;
}

}  // namespace sdx
