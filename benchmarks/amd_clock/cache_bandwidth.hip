// Read bandwidth of the first cache levels: every workgroup of 256 or 1024 lanes reads the same buffer again and again,
// 16 bytes a lane.
#include "common.h"

using Four = float __attribute__((ext_vector_type(4)));

template <int kLanes>
__global__ __launch_bounds__(kLanes) void readAgain(const Four* __restrict__ buffer, float* out, unsigned count,
                                                    int passes, int zero) {
  Four sum[4] = {};
  const Four* p = buffer + threadIdx.x;
  for (int pass = 0; pass < passes; ++pass) {
    p += zero;  // unknown to the compiler: the loads stay in the loop
    unsigned i = 0;
    for (; i + 4 * kLanes <= count; i += 4 * kLanes) {
#pragma unroll
      for (int u = 0; u < 4; ++u) sum[u] += p[i + u * kLanes];
    }
    for (; i < count; i += kLanes) sum[0] += p[i];
  }
  const Four total = sum[0] + sum[1] + sum[2] + sum[3];
  if (total.x + total.y + total.z + total.w == 1233.0f) out[threadIdx.x] = total.x;
}

int main(int argc, char** argv) {
  const char* usage = "cache_bandwidth KB [PASSES] [WORKGROUPS] [LANES]; KB times 1024 is a multiple of 16 times LANES";
  const long kilobytes = number(argc, argv, 1, 16);
  const long passes = number(argc, argv, 2, 100);
  const long groups = number(argc, argv, 3, computeUnits());
  const long lanes = number(argc, argv, 4, 1024);
  const unsigned count = static_cast<unsigned>(kilobytes * 1024 / 16);
  if (count % lanes || (lanes != 256 && lanes != 512 && lanes != 1024)) refuse(usage);
  Four* buffer = deviceMemory<Four>(count);
  float* out = deviceMemory<float>(lanes);
  auto kernel = lanes == 256 ? readAgain<256> : lanes == 512 ? readAgain<512> : readAgain<1024>;
  for (int launch = 0; launch < 2; ++launch) {
    kernel<<<groups, lanes>>>(buffer, out, count, static_cast<int>(passes), 0);
    finish("readAgain");
  }
  std::printf("%ld workgroups of %ld lanes, %ld passes over %ld kB: %.0f bytes\n", groups, lanes, passes, kilobytes,
              1024.0 * kilobytes * passes * groups);
  return 0;
}
