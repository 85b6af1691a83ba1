// LDS operations that are neither loads, stores nor plain atomics: counts of active lanes added to a counter, exchanges
// of two places, masked or, wrapping subtraction, conditional exchange. ISA documents, "LDS Instructions".
#include <bit>

#include "sim/exec/access.h"
#include "sim/exec/checks.h"
#include "sim/ops/families.h"
#include "sim/ops/lanes.h"

namespace sardonyx::sim {
namespace {

using U = std::uint32_t;
using UL = std::uint64_t;

template <class T>
T get(Wave& w, const Operand& o, int lane, int first = 0) {
  T v = static_cast<T>(w.row(o, first)[lane]);
  if constexpr (sizeof(T) == 8) v |= static_cast<T>(w.row(o, first + 1)[lane]) << 32;
  return v;
}
template <class T>
void set(Wave& w, const Operand& o, int lane, T v, int first = 0) {
  w.row(o, first)[lane] = static_cast<U>(v);
  if constexpr (sizeof(T) == 8) w.row(o, first + 1)[lane] = static_cast<U>(v >> 32);
}
/// Waves of one workgroup run in turn on one thread, so a read and a write are atomic together.
template <class T, class F>
T update(Wave& w, int lane, U at, F f) {
  auto* p = ldsAccess(w, lane, at, sizeof(T), AccessKind::kAtomic, sizeof(T));
  T old, now;
  std::memcpy(&old, p, sizeof old);
  now = f(old);
  std::memcpy(p, &now, sizeof now);
  return old;
}

/// DS_APPEND, DS_CONSUME: the number of active lanes is added to (taken from) the dword at M0 + offset; every active
/// lane gets the value from before.
template <bool kAppend>
void count(Wave& w, const Inst& in) {
  if (!w.mask) return;
  U base = w.chip->ldsBytes > 0x10000 ? w.s[kM0] : w.s[kM0] & 0xffff;
  auto n = static_cast<U>(std::popcount(w.mask));
  U old = update<U>(w, std::countr_zero(w.mask), base + static_cast<U>(in.imm),
                    [n](U v) { return kAppend ? v + n : v - n; });
  forActive(w.mask, [&](int l) { w.row(in.dst[0])[l] = old; });
  noteAtomic(w);
}

/// The bits of the first operand are cleared, those of the second set.
template <class T>
void maskedOr(Wave& w, const Inst& in) {
  forActive(w.mask, [&](int l) {
    T clear = get<T>(w, in.src[1], l), bits = get<T>(w, in.src[2], l);
    T old = update<T>(w, l, w.row(in.src[0])[l] + static_cast<U>(in.imm), [&](T v) { return (v & ~clear) | bits; });
    if (in.ndst) set<T>(w, in.dst[0], l, old);
  });
  noteAtomic(w);
}
void wrap(Wave& w, const Inst& in) {
  forActive(w.mask, [&](int l) {
    U limit = get<U>(w, in.src[1], l), step = get<U>(w, in.src[2], l);
    U old = update<U>(w, l, w.row(in.src[0])[l] + static_cast<U>(in.imm),
                      [&](U v) { return v >= limit ? v - limit : v + step; });
    set<U>(w, in.dst[0], l, old);
  });
  noteAtomic(w);
}

/// Two exchanges at offsets in units of the element (times 64 for the stride64 forms).
template <class T, int kStride>
void exchange2(Wave& w, const Inst& in) {
  constexpr U unit = sizeof(T) * kStride;
  U offset[2] = {static_cast<U>(in.imm) * unit, static_cast<U>(in.imm2) * unit};
  forActive(w.mask, [&](int l) {
    U base = w.row(in.src[0])[l];
    T data[2] = {get<T>(w, in.src[1], l), get<T>(w, in.src[2], l)}, old[2];
    for (int i = 0; i < 2; ++i) old[i] = update<T>(w, l, base + offset[i], [&](T) { return data[i]; });
    for (int i = 0; i < 2; ++i) set<T>(w, in.dst[0], l, old[i], i * static_cast<int>(sizeof(T) / 4));
  });
  noteAtomic(w);
}

/// Two dwords; each is replaced by the 31 low bits of its operand when the operand's top bit is set.
void conditionalExchange(Wave& w, const Inst& in) {
  forActive(w.mask, [&](int l) {
    U at = (w.row(in.src[0])[l] + static_cast<U>(in.imm)) & ~7u;
    for (int i = 0; i < 2; ++i) {
      U data = w.row(in.src[1], i)[l];
      U old = update<U>(w, l, at + static_cast<U>(i) * 4, [&](U v) { return data >> 31 ? data & 0x7fffffff : v; });
      w.row(in.dst[0], i)[l] = old;
    }
  });
  noteAtomic(w);
}

}  // namespace

void addDsSpecial(OpTable& t) {
  t.add("ds_append", count<true>);
  t.add("ds_consume", count<false>);
  t.add("ds_mskor_b32|ds_mskor_rtn_b32", maskedOr<U>);
  t.add("ds_mskor_b64|ds_mskor_rtn_b64", maskedOr<UL>);
  t.add("ds_wrap_rtn_b32", wrap);
  t.add("ds_wrxchg2_rtn_b32|ds_storexchg_2addr_rtn_b32", exchange2<U, 1>);
  t.add("ds_wrxchg2_rtn_b64|ds_storexchg_2addr_rtn_b64", exchange2<UL, 1>);
  t.add("ds_wrxchg2st64_rtn_b32|ds_storexchg_2addr_stride64_rtn_b32", exchange2<U, 64>);
  t.add("ds_wrxchg2st64_rtn_b64|ds_storexchg_2addr_stride64_rtn_b64", exchange2<UL, 64>);
  t.add("ds_condxchg32_rtn_b64", conditionalExchange);
}

}  // namespace sardonyx::sim
