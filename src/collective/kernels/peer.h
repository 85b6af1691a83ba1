// Device code: sums and concatenations of small tensors over cards that reach each other's memory, in one launch.
//
// Each card has an exchange area that all of them see. A workgroup copies its part of the tensor to its own card's
// area, raises a flag on every card, waits for their flags, and reads their parts. Parts of one call and of the next
// lie in two places: by the time that a card writes to the first again, all have raised the flag of the call in
// between, and so have read it. Workgroups of one number wait for each other only, in the order of calls, so they never
// wait in a circle. Custom kernels of this kind: https://arxiv.org/abs/2207.00032 (section on communication),
// TensorRT-LLM, vLLM.
#pragma once
#include "gpu_kernels.h"

namespace sdx {

inline constexpr u32 kPeerBlocks = 64, kPeerRanks = 8;

/// The start of an exchange area. What is written by other cards is `flags` alone.
struct PeerHead {
  u64 peers[kPeerRanks];  ///< every card's area, as this card sees it
  u32 abort;              ///< the group is broken: nobody must wait
  u32 unused[47];
  u32 turns[kPeerBlocks];  ///< calls that each workgroup has done
  u32 flags[kPeerBlocks][kPeerRanks];
};
inline constexpr i64 kPeerData = 16384;       ///< where the parts begin
inline constexpr i64 kPeerSlot = 256 * 1024;  ///< of one call
static_assert(sizeof(PeerHead) <= u64(kPeerData));

/// Copies n elements to this card's slot, and waits until all cards have. Gives the slot's distance from an area's
/// start.
template <int V, class T>
SDX_FN i64 peer_offer(const T* in, i64 n, u32 rank, u32 size, PeerHead* own) {
  const u32 block = block_id(), turn = own->turns[block] + 1;
  const i64 at = kPeerData + i64(turn & 1) * kPeerSlot;
  T* mine = (T*)((char*)own + at);
  for (i64 p = first_thread(); p < n / V; p += all_threads())
    if constexpr (V > 1)
      store_pack<V>(mine + p * V, load_pack<V>(in + p * V));
    else
      mine[p] = in[p];
  barrier();
  const u32 other = thread_id();
  if (other < size) {
    PeerHead* there = (PeerHead*)own->peers[other];
    __scoped_atomic_store_n(&there->flags[block][rank], turn, __ATOMIC_RELEASE, __MEMORY_SCOPE_SYSTEM);
    while (i32(__scoped_atomic_load_n(&own->flags[block][other], __ATOMIC_ACQUIRE, __MEMORY_SCOPE_SYSTEM) - turn) < 0)
      if (__scoped_atomic_load_n(&own->abort, __ATOMIC_RELAXED, __MEMORY_SCOPE_SYSTEM) != 0) break;
  }
  barrier();
  if (other == 0) own->turns[block] = turn;
  return at;
}

template <int V, class T>
SDX_FN void peer_sum_packs(const T* in, T* out, i64 n, u32 rank, u32 size, PeerHead* own) {
  const i64 at = peer_offer<V>(in, n, rank, size, own);
  for (i64 p = first_thread(); p < n / V; p += all_threads()) {
    f32 sum[V] = {};
    for (u32 r = 0; r < size; ++r) {  // in this order everywhere: all cards get the same bits
      const T* part = (const T*)((const char*)own->peers[r] + at) + p * V;
      if constexpr (V > 1) {
        const Pack<T, V> x = load_pack<V>(part);
#pragma clang loop unroll(full)
        for (int k = 0; k < V; ++k) sum[k] += cast<f32>(bit_cast<T>(unsigned_of<T>(x[k])));
      } else {
        sum[0] += cast<f32>(part[0]);
      }
    }
    if constexpr (V > 1) {
      Pack<T, V> y;
#pragma clang loop unroll(full)
      for (int k = 0; k < V; ++k) y[k] = bit_cast<unsigned_of<T>>(cast<T>(sum[k]));
      store_pack<V>(out + p * V, y);
    } else {
      out[p] = cast<T>(sum[0]);
    }
  }
}

template <class T>
SDX_FN void peer_sum(const T* in, T* out, i64 n, i64 rank, i64 size, PeerHead* own) {
  constexpr int V = 16 / sizeof(T);
  if (n % V == 0 && aligned(in) && aligned(out))
    peer_sum_packs<V>(in, out, n, u32(rank), u32(size), own);
  else
    peer_sum_packs<1>(in, out, n, u32(rank), u32(size), own);
}

template <int V>
SDX_FN void peer_gather_packs(const u8* in, u8* out, i64 n, u32 rank, u32 size, PeerHead* own) {
  const i64 at = peer_offer<V>(in, n, rank, size, own);
  for (u32 r = 0; r < size; ++r) {
    const u8* part = (const u8*)own->peers[r] + at;
    for (i64 p = first_thread(); p < n / V; p += all_threads())
      if constexpr (V > 1)
        store_pack<V>(out + r * n + p * V, load_pack<V>(part + p * V));
      else
        out[r * n + p] = part[p];
  }
}

/// n bytes of each.
SDX_FN void peer_gather(const u8* in, u8* out, i64 n, i64 rank, i64 size, PeerHead* own) {
  if (n % 16 == 0 && aligned(in) && aligned(out))
    peer_gather_packs<16>(in, out, n, u32(rank), u32(size), own);
  else
    peer_gather_packs<1>(in, out, n, u32(rank), u32(size), own);
}

}  // namespace sdx

SDX_KERNEL void peer_sum_f32(const sdx::f32* in, sdx::f32* out, sdx::i64 n, sdx::i64 rank, sdx::i64 size,
                             sdx::PeerHead* own) {
  sdx::peer_sum(in, out, n, rank, size, own);
}
SDX_KERNEL void peer_sum_f16(const sdx::f16* in, sdx::f16* out, sdx::i64 n, sdx::i64 rank, sdx::i64 size,
                             sdx::PeerHead* own) {
  sdx::peer_sum(in, out, n, rank, size, own);
}
SDX_KERNEL void peer_sum_bf16(const sdx::bf16* in, sdx::bf16* out, sdx::i64 n, sdx::i64 rank, sdx::i64 size,
                              sdx::PeerHead* own) {
  sdx::peer_sum(in, out, n, rank, size, own);
}
SDX_KERNEL void peer_gather_bytes(const sdx::u8* in, sdx::u8* out, sdx::i64 n, sdx::i64 rank, sdx::i64 size,
                                  sdx::PeerHead* own) {
  sdx::peer_gather(in, out, n, rank, size, own);
}
