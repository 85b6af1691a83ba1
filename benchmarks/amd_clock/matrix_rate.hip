// Rate and latency of matrix instructions: each wave runs LOOPS times 8 rounds of CHAINS independent accumulations of
// one instruction. CHAINS 1 shows the latency of dependent instructions.
#include "common.h"

using half4 = _Float16 __attribute__((ext_vector_type(4)));
using half8 = _Float16 __attribute__((ext_vector_type(8)));
using half16 = _Float16 __attribute__((ext_vector_type(16)));
using short4_ = short __attribute__((ext_vector_type(4)));
using short8 = short __attribute__((ext_vector_type(8)));
using short16 = short __attribute__((ext_vector_type(16)));
using bf8 = __bf16 __attribute__((ext_vector_type(8)));
using int2_ = int __attribute__((ext_vector_type(2)));
using int4_ = int __attribute__((ext_vector_type(4)));
using int8_ = int __attribute__((ext_vector_type(8)));
using int16_ = int __attribute__((ext_vector_type(16)));
using float4_ = float __attribute__((ext_vector_type(4)));
using float8 = float __attribute__((ext_vector_type(8)));
using float16 = float __attribute__((ext_vector_type(16)));
using double4_ = double __attribute__((ext_vector_type(4)));

#if defined(__gfx90a__)
#define CDNA2 1
#elif defined(__gfx942__)
#define CDNA3 1
#elif defined(__gfx950__)
#define CDNA3 1
#define CDNA4 1
#elif defined(__gfx1100__) || defined(__gfx1101__) || defined(__gfx1102__) || defined(__gfx1103__) || \
    defined(__gfx1150__) || defined(__gfx1151__)
#define RDNA3 1
#elif defined(__gfx1200__) || defined(__gfx1201__)
#define RDNA4 1
#endif
#if defined(CDNA2) || defined(CDNA3)
#define CDNA 1
#endif

// One struct an instruction: types, operations of one instruction, and `run`, which is empty where a chip does not have
// it.
#define INSTRUCTION(NAME, INPUT, RESULT, OPERATIONS, HAS, EXPRESSION)                              \
  struct NAME {                                                                                    \
    using Input = INPUT;                                                                           \
    using Result = RESULT;                                                                         \
    static constexpr double kOperations = OPERATIONS;                                              \
    static __device__ void run(const Input& a, const Input& b, Result& c) { IF_##HAS(EXPRESSION) } \
  };
#if CDNA
#define IF_CDNA(x) x
#else
#define IF_CDNA(x)
#endif
#if CDNA3
#define IF_CDNA3(x) x
#else
#define IF_CDNA3(x)
#endif
#if CDNA4
#define IF_CDNA4(x) x
#else
#define IF_CDNA4(x)
#endif
#if RDNA3
#define IF_RDNA3(x) x
#else
#define IF_RDNA3(x)
#endif
#if RDNA4
#define IF_RDNA4(x) x
#else
#define IF_RDNA4(x)
#endif

INSTRUCTION(F32_32x32x2, float, float16, 2.0 * 32 * 32 * 2, CDNA,
            c = __builtin_amdgcn_mfma_f32_32x32x2f32(a, b, c, 0, 0, 0);)
INSTRUCTION(F32_16x16x4, float, float4_, 2.0 * 16 * 16 * 4, CDNA,
            c = __builtin_amdgcn_mfma_f32_16x16x4f32(a, b, c, 0, 0, 0);)
INSTRUCTION(F64_16x16x4, double, double4_, 2.0 * 16 * 16 * 4, CDNA,
            c = __builtin_amdgcn_mfma_f64_16x16x4f64(a, b, c, 0, 0, 0);)
INSTRUCTION(F16_32x32x8, half4, float16, 2.0 * 32 * 32 * 8, CDNA,
            c = __builtin_amdgcn_mfma_f32_32x32x8f16(a, b, c, 0, 0, 0);)
INSTRUCTION(F16_16x16x16, half4, float4_, 2.0 * 16 * 16 * 16, CDNA,
            c = __builtin_amdgcn_mfma_f32_16x16x16f16(a, b, c, 0, 0, 0);)
INSTRUCTION(F16_4x4x4, half4, float4_, 2.0 * 4 * 4 * 4 * 16, CDNA,
            c = __builtin_amdgcn_mfma_f32_4x4x4f16(a, b, c, 0, 0, 0);)
INSTRUCTION(BF16_32x32x8, short4_, float16, 2.0 * 32 * 32 * 8, CDNA,
            c = __builtin_amdgcn_mfma_f32_32x32x8bf16_1k(a, b, c, 0, 0, 0);)
INSTRUCTION(BF16_16x16x16, short4_, float4_, 2.0 * 16 * 16 * 16, CDNA,
            c = __builtin_amdgcn_mfma_f32_16x16x16bf16_1k(a, b, c, 0, 0, 0);)
INSTRUCTION(I8_16x16x32, long, int4_, 2.0 * 16 * 16 * 32, CDNA3,
            c = __builtin_amdgcn_mfma_i32_16x16x32_i8(a, b, c, 0, 0, 0);)
INSTRUCTION(I8_32x32x16, long, int16_, 2.0 * 32 * 32 * 16, CDNA3,
            c = __builtin_amdgcn_mfma_i32_32x32x16_i8(a, b, c, 0, 0, 0);)
INSTRUCTION(FP8_16x16x32, long, float4_, 2.0 * 16 * 16 * 32, CDNA3,
            c = __builtin_amdgcn_mfma_f32_16x16x32_fp8_fp8(a, b, c, 0, 0, 0);)
INSTRUCTION(FP8_32x32x16, long, float16, 2.0 * 32 * 32 * 16, CDNA3,
            c = __builtin_amdgcn_mfma_f32_32x32x16_fp8_fp8(a, b, c, 0, 0, 0);)
INSTRUCTION(F16_16x16x32, half8, float4_, 2.0 * 16 * 16 * 32, CDNA4,
            c = __builtin_amdgcn_mfma_f32_16x16x32_f16(a, b, c, 0, 0, 0);)
INSTRUCTION(F16_32x32x16, half8, float16, 2.0 * 32 * 32 * 16, CDNA4,
            c = __builtin_amdgcn_mfma_f32_32x32x16_f16(a, b, c, 0, 0, 0);)
INSTRUCTION(FP8_16x16x128, int8_, float4_, 2.0 * 16 * 16 * 128, CDNA4,
            c = __builtin_amdgcn_mfma_scale_f32_16x16x128_f8f6f4(a, b, c, 0, 0, 0, 0, 0, 0);)
INSTRUCTION(FP4_16x16x128, int8_, float4_, 2.0 * 16 * 16 * 128, CDNA4,
            c = __builtin_amdgcn_mfma_scale_f32_16x16x128_f8f6f4(a, b, c, 4, 4, 0, 0, 0, 0);)
INSTRUCTION(WMMA3_F16, half16, float8, 2.0 * 16 * 16 * 16, RDNA3,
            c = __builtin_amdgcn_wmma_f32_16x16x16_f16_w32(a, b, c);)
INSTRUCTION(WMMA3_BF16, short16, float8, 2.0 * 16 * 16 * 16, RDNA3,
            c = __builtin_amdgcn_wmma_f32_16x16x16_bf16_w32(a, b, c);)
INSTRUCTION(WMMA3_I8, int4_, int8_, 2.0 * 16 * 16 * 16, RDNA3,
            c = __builtin_amdgcn_wmma_i32_16x16x16_iu8_w32(true, a, true, b, c, false);)
INSTRUCTION(WMMA3_I4, int2_, int8_, 2.0 * 16 * 16 * 16, RDNA3,
            c = __builtin_amdgcn_wmma_i32_16x16x16_iu4_w32(true, a, true, b, c, false);)
INSTRUCTION(WMMA4_F16, half8, float8, 2.0 * 16 * 16 * 16, RDNA4,
            c = __builtin_amdgcn_wmma_f32_16x16x16_f16_w32_gfx12(a, b, c);)
INSTRUCTION(WMMA4_BF16, short8, float8, 2.0 * 16 * 16 * 16, RDNA4,
            c = __builtin_amdgcn_wmma_f32_16x16x16_bf16_w32_gfx12(a, b, c);)
INSTRUCTION(WMMA4_FP8, int2_, float8, 2.0 * 16 * 16 * 16, RDNA4,
            c = __builtin_amdgcn_wmma_f32_16x16x16_fp8_fp8_w32_gfx12(a, b, c);)
INSTRUCTION(WMMA4_I8, int2_, int8_, 2.0 * 16 * 16 * 16, RDNA4,
            c = __builtin_amdgcn_wmma_i32_16x16x16_iu8_w32_gfx12(true, a, true, b, c, false);)

#ifdef __AMDGCN__
#define KEEP(X) asm volatile("" : "+v"(X))  // the compiler knows nothing of the value, and may not drop it
#else
#define KEEP(X)
#endif

template <class Instruction, int kChains>
__global__ __launch_bounds__(256) void rate(int loops) {
  typename Instruction::Input a{}, b{};
  KEEP(a);
  KEEP(b);
  typename Instruction::Result c[kChains] = {};
  for (int i = 0; i < loops; ++i) {
#pragma unroll
    for (int u = 0; u < 8; ++u)
#pragma unroll
      for (int k = 0; k < kChains; ++k) Instruction::run(a, b, c[k]);
  }
#pragma unroll
  for (int k = 0; k < kChains; ++k) KEEP(c[k]);
}

struct Entry {
  const char* name;
  const char* chips;  // prefixes of the chips that have it
  double operations;
  void (*kernels[4])(int);  // 1, 2, 4 and 8 chains
};
#define ENTRY(NAME, TEXT, CHIPS)                                                                   \
  {                                                                                                \
    TEXT, CHIPS, NAME::kOperations, { rate<NAME, 1>, rate<NAME, 2>, rate<NAME, 4>, rate<NAME, 8> } \
  }
constexpr Entry kEntries[] = {
    ENTRY(F32_32x32x2, "f32_32x32x2", "gfx90a gfx942 gfx950"),
    ENTRY(F32_16x16x4, "f32_16x16x4", "gfx90a gfx942 gfx950"),
    ENTRY(F64_16x16x4, "f64_16x16x4", "gfx90a gfx942 gfx950"),
    ENTRY(F16_32x32x8, "f16_32x32x8", "gfx90a gfx942 gfx950"),
    ENTRY(F16_16x16x16, "f16_16x16x16", "gfx90a gfx942 gfx950"),
    ENTRY(F16_4x4x4, "f16_4x4x4", "gfx90a gfx942 gfx950"),
    ENTRY(BF16_32x32x8, "bf16_32x32x8", "gfx90a gfx942 gfx950"),
    ENTRY(BF16_16x16x16, "bf16_16x16x16", "gfx90a gfx942 gfx950"),
    ENTRY(I8_16x16x32, "i8_16x16x32", "gfx942 gfx950"),
    ENTRY(I8_32x32x16, "i8_32x32x16", "gfx942 gfx950"),
    ENTRY(FP8_16x16x32, "fp8_16x16x32", "gfx942 gfx950"),
    ENTRY(FP8_32x32x16, "fp8_32x32x16", "gfx942 gfx950"),
    ENTRY(F16_16x16x32, "f16_16x16x32", "gfx950"),
    ENTRY(F16_32x32x16, "f16_32x32x16", "gfx950"),
    ENTRY(FP8_16x16x128, "fp8_16x16x128", "gfx950"),
    ENTRY(FP4_16x16x128, "fp4_16x16x128", "gfx950"),
    ENTRY(WMMA3_F16, "wmma_f16", "gfx110 gfx115"),
    ENTRY(WMMA3_BF16, "wmma_bf16", "gfx110 gfx115"),
    ENTRY(WMMA3_I8, "wmma_i8", "gfx110 gfx115"),
    ENTRY(WMMA3_I4, "wmma_i4", "gfx110 gfx115"),
    ENTRY(WMMA4_F16, "wmma_f16", "gfx120"),
    ENTRY(WMMA4_BF16, "wmma_bf16", "gfx120"),
    ENTRY(WMMA4_FP8, "wmma_fp8", "gfx120"),
    ENTRY(WMMA4_I8, "wmma_i8", "gfx120"),
};

bool has(const char* chips, const char* chip) {
  for (const char* p = chips; *p;) {
    const size_t length = std::strcspn(p, " ");
    if (!std::strncmp(p, chip, length)) return true;
    p += length + (p[length] == ' ');
  }
  return false;
}

int main(int argc, char** argv) {
  hipDeviceProp_t properties;
  check(hipGetDeviceProperties(&properties, 0), "reading the device's properties");
  const char* name = word(argc, argv, 1, "");
  int wave = 0;
  check(hipDeviceGetAttribute(&wave, hipDeviceAttributeWarpSize, 0), "reading the wave size");
  const long chains = number(argc, argv, 2, 4), loops = number(argc, argv, 3, 64);
  const long groups = number(argc, argv, 4, properties.multiProcessorCount), lanes = number(argc, argv, 5, 4 * wave);
  for (const Entry& entry : kEntries) {
    if (std::strcmp(entry.name, name) || !has(entry.chips, properties.gcnArchName)) continue;
    if ((chains & (chains - 1)) || chains > 8 || lanes % wave || lanes > 256) break;
    entry.kernels[__builtin_ctzl(chains)]<<<groups, lanes>>>(static_cast<int>(loops));
    finish(name);
    const double instructions = 8.0 * chains * loops, waves = static_cast<double>(groups) * lanes / wave;
    std::printf("%s: %.0f instructions a wave, %.0f waves, %.0f operations\n", name, instructions, waves,
                instructions * waves * entry.operations);
    return 0;
  }
  std::fprintf(
      stderr,
      "usage: matrix_rate NAME [1|2|4|8 chains] [LOOPS] [WORKGROUPS] [LANES OF A WORKGROUP, at most 256]; %s has",
      properties.gcnArchName);
  for (const Entry& entry : kEntries)
    if (has(entry.chips, properties.gcnArchName)) std::fprintf(stderr, " %s", entry.name);
  std::fprintf(stderr, "\n");
  return 2;
}
