// The rates that clpeak reports, with the shapes of its kernels: chains of multiply-adds, integer dot products, LDS
// written and read between barriers, 16 coalesced loads a lane, atomics. Workgroups of 256 lanes.
#include "common.h"

constexpr int kLanes = 256;
template <class T, int kWide>
using Vector = T __attribute__((ext_vector_type(kWide)));

/// Chains of x = y x + y, y = x y + x; kChains of them one after another, 16 steps of each a turn.
template <class T, int kChains, int kSteps>
__global__ void chains(float* out, float seed) {
  T x[kChains], y[kChains];
#pragma unroll
  for (int c = 0; c < kChains; ++c) {
    x[c] = T(seed + static_cast<float>(c));
    y[c] = T(static_cast<float>(threadIdx.x + 7 * c));
  }
#pragma unroll 1
  for (int i = 0; i < kSteps / 16; ++i)
#pragma unroll
    for (int c = 0; c < kChains; ++c)
#pragma unroll
      for (int s = 0; s < 8; ++s) {
        x[c] = y[c] * x[c] + y[c];
        y[c] = x[c] * y[c] + x[c];
      }
  T sum = y[0] + x[0];
#pragma unroll
  for (int c = 1; c < kChains; ++c) sum += x[c] + y[c];
  float result = 0;
  if constexpr (__is_scalar(T))
    result = static_cast<float>(sum);
  else
    for (unsigned e = 0; e < sizeof(T) / sizeof(sum[0]); ++e) result += static_cast<float>(sum[e]);
  out[blockIdx.x * blockDim.x + threadIdx.x] = result;
}

/// Four bytes of x times four of y added to a, then y xor a; kChains independent of one another.
template <int kChains>
__global__ void dot(int* out, int x) {
#if defined(__gfx90a__) || defined(__gfx942__) || defined(__gfx950__)
  int y[kChains], a[kChains];
#pragma unroll
  for (int c = 0; c < kChains; ++c) y[c] = static_cast<int>(threadIdx.x) + c, a[c] = y[c] + 5 * c;
#pragma unroll 1
  for (int i = 0; i < 64 / kChains; ++i)
#pragma unroll
    for (int c = 0; c < kChains; ++c)
#pragma unroll
      for (int s = 0; s < 16; ++s) {
        a[c] = __builtin_amdgcn_sdot4(x, y[c], a[c], false);
        y[c] ^= a[c];
      }
  int sum = 0;
#pragma unroll
  for (int c = 0; c < kChains; ++c) sum += a[c];
  out[blockIdx.x * blockDim.x + threadIdx.x] = sum;
#endif
}

template <int kWide>
__global__ void lds(float* out) {
  using T = Vector<float, kWide>;
  __shared__ T words[kLanes];
  const unsigned next = (threadIdx.x + 1) % blockDim.x;
  T value = T(static_cast<float>(blockIdx.x * blockDim.x + threadIdx.x));
#pragma unroll 1
  for (int i = 0; i < 64; ++i) {
    words[threadIdx.x] = value;
    __syncthreads();
    value = words[next];
    __syncthreads();
  }
  float sum = 0;
#pragma unroll
  for (int e = 0; e < kWide; ++e) sum += value[e];
  out[blockIdx.x * blockDim.x + threadIdx.x] = sum;
}

template <int kWide>
__global__ void readMemory(const float* in, float* out) {
  using T = Vector<float, kWide>;
  const T* p = reinterpret_cast<const T*>(in) + blockIdx.x * blockDim.x * 16 + threadIdx.x;
  T sum = T(0.0f);
#pragma unroll
  for (int i = 0; i < 16; ++i) sum += p[i * kLanes];
  float result = 0;
#pragma unroll
  for (int e = 0; e < kWide; ++e) result += sum[e];
  out[blockIdx.x * blockDim.x + threadIdx.x] = result;
}

__global__ void atomicOwn(int* counters) {
#pragma unroll 1
  for (int i = 0; i < 256; ++i) atomicAdd(counters + blockIdx.x * blockDim.x + threadIdx.x, 1);
}

__global__ void atomicLds(int* out) {
  __shared__ int counter;
  if (threadIdx.x == 0) counter = 0;
  __syncthreads();
#pragma unroll 1
  for (int i = 0; i < 256; ++i) atomicAdd(&counter, 1);
  __syncthreads();
  if (threadIdx.x == 0) out[blockIdx.x] = counter;
}

int main(int argc, char** argv) {
  const char* kind = word(argc, argv, 1, "fp32");
  const long groups = number(argc, argv, 2, 1024), lanes = groups * kLanes;
  float* out = deviceMemory<float>(lanes);
  int* whole = reinterpret_cast<int*>(out);
  struct Case {
    const char* name;
    double perLane;
    void (*run)(unsigned, float*, int*);
  };
#define RUN(CALL) [](unsigned g, float* o, int* w) { (void)o, (void)w, CALL; }
  const Case cases[] = {
      {"fp32", 4096, RUN((chains<float, 1, 2048><<<g, kLanes>>>(o, 1.3f)))},
      {"fp32x2", 4096, RUN((chains<Vector<float, 2>, 1, 1024><<<g, kLanes>>>(o, 1.3f)))},
      {"fp32x4", 4096, RUN((chains<Vector<float, 4>, 1, 512><<<g, kLanes>>>(o, 1.3f)))},
      {"fp16", 4096, RUN((chains<_Float16, 2, 1024><<<g, kLanes>>>(o, 1.3f)))},
      {"fp16-one", 4096, RUN((chains<_Float16, 1, 2048><<<g, kLanes>>>(o, 1.3f)))},
      {"fp16x2", 4096, RUN((chains<Vector<_Float16, 2>, 1, 1024><<<g, kLanes>>>(o, 1.3f)))},
      {"fp64", 512, RUN((chains<double, 1, 256><<<g, kLanes>>>(o, 1.3f)))},
      {"int32", 4096, RUN((chains<int, 1, 2048><<<g, kLanes>>>(o, 3.0f)))},
      {"dot4-1", 8192, RUN((dot<1><<<g, kLanes>>>(w, 0x06050403)))},
      {"dot4-2", 8192, RUN((dot<2><<<g, kLanes>>>(w, 0x06050403)))},
      {"dot4-4", 8192, RUN((dot<4><<<g, kLanes>>>(w, 0x06050403)))},
      {"dot4-8", 8192, RUN((dot<8><<<g, kLanes>>>(w, 0x06050403)))},
      {"lds4", 64 * 2 * 4, RUN((lds<1><<<g, kLanes>>>(o)))},
      {"lds8", 64 * 2 * 8, RUN((lds<2><<<g, kLanes>>>(o)))},
      {"lds16", 64 * 2 * 16, RUN((lds<4><<<g, kLanes>>>(o)))},
      {"atomic", 256, RUN((atomicOwn<<<g, kLanes>>>(w)))},
      {"atomic-lds", 256, RUN((atomicLds<<<g, kLanes>>>(w)))},
  };
#undef RUN
  const int wide = std::strncmp(kind, "read", 4) ? 0 : std::atoi(kind + 4) / 4;
  if (wide == 1 || wide == 2 || wide == 4) {
    float* in = nullptr;
    check(hipMalloc(reinterpret_cast<void**>(&in), lanes * 16 * 4 * wide), "allocating the array");
    auto kernel = wide == 1 ? readMemory<1> : wide == 2 ? readMemory<2> : readMemory<4>;
    for (int launch = 0; launch < 2; ++launch) {
      kernel<<<groups, kLanes>>>(in, out);
      finish(kind);
    }
    std::printf("%s, %ld workgroups of %d lanes, %ld bytes\n", kind, groups, kLanes, lanes * 64 * wide);
    return 0;
  }
  for (const Case& c : cases)
    if (!std::strcmp(kind, c.name)) {
      c.run(static_cast<unsigned>(groups), out, whole);
      finish(kind);
      std::printf("%s, %ld workgroups of %d lanes, %.0f operations or bytes\n", kind, groups, kLanes,
                  c.perLane * static_cast<double>(lanes));
      return 0;
    }
  refuse(
      "peak fp32|fp32x2|fp32x4|fp16|fp16-one|fp16x2|fp64|int32|dot4-1|dot4-2|dot4-4|dot4-8|lds4|lds8|lds16|atomic|"
      "atomic-lds|read4|read8|read16 [WORKGROUPS]");
}
