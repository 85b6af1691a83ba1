// Rows of a table by their numbers, 16 bytes at a time; positions beyond the table give zeros.
#include <cstdint>
#include <cuda_runtime.h>

__global__ void embedding_lookup(const int64_t* __restrict__ ids, const float* __restrict__ table,
                                 float* __restrict__ out, int64_t vocab, int dim) {
  const int token = blockIdx.x;
  const int64_t id = ids[token];
  const float4* src = reinterpret_cast<const float4*>(table + id * dim);
  float4* dst = reinterpret_cast<float4*>(out + (int64_t)token * dim);
  const bool valid = id >= 0 && id < vocab;
  for (int i = threadIdx.x; i < dim / 4; i += blockDim.x)
    dst[i] = valid ? __ldg(src + i) : make_float4(0.f, 0.f, 0.f, 0.f);
}
