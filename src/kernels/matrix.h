// Matrix instructions of every chip behind one interface: Matrix<T> multiplies 16 x 16 tiles with accumulators in
// float32 (int32 for 8-bit integers), one tile per wave. The code calls accumulators sums. Tables below say which
// instruction a chip has for a type and where elements lie in its registers (MATRIX_OPERANDS, MATRIX_SUMS and one
// product() per chip). Chips and types without matrix instructions have rows in them too; their product() is vector
// arithmetic.
//
// A step multiplies a tile of A, 16 rows by kStep of K, with one of B, 16 columns by kStep of K. Both lie in memory
// with K contiguous, and each lane reads vectors of 16 bytes: vector v of row slot r comes from row row_a(lane, r), at
// K index k_at(lane, v). The order of K does not matter to the sums. So each lane loads contiguous K elements, which is
// not the order in the instruction's documentation, but the same one for A and B.
//
// Sources: AMD Instinct MI200/MI300/CDNA4 ISA, "Matrix Arithmetic Instructions"; RDNA3 and RDNA4 ISA, "Wave Matrix
// Multiply Accumulate"; PTX ISA, "mma.m16n8k16", "mma.m16n8k32", "movmatrix".
#pragma once
#include "gpu.h"

namespace sdx {

/// 16 bytes in registers.
using vec16 = u32 __attribute__((ext_vector_type(4)));
template <class T, int N>
using vec = T __attribute__((ext_vector_type(N)));

/// Marks x as uniform: the same in all lanes of a wave.
SDX_FN u32 uniform(u32 x) {
#if defined(__AMDGCN__)
  return __builtin_amdgcn_readfirstlane(x);
#else
  return x;
#endif
}

// ---- which family of layouts this chip has for type T. The compiler defines SDX_MATRIX_... from the table of matrix
// instructions (target/matrix_instructions.h); its value is the K of the instruction for that type.
enum class MatrixFamily { kVector, kMfma, kWmma11, kWmma12, kMma };

template <class T>
consteval int matrix_k() {
  int k = 0;
#if defined(SDX_MATRIX_F32)
  if (is_same<T, f32>) k = SDX_MATRIX_F32;
#endif
#if defined(SDX_MATRIX_F16)
  if (is_same<T, f16>) k = SDX_MATRIX_F16;
#endif
#if defined(SDX_MATRIX_BF16)
  if (is_same<T, bf16>) k = SDX_MATRIX_BF16;
#endif
#if defined(SDX_MATRIX_I8)
  if (is_same<T, i8>) k = SDX_MATRIX_I8;
#if defined(__NVPTX__)
  if (is_same<T, u8>) k = SDX_MATRIX_I8;
#endif
#endif
#if defined(SDX_MATRIX_F8_FNUZ)
  if (is_same<T, f8e4m3fnuz> || is_same<T, f8e5m2fnuz>) k = SDX_MATRIX_F8_FNUZ;
#endif
#if defined(SDX_MATRIX_F8_OCP)
  if (is_same<T, f8e4m3fn> || is_same<T, f8e5m2>) k = SDX_MATRIX_F8_OCP;
#endif
  return k;
}

template <class T>
consteval MatrixFamily matrix_family() {
#if defined(SDX_MATRIX_LAYOUT)
  if (matrix_k<T>() > 0) return MatrixFamily::SDX_MATRIX_LAYOUT;
#endif
  return MatrixFamily::kVector;
}

/// Instructions that multiply `step` of K, where the chip has matrix instructions for T.
template <class T>
consteval int matrix_instructions(int step) {
  return matrix_k<T>() > 0 ? step / matrix_k<T>() : 1;
}

/// How a wave's lanes hold an operand: `rows` row slots of `vectors` vectors of 16 bytes a lane. Slot r of a lane is
/// row (lane / row_divisor % row_lanes) + r * row_stride; its vectors start at k = (lane / k_divisor % k_lanes + v *
/// k_lanes) vectors.
struct OperandLayout {
  int rows, vectors, row_divisor, row_lanes, row_stride, k_divisor, k_lanes;
};
/// How a wave's lanes hold accumulators: element e of a lane is at row lane / row_divisor % row_lanes * row_scale + e /
/// row_div % row_count * row_step, at column lane / col_divisor % col_lanes * col_scale + e % col_mod * col_step + e /
/// 4 * col_high.
struct AccLayout {
  int count, row_divisor, row_lanes, row_scale, col_divisor, col_lanes, col_scale, row_div, row_count, row_step,
      col_mod, col_step, col_high;
};

consteval OperandLayout matrix_operand(MatrixFamily f, bool is_a, bool bytes8) {
  switch (f) {
      //                    rows vectors row_divisor row_lanes row_stride k_divisor k_lanes
    case MatrixFamily::kMfma:
      return {1, 1, 1, 16, 0, 16, 4};
    case MatrixFamily::kWmma11:  // lanes 16 to 31 repeat lanes 0 to 15
      return {1, bytes8 ? 1 : 2, 1, 16, 0, 1, 1};
    case MatrixFamily::kWmma12:
      return {1, 1, 1, 16, 0, 16, 2};
    case MatrixFamily::kMma:
      return {2, 1, 4, 8, 8, 1, 4};
    case MatrixFamily::kVector:  // lanes form a grid of 8 columns
      if (is_a) return {kWave == 64 ? 2 : 4, 1, 8, kWave / 8, kWave / 8, 1, 1};
      return {2, 1, 1, 8, 8, 1, 1};
  }
}

consteval AccLayout acc_layout(MatrixFamily f) {
  switch (f) {
      //      count | row by lane | column by lane | row by element | column by element
    case MatrixFamily::kMfma:
      return {4, 16, 4, 4, 1, 16, 1, 1, 4, 1, 1, 0, 0};
    case MatrixFamily::kWmma11:
      return {8, 16, 2, 1, 1, 16, 1, 1, 8, 2, 1, 0, 0};
    case MatrixFamily::kWmma12:
      return {8, 16, 2, 8, 1, 16, 1, 1, 8, 1, 1, 0, 0};
    case MatrixFamily::kMma:  // two instructions of 8 columns each
      return {8, 4, 8, 1, 1, 4, 2, 2, 2, 8, 2, 1, 8};
    case MatrixFamily::kVector:  // element e: row slot e / 2, column slot e % 2
      return {kWave == 64 ? 4 : 8, 8, kWave / 8, 1, 1, 8, 1, 2, 4, kWave / 8, 2, 8, 0};
  }
}

template <class T>
struct Matrix {
  static constexpr MatrixFamily kFamily = matrix_family<T>();
  static constexpr OperandLayout kA = matrix_operand(kFamily, true, sizeof(T) == 1),
                                 kB = matrix_operand(kFamily, false, sizeof(T) == 1);
  static constexpr AccLayout kAcc = acc_layout(kFamily);
  /// Elements in 16 bytes; K of a step; sums per lane; vectors of 16 bytes of A and of B per lane.
  static constexpr int kVec = 16 / sizeof(T), kStep = kVec * kA.k_lanes * kA.vectors, kCount = kAcc.count;
  static constexpr int kVectorsA = kA.rows * kA.vectors, kVectorsB = kB.rows * kB.vectors;
  using Acc = select_type<is_int<T>, i32, f32>;
  /// Matrix instructions of a product.
  static constexpr int kInstructions = matrix_instructions<T>(kStep);
  /// A lane's sums, sums[e]. LLVM takes a third less time for vectors than for arrays, whose elements it moves singly.
  using Sums =
      select_type<kFamily == MatrixFamily::kVector || kFamily == MatrixFamily::kMma, Acc[kCount], vec<Acc, kCount>>;

  // v counts a lane's vectors: it is vector v % vectors of row slot v / vectors.
  static SDX_FN u32 row_a(u32 lane, u32 v) { return row(kA, lane, v); }
  static SDX_FN u32 row_b(u32 lane, u32 v) { return row(kB, lane, v); }
  /// In vectors of 16 bytes from the step's first k; the same for A and B.
  static SDX_FN u32 chunk(u32 lane, u32 v) { return lane / kA.k_divisor % kA.k_lanes + v % kA.vectors * kA.k_lanes; }
  static SDX_FN u32 acc_row(u32 lane, u32 e) {
    return lane / kAcc.row_divisor % kAcc.row_lanes * kAcc.row_scale +
           e / kAcc.row_div % kAcc.row_count * kAcc.row_step;
  }
  static SDX_FN u32 acc_col(u32 lane, u32 e) {
    return lane / kAcc.col_divisor % kAcc.col_lanes * kAcc.col_scale + e % kAcc.col_mod * kAcc.col_step +
           e / 4 * kAcc.col_high;
  }

  /// sums += A . B over one step.
  static SDX_FN void mma(const vec16 (&a)[kVectorsA], const vec16 (&b)[kVectorsB], Acc (&acc)[kCount]);
  static SDX_FN void mma(const vec16 (&a)[kVectorsA], const vec16 (&b)[kVectorsB], vec<Acc, kCount>& c);

 private:
  static SDX_FN u32 row(const OperandLayout& o, u32 lane, u32 v) {
    return lane / o.row_divisor % o.row_lanes + v / o.vectors * o.row_stride;
  }
};

// ---- instructions
namespace detail {

// Multiply-accumulate of 16 bytes of A with 16 bytes of B, for types without matrix instructions.
template <class T>
SDX_FN f32 dot16(vec16 a, vec16 b, f32 sum) {
#if defined(__AMDGCN__)
  if constexpr (is_same<T, f16>) {
    for (int k = 0; k < 4; ++k)
      sum = __builtin_amdgcn_fdot2(bit_cast<vec<f16, 2>>(a[k]), bit_cast<vec<f16, 2>>(b[k]), sum, false);
    return sum;
  }
#endif
#if SDX_MATRIX_F16 == 32 || defined(__GFX11__) || defined(__GFX12__)
  if constexpr (is_same<T, bf16>) {
    for (int k = 0; k < 4; ++k)
      sum = __builtin_amdgcn_fdot2_f32_bf16(bit_cast<vec<__bf16, 2>>(a[k]), bit_cast<vec<__bf16, 2>>(b[k]), sum, false);
    return sum;
  }
#endif
  struct Elements {
    T x[16 / sizeof(T)];
  };
  const Elements x = bit_cast<Elements>(a), y = bit_cast<Elements>(b);
  for (u32 k = 0; k < 16 / sizeof(T); ++k) sum = __builtin_fmaf(cast<f32>(x.x[k]), cast<f32>(y.x[k]), sum);
  return sum;
}
// T: i8, or u8 where only the elements of a are unsigned.
template <class T>
SDX_FN i32 dot16_int(vec16 a, vec16 b, i32 sum) {
#if defined(__GFX10__)
  for (int k = 0; k < 4; ++k) sum = __builtin_amdgcn_sdot4(i32(a[k]), i32(b[k]), sum, false);
#else
  struct Left {
    T x[16];
  };
  struct Right {
    i8 x[16];
  };
  const auto x = bit_cast<Left>(a);
  const auto y = bit_cast<Right>(b);
  for (int k = 0; k < 16; ++k) sum += i32(x.x[k]) * i32(y.x[k]);
#endif
  return sum;
}

template <class T>
SDX_FN void vector_mma(const vec16* a, const vec16* b, auto* acc) {
  using M = Matrix<T>;
  for (int r = 0; r < M::kA.rows; ++r)
    for (int c = 0; c < M::kB.rows; ++c) {
      auto& s = acc[r * 2 + c];
      if constexpr (is_int<T>)
        s = dot16_int<T>(a[r], b[c], s);
      else
        s = dot16<T>(a[r], b[c], s);
    }
}

#if defined(__GFX9__)
template <class T>
SDX_FN vec<f32, 4> mfma(vec16 a, vec16 b, vec<f32, 4> c) {
  if constexpr (is_same<T, f32>) {
    for (int k = 0; k < 4; ++k)
      c = __builtin_amdgcn_mfma_f32_16x16x4f32(bit_cast<f32>(u32(a[k])), bit_cast<f32>(u32(b[k])), c, 0, 0, 0);
  }
#if SDX_MATRIX_F16 == 32
  else if constexpr (is_same<T, f16>)
    c = __builtin_amdgcn_mfma_f32_16x16x32_f16(bit_cast<vec<f16, 8>>(a), bit_cast<vec<f16, 8>>(b), c, 0, 0, 0);
  else if constexpr (is_same<T, bf16>)
    c = __builtin_amdgcn_mfma_f32_16x16x32_bf16(bit_cast<vec<__bf16, 8>>(a), bit_cast<vec<__bf16, 8>>(b), c, 0, 0, 0);
#else
  else if constexpr (is_same<T, f16>) {
    const auto x = bit_cast<vec<f16, 8>>(a), y = bit_cast<vec<f16, 8>>(b);
    c = __builtin_amdgcn_mfma_f32_16x16x16f16(x.lo, y.lo, c, 0, 0, 0);
    c = __builtin_amdgcn_mfma_f32_16x16x16f16(x.hi, y.hi, c, 0, 0, 0);
  } else if constexpr (is_same<T, bf16>) {
    const auto x = bit_cast<vec<i16, 8>>(a), y = bit_cast<vec<i16, 8>>(b);
    c = __builtin_amdgcn_mfma_f32_16x16x16bf16_1k(x.lo, y.lo, c, 0, 0, 0);
    c = __builtin_amdgcn_mfma_f32_16x16x16bf16_1k(x.hi, y.hi, c, 0, 0, 0);
  }
#endif
#if defined(SDX_MATRIX_F8_FNUZ) || defined(SDX_MATRIX_F8_OCP)
  else {
    const auto x = bit_cast<vec<i64, 2>>(a), y = bit_cast<vec<i64, 2>>(b);
    for (int k = 0; k < 2; ++k) {
      if constexpr (is_same<T, f8e4m3fn> || is_same<T, f8e4m3fnuz>)
        c = __builtin_amdgcn_mfma_f32_16x16x32_fp8_fp8(x[k], y[k], c, 0, 0, 0);
      else
        c = __builtin_amdgcn_mfma_f32_16x16x32_bf8_bf8(x[k], y[k], c, 0, 0, 0);
    }
  }
#endif
  return c;
}
SDX_FN vec<i32, 4> mfma_int(vec16 a, vec16 b, vec<i32, 4> c) {
#if SDX_MATRIX_I8 == 16
  for (int k = 0; k < 4; ++k) c = __builtin_amdgcn_mfma_i32_16x16x16i8(i32(a[k]), i32(b[k]), c, 0, 0, 0);
#else
  const auto x = bit_cast<vec<i64, 2>>(a), y = bit_cast<vec<i64, 2>>(b);
  for (int k = 0; k < 2; ++k) c = __builtin_amdgcn_mfma_i32_16x16x32_i8(x[k], y[k], c, 0, 0, 0);
#endif
  return c;
}
#elif defined(__GFX11__)
template <class T>
SDX_FN vec<f32, 8> wmma(vec16 a0, vec16 a1, vec16 b0, vec16 b1, vec<f32, 8> c) {
  struct Pair {
    vec16 x, y;
  };
  if constexpr (is_same<T, f16>)
    return __builtin_amdgcn_wmma_f32_16x16x16_f16_w32(bit_cast<vec<f16, 16>>(Pair{a0, a1}),
                                                      bit_cast<vec<f16, 16>>(Pair{b0, b1}), c);
  else
    return __builtin_amdgcn_wmma_f32_16x16x16_bf16_w32(bit_cast<vec<i16, 16>>(Pair{a0, a1}),
                                                       bit_cast<vec<i16, 16>>(Pair{b0, b1}), c);
}
#elif defined(__GFX12__)
template <class T>
SDX_FN vec<f32, 8> wmma(vec16 a, vec16 b, vec<f32, 8> c) {
  if constexpr (is_same<T, f16>)
    return __builtin_amdgcn_wmma_f32_16x16x16_f16_w32_gfx12(bit_cast<vec<f16, 8>>(a), bit_cast<vec<f16, 8>>(b), c);
  else if constexpr (is_same<T, bf16>)
    return __builtin_amdgcn_wmma_f32_16x16x16_bf16_w32_gfx12(bit_cast<vec<i16, 8>>(a), bit_cast<vec<i16, 8>>(b), c);
  else {
    const auto x = bit_cast<vec<i32, 4>>(a), y = bit_cast<vec<i32, 4>>(b);
    if constexpr (is_same<T, f8e4m3fn>) {
      c = __builtin_amdgcn_wmma_f32_16x16x16_fp8_fp8_w32_gfx12(x.lo, y.lo, c);
      return __builtin_amdgcn_wmma_f32_16x16x16_fp8_fp8_w32_gfx12(x.hi, y.hi, c);
    } else {
      c = __builtin_amdgcn_wmma_f32_16x16x16_bf8_bf8_w32_gfx12(x.lo, y.lo, c);
      return __builtin_amdgcn_wmma_f32_16x16x16_bf8_bf8_w32_gfx12(x.hi, y.hi, c);
    }
  }
}
#elif defined(__NVPTX__)
// Four float8 as two pairs of float16.
SDX_FN void to_halves(u32 x, u32& low, u32& high) {
  asm("{\n\t.reg .b16 l, h;\n\tmov.b32 {l, h}, %2;\n\tcvt.rn.f16x2.e4m3x2 %0, l;\n\tcvt.rn.f16x2.e4m3x2 %1, h;\n\t}"
      : "=r"(low), "=r"(high)
      : "r"(x));
}

// Transposes an 8 x 8 matrix of 16-bit elements, two in each lane.
SDX_FN u32 transposed(u32 x) {
  u32 y;
  asm("movmatrix.sync.aligned.m8n8.trans.b16 %0, %1;" : "=r"(y) : "r"(x));
  return y;
}

// a0..a3: rows lane / 4 and lane / 4 + 8, for the low and then the high half of K; b0, b1: low and high half of K.
template <class T>
SDX_FN void mma(u32 a0, u32 a1, u32 a2, u32 a3, u32 b0, u32 b1, auto& c0, auto& c1, auto& c2, auto& c3) {
  if constexpr (is_same<T, f16>)
    asm("mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32 {%0,%1,%2,%3}, {%4,%5,%6,%7}, {%8,%9}, {%0,%1,%2,%3};"
        : "+f"(c0), "+f"(c1), "+f"(c2), "+f"(c3)
        : "r"(a0), "r"(a1), "r"(a2), "r"(a3), "r"(b0), "r"(b1));
  else if constexpr (is_same<T, bf16>)
    asm("mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 {%0,%1,%2,%3}, {%4,%5,%6,%7}, {%8,%9}, {%0,%1,%2,%3};"
        : "+f"(c0), "+f"(c1), "+f"(c2), "+f"(c3)
        : "r"(a0), "r"(a1), "r"(a2), "r"(a3), "r"(b0), "r"(b1));
  else if constexpr (is_same<T, u8>)
    asm("mma.sync.aligned.m16n8k32.row.col.s32.u8.s8.s32 {%0,%1,%2,%3}, {%4,%5,%6,%7}, {%8,%9}, {%0,%1,%2,%3};"
        : "+r"(c0), "+r"(c1), "+r"(c2), "+r"(c3)
        : "r"(a0), "r"(a1), "r"(a2), "r"(a3), "r"(b0), "r"(b1));
  else
    asm("mma.sync.aligned.m16n8k32.row.col.s32.s8.s8.s32 {%0,%1,%2,%3}, {%4,%5,%6,%7}, {%8,%9}, {%0,%1,%2,%3};"
        : "+r"(c0), "+r"(c1), "+r"(c2), "+r"(c3)
        : "r"(a0), "r"(a1), "r"(a2), "r"(a3), "r"(b0), "r"(b1));
}
#endif

}  // namespace detail

#if defined(__AMDGCN__)
template <class T>
SDX_FN void Matrix<T>::mma(const vec16 (&a)[kVectorsA], const vec16 (&b)[kVectorsB], vec<Acc, kCount>& c) {
#if defined(__GFX9__)
  if constexpr (is_int<T>)
    c = detail::mfma_int(a[0], b[0], c);
  else
    c = detail::mfma<T>(a[0], b[0], c);
#elif defined(__GFX11__)
  if constexpr (is_int<T>)
    c = __builtin_amdgcn_wmma_i32_16x16x16_iu8_w32(true, bit_cast<vec<i32, 4>>(a[0]), true, bit_cast<vec<i32, 4>>(b[0]),
                                                   c, false);
  else
    c = detail::wmma<T>(a[0], a[kVectorsA - 1], b[0], b[kVectorsB - 1], c);
#elif defined(__GFX12__)
  if constexpr (is_int<T>) {
    const auto x = bit_cast<vec<i32, 4>>(a[0]), y = bit_cast<vec<i32, 4>>(b[0]);
    c = __builtin_amdgcn_wmma_i32_16x16x16_iu8_w32_gfx12(true, x.lo, true, y.lo, c, false);
    c = __builtin_amdgcn_wmma_i32_16x16x16_iu8_w32_gfx12(true, x.hi, true, y.hi, c, false);
  } else {
    c = detail::wmma<T>(a[0], b[0], c);
  }
#endif
}
#endif

// Not by the function above: the loops of attention on CDNA 3 would then wait for memory.
template <class T>
SDX_FN void Matrix<T>::mma(const vec16 (&a)[kVectorsA], const vec16 (&b)[kVectorsB], Acc (&acc)[kCount]) {
  if constexpr (kFamily == MatrixFamily::kVector) {
    detail::vector_mma<T>(a, b, acc);
    return;
  }
#if defined(__GFX9__)
  else {
    vec<Acc, 4> c = {acc[0], acc[1], acc[2], acc[3]};
    if constexpr (is_int<T>)
      c = detail::mfma_int(a[0], b[0], c);
    else
      c = detail::mfma<T>(a[0], b[0], c);
    for (int e = 0; e < 4; ++e) acc[e] = c[e];
  }
#elif defined(__GFX11__) || defined(__GFX12__)
  else {
    vec<Acc, 8> c;
    for (int e = 0; e < 8; ++e) c[e] = acc[e];
#if defined(__GFX11__)
    if constexpr (is_int<T>)
      c = __builtin_amdgcn_wmma_i32_16x16x16_iu8_w32(true, bit_cast<vec<i32, 4>>(a[0]), true,
                                                     bit_cast<vec<i32, 4>>(b[0]), c, false);
    else
      c = detail::wmma<T>(a[0], a[kVectorsA - 1], b[0], b[kVectorsB - 1], c);
#else
    if constexpr (is_int<T>) {
      const auto x = bit_cast<vec<i32, 4>>(a[0]), y = bit_cast<vec<i32, 4>>(b[0]);
      c = __builtin_amdgcn_wmma_i32_16x16x16_iu8_w32_gfx12(true, x.lo, true, y.lo, c, false);
      c = __builtin_amdgcn_wmma_i32_16x16x16_iu8_w32_gfx12(true, x.hi, true, y.hi, c, false);
    } else {
      c = detail::wmma<T>(a[0], b[0], c);
    }
#endif
    for (int e = 0; e < 8; ++e) acc[e] = c[e];
  }
#elif defined(__NVPTX__)
  else {
    if constexpr (is_same<T, f8e4m3fn>) {
      // Products of float8 are exact in float16's instruction. Each word of 4 elements is one of its steps.
      for (int s = 0; s < 4; ++s) {
        u32 a0, a1, a2, a3, b0, b1;
        detail::to_halves(a[0][s], a0, a2);
        detail::to_halves(a[1][s], a1, a3);
        for (int h = 0; h < 2; ++h) {
          detail::to_halves(b[h][s], b0, b1);
          detail::mma<f16>(a0, a1, a2, a3, b0, b1, acc[4 * h], acc[4 * h + 1], acc[4 * h + 2], acc[4 * h + 3]);
        }
      }
      return;
    }
    for (int h = 0; h < 2; ++h)
      for (int s = 0; s < 2; ++s)
        detail::mma<T>(a[0][2 * s], a[1][2 * s], a[0][2 * s + 1], a[1][2 * s + 1], b[h][2 * s], b[h][2 * s + 1],
                       acc[4 * h], acc[4 * h + 1], acc[4 * h + 2], acc[4 * h + 3]);
  }
#endif
}

}  // namespace sdx
