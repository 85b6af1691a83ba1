// Hopper's asynchronous matrix instructions (wgmma) for operands of 8 bits: d += A . B for 64 rows, N columns and K =
// 32, with sums in float32 for float8 e4m3 and in int32 for int8 (A
// may be uint8). Both operands are in shared memory with K contiguous,
// which these types require. In bytes, operands lie as those of 16 bits do, and sums as theirs.
//
// Sums of float8 are less precise than float32: the chip adds the 32 products of an instruction and d with their bits
// aligned to the largest of them, and keeps about 13 bits below that one's first (docs/precision.md).
//
// Source: PTX ISA, "Asynchronous Warpgroup Level Matrix Instructions", "Matrix multiply-accumulate operation using
// wgmma.mma_async instruction".
#pragma once
#include "gpu.h"

#if defined(__NVPTX__)
namespace sdx {
namespace gemm_detail {

#define SDX_FLOAT(i) "+f"(d[i])
#define SDX_INT(i) "+r"(d[i])
#define SDX_SUMS_8(C, i) C(i), C(i + 1), C(i + 2), C(i + 3), C(i + 4), C(i + 5), C(i + 6), C(i + 7)
#define SDX_SUMS_16(C) SDX_SUMS_8(C, 0), SDX_SUMS_8(C, 8)
#define SDX_SUMS_32(C) SDX_SUMS_16(C), SDX_SUMS_8(C, 16), SDX_SUMS_8(C, 24)
#define SDX_SUMS_64(C) SDX_SUMS_32(C), SDX_SUMS_8(C, 32), SDX_SUMS_8(C, 40), SDX_SUMS_8(C, 48), SDX_SUMS_8(C, 56)
#define SDX_SUMS_96(C) SDX_SUMS_64(C), SDX_SUMS_8(C, 64), SDX_SUMS_8(C, 72), SDX_SUMS_8(C, 80), SDX_SUMS_8(C, 88)
#define SDX_SUMS_128(C) SDX_SUMS_96(C), SDX_SUMS_8(C, 96), SDX_SUMS_8(C, 104), SDX_SUMS_8(C, 112), SDX_SUMS_8(C, 120)
#define SDX_NAMES_16 "%0, %1, %2, %3, %4, %5, %6, %7, %8, %9, %10, %11, %12, %13, %14, %15"
#define SDX_NAMES_32 \
  SDX_NAMES_16       \
  ", %16, %17, %18, %19, %20, %21, %22, %23, %24, %25, %26, %27, %28, %29, %30, %31"
#define SDX_NAMES_64                                                                 \
  SDX_NAMES_32                                                                       \
  ", %32, %33, %34, %35, %36, %37, %38, %39, %40, %41, %42, %43, %44, %45, %46, %47" \
  ", %48, %49, %50, %51, %52, %53, %54, %55, %56, %57, %58, %59, %60, %61, %62, %63"
#define SDX_NAMES_96                                                                 \
  SDX_NAMES_64                                                                       \
  ", %64, %65, %66, %67, %68, %69, %70, %71, %72, %73, %74, %75, %76, %77, %78, %79" \
  ", %80, %81, %82, %83, %84, %85, %86, %87, %88, %89, %90, %91, %92, %93, %94, %95"
#define SDX_NAMES_128                                                                            \
  SDX_NAMES_96                                                                                   \
  ", %96, %97, %98, %99, %100, %101, %102, %103, %104, %105, %106, %107, %108, %109, %110, %111" \
  ", %112, %113, %114, %115, %116, %117, %118, %119, %120, %121, %122, %123, %124, %125, %126, %127"

// Count: sums of a lane, N / 2. A, B: the numbers of the operands that are descriptors.
#define SDX_WGMMA(N, Count, A, B)                                                                                 \
  SDX_FN void wgmma_##N(f8e4m3fn*, u64 a, u64 b, f32* d) {                                                        \
    asm volatile("wgmma.mma_async.sync.aligned.m64n" #N "k32.f32.e4m3.e4m3 {" SDX_NAMES_##Count "}, " A ", " B    \
                                                                                                ", 1, 1, 1;"      \
                 : SDX_SUMS_##Count(SDX_FLOAT)                                                                    \
                 : "l"(a), "l"(b)                                                                                 \
                 : "memory");                                                                                     \
  }                                                                                                               \
  SDX_FN void wgmma_##N(i8*, u64 a, u64 b, i32* d) {                                                              \
    asm volatile("wgmma.mma_async.sync.aligned.m64n" #N "k32.s32.s8.s8 {" SDX_NAMES_##Count "}, " A ", " B ", 1;" \
                 : SDX_SUMS_##Count(SDX_INT)                                                                      \
                 : "l"(a), "l"(b)                                                                                 \
                 : "memory");                                                                                     \
  }                                                                                                               \
  SDX_FN void wgmma_##N(u8*, u64 a, u64 b, i32* d) {                                                              \
    asm volatile("wgmma.mma_async.sync.aligned.m64n" #N "k32.s32.u8.s8 {" SDX_NAMES_##Count "}, " A ", " B ", 1;" \
                 : SDX_SUMS_##Count(SDX_INT)                                                                      \
                 : "l"(a), "l"(b)                                                                                 \
                 : "memory");                                                                                     \
  }

SDX_WGMMA(32, 16, "%16", "%17")
SDX_WGMMA(64, 32, "%32", "%33")
SDX_WGMMA(128, 64, "%64", "%65")
SDX_WGMMA(192, 96, "%96", "%97")
SDX_WGMMA(256, 128, "%128", "%129")

#undef SDX_WGMMA
#undef SDX_SUMS_16
#undef SDX_NAMES_16
#undef SDX_SUMS_32
#undef SDX_NAMES_32
#undef SDX_SUMS_64
#undef SDX_NAMES_64
#undef SDX_SUMS_96
#undef SDX_NAMES_96
#undef SDX_SUMS_128
#undef SDX_NAMES_128
#undef SDX_SUMS_8
#undef SDX_FLOAT
#undef SDX_INT

}  // namespace gemm_detail
}  // namespace sdx
#endif
