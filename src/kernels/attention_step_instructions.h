// Instructions of Hopper that attention_step_mma.h uses.
//
// Source: PTX ISA, "mma.m16n8k16", "ldmatrix", "st.async".
#pragma once
#include "attention_step.h"

#if defined(__CUDA_ARCH_FEAT_SM90_ALL)
namespace sdx {
namespace detail {
/// Stores to the LDS of another workgroup. `to` and `barrier`, which counts the bytes, are results of in_workgroup().
SDX_FN void store_there(u32 to, f32 x, u32 barrier) {
  asm volatile("st.async.shared::cluster.mbarrier::complete_tx::bytes.f32 [%0], %1, [%2];" ::"r"(to), "f"(x),
               "r"(barrier)
               : "memory");
}
/// Waits until the barrier's first phase is over, and with it the stores to it from other workgroups of the cluster.
SDX_FN void wait_for_cluster(u32 barrier) {
  u32 done;
  do {
    asm volatile(
        "{\n\t.reg .pred p;\n\tmbarrier.try_wait.parity.acquire.cluster.shared::cta.b64 p, [%1], 0;\n\tselp.u32 %0, 1, "
        "0, p;\n\t}"
        : "=r"(done)
        : "r"(barrier)
        : "memory");
  } while (!done);
}
/// Four numbers of 8 bits as two pairs of T. All of them are exact in 16 bits.
template <class T, class Number>
SDX_FN void widened(u32 bytes, u32& low, u32& high) {
  if constexpr (is_same<T, f16> && is_same<Number, f8e4m3fn>) {
    to_halves(bytes, low, high);
  } else if constexpr (is_same<T, f16> && is_same<Number, i8>) {
    // As the mantissa of 1024 + x + 128, from which 1152 is subtracted.
    const u32 shifted = bytes ^ 0x80808080;
    low = __nvvm_prmt(i32(shifted), 0x64646464, 0x4140);
    high = __nvvm_prmt(i32(shifted), 0x64646464, 0x4342);
    asm("sub.f16x2 %0, %0, %1;" : "+r"(low) : "r"(0x64806480));
    asm("sub.f16x2 %0, %0, %1;" : "+r"(high) : "r"(0x64806480));
  } else {
    const auto number = [&](u32 k) SDX_LAMBDA { return cast<f32>(bit_cast<Number>(u8(bytes >> k * 8))); };
    low = pack2<T>(number(0), number(1));
    high = pack2<T>(number(2), number(3));
  }
}
}  // namespace detail
}  // namespace sdx
#endif
