// Element-wise kernels: global memory, branches, loops, calls, 64-bit addresses.
#include "device.h"

KERNEL vectorAdd(const float* a, const float* b, float* c, u32 n) {
  u32 i = globalX();
  if (i < n) c[i] = a[i] + b[i];
}

KERNEL saxpyStride(float alpha, const float* x, float* y, u32 n) {
  for (u32 i = globalX(); i < n; i += 4 * groupSizeX()) y[i] = alpha * x[i] + y[i];
}

// Divergent loops: every lane runs a different number of rounds.
KERNEL collatz(const u32* in, u32* out, u32 n) {
  u32 i = globalX();
  if (i >= n) return;
  u32 v = in[i], steps = 0;
  while (v != 1 && steps < 1000) {
    v = v & 1 ? 3 * v + 1 : v / 2;
    ++steps;
  }
  out[i] = steps;
}

// Private arrays with dynamic indices live in scratch.
KERNEL scratchSort(const u32* in, u32* out) {
  u32 v[16];
  u32 i = globalX();
  for (u32 k = 0; k < 16; ++k) v[k] = in[i * 16 + k];
  for (u32 a = 1; a < 16; ++a) {
    u32 x = v[a], b = a;
    while (b > 0 && v[b - 1] > x) {
      v[b] = v[b - 1];
      --b;
    }
    v[b] = x;
  }
  for (u32 k = 0; k < 16; ++k) out[i * 16 + k] = v[k];
}

__attribute__((noinline)) u32 fibonacci(u32 n) {
  u32 a = 0, b = 1;
  for (u32 i = 0; i < n; ++i) {
    u32 t = a + b;
    a = b;
    b = t;
  }
  return a;
}
KERNEL callFunction(u32* out) {
  u32 i = globalX();
  out[i] = fibonacci(i % 40) + fibonacci(3);
}

// Bytes and halves.
KERNEL narrow(const unsigned char* a, const short* b, signed char* c, unsigned short* d, u32 n) {
  u32 i = globalX();
  if (i >= n) return;
  c[i] = (signed char)(a[i] - 7);
  d[i] = (unsigned short)(b[i] * 3);
}

[[gnu::visibility("default"), gnu::used]] __attribute__((address_space(1))) u32 globalTable[64] = {1, 2, 3};
__attribute__((address_space(4))) static const u32 constants[4] = {10, 20, 30, 40};
KERNEL readTables(u32* out) {
  u32 i = globalX();
  out[i] = globalTable[i & 63] + constants[i & 3];
}

// What the launch tells a kernel about its own shape, from the dispatch packet and the hidden arguments.
KERNEL shape(u32* out) {
  if (localX() || localY()) return;
  u32* o = out + (groupX() + groupY() * 3) * 8;
  o[0] = __builtin_amdgcn_workgroup_size_x();
  o[1] = __builtin_amdgcn_workgroup_size_y();
  o[2] = __builtin_amdgcn_workgroup_size_z();
  o[3] = __builtin_amdgcn_grid_size_x();
  o[4] = __builtin_amdgcn_grid_size_y();
  o[5] = __builtin_amdgcn_workgroup_id_y();
#if defined(HIDDEN_V5)
  // LLVM's AMDGPU guide, "Code Object V5 Metadata": block counts at 0 and 4, group sizes at 12 and 14, dimensions
  // at 64.
  const unsigned char* hidden = (const unsigned char*)__builtin_amdgcn_implicitarg_ptr();
  o[6] = *(const u32*)hidden * 100 + *(const u32*)(hidden + 4);
  o[7] = *(const unsigned short*)(hidden + 12) * 1000u + *(const unsigned short*)(hidden + 14) * 10u +
         *(const unsigned short*)(hidden + 64);
#endif
}
