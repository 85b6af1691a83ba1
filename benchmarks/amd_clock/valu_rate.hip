// Rate of vector arithmetic. x = y * x + y; y = x * y + x: every step needs the one before it, so a wave alone shows
// latency and a full card throughput.
#include "common.h"

using Half2 = _Float16 __attribute__((ext_vector_type(2)));
using Float2 = float __attribute__((ext_vector_type(2)));

template <class T>
__device__ T step(T x, T y) {
  return x * y + y;  // contracted to a fused multiply-add
}

/// Keeps the compiler from joining two steps into one packed instruction.
template <class T>
__device__ void apart(T& x) {
  if constexpr (__is_same(T, float)) asm volatile("" : "+v"(x));
}

template <class T, int kSteps>
__global__ void chain(float* out, T seed) {
  T x = seed + T(static_cast<float>(blockIdx.x)), y = seed + T(static_cast<float>(threadIdx.x));
#pragma unroll 16
  for (int i = 0; i < kSteps / 2; ++i) {
    x = step(x, y);
    apart(x);
    y = step(y, x);
    apart(y);
  }
  if constexpr (sizeof(T) == 4 && !__is_same(T, Half2))
    out[blockIdx.x * blockDim.x + threadIdx.x] = static_cast<float>(y);
  else
    out[blockIdx.x * blockDim.x + threadIdx.x] =
        __builtin_bit_cast(float, static_cast<int>(sizeof(T))) + *reinterpret_cast<const float*>(&y);
}

template <class T, int kChains>
__global__ void independent(float* out, T seed, int loops) {
  T values[kChains];
#pragma unroll
  for (int c = 0; c < kChains; ++c) values[c] = seed + T(static_cast<float>(threadIdx.x + c));
  const T scale = seed;
  for (int i = 0; i < loops; ++i) {
#pragma unroll
    for (int u = 0; u < 8; ++u)
#pragma unroll
      for (int c = 0; c < kChains; ++c) values[c] = values[c] * scale + scale;
  }
  T sum = values[0];
#pragma unroll
  for (int c = 1; c < kChains; ++c) sum += values[c];
  if (loops < 0) out[threadIdx.x] = *reinterpret_cast<const float*>(&sum);
  asm volatile("" ::"v"(sum));
}

template <int kOperation>
__global__ void special(float* out, int loops) {
  float values[8];
#pragma unroll
  for (int c = 0; c < 8; ++c) values[c] = 1.0f + 0.25f * static_cast<float>(threadIdx.x % 4 + c);
  for (int i = 0; i < loops; ++i) {
#pragma unroll
    for (int c = 0; c < 8; ++c) {
      if constexpr (kOperation == 0) values[c] = __builtin_amdgcn_exp2f(values[c]);
      if constexpr (kOperation == 1) values[c] = __builtin_amdgcn_rcpf(values[c]);
      if constexpr (kOperation == 2) values[c] = __builtin_amdgcn_sqrtf(values[c]);
    }
  }
#pragma unroll
  for (int c = 0; c < 8; ++c) asm volatile("" ::"v"(values[c]));
  if (loops < 0) *out = 0;
}

int main(int argc, char** argv) {
  const char* usage =
      "valu_rate chain-fp32|chain-half2|chain-fp64|fp32|float2|half2|exp2|rcp|sqrt [LANES IN ALL, a multiple of 256] "
      "[LANES OF A WORKGROUP] [LOOPS]";
  const char* kind = word(argc, argv, 1, "chain-fp32");
  const long lanes = number(argc, argv, 2, 1 << 16), group = number(argc, argv, 3, 64),
             loops = number(argc, argv, 4, 64);
  if (lanes % group) refuse(usage);
  float* out = deviceMemory<float>(lanes);
  const auto is = [&](const char* name) { return !std::strcmp(kind, name); };
  const unsigned groups = static_cast<unsigned>(lanes / group);
  const Half2 half = {_Float16(0.5f), _Float16(0.25f)};
  const Float2 pair = {0.5f, 0.25f};
  double operations = 0;
  if (is("chain-fp32"))
    chain<float, 1024><<<groups, group>>>(out, 0.0f), operations = 2.0 * 1024;
  else if (is("chain-half2"))
    chain<Half2, 1024><<<groups, group>>>(out, half), operations = 4.0 * 1024;
  else if (is("chain-fp64"))
    chain<double, 256><<<groups, group>>>(out, 0.0), operations = 2.0 * 256;
  else if (is("fp32"))
    independent<float, 8><<<groups, group>>>(out, 0.5f, static_cast<int>(loops)), operations = 2.0 * 64 * loops;
  else if (is("float2"))
    independent<Float2, 8><<<groups, group>>>(out, pair, static_cast<int>(loops)), operations = 4.0 * 64 * loops;
  else if (is("half2"))
    independent<Half2, 8><<<groups, group>>>(out, half, static_cast<int>(loops)), operations = 4.0 * 64 * loops;
  else if (is("exp2"))
    special<0><<<groups, group>>>(out, static_cast<int>(loops)), operations = 8.0 * loops;
  else if (is("rcp"))
    special<1><<<groups, group>>>(out, static_cast<int>(loops)), operations = 8.0 * loops;
  else if (is("sqrt"))
    special<2><<<groups, group>>>(out, static_cast<int>(loops)), operations = 8.0 * loops;
  else
    refuse(usage);
  finish(kind);
  std::printf("%s, %ld lanes in workgroups of %ld, %.0f operations\n", kind, lanes, group, operations * lanes);
  return 0;
}
