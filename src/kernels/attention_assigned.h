// Instructions of attention_direct.h that the compiler does not know: loads straight to LDS, and matrix instructions
// whose accumulators are assigned explicitly.
#pragma once
#include "attention_tiles.h"

#if defined(SDX_LOADS_TO_LDS)

#define SDX_ATTENTION_ACCUMULATORS                                                                                    \
  "a0", "a1", "a2", "a3", "a4", "a5", "a6", "a7", "a8", "a9", "a10", "a11", "a12", "a13", "a14", "a15", "a16", "a17", \
      "a18", "a19", "a20", "a21", "a22", "a23", "a24", "a25", "a26", "a27", "a28", "a29", "a30", "a31", "a32", "a33", \
      "a34", "a35", "a36", "a37", "a38", "a39", "a40", "a41", "a42", "a43", "a44", "a45", "a46", "a47", "a48", "a49", \
      "a50", "a51", "a52", "a53", "a54", "a55", "a56", "a57", "a58", "a59", "a60", "a61", "a62", "a63", "a64", "a65", \
      "a66", "a67", "a68", "a69", "a70", "a71", "a72", "a73", "a74", "a75", "a76", "a77", "a78", "a79", "a80", "a81", \
      "a82", "a83", "a84", "a85", "a86", "a87", "a88", "a89", "a90", "a91", "a92", "a93", "a94", "a95", "a96", "a97", \
      "a98", "a99", "a100", "a101", "a102", "a103", "a104", "a105", "a106", "a107", "a108", "a109", "a110", "a111",   \
      "a112", "a113", "a114", "a115", "a116", "a117", "a118", "a119", "a120", "a121", "a122", "a123", "a124", "a125", \
      "a126", "a127"

namespace sdx::detail {

/// Starts a load of 16 bytes a lane to LDS at `to` + Offset, the address of the wave's first lane. The compiler does
/// not count these loads: loads_arrived() waits for them.
template <u32 Offset>
SDX_FN void load_to_lds(const void* from, u32 to) {
  // One wait state between the write to M0 and its use (CDNA 4 ISA, "Manually Inserted Wait States").
  asm volatile("s_add_u32 m0, %1, %2\n\ts_nop 0\n\tglobal_load_lds_dwordx4 %0, off"
               :
               : "v"(from), "s"(to), "n"(Offset)
               : "m0", "scc");
}
/// The same from `from` + `offset` bytes, the former being the same for all lanes.
template <u32 Offset>
SDX_FN void load_to_lds(const void* from, u32 offset, u32 to) {
  asm volatile("s_add_u32 m0, %2, %3\n\ts_nop 0\n\tglobal_load_lds_dwordx4 %0, %1"
               :
               : "v"(offset), "s"(from), "s"(to), "n"(Offset)
               : "m0", "scc");
}
/// Waits until at most N of this wave's loads are on their way.
template <int N>
SDX_FN void loads_arrived() {
  asm volatile("s_waitcnt vmcnt(%0)" : : "n"(N) : "memory");
}

/// Calls f<0>() to f<N - 1>().
template <int N, int First = 0, class F>
SDX_FN void each(const F& f) {
  if constexpr (N - First == 1) {
    f.template operator()<First>();
  } else if constexpr (N > First) {
    constexpr int kMiddle = First + (N - First) / 2;
    each<kMiddle, First>(f);
    each<N, kMiddle>(f);
  }
}

inline constexpr int kAssignedAccumulators = 128;
/// Keeps the compiler from using these registers for what is needed before and after this point.
SDX_FN void reserve() { asm volatile("" : : : SDX_ATTENTION_ACCUMULATORS); }
/// 16 x 16 accumulators += a . b, 32 of K.
template <class T, int Index>
SDX_FN void accumulate(vec16 a, vec16 b) {
  if constexpr (is_same<T, f16>)
    asm volatile("v_mfma_f32_16x16x32_f16 a[%2:%3], %0, %1, a[%2:%3]"
                 :
                 : "v"(a), "v"(b), "n"(4 * Index), "n"(4 * Index + 3));
  else
    asm volatile("v_mfma_f32_16x16x32_bf16 a[%2:%3], %0, %1, a[%2:%3]"
                 :
                 : "v"(a), "v"(b), "n"(4 * Index), "n"(4 * Index + 3));
}
template <int Register>
SDX_FN void set_accumulator(f32 x) {
  asm volatile("v_accvgpr_write_b32 a[%0], %1" : : "n"(Register), "v"(x));
}
template <int Register>
SDX_FN f32 accumulator() {
  f32 x;
  asm volatile("v_accvgpr_read_b32 %0, a[%1]" : "=v"(x) : "n"(Register));
  return x;
}
/// Waits until products are done (CDNA 4 ISA, "Dependency Resolution: Required Independent Instructions").
SDX_FN void settle() { asm volatile("s_nop 15\n\ts_nop 7" ::: "memory"); }

/// scores (+)= a . b: 16 x 16 sums, 32 of K. The compiler does not know that this is a matrix instruction: waits
/// between it and what reads the sums are the caller's.
template <class T>
SDX_FN void multiply_scores(bool first, vec16 a, vec16 b, f32 (&scores)[4]) {
  vec<f32, 4> c;
  if (first) {
    if constexpr (is_same<T, f16>)
      asm volatile("v_mfma_f32_16x16x32_f16 %0, %1, %2, 0" : "=&v"(c) : "v"(a), "v"(b));
    else
      asm volatile("v_mfma_f32_16x16x32_bf16 %0, %1, %2, 0" : "=&v"(c) : "v"(a), "v"(b));
  } else {
    c = vec<f32, 4>{scores[0], scores[1], scores[2], scores[3]};
    if constexpr (is_same<T, f16>)
      asm volatile("v_mfma_f32_16x16x32_f16 %0, %1, %2, %0" : "+&v"(c) : "v"(a), "v"(b));
    else
      asm volatile("v_mfma_f32_16x16x32_bf16 %0, %1, %2, %0" : "+&v"(c) : "v"(a), "v"(b));
  }
#pragma clang loop unroll(full)
  for (int e = 0; e < 4; ++e) scores[e] = c[e];
}
/// What reads `scores` stays behind this point.
template <int N, int M>
SDX_FN void arrive(f32 (&scores)[N][M][4]) {
#pragma clang loop unroll(full)
  for (int q = 0; q < N; ++q)
#pragma clang loop unroll(full)
    for (int j = 0; j < M; ++j)
#pragma clang loop unroll(full)
      for (int e = 0; e < 4; ++e) asm volatile("" : "+v"(scores[q][j][e]));
}

}  // namespace sdx::detail

#endif
