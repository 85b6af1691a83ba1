// A matrix of 4-bit blocks of 32 (a half scale, then 16 bytes) times a vector: a warp per row.
#include <cuda_fp16.h>
#include <stdint.h>

#define QK4_0 32
typedef struct {
  half d;
  uint8_t qs[QK4_0 / 2];
} block_q4_0;
static_assert(sizeof(block_q4_0) == sizeof(half) + QK4_0 / 2, "wrong q4_0 block size/padding");

static __device__ __forceinline__ void dequantize_q4_0(const block_q4_0* x, const int ib, const int iqs, float2& v) {
  const float d = __half2float(x[ib].d);
  const int vui = x[ib].qs[iqs];
  v.x = (vui & 0xF) - 8.0f;
  v.y = (vui >> 4) - 8.0f;
  v.x *= d;
  v.y *= d;
}

__global__ void mul_mat_vec_q4_0(const void* __restrict__ vx, const float* __restrict__ y, float* __restrict__ dst,
                                 const int ncols, const int nrows) {
  const int row = blockIdx.x * blockDim.y + threadIdx.y;
  if (row >= nrows) return;
  const int tid = threadIdx.x;
  const block_q4_0* x = (const block_q4_0*)vx + (size_t)row * (ncols / QK4_0);
  float tmp = 0.0f;
  for (int i = 0; i < ncols / QK4_0; i += 2) {
    const int ib = i + tid / 16;
    if (ib < ncols / QK4_0) {
      float2 v;
      dequantize_q4_0(x, ib, tid % 16, v);
      tmp += v.x * y[ib * QK4_0 + tid % 16];
      tmp += v.y * y[ib * QK4_0 + tid % 16 + QK4_0 / 2];
    }
  }
#pragma unroll
  for (int mask = 16; mask > 0; mask >>= 1) tmp += __shfl_xor_sync(0xffffffff, tmp, mask, 32);
  if (tid == 0) dst[row] = tmp;
}
