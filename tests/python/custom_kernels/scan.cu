// Exclusive prefix sums by Blelloch's algorithm: scans of blocks, of the blocks' sums, and their addition.
#include <cuda_runtime.h>

__global__ void prescan(int* g_odata, const int* g_idata, int* sums, int n, int total) {
  extern __shared__ int temp[];
  int thid = threadIdx.x;
  int base = blockIdx.x * n;
  int offset = 1;
  temp[2 * thid] = base + 2 * thid < total ? g_idata[base + 2 * thid] : 0;
  temp[2 * thid + 1] = base + 2 * thid + 1 < total ? g_idata[base + 2 * thid + 1] : 0;
  for (int d = n >> 1; d > 0; d >>= 1) {
    __syncthreads();
    if (thid < d) {
      int ai = offset * (2 * thid + 1) - 1;
      int bi = offset * (2 * thid + 2) - 1;
      temp[bi] += temp[ai];
    }
    offset *= 2;
  }
  if (thid == 0) {
    if (sums) sums[blockIdx.x] = temp[n - 1];
    temp[n - 1] = 0;
  }
  for (int d = 1; d < n; d *= 2) {
    offset >>= 1;
    __syncthreads();
    if (thid < d) {
      int ai = offset * (2 * thid + 1) - 1;
      int bi = offset * (2 * thid + 2) - 1;
      int t = temp[ai];
      temp[ai] = temp[bi];
      temp[bi] += t;
    }
  }
  __syncthreads();
  if (base + 2 * thid < total) g_odata[base + 2 * thid] = temp[2 * thid];
  if (base + 2 * thid + 1 < total) g_odata[base + 2 * thid + 1] = temp[2 * thid + 1];
}

__global__ void scan_sums(int* sums, int count) {
  int sum = 0;
  for (int i = 0; i < count; ++i) {
    int v = sums[i];
    sums[i] = sum;
    sum += v;
  }
}

__global__ void uniform_add(int* g_odata, const int* sums, int n, int total) {
  int i = blockIdx.x * n + threadIdx.x;
  for (; i < total && i < (blockIdx.x + 1) * n; i += blockDim.x) g_odata[i] += sums[blockIdx.x];
}
