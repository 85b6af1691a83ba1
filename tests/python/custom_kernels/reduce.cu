// The sum and the maximum of all elements: cooperative groups, and one atomic per block.
#include <cooperative_groups.h>
#include <cooperative_groups/reduce.h>
#include <cuda_runtime.h>

namespace cg = cooperative_groups;

__device__ __forceinline__ float atomicMaxFloat(float* addr, float value) {
  int* address_as_int = (int*)addr;
  int old = *address_as_int, assumed;
  while (value > __int_as_float(old)) {
    assumed = old;
    old = atomicCAS(address_as_int, assumed, __float_as_int(value));
    if (old == assumed) break;
  }
  return __int_as_float(old);
}

__global__ void init(float* sum, float* maximum) {
  *sum = 0.f;
  *maximum = -INFINITY;
}

__global__ void reduce(const float* in, float* sum, float* maximum, int n) {
  __shared__ float partial[32];
  cg::thread_block block = cg::this_thread_block();
  cg::thread_block_tile<32> tile = cg::tiled_partition<32>(block);
  float s = 0.f, m = -INFINITY;
  for (int i = blockIdx.x * blockDim.x + threadIdx.x; i < n; i += blockDim.x * gridDim.x) {
    s += in[i];
    m = fmaxf(m, in[i]);
  }
  s = cg::reduce(tile, s, cg::plus<float>());
  m = cg::reduce(tile, m, cg::greater<float>());
  if (tile.thread_rank() == 0) {
    partial[tile.meta_group_rank()] = s;
    atomicMaxFloat(maximum, m);
  }
  block.sync();
  if (block.thread_rank() == 0) {
    for (int k = 1; k < tile.meta_group_size(); ++k) s += partial[k];
    atomicAdd(sum, s);
  }
}
