// c = a + b in fp32 with five ways of giving elements to lanes, on wave32 (a tile is 32 rounds of 32 lanes).
#include "common.h"

constexpr int kLanes = 256, kRounds = 32;
using Four = float __attribute__((ext_vector_type(4)));

__global__ void direct(const float* __restrict__ a, const float* __restrict__ b, float* __restrict__ c, size_t count) {
  const size_t i = static_cast<size_t>(blockIdx.x) * blockDim.x + threadIdx.x;
  if (i < count) c[i] = a[i] + b[i];
}

/// Each 32 lanes add a tile of 1024 neighbours: in rounds of 32 neighbours, or (kStrided) each lane its own 32.
template <bool kStrided>
__global__ void tiles(const float* __restrict__ a, const float* __restrict__ b, float* __restrict__ c, size_t count) {
  const size_t tile = (static_cast<size_t>(blockIdx.x) * blockDim.x + threadIdx.x) / 32 * 32 * kRounds;
  const int lane = threadIdx.x % 32;
#pragma unroll 1
  for (int round = 0; round < kRounds; ++round) {
    const size_t i =
        tile + (kStrided ? static_cast<size_t>(lane) * kRounds + round : static_cast<size_t>(round) * 32 + lane);
    if (i < count) c[i] = a[i] + b[i];
  }
}

__global__ void grid(const float* __restrict__ a, const float* __restrict__ b, float* __restrict__ c, size_t count) {
  const size_t step = static_cast<size_t>(gridDim.x) * blockDim.x;
  for (size_t i = static_cast<size_t>(blockIdx.x) * blockDim.x + threadIdx.x; i < count; i += step) c[i] = a[i] + b[i];
}

__global__ void gridFour(const float* __restrict__ a, const float* __restrict__ b, float* __restrict__ c,
                         size_t count) {
  const size_t step = static_cast<size_t>(gridDim.x) * blockDim.x;
  for (size_t i = static_cast<size_t>(blockIdx.x) * blockDim.x + threadIdx.x; i < count / 4; i += step)
    reinterpret_cast<Four*>(c)[i] = reinterpret_cast<const Four*>(a)[i] + reinterpret_cast<const Four*>(b)[i];
}

int main(int argc, char** argv) {
  const char* usage =
      "vector_add direct|tiles|strided|grid|grid4 [ELEMENTS, a multiple of 8192] [WORKGROUPS of grid and grid4]";
  const char* kind = word(argc, argv, 1, "direct");
  const long count = number(argc, argv, 2, 1 << 24), groups = number(argc, argv, 3, 256);
  if (count % (kLanes * kRounds)) refuse(usage);
  float *a = deviceMemory<float>(count), *b = deviceMemory<float>(count), *c = deviceMemory<float>(count);
  for (int launch = 0; launch < 2; ++launch) {
    if (!std::strcmp(kind, "direct"))
      direct<<<count / kLanes, kLanes>>>(a, b, c, count);
    else if (!std::strcmp(kind, "tiles"))
      tiles<false><<<count / kLanes / kRounds, kLanes>>>(a, b, c, count);
    else if (!std::strcmp(kind, "strided"))
      tiles<true><<<count / kLanes / kRounds, kLanes>>>(a, b, c, count);
    else if (!std::strcmp(kind, "grid"))
      grid<<<groups, kLanes>>>(a, b, c, count);
    else if (!std::strcmp(kind, "grid4"))
      gridFour<<<groups, kLanes>>>(a, b, c, count);
    else
      refuse(usage);
    finish(kind);
  }
  std::printf("%s, %ld elements, %.0f bytes\n", kind, count, 12.0 * count);
  return 0;
}
