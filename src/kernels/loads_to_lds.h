// Loads of 16 bytes a lane that go straight to LDS, on chips that have them. The compiler does not count these loads:
// loads_arrived() waits for them.
#pragma once
#include "unroll.h"

#if defined(SDX_LOADS_TO_LDS)

namespace sdx {

// LLVM takes a millisecond to look up the name of each M0 and SCC that a statement clobbers. It does not allocate M0
// but writes and reads it together, for other instructions than these. So the machine code of a kernel with the label
// sdx_own_m0 is checked (compile/llvm/amd_accumulators.h), and compiled again with SDX_NO_OWN_REGISTERS if it has such
// instructions.
#if defined(SDX_NO_OWN_REGISTERS)
#define SDX_CLOBBERS_M0 : "m0"
#define SDX_CLOBBERS_M0_SCC : "m0", "scc"
#else
#define SDX_CLOBBERS_M0
#define SDX_CLOBBERS_M0_SCC : "scc"
#endif

/// Kernels with load_to_lds() call this once.
SDX_FN void own_m0() {
#if !defined(SDX_NO_OWN_REGISTERS)
  asm volatile("sdx_own_m0_%=:" : :);
#endif
}

// One wait state between the write to M0 and its use (CDNA 4 ISA, "Manually Inserted Wait States").

/// Starts a load of 16 bytes a lane to LDS at `to` + Offset, the address of the wave's first lane.
template <u32 Offset = 0>
SDX_FN void load_to_lds(const void* from, u32 to) {
  if constexpr (Offset == 0)
    asm volatile("s_mov_b32 m0, %1\n\ts_nop 0\n\tglobal_load_lds_dwordx4 %0, off"
                 :
                 : "v"(from), "s"(to)SDX_CLOBBERS_M0);
  else
    asm volatile("s_add_u32 m0, %1, %2\n\ts_nop 0\n\tglobal_load_lds_dwordx4 %0, off"
                 :
                 : "v"(from), "s"(to), "n"(Offset)SDX_CLOBBERS_M0_SCC);
}
/// The same from `from` + `offset` bytes, the former being the same for all lanes.
template <u32 Offset>
SDX_FN void load_to_lds(const void* from, u32 offset, u32 to) {
  asm volatile("s_add_u32 m0, %2, %3\n\ts_nop 0\n\tglobal_load_lds_dwordx4 %0, %1"
               :
               : "v"(offset), "s"(from), "s"(to), "n"(Offset)SDX_CLOBBERS_M0_SCC);
}
/// The same from a buffer (kBufferFormat) whose size hardware checks: past it, which the sum of both offsets may reach,
/// LDS gets zeros.
SDX_FN void load_to_lds(vec16 buffer, u32 offset, u32 more, u32 to) {
  asm volatile("s_mov_b32 m0, %3\n\ts_nop 0\n\tbuffer_load_dwordx4 %0, %1, %2 offen lds"
               :
               : "v"(offset), "s"(buffer), "s"(more), "s"(to)SDX_CLOBBERS_M0);
}
/// Waits until at most N of this wave's loads are on their way.
template <int N>
SDX_FN void loads_arrived() {
  asm volatile("s_waitcnt vmcnt(%0)" : : "n"(N) : "memory");
}

}  // namespace sdx

#endif
