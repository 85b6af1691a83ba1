// A plain HIP program, for the simulated GPU: ./dev sim examples/hip/saxpy.hip
#include <hip/hip_runtime.h>

#include <cstdio>
#include <vector>

__global__ void saxpy(int n, float a, const float* x, float* y) {
  int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i < n) y[i] = a * x[i] + y[i];
}

int main() {
  const int n = 1000;
  std::vector<float> x(n), y(n, 1.0f);
  for (int i = 0; i < n; ++i) x[i] = static_cast<float>(i);
  float *dx, *dy;
  if (hipMalloc(&dx, n * sizeof(float)) != hipSuccess || hipMalloc(&dy, n * sizeof(float)) != hipSuccess) return 1;
  (void)hipMemcpy(dx, x.data(), n * sizeof(float), hipMemcpyHostToDevice);
  (void)hipMemcpy(dy, y.data(), n * sizeof(float), hipMemcpyHostToDevice);
  saxpy<<<(n + 255) / 256, 256>>>(n, 2.0f, dx, dy);
  if (hipError_t e = hipDeviceSynchronize(); e != hipSuccess) {
    std::printf("the launch failed: %s\n", hipGetErrorString(e));
    return 1;
  }
  (void)hipMemcpy(y.data(), dy, n * sizeof(float), hipMemcpyDeviceToHost);
  hipDeviceProp_t p;
  (void)hipGetDeviceProperties(&p, 0);
  std::printf("%s: y[10] = %g, y[999] = %g\n", p.gcnArchName, y[10], y[999]);
  (void)hipFree(dx);
  (void)hipFree(dy);
  return y[10] == 21 && y[999] == 1999 ? 0 : 1;
}
