// Own vector kernels, compiled for several instruction sets (simd_*.cpp) and chosen once at run time.
#pragma once
#include <cstdint>

namespace sardonyx::host {

struct SimdKernels {
  const char* name;
  void (*float16_to_float32)(const std::uint16_t* in, float* out, std::int64_t count);
  void (*bfloat16_to_float32)(const std::uint16_t* in, float* out, std::int64_t count);
  void (*float32_to_float16)(const float* in, std::uint16_t* out, std::int64_t count);
  void (*float32_to_bfloat16)(const float* in, std::uint16_t* out, std::int64_t count);
};

extern const SimdKernels kSimdBaseline;
extern const SimdKernels kSimdAvx2;    ///< with FMA and F16C
extern const SimdKernels kSimdAvx512;  ///< F, BW, DQ and VL

/// The best kernels for this CPU, within the same limit as oneDNN's (ONEDNN_MAX_CPU_ISA).
const SimdKernels& simd();

}  // namespace sardonyx::host
