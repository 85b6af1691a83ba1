// The k largest of each row, by repeated block-wide maxima.
#include <cfloat>
#include <cuda_runtime.h>

struct KeyValuePair {
  float key;
  int value;
};

__device__ __forceinline__ KeyValuePair better(const KeyValuePair& a, const KeyValuePair& b) {
  return (a.key > b.key || (a.key == b.key && a.value < b.value)) ? a : b;
}

template <int TPB>
__launch_bounds__(TPB) __global__
    void topk_kernel(const float* inputs, float* values, int* indices, const int num_experts, const int k) {
  __shared__ KeyValuePair tmp[TPB];
  __shared__ bool taken[1024];
  const int row = blockIdx.x;
  for (int e = threadIdx.x; e < num_experts; e += TPB) taken[e] = false;
  __syncthreads();
  for (int k_idx = 0; k_idx < k; ++k_idx) {
    KeyValuePair thread_kvp;
    thread_kvp.key = -FLT_MAX;
    thread_kvp.value = 1 << 30;
    for (int e = threadIdx.x; e < num_experts; e += TPB) {
      if (taken[e]) continue;
      KeyValuePair inp_kvp;
      inp_kvp.value = e;
      inp_kvp.key = inputs[row * num_experts + e];
      thread_kvp = better(inp_kvp, thread_kvp);
    }
    tmp[threadIdx.x] = thread_kvp;
    __syncthreads();
    for (int stride = TPB / 2; stride > 0; stride /= 2) {
      if (threadIdx.x < stride) tmp[threadIdx.x] = better(tmp[threadIdx.x], tmp[threadIdx.x + stride]);
      __syncthreads();
    }
    if (threadIdx.x == 0) {
      const int idx = k * row + k_idx;
      values[idx] = tmp[0].key;
      indices[idx] = tmp[0].value;
      taken[tmp[0].value] = true;
    }
    __syncthreads();
  }
}
