// CUDA's <cooperative_groups.h>, as far as it concerns one block: the block, tiles of a warp, coalesced lanes.
#pragma once
#include "custom.h"

#if SDX_CUSTOM_GPU
#pragma clang force_cuda_host_device begin
#endif

namespace cooperative_groups {

struct thread_block {
  SDX_FN static void sync() { sdx::custom::block_barrier(); }
  SDX_FN static unsigned thread_rank() { return sdx::custom::thread_rank(); }
  SDX_FN static unsigned size() { return sdx::custom::block_threads(); }
  SDX_FN static unsigned num_threads() { return size(); }
  SDX_FN static dim3 group_index() { return sdx::custom::block_index(); }
  SDX_FN static dim3 thread_index() { return sdx::custom::thread_index(); }
  SDX_FN static dim3 group_dim() { return sdx::custom::block_size(); }
  SDX_FN static dim3 dim_threads() { return group_dim(); }
};
SDX_FN thread_block this_thread_block() { return {}; }

/// `Size` neighbouring lanes of a warp; a power of two.
template <unsigned Size, class Parent = void>
struct thread_block_tile {
  static_assert(Size >= 1 && Size <= 32 && (Size & (Size - 1)) == 0,
                "a tile has 1, 2, 4, 8, 16 or 32 threads: larger ones span several warps");
  thread_block_tile() = default;
  template <class Other>
  SDX_FN thread_block_tile(const thread_block_tile<Size, Other>&) {}
  SDX_FN static unsigned first() { return sdx::custom::lane() & ~(Size - 1); }
  SDX_FN static unsigned mask() { return (Size == 32 ? ~0u : (1u << (Size & 31)) - 1) << first(); }
  SDX_FN static void sync() { sdx::custom::warp_barrier(mask()); }
  SDX_FN static unsigned thread_rank() { return sdx::custom::lane() & (Size - 1); }
  SDX_FN static constexpr unsigned size() { return Size; }
  SDX_FN static constexpr unsigned num_threads() { return Size; }
  SDX_FN static unsigned meta_group_rank() { return sdx::custom::thread_rank() / Size; }
  SDX_FN static unsigned meta_group_size() { return (sdx::custom::block_threads() + Size - 1) / Size; }
  template <class T>
  SDX_FN T shfl(T x, int from) const {
    return __shfl_sync(mask(), x, from, Size);
  }
  template <class T>
  SDX_FN T shfl_up(T x, unsigned delta) const {
    return __shfl_up_sync(mask(), x, delta, Size);
  }
  template <class T>
  SDX_FN T shfl_down(T x, unsigned delta) const {
    return __shfl_down_sync(mask(), x, delta, Size);
  }
  template <class T>
  SDX_FN T shfl_xor(T x, int bits) const {
    return __shfl_xor_sync(mask(), x, bits, Size);
  }
  SDX_FN int any(int predicate) const { return __any_sync(mask(), predicate); }
  SDX_FN int all(int predicate) const { return __all_sync(mask(), predicate); }
  SDX_FN unsigned ballot(int predicate) const { return __ballot_sync(mask(), predicate) >> first(); }
  template <class T>
  SDX_FN unsigned match_any(T x) const {
    return __match_any_sync(mask(), x) >> first();
  }
  template <class T>
  SDX_FN unsigned match_all(T x, int& all) const {
    return __match_all_sync(mask(), x, &all) >> first();
  }
};
template <unsigned Size, class Parent>
SDX_FN thread_block_tile<Size, Parent> tiled_partition(const Parent&) {
  return {};
}

/// The lanes of a warp that execute it together.
struct coalesced_group {
  unsigned lanes;
  SDX_FN void sync() const { sdx::custom::warp_barrier(lanes); }
  SDX_FN unsigned size() const { return unsigned(__builtin_popcount(lanes)); }
  SDX_FN unsigned num_threads() const { return size(); }
  SDX_FN unsigned thread_rank() const {
    return unsigned(__builtin_popcount(lanes & ((1u << sdx::custom::lane()) - 1)));
  }
  template <class T>
  SDX_FN T shfl(T x, int from) const {
    unsigned rest = lanes;
    for (int k = 0; k < from; ++k) rest &= rest - 1;
    return sdx::custom::from_lane(lanes, x, rest ? unsigned(__builtin_ctz(rest)) : sdx::custom::lane());
  }
  template <class T>
  SDX_FN T shfl_up(T x, unsigned delta) const {
    const unsigned rank = thread_rank();
    return shfl(x, int(rank >= delta ? rank - delta : rank));
  }
  template <class T>
  SDX_FN T shfl_down(T x, unsigned delta) const {
    const unsigned rank = thread_rank();
    return shfl(x, int(rank + delta < size() ? rank + delta : rank));
  }
  SDX_FN int any(int predicate) const { return __any_sync(lanes, predicate); }
  SDX_FN int all(int predicate) const { return __all_sync(lanes, predicate); }
  /// Bits by the ranks of the lanes.
  SDX_FN unsigned ballot(int predicate) const {
    const unsigned votes = __ballot_sync(lanes, predicate);
    unsigned packed = 0, k = 0;
    for (unsigned rest = lanes; rest != 0; rest &= rest - 1, ++k) packed |= (votes >> __builtin_ctz(rest) & 1) << k;
    return packed;
  }
};
SDX_FN coalesced_group coalesced_threads() { return {sdx::custom::active_lanes()}; }

template <class Group>
SDX_FN void sync(const Group& g) {
  g.sync();
}

template <class T>
struct plus {
  SDX_FN T operator()(T a, T b) const { return a + b; }
};
template <class T>
struct less {
  SDX_FN T operator()(T a, T b) const { return b < a ? b : a; }
};
template <class T>
struct greater {
  SDX_FN T operator()(T a, T b) const { return a < b ? b : a; }
};
template <class T>
struct bit_and {
  SDX_FN T operator()(T a, T b) const { return a & b; }
};
template <class T>
struct bit_or {
  SDX_FN T operator()(T a, T b) const { return a | b; }
};
template <class T>
struct bit_xor {
  SDX_FN T operator()(T a, T b) const { return a ^ b; }
};
template <unsigned Size, class Parent, class T, class F>
SDX_FN T reduce(const thread_block_tile<Size, Parent>& tile, T x, F combine) {
  for (unsigned bits = Size / 2; bits > 0; bits /= 2) x = combine(x, tile.shfl_xor(x, int(bits)));
  return x;
}
template <unsigned Size, class Parent, class T, class F>
SDX_FN T inclusive_scan(const thread_block_tile<Size, Parent>& tile, T x, F combine) {
  for (unsigned delta = 1; delta < Size; delta *= 2) {
    const T other = tile.shfl_up(x, delta);
    if (tile.thread_rank() >= delta) x = combine(other, x);
  }
  return x;
}

template <class T, class F>
SDX_FN T reduce(const coalesced_group& group, T x, F combine) {
  return sdx::custom::reduce_mask(group.lanes, x, combine);
}
template <class Group, class T>
SDX_FN T inclusive_scan(const Group& group, T x) {
  return inclusive_scan(group, x, plus<T>());
}
/// Of the lanes before; the first lane gets a zero.
template <unsigned Size, class Parent, class T, class F>
SDX_FN T exclusive_scan(const thread_block_tile<Size, Parent>& tile, T x, F combine) {
  const T before = tile.shfl_up(inclusive_scan(tile, x, combine), 1);
  return tile.thread_rank() == 0 ? T() : before;
}
template <class Group, class T>
SDX_FN T exclusive_scan(const Group& group, T x) {
  return exclusive_scan(group, x, plus<T>());
}

/// A copy by all threads of the group, which is complete at once; wait() is the barrier after it.
template <class Group, class T>
SDX_FN void memcpy_async(const Group& group, T* to, const T* from, size_t bytes) {
  auto* out = reinterpret_cast<unsigned char*>(to);
  const auto* in = reinterpret_cast<const unsigned char*>(from);
  for (size_t k = group.thread_rank(); k < bytes; k += group.size()) out[k] = in[k];
}
template <class Group>
SDX_FN void wait(const Group& group) {
  group.sync();
}
template <unsigned Stages, class Group>
SDX_FN void wait_prior(const Group& group) {
  group.sync();
}

struct grid_group {
  SDX_FN static unsigned long long num_blocks() {
    const uint3 n = sdx::custom::grid_size();
    return (unsigned long long)n.x * n.y * n.z;
  }
  SDX_FN static unsigned long long block_rank() {
    const uint3 b = sdx::custom::block_index(), n = sdx::custom::grid_size();
    return b.x + (unsigned long long)n.x * (b.y + (unsigned long long)n.y * b.z);
  }
  SDX_FN static unsigned long long size() { return num_blocks() * sdx::custom::block_threads(); }
  SDX_FN static unsigned long long num_threads() { return size(); }
  SDX_FN static unsigned long long thread_rank() {
    return block_rank() * sdx::custom::block_threads() + sdx::custom::thread_rank();
  }
  SDX_FN static dim3 group_dim() { return sdx::custom::grid_size(); }
  SDX_FN static dim3 block_index() { return sdx::custom::block_index(); }
  SDX_REFUSED("an operator's launches can't wait for the whole grid; divide the kernel into several launches")
  static void sync() {}
};
SDX_FN grid_group this_grid() { return {}; }

}  // namespace cooperative_groups

#if SDX_CUSTOM_GPU
#pragma clang force_cuda_host_device end
#endif
