// Depthwise convolution with a square kernel, stride and padding; a thread per output element.
#include <cuda_runtime.h>

template <typename scalar_t, int kSize>
__global__ void conv_depthwise2d_forward_kernel(const scalar_t* __restrict__ input, const scalar_t* __restrict__ weight,
                                                const scalar_t* __restrict__ bias, scalar_t* __restrict__ output,
                                                const int totalElements, const int outputChannels, const int inputWidth,
                                                const int inputHeight, const int outputWidth, const int outputHeight,
                                                const int stride, const int pad) {
  for (int linearIndex = blockIdx.x * blockDim.x + threadIdx.x; linearIndex < totalElements;
       linearIndex += gridDim.x * blockDim.x) {
    const int n = linearIndex / (outputChannels * outputWidth * outputHeight);
    const int c = (linearIndex / (outputWidth * outputHeight)) % outputChannels;
    const int h = (linearIndex / outputWidth) % outputHeight;
    const int w = linearIndex % outputWidth;
    const int offset0 = (n * outputChannels + c) * inputHeight * inputWidth;
    int weightOffset = c * kSize * kSize;
    float value = bias != nullptr ? static_cast<float>(__ldg(&bias[c])) : 0.f;
#pragma unroll
    for (int kH = 0; kH < kSize; ++kH) {
#pragma unroll
      for (int kW = 0; kW < kSize; ++kW) {
        const int h_in = -pad + h * stride + kH;
        const int w_in = -pad + w * stride + kW;
        if ((h_in >= 0) && (h_in < inputHeight) && (w_in >= 0) && (w_in < inputWidth)) {
          const int offset = offset0 + h_in * inputWidth + w_in;
          value += static_cast<float>(__ldg(&weight[weightOffset])) * static_cast<float>(__ldg(&input[offset]));
        }
        ++weightOffset;
      }
    }
    output[linearIndex] = static_cast<scalar_t>(value);
  }
}
