// Sorts each row by a bitonic network in shared memory, with the positions as values.
#include <cuda_runtime.h>

typedef unsigned int uint;

__device__ inline void Comparator(float& keyA, uint& valA, float& keyB, uint& valB, uint dir) {
  if ((keyA > keyB) == dir) {
    float t = keyA;
    keyA = keyB;
    keyB = t;
    uint v = valA;
    valA = valB;
    valB = v;
  }
}

template <uint SHARED_SIZE_LIMIT>
__global__ void bitonicSortShared(float* d_DstKey, uint* d_DstVal, const float* d_SrcKey, uint arrayLength, uint dir) {
  __shared__ float s_key[SHARED_SIZE_LIMIT];
  __shared__ uint s_val[SHARED_SIZE_LIMIT];
  d_SrcKey += blockIdx.x * arrayLength;
  for (uint i = threadIdx.x; i < SHARED_SIZE_LIMIT; i += SHARED_SIZE_LIMIT / 2) {
    s_key[i] = i < arrayLength ? d_SrcKey[i] : (dir ? 1.0f / 0.0f : -1.0f / 0.0f);
    s_val[i] = i;
  }
  for (uint size = 2; size < SHARED_SIZE_LIMIT; size <<= 1) {
    uint ddd = dir ^ ((threadIdx.x & (size / 2)) != 0);
    for (uint stride = size / 2; stride > 0; stride >>= 1) {
      __syncthreads();
      uint pos = 2 * threadIdx.x - (threadIdx.x & (stride - 1));
      Comparator(s_key[pos + 0], s_val[pos + 0], s_key[pos + stride], s_val[pos + stride], ddd);
    }
  }
  for (uint stride = SHARED_SIZE_LIMIT / 2; stride > 0; stride >>= 1) {
    __syncthreads();
    uint pos = 2 * threadIdx.x - (threadIdx.x & (stride - 1));
    Comparator(s_key[pos + 0], s_val[pos + 0], s_key[pos + stride], s_val[pos + stride], dir);
  }
  __syncthreads();
  for (uint i = threadIdx.x; i < arrayLength; i += SHARED_SIZE_LIMIT / 2) {
    d_DstKey[blockIdx.x * arrayLength + i] = s_key[i];
    d_DstVal[blockIdx.x * arrayLength + i] = s_val[i];
  }
}
