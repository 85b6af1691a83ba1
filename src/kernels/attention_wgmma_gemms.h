// The wgmma instructions of Hopper that attention needs: 64 rows per warpgroup, the left operand in registers or shared
// memory, the right one in shared memory with either its columns or K contiguous. Source: PTX ISA, "Asynchronous
// Warpgroup Level Matrix Instructions": "Register Fragments", "Matrix Descriptor Format", "Strides".
#pragma once
#include "gemm_wgmma.h"

#if defined(__NVPTX__)
namespace sdx {
namespace detail {

#define SDX_FLOATS_16 "%0, %1, %2, %3, %4, %5, %6, %7, %8, %9, %10, %11, %12, %13, %14, %15"
#define SDX_FLOATS_24 SDX_FLOATS_16 ", %16, %17, %18, %19, %20, %21, %22, %23"
#define SDX_FLOATS_32                                                                                         \
  "%0, %1, %2, %3, %4, %5, %6, %7, %8, %9, %10, %11, %12, %13, %14, %15, %16, %17, %18, %19, %20, %21, %22, " \
  "%23, %24, %25, %26, %27, %28, %29, %30, %31"
#define SDX_FLOATS_40 SDX_FLOATS_32 ", %32, %33, %34, %35, %36, %37, %38, %39"
#define SDX_FLOATS_48 SDX_FLOATS_40 ", %40, %41, %42, %43, %44, %45, %46, %47"
#define SDX_FLOATS_64                                                                                           \
  SDX_FLOATS_32                                                                                                 \
  ", %32, %33, %34, %35, %36, %37, %38, %39, %40, %41, %42, %43, %44, %45, %46, %47, %48, %49, %50, %51, %52, " \
  "%53, %54, %55, %56, %57, %58, %59, %60, %61, %62, %63"
#define SDX_SUMS_8(C, i) \
  C(d[i]), C(d[i + 1]), C(d[i + 2]), C(d[i + 3]), C(d[i + 4]), C(d[i + 5]), C(d[i + 6]), C(d[i + 7])
#define SDX_SUMS_16(C, i) SDX_SUMS_8(C, i), SDX_SUMS_8(C, i + 8)
#define SDX_SUMS_24(C, i) SDX_SUMS_16(C, i), SDX_SUMS_8(C, i + 16)
#define SDX_SUMS_32(C, i) SDX_SUMS_8(C, i), SDX_SUMS_8(C, i + 8), SDX_SUMS_8(C, i + 16), SDX_SUMS_8(C, i + 24)
#define SDX_SUMS_40(C, i) SDX_SUMS_32(C, i), SDX_SUMS_8(C, i + 32)
#define SDX_SUMS_48(C, i) SDX_SUMS_32(C, i), SDX_SUMS_16(C, i + 32)
#define SDX_SUMS_64(C, i) SDX_SUMS_32(C, i), SDX_SUMS_32(C, i + 32)
// The accumulator is only written (by the first instruction of a sum), or added to.
#define SDX_NEW "=f"
#define SDX_ADD "+f"

// OPERANDS: text of the operands after the sums, up to and including the descriptor of the right one. The last number
// is kTransposed: whether the columns of the right operand are contiguous.
#define SDX_WGMMA_TEXT(N, TYPE, SUMS, OPERANDS, SCALES) \
  "wgmma.mma_async.sync.aligned.m64n" #N "k16.f32." TYPE "." TYPE " {" SUMS "}, " OPERANDS ", " SCALES ";"
#define SDX_WGMMA_BOTH(N, SUMS, COUNT, C, OPERANDS, SCALES, ...)                                           \
  if constexpr (is_same<T, f16>)                                                                           \
    asm volatile(SDX_WGMMA_TEXT(N, "f16", SUMS, OPERANDS, SCALES) : COUNT(C, 0) : __VA_ARGS__ : "memory"); \
  else                                                                                                     \
    asm volatile(SDX_WGMMA_TEXT(N, "bf16", SUMS, OPERANDS, SCALES) : COUNT(C, 0) : __VA_ARGS__ : "memory")

/// d (+)= A . B for 64 rows, N columns and K = 16, both in shared memory with K contiguous.
template <class T, int N, bool kFirst>
SDX_FN void wgmma_shared(u64 a, u64 b, f32* d) {
  static_assert(N == 64 || N == 128);
  if constexpr (N == 64 && kFirst) {
    SDX_WGMMA_BOTH(64, SDX_FLOATS_32, SDX_SUMS_32, SDX_NEW, "%32, %33", "0, 1, 1, 0, 0", "l"(a), "l"(b));
  } else if constexpr (N == 64) {
    SDX_WGMMA_BOTH(64, SDX_FLOATS_32, SDX_SUMS_32, SDX_ADD, "%32, %33", "1, 1, 1, 0, 0", "l"(a), "l"(b));
  } else if constexpr (kFirst) {
    SDX_WGMMA_BOTH(128, SDX_FLOATS_64, SDX_SUMS_64, SDX_NEW, "%64, %65", "0, 1, 1, 0, 0", "l"(a), "l"(b));
  } else {
    SDX_WGMMA_BOTH(128, SDX_FLOATS_64, SDX_SUMS_64, SDX_ADD, "%64, %65", "1, 1, 1, 0, 0", "l"(a), "l"(b));
  }
}

#define SDX_LEFT "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "l"(b)
/// The same with A in registers: rows lane / 4 and + 8 of a wave's 16 rows at k = lane % 4 * 2, then both at k + 8.
template <class T, int N, bool kFirst>
SDX_FN void wgmma_left(const u32* a, u64 b, f32* d) {
  static_assert(N == 64 || N == 128 || (N == 32 && !kFirst));
  if constexpr (N == 32) {
    SDX_WGMMA_BOTH(32, SDX_FLOATS_16, SDX_SUMS_16, SDX_ADD, "{%16, %17, %18, %19}, %20", "1, 1, 1, 0", SDX_LEFT);
  } else if constexpr (N == 64 && kFirst) {
    SDX_WGMMA_BOTH(64, SDX_FLOATS_32, SDX_SUMS_32, SDX_NEW, "{%32, %33, %34, %35}, %36", "0, 1, 1, 0", SDX_LEFT);
  } else if constexpr (N == 64) {
    SDX_WGMMA_BOTH(64, SDX_FLOATS_32, SDX_SUMS_32, SDX_ADD, "{%32, %33, %34, %35}, %36", "1, 1, 1, 0", SDX_LEFT);
  } else if constexpr (kFirst) {
    SDX_WGMMA_BOTH(128, SDX_FLOATS_64, SDX_SUMS_64, SDX_NEW, "{%64, %65, %66, %67}, %68", "0, 1, 1, 0", SDX_LEFT);
  } else {
    SDX_WGMMA_BOTH(128, SDX_FLOATS_64, SDX_SUMS_64, SDX_ADD, "{%64, %65, %66, %67}, %68", "1, 1, 1, 0", SDX_LEFT);
  }
}
/// The same, with columns of B contiguous (see wgmma_columns).
template <class T, int N>
SDX_FN void wgmma_left_columns(const u32* a, u64 b, f32* d) {
  static_assert(N == 32 || N == 48 || N == 64 || N == 80 || N == 96 || N == 128);
  if constexpr (N == 32) {
    SDX_WGMMA_BOTH(32, SDX_FLOATS_16, SDX_SUMS_16, SDX_ADD, "{%16, %17, %18, %19}, %20", "1, 1, 1, 1", SDX_LEFT);
  } else if constexpr (N == 48) {
    SDX_WGMMA_BOTH(48, SDX_FLOATS_24, SDX_SUMS_24, SDX_ADD, "{%24, %25, %26, %27}, %28", "1, 1, 1, 1", SDX_LEFT);
  } else if constexpr (N == 64) {
    SDX_WGMMA_BOTH(64, SDX_FLOATS_32, SDX_SUMS_32, SDX_ADD, "{%32, %33, %34, %35}, %36", "1, 1, 1, 1", SDX_LEFT);
  } else if constexpr (N == 80) {
    SDX_WGMMA_BOTH(80, SDX_FLOATS_40, SDX_SUMS_40, SDX_ADD, "{%40, %41, %42, %43}, %44", "1, 1, 1, 1", SDX_LEFT);
  } else if constexpr (N == 96) {
    SDX_WGMMA_BOTH(96, SDX_FLOATS_48, SDX_SUMS_48, SDX_ADD, "{%48, %49, %50, %51}, %52", "1, 1, 1, 1", SDX_LEFT);
  } else {
    SDX_WGMMA_BOTH(128, SDX_FLOATS_64, SDX_SUMS_64, SDX_ADD, "{%64, %65, %66, %67}, %68", "1, 1, 1, 1", SDX_LEFT);
  }
}
#undef SDX_LEFT
#undef SDX_WGMMA_BOTH
#undef SDX_WGMMA_TEXT
#undef SDX_ADD
#undef SDX_NEW
#undef SDX_SUMS_64
#undef SDX_SUMS_24
#undef SDX_SUMS_40
#undef SDX_SUMS_48
#undef SDX_SUMS_32
#undef SDX_SUMS_16
#undef SDX_SUMS_8
#undef SDX_FLOATS_64
#undef SDX_FLOATS_24
#undef SDX_FLOATS_40
#undef SDX_FLOATS_48
#undef SDX_FLOATS_32
#undef SDX_FLOATS_16

/// wgmma is asynchronous. Its results may be used after a wait and then a call of this function, across which the
/// compiler does not move their uses.
template <int N>
SDX_FN void wgmma_arrived(f32* d) {
#pragma clang loop unroll(full)
  for (int i = 0; i < N; ++i) asm volatile("" : "+f"(d[i]));
}

}  // namespace detail
}  // namespace sdx
#endif
