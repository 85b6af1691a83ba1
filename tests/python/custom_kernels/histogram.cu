// A histogram of bytes: counted in shared memory, then added to the result.
#include <cuda_runtime.h>

#define NUM_BINS 256

__global__ void histogram_smem_atomics(const unsigned char* __restrict__ in, int n, unsigned int* __restrict__ out) {
  __shared__ unsigned int smem[NUM_BINS];
  for (int i = threadIdx.x; i < NUM_BINS; i += blockDim.x) smem[i] = 0;
  __syncthreads();
  for (int i = blockIdx.x * blockDim.x + threadIdx.x; i < n; i += gridDim.x * blockDim.x) atomicAdd(&smem[in[i]], 1);
  __syncthreads();
  for (int i = threadIdx.x; i < NUM_BINS; i += blockDim.x)
    if (smem[i] != 0) atomicAdd(out + i, smem[i]);
}
