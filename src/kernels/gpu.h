// Device functions for GPU kernels besides the prelude: thread indices, barriers, reductions over a workgroup.
// Workgroups have 256 threads along x, unless their kernel says otherwise (SDX_SIZED_KERNEL).
#pragma once
#include "prelude.h"

#if defined(__AMDGCN__)
#define SDX_SIZED_KERNEL(n) extern "C" [[clang::amdgpu_kernel]] __attribute__((amdgpu_flat_work_group_size(n, n)))
#define SDX_KERNEL SDX_SIZED_KERNEL(256)
#elif defined(__NVPTX__)
#define SDX_KERNEL extern "C" [[clang::nvptx_kernel]]
#define SDX_SIZED_KERNEL(n) SDX_KERNEL __attribute__((annotate("nvvm.maxntid=" #n)))
#endif
/// Launch bounds, as LaunchBounds of program/kernel_spec.h defines them: threads per block (above), blocks per
/// multiprocessor, waves per SIMD, blocks per cluster. compile/llvm turns these annotations into LLVM's function
/// attributes, because clang's own attributes for them exist only in CUDA.
#if defined(__NVPTX__)
#define SDX_MIN_BLOCKS(n) __attribute__((annotate("nvvm.minctasm=" #n)))
#define SDX_MIN_WAVES(n)
#define SDX_CLUSTER(n) __attribute__((annotate("nvvm.cluster_dim=" #n ",1,1")))
#else
#define SDX_MIN_BLOCKS(n)
#define SDX_MIN_WAVES(n) __attribute__((amdgpu_waves_per_eu(n)))
#define SDX_CLUSTER(n)
#endif
/// Memory shared by a workgroup.
#define SDX_SHARED __attribute__((address_space(3), loader_uninitialized))

namespace sdx {

inline constexpr u32 kThreads = 256;
/// Threads of a wave (AMD), a warp (NVIDIA).
inline constexpr u32 kWave = SDX_WAVE;

#if defined(__AMDGCN__)
SDX_FN u32 thread_id() { return __builtin_amdgcn_workitem_id_x(); }
SDX_FN u32 block_id() { return __builtin_amdgcn_workgroup_id_x(); }
SDX_FN u32 block_count() { return __builtin_amdgcn_grid_size_x() / kThreads; }
/// The same, read where it is called. Otherwise the compiler reads it before the loop that it is the step of, whose
/// first iteration then waits for memory.
SDX_FN u32 late_block_count() {
  auto packet = __builtin_amdgcn_dispatch_ptr();
  asm volatile("" : "+s"(packet));
  constexpr int kGridSizeX = 3;  // in hsa_kernel_dispatch_packet_t, of 4 bytes
  return ((const __attribute__((address_space(4))) u32*)packet)[kGridSizeX] / kThreads;
}
/// Waits until this wave's stores to LDS have completed. A release fence should do the same, but clang 22 drops the
/// wait in some loops (found by the simulator's race checks), so that other waves could load the old data. LLVM moves
/// no access to memory across volatile assembly anyway, and takes a millisecond to look up a register named "memory"
/// among all of AMD's registers if that is declared.
SDX_FN void wait_for_lds() {
#if defined(__GFX12__)
  asm volatile("s_wait_dscnt 0x0");
#else
  asm volatile("s_waitcnt lgkmcnt(0)");
#endif
}
/// Barrier of the workgroup; makes all earlier writes visible to all of its threads.
SDX_FN void barrier() {
  __builtin_amdgcn_fence(__ATOMIC_RELEASE, "workgroup");
  wait_for_lds();
  __builtin_amdgcn_s_barrier();
  __builtin_amdgcn_fence(__ATOMIC_ACQUIRE, "workgroup");
}
#elif defined(__NVPTX__)
SDX_FN u32 thread_id() { return __nvvm_read_ptx_sreg_tid_x(); }
SDX_FN u32 block_id() { return __nvvm_read_ptx_sreg_ctaid_x(); }
SDX_FN u32 block_count() { return __nvvm_read_ptx_sreg_nctaid_x(); }
SDX_FN u32 late_block_count() { return block_count(); }
SDX_FN void barrier() { __syncthreads(); }
#endif

#if defined(__NVPTX__)  // sm_90 and later
/// Lets the next launch start as soon as its workgroups fit. Its kernel waits for the end of this one before it touches
/// memory that launches write (compile/ptx.h).
SDX_FN void start_next_launch() { asm volatile("griddepcontrol.launch_dependents;"); }
/// Waits until the results of all previous launches are in memory. Pointers to them must go through after_wait(),
/// because the compiler moves loads from memory that the kernel does not write across any other statement.
SDX_FN void wait_for_launch() { asm volatile("griddepcontrol.wait;" : : : "memory"); }
/// Prefetches a line of memory to the L2 cache.
SDX_FN void fetch_to_l2(const void* p) {
  asm volatile("prefetch.global.L2 [%0];" : : "l"((__attribute__((address_space(1))) const void*)p));
}
/// Marks where compile/ptx.h inserts that wait, provided that nothing before touches memory that launches write.
/// Otherwise the wait is at the start of the kernel.
SDX_FN void wait_for_launch_here() { asm volatile("// the launch before" : : : "memory"); }
template <class T>
SDX_FN T* after_wait(T* p) {
  auto q = (__attribute__((address_space(1))) T*)p;
  asm volatile("" : "+l"(q) : : "memory");
  return (T*)q;
}
#endif

/// For loop kernels, which the next launch waits for: if few workgroups run, those of the next launch may start beside
/// them. (Many would take the place of workgroups that should have a multiprocessor each.)
SDX_FN void start_next_launch_if_small() {
#if defined(__NVPTX__) && __CUDA_ARCH__ >= 900
  if (block_count() <= 64) start_next_launch();
#endif
}

/// This thread's number among all threads of the launch, and their number.
SDX_FN u32 first_thread() { return block_id() * kThreads + thread_id(); }
SDX_FN u32 all_threads() { return block_count() * kThreads; }

/// Up to so many workgroups, a launch has one workgroup (thread) for each item (runtime/gpu_steps.cpp). Tests set
/// fewer.
#if !defined(SDX_MOST_BLOCKS)
#define SDX_MOST_BLOCKS (1 << 20)
#endif
inline constexpr u64 kMostBlocks = SDX_MOST_BLOCKS;

/// The step of a loop over `Items` items, for workgroups or threads. Up to kMostBlocks workgroups the loop body runs
/// once; on AMD the step is then a constant, because the size of the grid would be read from memory.
template <u64 Items>
SDX_FN u32 block_step() {
#if defined(__AMDGCN__)
  if constexpr (Items <= kMostBlocks) return Items;
#endif
  return block_count();
}
template <u64 Items>
SDX_FN u32 thread_step() {
#if defined(__AMDGCN__)
  if constexpr (Items <= kMostBlocks * kThreads) return Items;
#endif
  return all_threads();
}
/// Whether a workgroup of a launch over `count` items may have more than one.
SDX_FN bool has_more(u64 count) {
#if defined(__AMDGCN__)
  return count > kMostBlocks;
#else
  return true;
#endif
}
// Dies of the chip, each with an L2, that get workgroups in turn. On a card with fewer, results are the same.
#if defined(SDX_DIES)
inline constexpr u32 kDies = SDX_DIES;
#else
inline constexpr u32 kDies = 1;
#endif

/// Of `count` workgroups, each die gets consecutive ones.
SDX_FN u32 by_die(u32 id, u32 count) {
  const u32 each = count / kDies;
  return id < each * kDies ? id % kDies * each + id / kDies : id;
}
/// This workgroup's number where neighbours share lines of memory: those of a die are consecutive, if `Blocks` (as
/// above) are launched.
template <u64 Blocks>
SDX_FN u32 block_of_die() {
  if constexpr (kDies > 1 && Blocks <= (u64(1) << 20)) return by_die(block_id(), Blocks);
  return block_id();
}
/// Whether a loop from `done` to n has work. On AMD this removes loops over what packs have covered, where sizes are
/// known.
template <class I>
SDX_FN bool some_left(I done, I n) {
#if defined(__AMDGCN__)
  return done < n;
#else
  return true;
#endif
}

/// n / d for 0 <= n < 2^31, where `by` is what the caller precomputed for d: a multiplier m in the low half and a shift
/// l in the high one, l = ceil(log2 d), m = ceil(2^(31 + l) / d); Granlund and Montgomery, "Division by Invariant
/// Integers using Multiplication".
SDX_FN i32 fast_quotient(i32 n, u64 by) { return i32(u32((u64(u32(n) * 2u) * u32(by)) >> 32) >> u32(by >> 32)); }

/// q % n, and q becomes q / n. Not negative.
SDX_FN i32 take_digit(i32& q, i32 n, u64 by) {
  const i32 r = fast_quotient(q, by), digit = q - r * n;
  q = r;
  return digit;
}
SDX_FN i32 take_digit(i32& q, i32 n) {
  const i32 digit = i32(u32(q) % u32(n));
  q = i32(u32(q) / u32(n));
  return digit;
}
/// Computed in 32 bits where these suffice, which is many times as fast.
SDX_FN i64 take_digit(i64& q, i64 n) {
  if (((u64(q) | u64(n)) >> 32) == 0) {
    const u32 digit = u32(q) % u32(n);
    q = u32(q) / u32(n);
    return digit;
  }
  const u64 digit = u64(q) % u64(n);
  q = i64(u64(q) / u64(n));
  return i64(digit);
}

/// Loads before this call are issued before anything after it. Otherwise AMD's compiler waits for each in turn, to save
/// registers.
SDX_FN void loads_in_flight() {
#if defined(__AMDGCN__)
  __builtin_amdgcn_sched_barrier(0);
#endif
}

/// Hides the value of x from the compiler, which so does not move what depends on it.
SDX_FN void hide(u32& x) {
#if defined(__AMDGCN__)
  asm volatile("" : "+v"(x));
#else
  asm volatile("" : "+r"(x));
#endif
}

// --- packs: several neighbouring elements, whose bits are moved in one access to memory

template <class T, int V>
using Pack __attribute__((ext_vector_type(V))) = unsigned_of<T>;

#if defined(__AMDGCN__)
/// Global memory need not be aligned for a pack: under HSA loads and stores may start at any multiple of an element
/// ("unaligned access mode", AMDGPU's documentation in LLVM).
SDX_FN bool aligned(const void*) { return true; }
template <class T, int V>
inline constexpr int kPackAlignment = sizeof(T);
#else
/// Whether the address is aligned for a pack.
SDX_FN bool aligned(const void* p) { return (u64(p) & 15) == 0; }
template <class T, int V>
inline constexpr int kPackAlignment = sizeof(T) * V < 16 ? sizeof(T) * V : 16;
#endif

/// The address of element i >= 0 of less than 4 GiB. AMD's loads add an offset of 32 bits to a scalar address.
template <class T>
SDX_FN const T* element_at(const T* p, i32 i) {
#if defined(__AMDGCN__)
  return (const T*)((const char*)p + u32(i) * u32(sizeof(T)));
#else
  return p + i;
#endif
}
template <class T>
SDX_FN const T* element_at(const T* p, i64 i) {
  return p + i;
}

template <int V, class T>
SDX_FN Pack<T, V> load_pack(const T* p) {
  Pack<T, V> x;
  __builtin_memcpy(&x, __builtin_assume_aligned(p, kPackAlignment<T, V>), sizeof x);
  return x;
}
template <int V, class T>
SDX_FN void store_pack(T* p, Pack<T, V> x) {
  __builtin_memcpy(__builtin_assume_aligned(p, kPackAlignment<T, V>), &x, sizeof x);
}
/// Elements kShift, kShift + kStep, ... of neighbouring packs.
template <int kShift, int kStep, class P, class... Packs>
SDX_FN P select_elements(const P& first, const Packs&... more) {
  constexpr int kLength = sizeof(P) / sizeof(first[0]);
  const P all[] = {first, more...};
  P x;
#pragma unroll
  for (int l = 0, k = kShift; l < kLength; ++l, k += kStep) x[l] = all[k / kLength][k % kLength];
  return x;
}
template <class T>
SDX_FN T from_bits(unsigned_of<T> x) {
  return bit_cast<T>(x);
}
/// A bool is a byte in memory.
template <>
SDX_FN bool from_bits<bool>(u8 x) {
  return x != 0;
}
template <class T>
SDX_FN unsigned_of<T> to_bits(T x) {
  return bit_cast<unsigned_of<T>>(x);
}

/// The elements `first`, first + step, ... below n of a row; others are 0. `packed`: step is 1, a pack is completely
/// inside or outside, and its address is aligned.
template <int V, class T, class I>
SDX_FN Pack<T, V> load_row(const T* row, I first, I step, I n, bool packed) {
  Pack<T, V> x = 0;
  if (packed) {
    if (first < n) x = load_pack<V>(row + first);
  } else {
#pragma clang loop unroll(full)
    for (int l = 0; l < V; ++l)
      if (first + l * step < n) x[l] = bit_cast<unsigned_of<T>>(row[first + l * step]);
  }
  return x;
}
template <int V, class T, class I>
SDX_FN void store_row(T* row, I first, I step, I n, bool packed, Pack<T, V> x) {
  if (packed) {
    if (first < n) store_pack<V>(row + first, x);
  } else {
#pragma clang loop unroll(full)
    for (int l = 0; l < V; ++l)
      if (first + l * step < n) row[first + l * step] = bit_cast<T>(unsigned_of<T>(x[l]));
  }
}

// --- teams: 2^k neighbouring threads of a workgroup, 1 to 256

#if defined(__AMDGCN__)
SDX_FN u32 lane_xor(u32 x, u32 mask) {
  const u32 lane = __builtin_amdgcn_mbcnt_hi(~0u, __builtin_amdgcn_mbcnt_lo(~0u, 0));
  return u32(__builtin_amdgcn_ds_bpermute(i32((lane ^ mask) << 2), i32(x)));
}
#elif defined(__NVPTX__)
SDX_FN u32 lane_xor(u32 x, u32 mask) { return u32(__nvvm_shfl_sync_bfly_i32(~0u, i32(x), i32(mask), 31)); }
#endif

/// x of the lane whose number differs in these bits.
template <class T>
SDX_FN T from_lane_xor(T x, u32 mask) {
  constexpr u32 words = (sizeof(T) + 3) / 4;
  u32 w[words] = {};
  __builtin_memcpy(w, &x, sizeof x);
#pragma clang loop unroll(full)
  for (u32 k = 0; k < words; ++k) w[k] = lane_xor(w[k], mask);
  __builtin_memcpy(&x, w, sizeof x);
  return x;
}

/// A barrier that orders accesses to LDS only; it does not wait for global memory or invalidate its caches.
SDX_FN void lds_barrier() {
#if defined(__AMDGCN__)
  __builtin_amdgcn_fence(__ATOMIC_RELEASE, "workgroup", "local");
  wait_for_lds();
  __builtin_amdgcn_s_barrier();
  __builtin_amdgcn_fence(__ATOMIC_ACQUIRE, "workgroup", "local");
#else
  barrier();
#endif
}

#if defined(__AMDGCN__)
/// x of the lanes that a DPP control names (AMDGPU ISA, "Data Parallel Primitives"): a modifier of the operation that
/// uses it instead of an instruction for LDS. Lanes without a source get 0.
template <u32 Control, class T>
SDX_FN T from_lanes(T x) {
  constexpr u32 words = (sizeof(T) + 3) / 4;
  u32 w[words] = {};
  __builtin_memcpy(w, &x, sizeof x);
#pragma clang loop unroll(full)
  for (u32 k = 0; k < words; ++k) w[k] = u32(__builtin_amdgcn_update_dpp(0, i32(w[k]), Control, 15, 15, true));
  __builtin_memcpy(&x, w, sizeof x);
  return x;
}
/// x of lane `lane`, which is the same for all.
template <class T>
SDX_FN T broadcast(T x, u32 lane) {
  constexpr u32 words = (sizeof(T) + 3) / 4;
  u32 w[words] = {};
  __builtin_memcpy(w, &x, sizeof x);
#pragma clang loop unroll(full)
  for (u32 k = 0; k < words; ++k) w[k] = u32(__builtin_amdgcn_readlane(i32(w[k]), i32(lane)));
  __builtin_memcpy(&x, w, sizeof x);
  return x;
}
/// x of the lane 16 further, modulo 32.
template <class T>
SDX_FN T from_other_row(T x) {
  constexpr u32 words = (sizeof(T) + 3) / 4;
  u32 w[words] = {};
  __builtin_memcpy(w, &x, sizeof x);
#pragma clang loop unroll(full)
  for (u32 k = 0; k < words; ++k)
#if defined(__GFX9__)
    w[k] = u32(__builtin_amdgcn_ds_swizzle(i32(w[k]), 0x401f));  // lane ^ 16
#else
    w[k] = __builtin_amdgcn_permlanex16(w[k], w[k], 0x76543210u, 0xfedcba98u, false, false);
#endif
  __builtin_memcpy(&x, w, sizeof x);
  return x;
}
/// Reduces x over `lanes` neighbouring lanes, a power of two up to a wave; each gets the result. Every step combines
/// equal parts, so it does not matter in which order lanes of a part are read.
template <class T, class F>
SDX_FN T reduce_lanes(T x, u32 lanes, F combine) {
  if (lanes > 1) x = combine(x, from_lanes<0xb1>(x));   // quad_perm 1 0 3 2
  if (lanes > 2) x = combine(x, from_lanes<0x4e>(x));   // quad_perm 2 3 0 1
  if (lanes > 4) x = combine(x, from_lanes<0x141>(x));  // row_half_mirror
  if (lanes > 8) x = combine(x, from_lanes<0x140>(x));  // row_mirror
#if defined(__GFX9__)
  if (lanes == 64) {
    x = combine(x, from_lanes<0x142>(x));  // row_bcast:15, of which rows 1 and 3 are used,
    x = combine(x, from_lanes<0x143>(x));  // row_bcast:31, of which row 3 is
    return broadcast(x, 63);
  }
#endif
  if (lanes > 16) x = combine(x, from_other_row(x));
  return x;
}
#else
template <class T, class F>
SDX_FN T reduce_lanes(T x, u32 lanes, F combine) {
  for (u32 h = 1; h < lanes; h *= 2) x = combine(x, from_lane_xor(x, h));
  return x;
}
#endif

static SDX_SHARED u64 reduce_scratch[2 * kThreads / 32];

/// Reduces x over a team; every thread gets the result. All threads of the workgroup must call it.
template <class T, class F>
SDX_FN T reduce_team(T x, u32 team, F combine) {
  static_assert(sizeof(T) <= 16);
  x = reduce_lanes(x, team < kWave ? team : kWave, combine);
  if (team > kWave) {
    auto* all = (__attribute__((address_space(3))) T*)reduce_scratch;
    const u32 t = thread_id();
    if (t % kWave == 0) all[t / kWave] = x;
    lds_barrier();
    const u32 first = t / team * (team / kWave);
    x = all[first];
    for (u32 k = 1; k < team / kWave; ++k) x = combine(x, T(all[first + k]));
    lds_barrier();
  }
  return x;
}

#if defined(__AMDGCN__)
template <class T, class F>
static SDX_SHARED T row_scratch[kThreads / kWave];
#endif
/// The same, once in a round of a loop that ends with end_round(). `combine` has a type of its own at each call.
template <class T, class F>
SDX_FN T reduce_row(T x, u32 team, F combine) {
#if defined(__AMDGCN__)
  x = reduce_lanes(x, team < kWave ? team : kWave, combine);
  if (team <= kWave) return x;
  const u32 t = thread_id(), first = t / team * (team / kWave);
  if (t % kWave == 0) row_scratch<T, F>[t / kWave] = x;
  lds_barrier();
  x = row_scratch<T, F>[first];
  for (u32 k = 1; k < team / kWave; ++k) x = combine(x, T(row_scratch<T, F>[first + k]));
  return x;
#else
  return reduce_team(x, team, combine);
#endif
}
/// The next round may use the memory of reductions again.
SDX_FN void end_round() {
#if defined(__AMDGCN__)
  lds_barrier();
#endif
}
/// Whether a team of a workgroup has a row. Whole: there are as many rows as teams.
template <bool Whole>
SDX_FN bool has_row(bool inside) {
#if defined(__AMDGCN__)
  if constexpr (Whole) return true;
#endif
  return inside;
}

/// The extreme value of a row and its position. The first NaN counts as the extreme.
template <class T>
struct Best {
  T value;
  i32 at;  ///< -1: none yet
};
template <bool Max, bool Last, class T>
SDX_FN Best<T> better(Best<T> a, Best<T> b) {
  // Without branches: the compiler would otherwise select between addresses of the numbers.
  const bool a_first = a.at < b.at, a_nan = a.value != a.value, b_nan = b.value != b.value;
  const bool wins = (Max ? a.value > b.value : a.value < b.value) | ((a.value == b.value) & (a_first != Last)) |
                    (a_nan & (!b_nan | a_first));
  const bool take = (b.at < 0) | ((a.at >= 0) & wins);
  return {take ? a.value : b.value, take ? a.at : b.at};
}

/// The same where b, if it exists, comes after a. Takes a third of the instructions, which matters to kernels whose
/// time is dominated by fetching instructions.
template <bool Max, bool Last, class T>
SDX_FN Best<T> better_next(Best<T> a, Best<T> b) {
  const bool a_nan = a.value != a.value;
  const bool less =
      Max ? (Last ? b.value < a.value : b.value <= a.value) : (Last ? b.value > a.value : b.value >= a.value);
  const bool take = (b.at >= 0) & ((a.at < 0) | (!a_nan & !less));
  return {take ? b.value : a.value, take ? b.at : a.at};
}

}  // namespace sdx
