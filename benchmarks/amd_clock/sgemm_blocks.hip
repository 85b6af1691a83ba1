// fp32 matrix products c = alpha a b + beta c of row-major N x N matrices, steps of a second published series
// (README.md): LDS rows without padding, a workgroup's place in the matrix as published.
#include <cmath>
#include <vector>

#include "common.h"

/// One lane an element, 1024 lanes on 32 x 32 elements; workgroups that follow each other are below each other.
__global__ void coalesced(int n, float alpha, const float* a, const float* b, float beta, float* c) {
  const int row = blockIdx.x * 32 + threadIdx.x / 32, column = blockIdx.y * 32 + threadIdx.x % 32;
  if (row >= n || column >= n) return;
  float sum = 0;
  for (int i = 0; i < n; ++i) sum += a[row * n + i] * b[i * n + column];
  c[row * n + column] = alpha * sum + beta * c[row * n + column];
}

/// The same with tiles of 32 x 32 of both matrices in LDS.
__global__ void tiled(int n, float alpha, const float* a, const float* b, float beta, float* c) {
  __shared__ float ta[32 * 32], tb[32 * 32];
  const unsigned x = threadIdx.x % 32, y = threadIdx.x / 32;
  a += blockIdx.x * 32 * n;
  b += blockIdx.y * 32;
  c += blockIdx.x * 32 * n + blockIdx.y * 32;
  float sum = 0;
  for (int k = 0; k < n; k += 32) {
    ta[y * 32 + x] = a[y * n + x];
    tb[y * 32 + x] = b[y * n + x];
    __syncthreads();
    a += 32;
    b += 32 * n;
    for (int i = 0; i < 32; ++i) sum += ta[y * 32 + i] * tb[i * 32 + x];
    __syncthreads();
  }
  c[y * n + x] = alpha * sum + beta * c[y * n + x];
}

/// A tile of kM x kN by kK a workgroup, kTm x kTn neighbouring elements a lane.
template <int kM, int kN, int kK, int kTm, int kTn>
__global__ __launch_bounds__(kM* kN / (kTm * kTn)) void blocks(int n, float alpha, const float* a, const float* b,
                                                               float beta, float* c) {
  constexpr int kLanes = kM * kN / (kTm * kTn);
  __shared__ float ta[kM * kK], tb[kK * kN];
  const int column = threadIdx.x % (kN / kTn) * kTn, row = threadIdx.x / (kN / kTn) * kTm;
  const unsigned ax = threadIdx.x % kK, ay = threadIdx.x / kK, bx = threadIdx.x % kN, by = threadIdx.x / kN;
  a += blockIdx.y * kM * n;
  b += blockIdx.x * kN;
  c += blockIdx.y * kM * n + blockIdx.x * kN;
  float sum[kTm][kTn] = {};
  for (int k = 0; k < n; k += kK) {
    for (unsigned i = 0; i < kM; i += kLanes / kK) ta[(ay + i) * kK + ax] = a[(ay + i) * n + ax];
    for (unsigned i = 0; i < kK; i += kLanes / kN) tb[(by + i) * kN + bx] = b[(by + i) * n + bx];
    __syncthreads();
    a += kK;
    b += kK * n;
    for (int d = 0; d < kK; ++d) {
      float rows[kTm], columns[kTn];
      for (int y = 0; y < kTm; ++y) rows[y] = ta[(row + y) * kK + d];
      for (int x = 0; x < kTn; ++x) columns[x] = tb[d * kN + column + x];
      for (int y = 0; y < kTm; ++y)
        for (int x = 0; x < kTn; ++x) sum[y][x] += rows[y] * columns[x];
    }
    __syncthreads();
  }
  for (int y = 0; y < kTm; ++y)
    for (int x = 0; x < kTn; ++x) {
      float& place = c[(row + y) * n + column + x];
      place = alpha * sum[y][x] + beta * place;
    }
}

int main(int argc, char** argv) {
  const char* usage = "sgemm_blocks coalesced|tiled|column|square [N, a multiple of 128]";
  const char* kind = word(argc, argv, 1, "coalesced");
  const int n = static_cast<int>(number(argc, argv, 2, 256));
  if (n % 128) refuse(usage);
  const size_t count = static_cast<size_t>(n) * n;
  std::vector<float> ha(count), hb(count);
  for (size_t i = 0; i < count; ++i) ha[i] = static_cast<float>(i % 7) - 3, hb[i] = static_cast<float>(i % 5) - 2;
  float *a = deviceMemory<float>(count), *b = deviceMemory<float>(count), *c = deviceMemory<float>(count);
  check(hipMemcpy(a, ha.data(), count * sizeof(float), hipMemcpyHostToDevice), "copying");
  check(hipMemcpy(b, hb.data(), count * sizeof(float), hipMemcpyHostToDevice), "copying");
  const auto grid = [&](int tile) { return dim3(n / tile, n / tile); };
  const auto is = [&](const char* name) { return !std::strcmp(kind, name); };
  if (is("coalesced"))
    coalesced<<<grid(32), 1024>>>(n, 0.5f, a, b, 3.0f, c);
  else if (is("tiled"))
    tiled<<<grid(32), 1024>>>(n, 0.5f, a, b, 3.0f, c);
  else if (is("column"))
    blocks<64, 64, 8, 8, 1><<<grid(64), 512>>>(n, 0.5f, a, b, 3.0f, c);
  else if (is("square"))
    blocks<128, 128, 8, 8, 8><<<grid(128), 256>>>(n, 0.5f, a, b, 3.0f, c);
  else
    refuse(usage);
  finish(kind);
  std::vector<float> hc(count);
  check(hipMemcpy(hc.data(), c, count * sizeof(float), hipMemcpyDeviceToHost), "copying");
  for (size_t i = 0; i < count; i += count / 61 + 1) {
    double exact = 0;
    for (int k = 0; k < n; ++k)
      exact += static_cast<double>(ha[i / n * n + k]) * hb[static_cast<size_t>(k) * n + i % n];
    if (std::fabs(exact / 2 - hc[i]) > 0) {
      std::fprintf(stderr, "element %zu is %g, not %g\n", i, hc[i], exact / 2);
      return 1;
    }
  }
  std::printf("%s, N = %d, %.0f operations\n", kind, n, 2.0 * n * n * n);
  return 0;
}
