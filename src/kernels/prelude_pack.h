// NVIDIA's conversions from float32 to smaller types take two values at a time; these convert four neighbouring
// results.
#pragma once
#include "prelude_cast.h"

#if defined(__NVPTX__)
namespace sdx {

/// *p if `guard`, else 0. For memory that the kernel does not write.
template <class T>
SDX_FN T load_if(const T* p, bool guard) {
  const auto from = (const __attribute__((address_space(1))) T*)p;
#define SDX_LOAD_IF(R, Bits, Zero)                                                                      \
  asm("{\n\t.reg .pred p;\n\tsetp.ne.u32 p, %2, 0;\n\t" Zero "\n\t@p ld.global." Bits " %0, [%1];\n\t}" \
      : "=&" R(r)                                                                                       \
      : "l"(from), "r"(u32(guard)))
  if constexpr (sizeof(T) == 8) {
    u64 r;
    SDX_LOAD_IF("l", "b64", "mov.b64 %0, 0;");
    return bit_cast<T>(r);
  } else if constexpr (sizeof(T) == 4) {
    u32 r;
    SDX_LOAD_IF("r", "b32", "mov.b32 %0, 0;");
    return bit_cast<T>(r);
  } else if constexpr (sizeof(T) == 2) {
    u16 r;
    SDX_LOAD_IF("h", "b16", "mov.b16 %0, 0;");
    return bit_cast<T>(r);
  } else {
    u16 r;
    SDX_LOAD_IF("h", "u8", "mov.b16 %0, 0;");
    return bit_cast<T>(u8(r));
  }
#undef SDX_LOAD_IF
}

}  // namespace sdx
#endif

#if defined(__NVPTX__) && defined(SDX_F8_CONVERT)
namespace sdx {
namespace detail {

/// x, rounded to To, in the low half.
template <class To, bool Saturates>
SDX_FN u32 pair_of(f32 x, f32 y) {
  u32 r;
  if constexpr (is_same<To, f16>) {
    asm("cvt.rn.f16x2.f32 %0, %1, %2;" : "=r"(r) : "f"(y), "f"(x));
    if constexpr (Saturates) {  // -65504 and 65504; NaN stays NaN
      asm("max.NaN.f16x2 %0, %1, %2;" : "=r"(r) : "r"(r), "r"(0xfbfffbff));
      asm("min.NaN.f16x2 %0, %1, %2;" : "=r"(r) : "r"(r), "r"(0x7bff7bff));
    }
  } else if constexpr (is_same<To, bf16>) {
    asm("cvt.rn.bf16x2.f32 %0, %1, %2;" : "=r"(r) : "f"(y), "f"(x));
  } else if constexpr (is_same<To, f8e4m3fn>) {
    asm("{\n\t.reg .b16 h;\n\tcvt.rn.satfinite.e4m3x2.f32 h, %1, %2;\n\tcvt.u32.u16 %0, h;\n\t}"
        : "=r"(r)
        : "f"(y), "f"(x));
  } else {
    static_assert(is_same<To, f8e5m2>);
    asm("{\n\t.reg .b16 h;\n\tcvt.rn.satfinite.e5m2x2.f32 h, %1, %2;\n\tcvt.u32.u16 %0, h;\n\t}"
        : "=r"(r)
        : "f"(y), "f"(x));
  }
  return r;
}
/// x, saturated, in the order of their bytes.
template <class To>
SDX_FN u32 saturated(const i32 (&x)[4]) {
  u32 high, all;
  if constexpr (is_same<To, i8>) {
    asm("cvt.pack.sat.s8.s32.b32 %0, %1, %2, 0;" : "=r"(high) : "r"(x[3]), "r"(x[2]));
    asm("cvt.pack.sat.s8.s32.b32 %0, %1, %2, %3;" : "=r"(all) : "r"(x[1]), "r"(x[0]), "r"(high));
  } else {
    static_assert(is_same<To, u8>);
    asm("cvt.pack.sat.u8.s32.b32 %0, %1, %2, 0;" : "=r"(high) : "r"(x[3]), "r"(x[2]));
    asm("cvt.pack.sat.u8.s32.b32 %0, %1, %2, %3;" : "=r"(all) : "r"(x[1]), "r"(x[0]), "r"(high));
  }
  return all;
}

}  // namespace detail

/// Four results of type To from what Emitter::wide() computes, in one or two words. NaN as an integer is 0.
template <class To, bool Saturates>
SDX_FN void pack_wide(const f32 (&x)[4], u32* words) {
  if constexpr (is_same<To, i8> || is_same<To, u8>) {
    i32 rounded[4];
#pragma clang loop unroll(full)
    for (int k = 0; k < 4; ++k) asm("cvt.rni.s32.f32 %0, %1;" : "=r"(rounded[k]) : "f"(x[k]));
    words[0] = detail::saturated<To>(rounded);  // one instruction rounds and packs two
  } else {
    const u32 low = detail::pair_of<To, Saturates>(x[0], x[1]), high = detail::pair_of<To, Saturates>(x[2], x[3]);
    if constexpr (sizeof(To) == 2)
      words[0] = low, words[1] = high;
    else
      words[0] = __nvvm_prmt(low, high, 0x5410);
  }
}
template <class To, bool Saturates>
SDX_FN void pack_wide(const i32 (&x)[4], u32* words) {
  words[0] = detail::saturated<To>(x);
}

/// The bits of V float8 of a row (gpu.h's Pack): x, rounded and saturated.
template <class To, int V>
SDX_FN auto pack_floats(const f32 (&x)[V]) {
  u32 words[V / 4];
#pragma clang loop unroll(full)
  for (int k = 0; k < V; k += 4) {
    const f32 four[4] = {x[k], x[k + 1], x[k + 2], x[k + 3]};
    pack_wide<To, true>(four, words + k / 4);
  }
  using Bytes = u8 __attribute__((ext_vector_type(V)));
  return bit_cast<Bytes>(words);
}

/// The bits of 2^23, of which ptxas does not know that they are constant: a permutation has one operand that need not
/// be in a register, and ptxas would move this one there each time.
SDX_FN u32 byte_exponent() {
  u32 processor;
  asm("mov.u32 %0, %%smid;" : "=r"(processor));
  return 0x4b000000 | processor >> 20;
}
/// Byte `place` of a word, minus `zero`, as a number: exact. A conversion takes eight times as long as this permutation
/// of bytes, which makes 2^23 + byte of them. exponent: byte_exponent(), once.
template <class Byte>
SDX_FN f32 byte_number(u32 word, u32 place, u32 exponent, i32 zero) {
  constexpr bool kSigned = is_same<Byte, i8>;
  const u32 bits = __nvvm_prmt(kSigned ? word ^ 0x80808080 : word, exponent, 0x7440 | place);
  return bit_cast<f32>(bits) - f32((1 << 23) + (kSigned ? 128 : 0) + zero);
}

}  // namespace sdx
#endif
