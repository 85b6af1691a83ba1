// out[i] = in[(i * STRIDE) mod N], one float a lane, N a power of two: what uncoalesced loads cost.
#include "common.h"

template <unsigned kStride>
__global__ void gather(const float* in, float* out, size_t count) {
  const size_t i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i < count) out[i] = in[i * kStride & (count - 1)];
}

int main(int argc, char** argv) {
  const long stride = number(argc, argv, 1, 1), count = number(argc, argv, 2, 1 << 24);
  if ((stride != 1 && stride != 17 && stride != 257) || (count & (count - 1)))
    refuse("gather 1|17|257 [ELEMENTS, a power of two]");
  float *in = deviceMemory<float>(count), *out = deviceMemory<float>(count);
  auto kernel = stride == 1 ? gather<1> : stride == 17 ? gather<17> : gather<257>;
  for (int launch = 0; launch < 2; ++launch) {
    kernel<<<(count + 255) / 256, 256>>>(in, out, count);
    finish("gather");
  }
  std::printf("stride %ld, %ld elements, %.0f bytes\n", stride, count, 8.0 * count);
  return 0;
}
