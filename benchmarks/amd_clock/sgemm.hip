// fp32 matrix products of row-major N x N matrices, from the naive one to register tiles, on wave32 cards; the steps of
// a published series of kernels (README.md).
#include <cmath>
#include <vector>

#include "common.h"

/// One lane an element, both matrices from memory. c = alpha a b + beta c.
__global__ void naive(const float* a, const float* b, float* c, int m, int k, int n, float alpha, float beta) {
  const int row = blockIdx.y * blockDim.y + threadIdx.y, column = blockIdx.x * blockDim.x + threadIdx.x;
  if (row >= m || column >= n) return;
  float sum = 0;
  for (int i = 0; i < k; ++i) sum += a[row * k + i] * b[i * n + column];
  c[row * n + column] = alpha * sum + beta * c[row * n + column];
}

/// The same with 64-bit indices and no alpha and beta.
__global__ void naive64(const float* __restrict__ a, const float* __restrict__ b, float* __restrict__ c, size_t m,
                        size_t n, size_t k) {
  const size_t row = static_cast<size_t>(blockIdx.y) * blockDim.y + threadIdx.y,
               column = static_cast<size_t>(blockIdx.x) * blockDim.x + threadIdx.x;
  if (row >= m || column >= n) return;
  float sum = 0;
  for (size_t i = 0; i < k; ++i) sum += a[row * k + i] * b[i * n + column];
  c[row * n + column] = sum;
}

/// kTile x kTile tiles of both matrices in LDS, one lane an element, no checks of the range.
template <int kTile>
__global__ void tiled(const float* a, const float* b, float* c, int n) {
  __shared__ float ta[kTile][kTile], tb[kTile][kTile];
  const int row = blockIdx.y * kTile + threadIdx.y, column = blockIdx.x * kTile + threadIdx.x;
  float sum = 0;
  for (int t = 0; t < n; t += kTile) {
    tb[threadIdx.y][threadIdx.x] = b[n * (threadIdx.y + t) + column];
    ta[threadIdx.y][threadIdx.x] = a[n * row + t + threadIdx.x];
    __syncthreads();
    for (int i = 0; i < kTile; ++i) sum += ta[threadIdx.y][i] * tb[i][threadIdx.x];
    __syncthreads();
  }
  if (row < n && column < n) c[row * n + column] = sum;
}

/// The same with 64-bit indices, checks of the range at every load, and an unrolled inner loop.
template <unsigned kTile>
__global__ void tiled64(const float* __restrict__ a, const float* __restrict__ b, float* __restrict__ c, size_t m,
                        size_t n, size_t k) {
  __shared__ float ta[kTile][kTile], tb[kTile][kTile];
  const size_t row = static_cast<size_t>(blockIdx.y) * kTile + threadIdx.y,
               column = static_cast<size_t>(blockIdx.x) * kTile + threadIdx.x;
  const size_t tiles = k / kTile + (k % kTile != 0);
  float sum = 0;
  for (size_t t = 0; t < tiles; ++t) {
    const size_t ka = t * kTile + threadIdx.x, kb = t * kTile + threadIdx.y;
    ta[threadIdx.y][threadIdx.x] = row < m && ka < k ? a[row * k + ka] : 0.0f;
    tb[threadIdx.y][threadIdx.x] = kb < k && column < n ? b[kb * n + column] : 0.0f;
    __syncthreads();
#pragma unroll
    for (unsigned i = 0; i < kTile; ++i) sum += ta[threadIdx.y][i] * tb[i][threadIdx.x];
    __syncthreads();
  }
  if (row < m && column < n) c[row * n + column] = sum;
}

constexpr int kBlock = 128, kDepth = 8, kRegister = 4;

/// Tiles of 128 x 128 by 8; each wave of 32 lanes (8 x 4) has a part kWaveN wide and each lane blocks of 4 x 4 of it.
/// kPad words after each row of a's tile keep its writes free of bank conflicts. kBuffer: the next tile is on its way
/// to registers while this one is computed with.
template <int kLanes, int kWaveN, int kPad, bool kBuffer>
__global__ __launch_bounds__(kLanes) void registers(const float* a, const float* b, float* c, int n, float alpha,
                                                    float beta) {
  constexpr int kWaves = kLanes / 32, kWaveM = kBlock * kBlock / kWaves / kWaveN, kAcross = kBlock / kWaveN;
  constexpr int kStepsN = kWaveN / (8 * kRegister), kStepsM = kWaveM / (4 * kRegister);
  constexpr int kLoads = kBlock * kDepth / kLanes;
  __shared__ float ta[kDepth][kBlock + kPad], tb[kDepth][kBlock];
  const int lane = threadIdx.x % 32, wave = threadIdx.x / 32;
  const int column0 = wave % kAcross * kWaveN + lane % 8 * kRegister,
            row0 = wave / kAcross * kWaveM + lane / 8 * kRegister;
  const int ak = threadIdx.x % kDepth, am = threadIdx.x / kDepth, bn = threadIdx.x % kBlock, bk = threadIdx.x / kBlock;
  const float* pa = a + n * (kBlock * blockIdx.y + am) + ak;
  const float* pb = b + n * bk + kBlock * blockIdx.x + bn;
  float sum[kStepsM * kRegister][kStepsN * kRegister] = {};
  float nextA[kLoads], nextB[kLoads];
  const auto fetch = [&](int k) {
#pragma unroll
    for (int i = 0; i < kLoads; ++i) nextB[i] = pb[n * (k + i * (kLanes / kBlock))];
#pragma unroll
    for (int i = 0; i < kLoads; ++i) nextA[i] = pa[k + n * i * (kLanes / kDepth)];
  };
  const auto keep = [&] {
#pragma unroll
    for (int i = 0; i < kLoads; ++i) tb[bk + i * (kLanes / kBlock)][bn] = nextB[i];
#pragma unroll
    for (int i = 0; i < kLoads; ++i) ta[ak][am + i * (kLanes / kDepth)] = nextA[i];
  };
  if (kBuffer) {
    fetch(0);
    keep();
    __syncthreads();
  }
  for (int k = 0; k < n; k += kDepth) {
    if (!kBuffer) {
      fetch(k);
      keep();
      __syncthreads();
    } else if (k + kDepth < n) {
      fetch(k + kDepth);
    }
#pragma unroll 4  // all 8 at once spill registers in the buffered kernel
    for (int d = 0; d < kDepth; ++d) {
      float columns[kStepsN * kRegister], rows[kStepsM * kRegister];
#pragma unroll
      for (int s = 0; s < kStepsN; ++s)
#pragma unroll
        for (int i = 0; i < kRegister; ++i) columns[s * kRegister + i] = tb[d][column0 + s * 8 * kRegister + i];
#pragma unroll
      for (int s = 0; s < kStepsM; ++s)
#pragma unroll
        for (int i = 0; i < kRegister; ++i) rows[s * kRegister + i] = ta[d][row0 + s * 4 * kRegister + i];
#pragma unroll
      for (int y = 0; y < kStepsM * kRegister; ++y)
#pragma unroll
        for (int x = 0; x < kStepsN * kRegister; ++x) sum[y][x] += rows[y] * columns[x];
    }
    __syncthreads();
    if (kBuffer && k + kDepth < n) {
      keep();
      __syncthreads();
    }
  }
#pragma unroll
  for (int y = 0; y < kStepsM * kRegister; ++y)
#pragma unroll
    for (int x = 0; x < kStepsN * kRegister; ++x) {
      const int row = kBlock * blockIdx.y + row0 + y / kRegister * 4 * kRegister + y % kRegister;
      const int column = kBlock * blockIdx.x + column0 + x / kRegister * 8 * kRegister + x % kRegister;
      c[n * row + column] = alpha * sum[y][x] + beta * c[n * row + column];
    }
}

int main(int argc, char** argv) {
  const char* usage =
      "sgemm naive|naive64|tiled32|tiled64-8|tiled64-16|tiled64-32|register|buffered|wide [N, a multiple of 128]";
  const char* kind = word(argc, argv, 1, "naive");
  const int n = static_cast<int>(number(argc, argv, 2, 256));
  if (n % kBlock) refuse(usage);
  const size_t count = static_cast<size_t>(n) * n;
  std::vector<float> ha(count), hb(count);
  for (size_t i = 0; i < count; ++i) ha[i] = static_cast<float>(i % 7) - 3, hb[i] = static_cast<float>(i % 5) - 2;
  float *a = deviceMemory<float>(count), *b = deviceMemory<float>(count), *c = deviceMemory<float>(count);
  check(hipMemcpy(a, ha.data(), count * sizeof(float), hipMemcpyHostToDevice), "copying");
  check(hipMemcpy(b, hb.data(), count * sizeof(float), hipMemcpyHostToDevice), "copying");
  const auto grid = [&](int tile) { return dim3(n / tile, n / tile); };
  const size_t s = n;
  const auto is = [&](const char* name) { return !std::strcmp(kind, name); };
  if (is("naive"))
    naive<<<grid(16), dim3(16, 16)>>>(a, b, c, n, n, n, 1.0f, 0.0f);
  else if (is("naive64"))
    naive64<<<grid(16), dim3(16, 16)>>>(a, b, c, s, s, s);
  else if (is("tiled32"))
    tiled<32><<<grid(32), dim3(32, 32)>>>(a, b, c, n);
  else if (is("tiled64-8"))
    tiled64<8><<<grid(8), dim3(8, 8)>>>(a, b, c, s, s, s);
  else if (is("tiled64-16"))
    tiled64<16><<<grid(16), dim3(16, 16)>>>(a, b, c, s, s, s);
  else if (is("tiled64-32"))
    tiled64<32><<<grid(32), dim3(32, 32)>>>(a, b, c, s, s, s);
  else if (is("register"))
    registers<256, 64, 0, false><<<grid(kBlock), 256>>>(a, b, c, n, 1.0f, 0.0f);
  else if (is("buffered"))
    registers<256, 64, 0, true><<<grid(kBlock), 256>>>(a, b, c, n, 1.0f, 0.0f);
  else if (is("wide"))
    registers<128, 128, 4, true><<<grid(kBlock), 128>>>(a, b, c, n, 1.0f, 0.0f);
  else
    refuse(usage);
  finish(kind);
  std::vector<float> hc(count);
  check(hipMemcpy(hc.data(), c, count * sizeof(float), hipMemcpyDeviceToHost), "copying");
  for (size_t i = 0; i < count; i += count / 61 + 1) {
    double exact = 0;
    for (int k = 0; k < n; ++k)
      exact += static_cast<double>(ha[i / n * n + k]) * hb[static_cast<size_t>(k) * n + i % n];
    if (std::fabs(exact - hc[i]) > 0) {
      std::fprintf(stderr, "element %zu is %g, not %g\n", i, hc[i], exact);
      return 1;
    }
  }
  std::printf("%s, N = %d, %.0f operations\n", kind, n, 2.0 * n * n * n);
  return 0;
}
