// Bandwidth of a shared cache: every workgroup of 1024 lanes reads its block of 512 kB, 64 doubles a lane; BLOCKS blocks
// lie in memory, and workgroups take them in turn.
#include "common.h"

constexpr unsigned kLanes = 1024, kValues = 64;

__global__ __launch_bounds__(kLanes) void blockReads(const double* __restrict__ in, double* out, unsigned blocks) {
  double sum = 0;
  for (unsigned i = 0; i < kValues / 2; ++i) {
    const unsigned at = (kLanes * blocks * i + blockIdx.x % blocks * kLanes) * 2 + threadIdx.x;
    sum += in[at] * in[at + kLanes];
  }
  if (sum == 23.25) out[threadIdx.x] = sum;
}

int main(int argc, char** argv) {
  const long blocks = number(argc, argv, 1, 6), groups = number(argc, argv, 2, 4000);
  double *in = nullptr, *out = deviceMemory<double>(kLanes);
  check(hipMalloc(reinterpret_cast<void**>(&in), blocks * kLanes * kValues * sizeof(double)), "allocating");
  for (int launch = 0; launch < 2; ++launch) {
    blockReads<<<groups, kLanes>>>(in, out, static_cast<unsigned>(blocks));
    finish("blockReads");
  }
  std::printf("%ld workgroups, %ld blocks of 512 kB, %.0f bytes\n", groups, blocks, 8.0 * kLanes * kValues * groups);
  return 0;
}
