// A HIP program as anyone would write it: compiled by plain clang for all chips, run on the simulated device.
#include <hip/hip_runtime.h>

#include <cstdio>
#include <vector>

__constant__ float scale = 2.0f;
__device__ unsigned counter;

__global__ void saxpy(int n, float a, const float* x, float* y) {
  __shared__ float block[256];
  int i = blockIdx.x * blockDim.x + threadIdx.x;
  block[threadIdx.x] = i < n ? x[i] : 0;
  __syncthreads();
  if (i < n) y[i] = scale * a * block[threadIdx.x] + y[i];
  if (__shfl_xor(i, 1) == (i ^ 1)) atomicAdd(&counter, 1u);
}

#define CHECK(call)                                                        \
  do {                                                                     \
    hipError_t e = call;                                                   \
    if (e != hipSuccess) {                                                 \
      std::printf("%s: %s\n", #call, hipGetErrorString(e));                \
      return 1;                                                            \
    }                                                                      \
  } while (0)

int main() {
  int devices = 0;
  CHECK(hipGetDeviceCount(&devices));
  for (int d = 0; d < devices; ++d) {
    CHECK(hipSetDevice(d));
    hipDeviceProp_t p;
    CHECK(hipGetDeviceProperties(&p, d));
    const int n = 1000;
    std::vector<float> x(n), y(n, 1.0f);
    for (int i = 0; i < n; ++i) x[i] = static_cast<float>(i);
    float *dx, *dy;
    CHECK(hipMalloc(&dx, n * sizeof(float)));
    CHECK(hipMalloc(&dy, n * sizeof(float)));
    CHECK(hipMemcpy(dx, x.data(), n * sizeof(float), hipMemcpyHostToDevice));
    CHECK(hipMemcpy(dy, y.data(), n * sizeof(float), hipMemcpyHostToDevice));
    unsigned zero = 0, count = 0;
    CHECK(hipMemcpyToSymbol(HIP_SYMBOL(counter), &zero, sizeof zero));
    saxpy<<<(n + 255) / 256, 256>>>(n, 3.0f, dx, dy);
    CHECK(hipGetLastError());
    CHECK(hipDeviceSynchronize());
    CHECK(hipMemcpy(y.data(), dy, n * sizeof(float), hipMemcpyDeviceToHost));
    CHECK(hipMemcpyFromSymbol(&count, HIP_SYMBOL(counter), sizeof count));
    for (int i = 0; i < n; ++i)
      if (y[i] != 6.0f * static_cast<float>(i) + 1.0f) {
        std::printf("%s: y[%d] = %f\n", p.gcnArchName, i, y[i]);
        return 1;
      }
    if (count != 1024) {
      std::printf("%s: counted %u\n", p.gcnArchName, count);
      return 1;
    }
    CHECK(hipFree(dx));
    CHECK(hipFree(dy));
    std::printf("%s ok\n", p.gcnArchName);
  }
  return 0;
}
