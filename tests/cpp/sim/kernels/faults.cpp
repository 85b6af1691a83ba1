// Kernels with planted faults. The tests look for the lines marked here.
#include "device.h"

KERNEL outOfBounds(float* out, u32 n) {
  u32 i = globalX();
  out[i + (i == 37 ? n : 0)] = 1.0f;  // FAULT: out of bounds
}

KERNEL readOutOfBounds(const u32* in, u32* out, u32 n) {
  u32 i = globalX();
  out[i] = in[i == 21 ? n : i];  // FAULT: read beyond
}

KERNEL nullStore(u32* out) {
  *(volatile u32*)out = 1;  // FAULT: null
}

SHARED u32 exchange[256];
KERNEL missingBarrier(const u32* in, u32* out) {
  u32 t = localX();
  exchange[t] = in[t];
  __builtin_amdgcn_fence(__ATOMIC_ACQ_REL, "wavefront");
  out[t] = exchange[255 - t];  // FAULT: race
}

// The barrier alone does not wait for the store to LDS.
KERNEL barrierWithoutWait(u32* out) {
  u32 t = localX();
  u32 at = (u32)(u64)&exchange[t];
#if defined(__GFX12__)
  asm volatile("ds_store_b32 %0, %0\ns_barrier_signal -1\ns_barrier_wait -1" ::"v"(at) : "memory");
#else
  asm volatile("ds_write_b32 %0, %0\ns_barrier" ::"v"(at) : "memory");
#endif
  out[t] = exchange[255 - t];  // FAULT: no wait
}

// The barrier on the other side of a divergent branch is never reached by the rest.
KERNEL barrierInBranch(u32* out) {
  u32 wave = (u32)__builtin_amdgcn_readfirstlane((int)(localX() / __builtin_amdgcn_wavefrontsize()));
  if (wave == 0) {
    exchange[0] = 1;
    while (__scoped_atomic_load_n((u32*)&exchange[1], __ATOMIC_RELAXED, __MEMORY_SCOPE_WRKGRP) !=
           1) {  // FAULT: deadlock
    }
  }
  barrier();
  out[localX()] = exchange[0];
}

KERNEL ldsOutOfBounds(u32* out, u32 index) {
  out[localX()] = ((volatile __attribute__((address_space(3))) u32*)exchange)[index + localX()];  // FAULT: LDS bounds
}

// Workgroups write the same cell with nothing between them.
KERNEL globalRace(u32* cell) {
  if (localX() == 0) *cell = groupX() + 1;  // FAULT: global race
}
KERNEL globalRaceInGroup(u32* cells, u32* out) {
  u32 t = localX();
  cells[t] = t + 1;
  __builtin_amdgcn_fence(__ATOMIC_ACQ_REL, "wavefront");
  out[t] = cells[255 - t];  // FAULT: global race in group
}
// Sound: the last workgroup to arrive reads what the others wrote.
KERNEL lastGroupSums(u32* cells, u32* counter, u32* out) {
  SHARED u32 last;
  cells[globalX()] = globalX();
  __builtin_amdgcn_fence(__ATOMIC_RELEASE, "agent");
  barrier();
  if (localX() == 0) last = __scoped_atomic_fetch_add(counter, 1u, __ATOMIC_ACQ_REL, __MEMORY_SCOPE_DEVICE);
  barrier();
  if (last != 3) return;
  __builtin_amdgcn_fence(__ATOMIC_ACQUIRE, "agent");
  if (localX() == 0) {
    u32 sum = 0;
    for (u32 i = 0; i < 4 * groupSizeX(); ++i) sum += cells[i];
    out[0] = sum;
  }
}
// Sound: a chain of flags, each workgroup waits for the one before it.
KERNEL flagChain(u32* flags, u32* data) {
  if (localX() == 0) {
    u32 g = groupX(), before = 0;
    if (g) {
      while (!__scoped_atomic_load_n(&flags[g - 1], __ATOMIC_ACQUIRE, __MEMORY_SCOPE_DEVICE))
        __builtin_amdgcn_s_sleep(1);
      before = data[g - 1];
    }
    data[g] = before + g;
    __scoped_atomic_store_n(&flags[g], 1u, __ATOMIC_RELEASE, __MEMORY_SCOPE_DEVICE);
  }
}

KERNEL endless(u32* flag) {
  while (*(volatile u32*)flag == 0) {  // FAULT: endless
  }
  flag[1] = 1;
}

KERNEL missingWait(const u32* in, u32* out) {
  u32 v;
  u64 address = (u64)(in + localX());
  asm volatile("global_load_dword %0, %1, off" : "=v"(v) : "v"(address));
  out[localX()] = v + 1;  // FAULT: wait
}
KERNEL missingLdsWait(u32* out) {
  u32 v, at = (u32)(u64)&exchange[localX()];
  exchange[localX()] = 1;
  barrier();
#if defined(__GFX9__) || defined(__GFX10__)
  asm volatile("ds_read_b32 %0, %1" : "=v"(v) : "v"(at));
#else
  asm volatile("ds_load_b32 %0, %1" : "=v"(v) : "v"(at));
#endif
  out[localX()] = v + 1;  // FAULT: LDS wait
}
KERNEL missingScalarWait(u32* out) {
  u32 v;
#if defined(__GFX9__) || defined(__GFX10__)
  asm volatile("s_load_dword %0, %1, 0x0\ns_add_u32 %0, %0, 1"  // FAULT: scalar wait
               : "=&s"(v)
               : "s"(__builtin_amdgcn_kernarg_segment_ptr()));
#else
  asm volatile("s_load_b32 %0, %1, 0x0\ns_add_u32 %0, %0, 1"  // FAULT: scalar wait
               : "=&s"(v)
               : "s"(__builtin_amdgcn_kernarg_segment_ptr()));
#endif
  out[localX()] = v;
}
// A wait on the wrong counter: for stores instead of loads, or the same on the chips with one counter for both: too
// weak.
KERNEL wrongWait(const u32* in, u32* out) {
  u32 v, w;
  u64 address = (u64)(in + localX());
#if defined(__GFX12__)
  asm volatile(
      "global_load_b32 %0, %2, off\nglobal_load_b32 %1, %2, off offset:4\ns_wait_storecnt 0x0\ns_wait_loadcnt 0x1"
      : "=&v"(v), "=&v"(w)
      : "v"(address));
#elif defined(__GFX11__)
  asm volatile(
      "global_load_b32 %0, %2, off\nglobal_load_b32 %1, %2, off offset:4\ns_waitcnt_vscnt null, 0x0\ns_waitcnt vmcnt(1)"
      : "=&v"(v), "=&v"(w)
      : "v"(address));
#else
  asm volatile("global_load_dword %0, %2, off\nglobal_load_dword %1, %2, off offset:4\ns_waitcnt vmcnt(1)"
               : "=&v"(v), "=&v"(w)
               : "v"(address));
#endif
  out[localX()] = v;
  out[localX() + 64] = w;  // FAULT: wrong wait
}

// An encoding that is no instruction of any of these chips.
KERNEL unknownOpcode(u32* out) {
  out[localX()] = 1;
  asm volatile(".long 0xbfff1234");  // FAULT: opcode
}
// The program counter leaves the code.
KERNEL wildJump(u32* out) {
  out[localX()] = 1;
  asm volatile("s_mov_b32 s20, 0x1000\ns_mov_b32 s21, 0\ns_setpc_b64 s[20:21]" ::: "s20", "s21");
}

KERNEL writeCode(u32* out) {
  u64 here;
  asm volatile("s_getpc_b64 %0" : "=s"(here));
  *(volatile u32*)here = out ? 1 : 0;  // FAULT: code
}

KERNEL uninitialisedLds(u32* out) {
  if (localX() < 32) exchange[localX()] = 1;
  barrier();
  out[localX()] = exchange[localX()];  // FAULT: LDS unwritten
}
KERNEL uninitialisedMemory(const u32* in, u32* out) {
  out[localX()] = in[localX()] + 1;  // FAULT: memory unwritten
}
KERNEL uninitialisedRegister(u32* out) {
  u32 v;
  asm volatile("v_xor_b32 %0, 1, v100" : "=v"(v) : : "v100");
  out[localX()] = v;  // FAULT: register unwritten
}

KERNEL trapped(u32* out) {
  out[0] = 1;
  __builtin_trap();  // FAULT: trap
}

KERNEL storeOne(u32* out) { out[globalX()] = 1; }  // FAULT: freed
