// A reduction with a missing barrier, which may still give the right result on a GPU. The simulator reports the race.
#include <hip/hip_runtime.h>

#include <cstdio>

__global__ void sum(const float* in, float* out) {
  __shared__ float part[256];
  int t = threadIdx.x;
  part[t] = in[t];
  for (int s = 128; s > 0; s /= 2) {
    __syncthreads();
    if (t < s) part[t] += part[t + s];
  }
  if (t == 255) *out = part[0];  // thread 0 wrote it: a __syncthreads() is missing before this line
}

int main() {
  float *in, *out;
  if (hipMallocManaged(&in, 256 * sizeof(float)) != hipSuccess || hipMallocManaged(&out, sizeof(float)) != hipSuccess)
    return 1;
  for (int i = 0; i < 256; ++i) in[i] = 1;
  sum<<<1, 256>>>(in, out);
  if (hipError_t e = hipDeviceSynchronize(); e != hipSuccess) {
    std::printf("the launch failed: %s\n", hipGetErrorString(e));
    return 1;
  }
  std::printf("%g\n", *out);
  return 0;
}
