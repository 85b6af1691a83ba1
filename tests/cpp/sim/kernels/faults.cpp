// Kernels with planted faults. The tests look for the lines marked here.
#include "device.h"

KERNEL outOfBounds(float* out, u32 n) {
  u32 i = globalX();
  out[i + (i == 37 ? n : 0)] = 1.0f;  // FAULT: out of bounds
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

KERNEL trapped(u32* out) {
  out[0] = 1;
  __builtin_trap();  // FAULT: trap
}

KERNEL storeOne(u32* out) { out[globalX()] = 1; }  // FAULT: freed
