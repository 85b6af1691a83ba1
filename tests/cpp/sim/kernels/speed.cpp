// Loops of one kind of work, for measuring how fast the simulator executes it.
#include "device.h"

KERNEL vectorArithmetic(float* out, u32 rounds) {
  float x = (float)localX(), a = 1.0f, b = 2.0f, c = 3.0f, d = 4.0f;
  u32 p = localX(), q = p + 1, r = p ^ 77, s = p * 3;
  for (u32 i = 0; i < rounds; ++i) {
    a = a * x + b;
    b = b * 0.5f - c;
    c = c + d * x;
    d = d * 0.25f + a;
    p = (p ^ q) + 0x9e37u;
    q = q << 3 | p >> 5;
    r += p & q;
    s = s > r ? s - r : r;
  }
  out[globalX()] = a + b + c + d + (float)(p ^ q ^ r ^ s);
}
KERNEL sharedMemory(u32* out, u32 rounds) {
  SHARED u32 cells[256];
  u32 t = localX(), v = t;
  for (u32 i = 0; i < rounds; ++i) {
    cells[t] = v + i;
    barrier();
    v += cells[t ^ 1] + cells[t ^ 64];
    barrier();
  }
  out[globalX()] = v;
}
KERNEL globalMemory(const u32* in, u32* out, u32 rounds) {
  u32 v = 0;
  for (u32 i = 0; i < rounds; ++i) v += in[(globalX() + i * 64) & 4095];
  out[globalX()] = v;
}
