// Hopper's copy engine (TMA), the barriers that count its bytes, and clusters of thread blocks: one function for each
// instruction.
//
// Source: PTX ISA, "Asynchronous copy: cp.async.bulk.tensor", "mbarrier", "Cluster barriers".
#pragma once
#include "gpu.h"

#if defined(__NVPTX__)
namespace sdx {

/// CUtensorMap. compile/llvm marks parameters that are structs as grid constants, so that the copy engine can read the
/// map directly from the kernel's parameters.
struct alignas(64) TensorMap {
  u64 bits[16];
};

namespace tma_detail {

SDX_FN u32 shared_address(const void __attribute__((address_space(3))) * p) { return u32(u64(p)); }
SDX_FN u32 cluster_rank() {
  u32 r;
  asm("mov.u32 %0, %%cluster_ctarank;" : "=r"(r));
  return r;
}
SDX_FN void cluster_arrive() { asm volatile("barrier.cluster.arrive.release;" ::: "memory"); }
SDX_FN void cluster_wait() { asm volatile("barrier.cluster.wait.acquire;" ::: "memory"); }
SDX_FN void cluster_barrier() {
  cluster_arrive();
  cluster_wait();
}
/// Address of the same location in another thread block's shared memory.
SDX_FN u32 in_workgroup(u32 at, u32 rank) {
  u32 there;
  asm("mapa.shared::cluster.u32 %0, %1, %2;" : "=r"(there) : "r"(at), "r"(rank));
  return there;
}

SDX_FN void init_barrier(u32 at, u32 arrivals) {
  asm volatile("mbarrier.init.shared::cta.b64 [%0], %1;" ::"r"(at), "r"(arrivals) : "memory");
}
SDX_FN void publish_barriers() { asm volatile("fence.mbarrier_init.release.cluster;" ::: "memory"); }
SDX_FN void expect_bytes(u32 at, u32 bytes) {
  asm volatile("mbarrier.arrive.expect_tx.shared::cta.b64 _, [%0], %1;" ::"r"(at), "r"(bytes) : "memory");
}
SDX_FN void arrive(u32 at) { asm volatile("mbarrier.arrive.shared::cta.b64 _, [%0];" ::"r"(at) : "memory"); }
/// Waits until the phase of this parity has completed.
SDX_FN void wait_phase(u32 at, u32 parity) {
  u32 done;
  do {
    asm volatile(
        "{\n\t.reg .pred p;\n\tmbarrier.try_wait.parity.shared::cta.b64 p, [%1], %2;\n\tselp.u32 %0, 1, "
        "0, p;\n\t}"
        : "=r"(done)
        : "r"(at), "r"(parity)
        : "memory");
  } while (!done);
}
/// Issues the copy of a part of a tensor that begins at (k, line, z).
SDX_FN void copy_part(u32 to, u64 map, u32 barrier, u32 k, u32 line, u32 z) {
  asm volatile(
      "cp.async.bulk.tensor.3d.shared::cluster.global.mbarrier::complete_tx::bytes [%0], [%1, {%3, %4, %5}], [%2];" ::
          "r"(to),
      "l"(map), "r"(barrier), "r"(k), "r"(line), "r"(z)
      : "memory");
}
/// The same of batch z, of which `Heads` neighbours are a dim of their own; 0: none are.
template <u32 Heads>
SDX_FN void copy_of_batch(u32 to, u64 map, u32 barrier, u32 k, u32 line, u32 z) {
  if constexpr (Heads == 0)
    copy_part(to, map, barrier, k, line, z);
  else
    asm volatile(
        "cp.async.bulk.tensor.4d.shared::cluster.global.mbarrier::complete_tx::bytes [%0], [%1, {%3, %4, %5, %6}], "
        "[%2];" ::"r"(to),
        "l"(map), "r"(barrier), "r"(k), "r"(line), "r"(z % Heads), "r"(z / Heads)
        : "memory");
}
/// Issues an im2col copy of images: what lies under one tap of the filter for many outputs, 128 bytes of channels (or
/// 64) from `channel` on, beginning with the output whose window begins at (image, y, x). The tap is an offset to the
/// right and down from there.
SDX_FN void copy_tap(u32 to, u64 map, u32 barrier, u32 channel, i32 x, i32 y, i32 image, u32 right, u32 down) {
  asm volatile(
      "cp.async.bulk.tensor.4d.shared::cluster.global.im2col.mbarrier::complete_tx::bytes [%0], [%1, {%3, %4, %5, "
      "%6}], [%2], {%7, %8};" ::"r"(to),
      "l"(map), "r"(barrier), "r"(channel), "r"(x), "r"(y), "r"(image), "h"(u16(right)), "h"(u16(down))
      : "memory");
}
SDX_FN void fetch_map(u64 map) { asm volatile("prefetch.tensormap [%0];" ::"l"(map) : "memory"); }
/// Waits for (signals) the other warpgroup's turn; barriers 1 and 2 belong to the two warpgroups.
SDX_FN void await_turn(u32 group) { asm volatile("bar.sync %0, 256;" ::"r"(group + 1) : "memory"); }
SDX_FN void allow_turn(u32 group) { asm volatile("bar.arrive %0, 256;" ::"r"(group + 1) : "memory"); }
/// Returns x, marked as uniform for ptxas.
SDX_FN u32 same(u32 x) { return u32(__nvvm_shfl_sync_idx_i32(~0u, i32(x), 0, 31)); }

}  // namespace tma_detail
}  // namespace sdx
#endif
