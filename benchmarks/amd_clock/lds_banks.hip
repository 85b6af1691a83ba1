// LDS bank conflicts: each group of 32 lanes reads its own region of LDS 256 times, lane l at word l * STRIDE + (i mod
// 32). Stride 1 and 33 have no conflict in 32 banks, stride 32 has all.
#include "common.h"

constexpr unsigned kLanes = 256, kRegion = 1056, kReads = 256;

template <unsigned kStride>
__global__ void readLds(const float* in, float* out, unsigned count) {
  __shared__ volatile float words[kLanes / 32 * kRegion];  // volatile: every read is one instruction, in order
  for (unsigned i = threadIdx.x; i < kLanes / 32 * kRegion; i += kLanes)
    words[i] = static_cast<float>(i % kRegion + 1) * (1.0f / 1024);
  __syncthreads();
  const unsigned i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i >= count) return;
  const unsigned start = threadIdx.x / 32 * kRegion + threadIdx.x % 32 * kStride;
  float sum = in[i];
  for (unsigned n = 0; n < kReads; ++n) sum += words[start + (n & 31)];
  out[i] = sum;
}

int main(int argc, char** argv) {
  const long stride = number(argc, argv, 1, 1);
  const long count = number(argc, argv, 2, 1 << 18);
  if (stride != 1 && stride != 2 && stride != 32 && stride != 33) refuse("lds_banks 1|2|32|33 [ELEMENTS]");
  float *in = deviceMemory<float>(count), *out = deviceMemory<float>(count);
  auto kernel = stride == 1 ? readLds<1> : stride == 2 ? readLds<2> : stride == 32 ? readLds<32> : readLds<33>;
  kernel<<<(count + kLanes - 1) / kLanes, kLanes>>>(in, out, static_cast<unsigned>(count));
  finish("readLds");
  std::printf("stride %ld, %ld lanes, %.0f reads of LDS, %.0f bytes\n", stride, count, 1.0 * count * kReads,
              4.0 * count * kReads);
  return 0;
}
