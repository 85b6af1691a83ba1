// fp8 (e4m3) matrix products without matrix instructions, C (bf16) = A B^T, both N x N and row-major: one lane an
// element, from memory or through fp32 tiles in LDS. For gfx942 and gfx950.
#include "common.h"

#ifdef __AMDGCN__
__device__ float fromFp8(unsigned char v) { return __builtin_amdgcn_cvt_f32_fp8(static_cast<int>(v), 0); }
#else
__device__ float fromFp8(unsigned char v);
#endif

__device__ unsigned short toBf16(float v) {
  const unsigned bits = __float_as_uint(v);
  return static_cast<unsigned short>((bits + 0x7fff + (bits >> 16 & 1)) >> 16);
}

__global__ void naive(const unsigned char* a, const unsigned char* b, unsigned short* c, int n) {
  const int row = blockIdx.y * blockDim.y + threadIdx.y, column = blockIdx.x * blockDim.x + threadIdx.x;
  if (row >= n || column >= n) return;
  float sum = 0;
  for (int k = 0; k < n; ++k) sum += fromFp8(a[row * n + k]) * fromFp8(b[column * n + k]);
  c[row * n + column] = toBf16(sum);
}

template <int kTile>
__global__ void tiled(const unsigned char* a, const unsigned char* b, unsigned short* c, int n) {
  __shared__ float ta[kTile][kTile], tb[kTile][kTile];
  const int row = blockIdx.y * kTile + threadIdx.y, column = blockIdx.x * kTile + threadIdx.x;
  float sum = 0;
  for (int k = 0; k < n; k += kTile) {
    ta[threadIdx.y][threadIdx.x] = fromFp8(a[row * n + k + threadIdx.x]);
    tb[threadIdx.y][threadIdx.x] = fromFp8(b[column * n + k + threadIdx.y]);
    __syncthreads();
    for (int i = 0; i < kTile; ++i) sum += ta[threadIdx.y][i] * tb[i][threadIdx.x];
    __syncthreads();
  }
  c[row * n + column] = toBf16(sum);
}

int main(int argc, char** argv) {
  const char* usage = "fp8_gemm naive|tiled16|tiled32 [N, a multiple of 32]";
  const char* kind = word(argc, argv, 1, "naive");
  const int n = static_cast<int>(number(argc, argv, 2, 256));
  if (n % 32) refuse(usage);
  const size_t count = static_cast<size_t>(n) * n;
  unsigned char *a = deviceMemory<unsigned char>(count, 0x38),
                *b = deviceMemory<unsigned char>(count, 0x38);  // 1.0 (e4m3fn) or 0.5 (e4m3fnuz)
  unsigned short* c = deviceMemory<unsigned short>(count);
  if (!std::strcmp(kind, "naive"))
    naive<<<dim3(n / 16, n / 16), dim3(16, 16)>>>(a, b, c, n);
  else if (!std::strcmp(kind, "tiled16"))
    tiled<16><<<dim3(n / 16, n / 16), dim3(16, 16)>>>(a, b, c, n);
  else if (!std::strcmp(kind, "tiled32"))
    tiled<32><<<dim3(n / 32, n / 32), dim3(32, 32)>>>(a, b, c, n);
  else
    refuse(usage);
  finish(kind);
  unsigned short first = 0, last = 0;
  check(hipMemcpy(&first, c, 2, hipMemcpyDeviceToHost), "copying");
  check(hipMemcpy(&last, c + count - 1, 2, hipMemcpyDeviceToHost), "copying");
  if (!first || first != last) {
    std::fprintf(stderr, "wrong sums: %x and %x\n", first, last);
    return 1;
  }
  std::printf("%s, N = %d, %.0f operations\n", kind, n, 2.0 * n * n * n);
  return 0;
}
