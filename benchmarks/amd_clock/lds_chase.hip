// Latency of dependent LDS reads: one lane follows 4-byte indices in LDS. The last of two launches has LOADS reads, the
// first none.
#include "common.h"

constexpr int kUnroll = 32;
constexpr unsigned kWords = 1024;

__global__ void chase(long loads, unsigned* end) {
  __shared__ unsigned next[kWords];
  for (unsigned i = threadIdx.x; i < kWords; i += blockDim.x) next[i] = ((i + 37) % kWords) * 4;
  __syncthreads();
  using Lds = const __attribute__((address_space(3))) char*;
  const Lds base = (Lds)next;
  unsigned offset = 0;
  asm volatile("" : "+v"(offset));
  for (long n = 0; n < loads; n += kUnroll) {
#pragma unroll
    for (int u = 0; u < kUnroll; ++u) offset = *(const __attribute__((address_space(3))) unsigned*)(base + offset);
  }
  *end = offset;
}

int main(int argc, char** argv) {
  const long loads = (number(argc, argv, 1, 4096) + kUnroll - 1) / kUnroll * kUnroll;
  unsigned* end = deviceMemory<unsigned>(1);
  const long steps[2] = {0, loads};
  for (long n : steps) {
    chase<<<1, 1>>>(n, end);
    finish("chase");
  }
  unsigned last = 0;
  check(hipMemcpy(&last, end, sizeof last, hipMemcpyDeviceToHost), "copying");
  if (last != loads * 37 % kWords * 4) {
    std::fprintf(stderr, "the chase ended in the wrong word\n");
    return 1;
  }
  std::printf("%ld dependent LDS reads\n", loads);
  return 0;
}
