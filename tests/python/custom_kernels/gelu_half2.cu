// GELU (tanh) of halves with a bias, two at a time.
#include <cuda_fp16.h>

__device__ __forceinline__ __half2 gelu2(__half2 v) {
  float2 f = __half22float2(v);
  const float k = 0.7978845608028654f;
  f.x = 0.5f * f.x * (1.0f + tanhf(k * (f.x + 0.044715f * f.x * f.x * f.x)));
  f.y = 0.5f * f.y * (1.0f + tanhf(k * (f.y + 0.044715f * f.y * f.y * f.y)));
  return __float22half2_rn(f);
}

__global__ void add_bias_gelu(half2* out, const half2* in, const half2* __restrict__ bias, int m, int n) {
  for (int id = blockIdx.x * blockDim.x + threadIdx.x; id < m * n; id += blockDim.x * gridDim.x) {
    half2 reg_bias = __ldg(&bias[id % n]);
    half2 val = __hadd2(in[id], reg_bias);
    out[id] = gelu2(val);
  }
}
