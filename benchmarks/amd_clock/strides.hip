// Cycles of the L1 of a compute unit for loads of lanes that are STRIDE elements apart, from 64 places that stay in L1:
// one workgroup of 1024 lanes.
#include "common.h"

template <class T>
__global__ __launch_bounds__(1024) void strides(const T* in, T* out, int zero, unsigned stride, int turns) {
  const T* p = in + threadIdx.x % 64 * stride;
  T sum = 0;
#pragma unroll 1
  for (int i = 0; i < turns; ++i) {
    p += zero;  // unknown to the compiler: the loads stay in the loop
    T v[8];
#pragma unroll
    for (int k = 0; k < 8; ++k) v[k] = p[4 * k];
    sum += v[0] * v[1] + v[2] * v[3] + v[4] * v[5] + v[6] * v[7];
  }
  if (sum == T(123123.25)) out[threadIdx.x] = sum;
}

int main(int argc, char** argv) {
  const char* usage = "strides float|double [STRIDE] [TURNS]";
  const bool wide = !std::strcmp(word(argc, argv, 1, "float"), "double");
  if (!wide && std::strcmp(word(argc, argv, 1, "float"), "float")) refuse(usage);
  const unsigned stride = static_cast<unsigned>(number(argc, argv, 2, 1));
  const int turns = static_cast<int>(number(argc, argv, 3, 512));
  const size_t count = 64 * static_cast<size_t>(stride) + 64;
  for (int launch = 0; launch < 2; ++launch) {
    if (wide)
      strides<double><<<1, 1024>>>(deviceMemory<double>(count), deviceMemory<double>(1024), 0, stride, turns);
    else
      strides<float><<<1, 1024>>>(deviceMemory<float>(count), deviceMemory<float>(1024), 0, stride, turns);
    finish("strides");
  }
  std::printf("stride %u, %d loads of 32 lanes\n", stride, 32 * 8 * turns);
  return 0;
}
