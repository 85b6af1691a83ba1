// Sum of fp32 values: the first stage, which leaves one partial sum a workgroup, in the ways that published
// measurements compare.
#include "common.h"

constexpr int kLanes = 256;

/// Sum over the workgroup through LDS, halving the lanes each step.
__device__ float tree(float value, float* shared) {
  shared[threadIdx.x] = value;
  __syncthreads();
  for (unsigned half = blockDim.x / 2; half > 0; half >>= 1) {
    if (threadIdx.x < half) shared[threadIdx.x] += shared[threadIdx.x + half];
    __syncthreads();
  }
  return shared[0];
}

__device__ float strided(const float* x, size_t count) {
  float sum = 0;
  const size_t step = static_cast<size_t>(gridDim.x) * blockDim.x;
  for (size_t i = static_cast<size_t>(blockIdx.x) * blockDim.x + threadIdx.x; i < count; i += step) sum += x[i];
  return sum;
}

__device__ float one(const float* x, size_t count) {
  const size_t i = static_cast<size_t>(blockIdx.x) * blockDim.x + threadIdx.x;
  return i < count ? x[i] : 0.0f;
}

__device__ float wave32(float value) {
  for (int offset = 16; offset > 0; offset >>= 1) value += __shfl_down(value, offset, 32);
  return value;
}

__global__ void partials(const float* x, size_t count, float* out) {
  extern __shared__ float shared[];
  const float sum = tree(one(x, count), shared);
  if (threadIdx.x == 0) out[blockIdx.x] = sum;
}

__global__ void local(const float* x, size_t count, float* out) {
  extern __shared__ float shared[];
  const float sum = tree(strided(x, count), shared);
  if (threadIdx.x == 0) out[blockIdx.x] = sum;
}

__global__ void localWave(const float* x, size_t count, float* out) {
  extern __shared__ float shared[];
  const unsigned lane = threadIdx.x % 32, wave = threadIdx.x / 32;
  float value = wave32(strided(x, count));
  if (lane == 0) shared[wave] = value;
  __syncthreads();
  if (wave == 0) {
    value = wave32(lane < blockDim.x / 32 ? shared[lane] : 0.0f);
    if (lane == 0) out[blockIdx.x] = value;
  }
}

__global__ void groupAtomic(const float* x, size_t count, float* out) {
  extern __shared__ float shared[];
  const float sum = tree(one(x, count), shared);
  if (threadIdx.x == 0) __hip_atomic_fetch_add(out, sum, __ATOMIC_RELAXED, __HIP_MEMORY_SCOPE_AGENT);
}

int main(int argc, char** argv) {
  const char* usage = "reduction partials|local|wave|atomic [ELEMENTS] [WORKGROUPS of local and wave]";
  const char* kind = word(argc, argv, 1, "partials");
  const long count = number(argc, argv, 2, 1 << 24), chosen = number(argc, argv, 3, 256);
  const long full = (count + kLanes - 1) / kLanes;
  float *x = deviceMemory<float>(count), *out = deviceMemory<float>(full);
  for (int launch = 0; launch < 2; ++launch) {
    if (!std::strcmp(kind, "partials"))
      partials<<<full, kLanes, kLanes * 4>>>(x, count, out);
    else if (!std::strcmp(kind, "local"))
      local<<<chosen, kLanes, kLanes * 4>>>(x, count, out);
    else if (!std::strcmp(kind, "wave"))
      localWave<<<chosen, kLanes, kLanes / 32 * 4>>>(x, count, out);
    else if (!std::strcmp(kind, "atomic"))
      groupAtomic<<<full, kLanes, kLanes * 4>>>(x, count, out);
    else
      refuse(usage);
    finish(kind);
  }
  std::printf("%s, %ld elements, %.0f bytes\n", kind, count, 4.0 * count);
  return 0;
}
