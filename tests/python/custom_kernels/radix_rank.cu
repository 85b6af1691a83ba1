// One digit of a radix sort: stable ranks by warp match, as multi-split kernels have it.
#include <cuda_runtime.h>
#include <cstdint>
constexpr int RADIX_BITS = 4;
constexpr int RADIX = 1 << RADIX_BITS;
constexpr unsigned LANES = 32u;
__device__ __forceinline__ unsigned lane_mask_lt() {
  return (1u << (threadIdx.x & (LANES - 1u))) - 1u;
}
template <int BITS>
__device__ __forceinline__ unsigned match_bits(unsigned digit, unsigned active) {
  unsigned peers = active;
#pragma unroll
  for (int b = 0; b < BITS; ++b) {
    const bool bit = (digit >> b) & 1;
    const unsigned vote = __ballot_sync(active, bit);
    peers &= bit ? vote : ~vote;
  }
  return peers;
}
template <int BLOCK>
__global__ void radix_rank(const uint32_t* __restrict__ keys, uint32_t* __restrict__ hist, uint32_t* __restrict__ rank, int shift, int n) {
  constexpr int WARPS = BLOCK / 32;
  __shared__ uint32_t counters[WARPS][RADIX + 1];
  const unsigned warp = threadIdx.x >> 5, lane = threadIdx.x & 31u;
  for (int k = lane; k < RADIX; k += 32) counters[warp][k] = 0;
  __syncwarp();
  const int i = blockIdx.x * BLOCK + threadIdx.x;
  const bool valid = i < n;
  const unsigned active = __ballot_sync(0xffffffffu, valid);
  unsigned digit = 0, before = 0;
  if (valid) {
    digit = (keys[i] >> shift) & (RADIX - 1);
    const unsigned peers = match_bits<RADIX_BITS>(digit, active);
    const unsigned leader = __ffs(peers) - 1;
    const unsigned mine = __popc(peers & lane_mask_lt());
    if (lane == leader) counters[warp][digit] = __popc(peers);
    before = mine;
    if (peers != __match_any_sync(active, digit)) before += 1000;
  }
  __syncthreads();
  if (valid) {
    for (unsigned w = 0; w < warp; ++w) before += counters[w][digit];
    rank[i] = before;
  }
  if (threadIdx.x < RADIX) {
    uint32_t total = 0;
#pragma unroll
    for (int w = 0; w < WARPS; ++w) total += counters[w][threadIdx.x];
    atomicAdd(hist + threadIdx.x, total);
  }
}
