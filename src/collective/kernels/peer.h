// Device code: sums and concatenations of small tensors over cards that can access each other's memory, in one launch.
//
// Each card has an exchange area that all cards can access. A workgroup copies its part of the tensor to its own card's
// area, sets a flag on every card, waits for the flags of the others, and reads their parts. Consecutive calls use two
// slots alternately: when a card writes to the first slot again, all cards have set their flags for the call in
// between, and so have finished reading it. A workgroup waits only for those of the same number on other cards, in the
// order of calls, so there is no deadlock. Custom kernels of this kind: https://arxiv.org/abs/2207.00032 (section on
// communication), TensorRT-LLM, vLLM.
#pragma once
#include "gpu_kernels.h"
#include "layout_peer.h"

namespace sdx {

using layout::kPeerData;
using layout::kPeerSlot;
using layout::PeerHead;

/// Copies n elements to this card's slot, and waits until all cards have done so. Returns the slot's offset in an area.
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
    for (u32 r = 0; r < size; ++r) {  // the same order on all cards, so that results are bitwise equal
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

/// Gathers n bytes of each card.
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
