// LDS read bandwidth: every lane reads 4, 8 or 16 bytes at its own place, LOOPS times 16 reads, without conflicts and
// without depending on one another.
#include "common.h"

using Two = float __attribute__((ext_vector_type(2)));
using Four = float __attribute__((ext_vector_type(4)));
constexpr int kReads = 16;

template <class T>
__global__ __launch_bounds__(1024) void readLds(int loops, float* out) {
  extern __shared__ char memory[];
  T* words = reinterpret_cast<T*>(memory);
  words[threadIdx.x] = T(1.0f);
  __syncthreads();
  for (int n = 0; n < loops; ++n) {
    T values[kReads];
#pragma unroll
    for (int u = 0; u < kReads; ++u) values[u] = *const_cast<volatile T*>(&words[(threadIdx.x + u * 64) % blockDim.x]);
#pragma unroll
    for (int u = 0; u < kReads; ++u) asm volatile("" ::"v"(values[u]));
  }
  if (loops < 0) *out = 1;
}

int main(int argc, char** argv) {
  const long bytes = number(argc, argv, 1, 16), loops = number(argc, argv, 2, 100);
  const long groups = number(argc, argv, 3, computeUnits()), lanes = number(argc, argv, 4, 1024);
  if ((bytes != 4 && bytes != 8 && bytes != 16) || lanes > 1024)
    refuse("lds_bandwidth 4|8|16 [LOOPS] [WORKGROUPS] [LANES]");
  auto kernel = bytes == 4 ? readLds<float> : bytes == 8 ? readLds<Two> : readLds<Four>;
  float* out = deviceMemory<float>(1);
  kernel<<<groups, lanes, lanes * bytes>>>(static_cast<int>(loops), out);
  finish("readLds");
  std::printf("%ld workgroups of %ld lanes, %ld bytes a lane, %.0f bytes\n", groups, lanes, bytes,
              1.0 * groups * lanes * bytes * loops * kReads);
  return 0;
}
