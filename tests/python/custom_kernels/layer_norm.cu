// Layer normalisation with Welford's algorithm; rows are read as float4.
#include <cuda_runtime.h>

struct WelfordData {
  float mean, m2, count;
};

__device__ inline WelfordData combine(WelfordData a, WelfordData b) {
  const float count = a.count + b.count;
  if (count == 0.f) return {0.f, 0.f, 0.f};
  const float delta = b.mean - a.mean, part = b.count / count;
  return {a.mean + delta * part, a.m2 + b.m2 + delta * delta * a.count * part, count};
}

__device__ inline WelfordData add(WelfordData w, float x) {
  const float delta = x - w.mean, count = w.count + 1.f, mean = w.mean + delta / count;
  return {mean, w.m2 + delta * (x - mean), count};
}

__global__ void layer_norm_vec4(const float4* __restrict__ X, const float4* gamma, const float4* beta, float4* Y, int N4,
                                float eps) {
  extern __shared__ float s_data[];  // of warps: mean, m2, count
  const float4* row = X + (size_t)blockIdx.x * N4;
  WelfordData w{0.f, 0.f, 0.f};
  for (int i = threadIdx.x + threadIdx.y * blockDim.x; i < N4; i += blockDim.x * blockDim.y) {
    const float4 v = row[i];
    w = add(add(add(add(w, v.x), v.y), v.z), v.w);
  }
  for (int offset = warpSize >> 1; offset > 0; offset >>= 1) {
    WelfordData b{__shfl_down_sync(0xffffffff, w.mean, offset), __shfl_down_sync(0xffffffff, w.m2, offset),
                  __shfl_down_sync(0xffffffff, w.count, offset)};
    w = combine(w, b);
  }
  if (threadIdx.x == 0) {
    s_data[3 * threadIdx.y] = w.mean;
    s_data[3 * threadIdx.y + 1] = w.m2;
    s_data[3 * threadIdx.y + 2] = w.count;
  }
  __syncthreads();
  w = {0.f, 0.f, 0.f};
  for (int k = 0; k < blockDim.y; ++k) w = combine(w, {s_data[3 * k], s_data[3 * k + 1], s_data[3 * k + 2]});
  const float mean = w.mean, rstd = rsqrtf(w.m2 / w.count + eps);
  for (int i = threadIdx.x + threadIdx.y * blockDim.x; i < N4; i += blockDim.x * blockDim.y) {
    const float4 v = row[i], g = gamma[i], b = beta[i];
    float4 o;
    o.x = (v.x - mean) * rstd * g.x + b.x;
    o.y = (v.y - mean) * rstd * g.y + b.y;
    o.z = (v.z - mean) * rstd * g.z + b.z;
    o.w = (v.w - mean) * rstd * g.w + b.w;
    Y[(size_t)blockIdx.x * N4 + i] = o;
  }
}
