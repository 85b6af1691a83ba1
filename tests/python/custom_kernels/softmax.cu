// Row-wise softmax: a block per row, reductions by warp shuffles.
#include <cuda_runtime.h>
#include <math.h>

__device__ __forceinline__ float warpReduceMax(float val) {
#pragma unroll
  for (int offset = 16; offset > 0; offset >>= 1) val = fmaxf(val, __shfl_down_sync(0xffffffff, val, offset));
  return val;
}

__device__ __forceinline__ float warpReduceSum(float val) {
#pragma unroll
  for (int offset = 16; offset > 0; offset >>= 1) val += __shfl_down_sync(0xffffffff, val, offset);
  return val;
}

template <int BLOCK>
__global__ void __launch_bounds__(BLOCK) softmax_kernel(const float* __restrict__ in, float* __restrict__ out, int cols) {
  __shared__ float warp_vals[BLOCK / 32];
  __shared__ float row_max, row_sum;
  const int row = blockIdx.x, tid = threadIdx.x, lane = tid % warpSize, wid = tid / warpSize;
  const float* x = in + (size_t)row * cols;
  float* y = out + (size_t)row * cols;

  float m = -INFINITY;
  for (int i = tid; i < cols; i += BLOCK) m = fmaxf(m, x[i]);
  m = warpReduceMax(m);
  if (lane == 0) warp_vals[wid] = m;
  __syncthreads();
  if (wid == 0) {
    m = lane < BLOCK / 32 ? warp_vals[lane] : -INFINITY;
    m = warpReduceMax(m);
    if (lane == 0) row_max = m;
  }
  __syncthreads();

  float s = 0.f;
  for (int i = tid; i < cols; i += BLOCK) {
    const float e = __expf(x[i] - row_max);
    y[i] = e;
    s += e;
  }
  s = warpReduceSum(s);
  if (lane == 0) warp_vals[wid] = s;
  __syncthreads();
  if (wid == 0) {
    s = lane < BLOCK / 32 ? warp_vals[lane] : 0.f;
    s = warpReduceSum(s);
    if (lane == 0) row_sum = s;
  }
  __syncthreads();
  const float inv = 1.0f / row_sum;
  for (int i = tid; i < cols; i += BLOCK) y[i] *= inv;
}
