// Stream compaction: elements above a threshold, and how many there are. Places are counted by ballots, and reserved
// with one atomic per warp, so the order is not defined.
#include <cuda_runtime.h>

__device__ int atomicAggInc(int* ctr) {
  unsigned int active = __activemask();
  int leader = __ffs(active) - 1;
  int change = __popc(active);
  unsigned int rank = __popc(active & ((1u << (threadIdx.x & 31)) - 1));
  int warp_res;
  if (rank == 0) warp_res = atomicAdd(ctr, change);
  warp_res = __shfl_sync(active, warp_res, leader);
  return warp_res + rank;
}

__global__ void filter_k(float* dst, int* nres, const float* src, int n, float threshold) {
  int i = threadIdx.x + blockIdx.x * blockDim.x;
  if (i >= n) return;
  if (src[i] > threshold) dst[atomicAggInc(nres)] = src[i];
}
