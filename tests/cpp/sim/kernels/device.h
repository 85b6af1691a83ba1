// What the test kernels need of a device language, in plain freestanding C++ for clang's amdgcn target.
#pragma once

typedef unsigned int u32;
typedef unsigned long long u64;
typedef _Float16 half;

#define KERNEL extern "C" [[clang::amdgpu_kernel]] void
#define SHARED [[clang::loader_uninitialized]] static __attribute__((address_space(3)))

static inline u32 localX() { return __builtin_amdgcn_workitem_id_x(); }
static inline u32 localY() { return __builtin_amdgcn_workitem_id_y(); }
static inline u32 groupX() { return __builtin_amdgcn_workgroup_id_x(); }
static inline u32 groupY() { return __builtin_amdgcn_workgroup_id_y(); }
static inline u32 groupSizeX() { return __builtin_amdgcn_workgroup_size_x(); }
static inline u32 globalX() { return groupX() * groupSizeX() + localX(); }

/// Barrier of the workgroup that orders LDS and global memory.
static inline void barrier() {
  __builtin_amdgcn_fence(__ATOMIC_RELEASE, "workgroup");
  __builtin_amdgcn_s_barrier();
  __builtin_amdgcn_fence(__ATOMIC_ACQUIRE, "workgroup");
}
