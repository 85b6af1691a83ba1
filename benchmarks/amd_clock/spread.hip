// Each lane reads, or writes, 16 floats that are as far apart as there are lanes: coalesced streams of 1 GiB in all.
#include "common.h"

__global__ void readSpread(const float* in, float* out, size_t lanes) {
  const size_t i = blockIdx.x * static_cast<size_t>(blockDim.x) + threadIdx.x;
  float sum = 0;
#pragma unroll
  for (int k = 0; k < 16; ++k) sum += in[k * lanes + i];
  out[i] = sum;
}

__global__ void writeSpread(float* out, size_t lanes) {
  const size_t i = blockIdx.x * static_cast<size_t>(blockDim.x) + threadIdx.x;
#pragma unroll
  for (int k = 0; k < 16; ++k) out[k * lanes + i] = 0;
}

int main(int argc, char** argv) {
  const char* kind = word(argc, argv, 1, "read");
  const bool write = !std::strcmp(kind, "write");
  const long lanes = number(argc, argv, 2, 1 << 24), group = number(argc, argv, 3, 64);
  if ((!write && std::strcmp(kind, "read")) || lanes % group) refuse("spread read|write [LANES] [LANES OF A WORKGROUP]");
  // Not filled: no result depends on it.
  float *many = nullptr, *out = nullptr;
  check(hipMalloc(reinterpret_cast<void**>(&many), lanes * 16 * sizeof(float)), "allocating");
  check(hipMalloc(reinterpret_cast<void**>(&out), lanes * sizeof(float)), "allocating");
  if (write)
    writeSpread<<<lanes / group, group>>>(many, lanes);
  else
    readSpread<<<lanes / group, group>>>(many, out, lanes);
  finish(kind);
  std::printf("%s, %ld lanes, %.0f bytes\n", kind, lanes, lanes * 64.0);
  return 0;
}
