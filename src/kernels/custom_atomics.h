// CUDA's atomic functions. They order nothing else, as CUDA defines them; their scope is the device, or with _block the
// block (which is not distinguished here) and with _system the system.
#pragma once
#include "custom_half.h"
#include "custom_std.h"

namespace sdx::custom {

template <class T, class F>
SDX_FN T atomic_update(T* p, F next) {
  using Bits = unsigned_of<T>;
  Bits* word = reinterpret_cast<Bits*>(p);
  Bits old = __scoped_atomic_load_n(word, __ATOMIC_RELAXED, __MEMORY_SCOPE_DEVICE), wanted;
  do {
    wanted = __builtin_bit_cast(Bits, T(next(__builtin_bit_cast(T, old))));
  } while (!__scoped_atomic_compare_exchange_n(word, &old, wanted, false, __ATOMIC_RELAXED, __ATOMIC_RELAXED,
                                               __MEMORY_SCOPE_DEVICE));
  return __builtin_bit_cast(T, old);
}

/// The same for elements of 16 bits, within the aligned word of 32 bits around them.
template <class T, class F>
SDX_FN T atomic_update_half(T* p, F next) {
  const u64 at = reinterpret_cast<u64>(p);
  u32* word = reinterpret_cast<u32*>(at & ~u64(3));
  const u32 shift = at & 2 ? 16 : 0;
  u32 old = __scoped_atomic_load_n(word, __ATOMIC_RELAXED, __MEMORY_SCOPE_DEVICE), wanted;
  do {
    const T now = __builtin_bit_cast(T, u16(old >> shift));
    wanted = (old & ~(0xffffu << shift)) | u32(__builtin_bit_cast(u16, T(next(now)))) << shift;
  } while (!__scoped_atomic_compare_exchange_n(word, &old, wanted, false, __ATOMIC_RELAXED, __ATOMIC_RELAXED,
                                               __MEMORY_SCOPE_DEVICE));
  return __builtin_bit_cast(T, u16(old >> shift));
}

}  // namespace sdx::custom

// clang-format off
#define SDX_ATOMIC(name, builtin, T) \
  SDX_FN T name(T* p, T x) { return builtin(p, x, __ATOMIC_RELAXED, __MEMORY_SCOPE_DEVICE); }
#define SDX_ATOMICS(T)                                                                                          \
  SDX_ATOMIC(atomicAdd, __scoped_atomic_fetch_add, T) SDX_ATOMIC(atomicSub, __scoped_atomic_fetch_sub, T)       \
  SDX_ATOMIC(atomicMin, __scoped_atomic_fetch_min, T) SDX_ATOMIC(atomicMax, __scoped_atomic_fetch_max, T)       \
  SDX_ATOMIC(atomicAnd, __scoped_atomic_fetch_and, T) SDX_ATOMIC(atomicOr, __scoped_atomic_fetch_or, T)         \
  SDX_ATOMIC(atomicXor, __scoped_atomic_fetch_xor, T) SDX_ATOMIC(atomicExch, __scoped_atomic_exchange_n, T)     \
  SDX_FN T atomicCAS(T* p, T expected, T x) {                                                                   \
    __scoped_atomic_compare_exchange_n(p, &expected, x, false, __ATOMIC_RELAXED, __ATOMIC_RELAXED, __MEMORY_SCOPE_DEVICE); \
    return expected;                                                                                            \
  }
SDX_ATOMICS(int) SDX_ATOMICS(unsigned) SDX_ATOMICS(unsigned long long) SDX_ATOMICS(long long) SDX_ATOMICS(unsigned long)
SDX_ATOMICS(long)
#undef SDX_ATOMICS
#undef SDX_ATOMIC
    // clang-format on
    SDX_FN float atomicAdd(float* p, float x) {
#if SDX_CUSTOM_GPU
  return __scoped_atomic_fetch_add(p, x, __ATOMIC_RELAXED, __MEMORY_SCOPE_DEVICE);
#else
  return sdx::custom::atomic_update(p, [=](float y) { return y + x; });
#endif
}
SDX_FN double atomicAdd(double* p, double x) {
#if SDX_CUSTOM_GPU
  return __scoped_atomic_fetch_add(p, x, __ATOMIC_RELAXED, __MEMORY_SCOPE_DEVICE);
#else
  return sdx::custom::atomic_update(p, [=](double y) { return y + x; });
#endif
}
SDX_FN __half atomicAdd(__half* p, __half x) {
  return sdx::custom::atomic_update_half(p, [=](__half y) { return y + x; });
}
SDX_FN __nv_bfloat16 atomicAdd(__nv_bfloat16* p, __nv_bfloat16 x) {
  return sdx::custom::atomic_update_half(p, [=](__nv_bfloat16 y) { return y + x; });
}
SDX_FN __half2 atomicAdd(__half2* p, __half2 x) {
  return sdx::custom::atomic_update(p, [=](__half2 y) { return y + x; });
}
SDX_FN __nv_bfloat162 atomicAdd(__nv_bfloat162* p, __nv_bfloat162 x) {
  return sdx::custom::atomic_update(p, [=](__nv_bfloat162 y) { return y + x; });
}
SDX_FN float2 atomicAdd(float2* p, float2 x) { return {atomicAdd(&p->x, x.x), atomicAdd(&p->y, x.y)}; }
SDX_FN float4 atomicAdd(float4* p, float4 x) {
  return {atomicAdd(&p->x, x.x), atomicAdd(&p->y, x.y), atomicAdd(&p->z, x.z), atomicAdd(&p->w, x.w)};
}
SDX_FN unsigned short atomicCAS(unsigned short* p, unsigned short expected, unsigned short x) {
  return sdx::custom::atomic_update_half(p, [=](unsigned short y) { return y == expected ? x : y; });
}
SDX_FN float atomicExch(float* p, float x) {
  return sdx::custom::atomic_update(p, [=](float) { return x; });
}
SDX_FN double atomicExch(double* p, double x) {
  return sdx::custom::atomic_update(p, [=](double) { return x; });
}
/// HIP has these; CUDA does not.
template <class T>
SDX_FN T unsafeAtomicAdd(T* p, T x) {
  return atomicAdd(p, x);
}
template <class T>
SDX_FN void atomicAddNoRet(T* p, T x) {
  atomicAdd(p, x);
}
SDX_FN float atomicMin(float* p, float x) {
  return sdx::custom::atomic_update(p, [=](float y) { return x < y ? x : y; });
}
SDX_FN float atomicMax(float* p, float x) {
  return sdx::custom::atomic_update(p, [=](float y) { return x > y ? x : y; });
}
SDX_FN unsigned atomicInc(unsigned* p, unsigned last) {
  return sdx::custom::atomic_update(p, [=](unsigned y) { return y >= last ? 0u : y + 1; });
}
SDX_FN unsigned atomicDec(unsigned* p, unsigned last) {
  return sdx::custom::atomic_update(p, [=](unsigned y) { return y == 0 || y > last ? last : y - 1; });
}
// clang-format off
#define SDX_SCOPES(name)                                                                                     \
  template <class P, class... A> SDX_FN auto name##_block(P* p, A... a) { return name(p, a...); }             \
  template <class P, class... A> SDX_FN auto name##_system(P* p, A... a) { return name(p, a...); }
SDX_SCOPES(atomicAdd) SDX_SCOPES(atomicSub) SDX_SCOPES(atomicMin) SDX_SCOPES(atomicMax) SDX_SCOPES(atomicAnd)
SDX_SCOPES(atomicOr) SDX_SCOPES(atomicXor) SDX_SCOPES(atomicExch) SDX_SCOPES(atomicCAS)
#undef SDX_SCOPES
    // clang-format on
