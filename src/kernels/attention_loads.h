// Loads of attention_direct.h straight to LDS, which the compiler does not count.
#pragma once
#include "attention_tiles.h"

#if defined(SDX_LOADS_TO_LDS)

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

}  // namespace sdx::detail

#endif
