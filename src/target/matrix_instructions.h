// The table of matrix instructions, by family of chips. chips.cpp checks it against the makers' peak rates.
#pragma once
#include <cstdint>
#include <span>
#include <string_view>

#include "sardonyx/dtype.h"

namespace sardonyx {

/// How an instruction's operands and sums are distributed over the lanes of a wave (warp). kernels/matrix.h has the
/// tables of each layout under the same names.
enum class MatrixLayout : std::uint8_t {
  kVector,  ///< no matrix instruction: lanes form a grid and use vector arithmetic
  kMfma,    ///< CDNA: 16 rows by 4 groups of K over 64 lanes
  kWmma11,  ///< RDNA 3: every lane holds all of K; lanes 16 to 31 repeat lanes 0 to 15
  kWmma12,  ///< RDNA 4: two groups of lanes share K
  kMma,     ///< NVIDIA mma.sync: 8 rows by 4 groups of K, twice
  kWgmma,   ///< Hopper: four warps; A and B in shared memory
};

/// Groups of lanes that K is divided among.
constexpr int lanes_along_k(MatrixLayout l) {
  return l == MatrixLayout::kMfma || l == MatrixLayout::kMma ? 4 : l == MatrixLayout::kWmma12 ? 2 : 1;
}

/// Vectors of 16 bytes of A that a lane holds for a step, which is 16 bytes of K for each lane along K and, where a
/// lane has several of a row, for each of these.
constexpr int vectors_of_a(MatrixLayout l) { return l == MatrixLayout::kMma || l == MatrixLayout::kWmma11 ? 2 : 1; }
/// Bytes of K of a step.
constexpr int step_bytes(MatrixLayout l) { return 16 * lanes_along_k(l) * (l == MatrixLayout::kWmma11 ? 2 : 1); }

struct MatrixInstruction {
  std::string_view name;
  MatrixLayout layout;
  DType type;       ///< of both operands; E4M3 rows hold for E5M2 too
  int m, n, k;      ///< shape
  int cycles;       ///< from one issue to the next on the same SIMD; 0: not published
  bool in_kernels;  ///< what kernels/matrix.h uses for this type
  int waves = 1;    ///< that execute it together
};

// Sources. Shapes: the ISA documents' chapter "Matrix Arithmetic Instructions" (CDNA), "Wave Matrix Multiply
// Accumulate" (RDNA), PTX ISA "mma" and "wgmma.mma_async". Cycles: passes of the ISA documents' tables of dependency
// checks times four (CDNA); "How to accelerate AI applications on RDNA 3 using WMMA" and "Using the Matrix Cores of AMD
// RDNA 4 architecture GPUs" on GPUOpen (RDNA); for NVIDIA they follow from the peak rates of the A100 and H100 white
// papers.
inline constexpr MatrixInstruction kMatrixCdna2[] = {
    {"v_mfma_f32_16x16x4_f32", MatrixLayout::kMfma, DType::kFloat32, 16, 16, 4, 32, true},
    {"v_mfma_f32_16x16x16_f16", MatrixLayout::kMfma, DType::kFloat16, 16, 16, 16, 32, true},
    {"v_mfma_f32_16x16x16_bf16_1k", MatrixLayout::kMfma, DType::kBFloat16, 16, 16, 16, 32, true},
    {"v_mfma_i32_16x16x16_i8", MatrixLayout::kMfma, DType::kInt8, 16, 16, 16, 32, true},
};
inline constexpr MatrixInstruction kMatrixCdna3[] = {
    {"v_mfma_f32_16x16x4_f32", MatrixLayout::kMfma, DType::kFloat32, 16, 16, 4, 32, true},
    {"v_mfma_f32_16x16x16_f16", MatrixLayout::kMfma, DType::kFloat16, 16, 16, 16, 16, true},
    {"v_mfma_f32_16x16x16_bf16", MatrixLayout::kMfma, DType::kBFloat16, 16, 16, 16, 16, true},
    {"v_mfma_i32_16x16x32_i8", MatrixLayout::kMfma, DType::kInt8, 16, 16, 32, 16, true},
    {"v_mfma_f32_16x16x32_fp8_fp8", MatrixLayout::kMfma, DType::kFloat8E4M3FNUZ, 16, 16, 32, 16, true},
};
inline constexpr MatrixInstruction kMatrixCdna4[] = {
    {"v_mfma_f32_16x16x4_f32", MatrixLayout::kMfma, DType::kFloat32, 16, 16, 4, 32, true},
    {"v_mfma_f32_16x16x32_f16", MatrixLayout::kMfma, DType::kFloat16, 16, 16, 32, 16, true},
    {"v_mfma_f32_16x16x32_bf16", MatrixLayout::kMfma, DType::kBFloat16, 16, 16, 32, 16, true},
    // The instructions of CDNA 3 run at half the rate of those with twice (int8) or four times (float8) the K.
    {"v_mfma_i32_16x16x32_i8", MatrixLayout::kMfma, DType::kInt8, 16, 16, 32, 16, true},
    {"v_mfma_i32_16x16x64_i8", MatrixLayout::kMfma, DType::kInt8, 16, 16, 64, 16, false},
    {"v_mfma_f32_16x16x32_fp8_fp8", MatrixLayout::kMfma, DType::kFloat8E4M3FN, 16, 16, 32, 16, true},
    {"v_mfma_f32_16x16x128_f8f6f4", MatrixLayout::kMfma, DType::kFloat8E4M3FN, 16, 16, 128, 32, false},
    {"v_mfma_f32_16x16x128_f8f6f4", MatrixLayout::kMfma, DType::kFloat4E2M1, 16, 16, 128, 16, false},
};
inline constexpr MatrixInstruction kMatrixRdna3[] = {
    {"v_wmma_f32_16x16x16_f16", MatrixLayout::kWmma11, DType::kFloat16, 16, 16, 16, 32, true},
    {"v_wmma_f32_16x16x16_bf16", MatrixLayout::kWmma11, DType::kBFloat16, 16, 16, 16, 32, true},
    {"v_wmma_i32_16x16x16_iu8", MatrixLayout::kWmma11, DType::kInt8, 16, 16, 16, 32, true},
};
inline constexpr MatrixInstruction kMatrixRdna4[] = {
    {"v_wmma_f32_16x16x16_f16", MatrixLayout::kWmma12, DType::kFloat16, 16, 16, 16, 16, true},
    {"v_wmma_f32_16x16x16_bf16", MatrixLayout::kWmma12, DType::kBFloat16, 16, 16, 16, 16, true},
    {"v_wmma_i32_16x16x16_iu8", MatrixLayout::kWmma12, DType::kInt8, 16, 16, 16, 8, true},
    {"v_wmma_f32_16x16x16_fp8_fp8", MatrixLayout::kWmma12, DType::kFloat8E4M3FN, 16, 16, 16, 8, true},
};
inline constexpr MatrixInstruction kMatrixAmpere[] = {
    {"mma.m16n8k16.f16", MatrixLayout::kMma, DType::kFloat16, 16, 8, 16, 8, true},
    {"mma.m16n8k16.bf16", MatrixLayout::kMma, DType::kBFloat16, 16, 8, 16, 8, true},
    {"mma.m16n8k32.s8", MatrixLayout::kMma, DType::kInt8, 16, 8, 32, 8, true},
};
inline constexpr MatrixInstruction kMatrixHopper[] = {
    {"mma.m16n8k16.f16", MatrixLayout::kMma, DType::kFloat16, 16, 8, 16, 0, true},
    {"mma.m16n8k16.bf16", MatrixLayout::kMma, DType::kBFloat16, 16, 8, 16, 0, true},
    {"mma.m16n8k32.s8", MatrixLayout::kMma, DType::kInt8, 16, 8, 32, 0, true},
    // PTX 8.1 has none of its own for float8: converted to float16, which is exact.
    {"mma.m16n8k16.f16", MatrixLayout::kMma, DType::kFloat8E4M3FN, 16, 8, 16, 0, true},
    {"wgmma.m64n256k16.f16", MatrixLayout::kWgmma, DType::kFloat16, 64, 256, 16, 128, false, 4},
    {"wgmma.m64n256k16.bf16", MatrixLayout::kWgmma, DType::kBFloat16, 64, 256, 16, 128, false, 4},
    {"wgmma.m64n256k32.s8", MatrixLayout::kWgmma, DType::kInt8, 64, 256, 32, 128, false, 4},
    {"wgmma.m64n256k32.e4m3", MatrixLayout::kWgmma, DType::kFloat8E4M3FN, 64, 256, 32, 128, false, 4},
};

}  // namespace sardonyx
