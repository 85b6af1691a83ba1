// Atomics on global, flat and buffer addresses and on LDS. Global ones are atomic on the host as well, since workgroups
// run on several threads.
#include <string>

#include "sim/exec/checks.h"
#include "sim/ops/addresses.h"
#include "sim/ops/families.h"
#include "sim/ops/floats.h"
#include "sim/ops/resource.h"

namespace sardonyx::sim {
namespace {

using U = std::uint32_t;
using UL = std::uint64_t;

enum class Op {
  kSwap,
  kAdd,
  kSub,
  kRsub,
  kSmin,
  kUmin,
  kSmax,
  kUmax,
  kAnd,
  kOr,
  kXor,
  kInc,
  kDec,
  kCmpswap,
  kFcmpswap,
  kFadd,
  kFmin,
  kFmax,
  kPkAddF16,
  kPkAddBf16,
  kSubClamp,
  kCondSub
};

constexpr bool comparing(Op op) { return op == Op::kCmpswap || op == Op::kFcmpswap; }

U packedAddF16(U a, U b) {
  U r = 0;
  for (int s = 0; s < 32; s += 16) {
    float x = halfToFloat(static_cast<std::uint16_t>(a >> s)), y = halfToFloat(static_cast<std::uint16_t>(b >> s));
    r |= static_cast<U>(floatToHalf(x + y)) << s;
  }
  return r;
}
U roundToBf16(float f) {
  U v = bitsOf(f);
  if ((v & 0x7fffffff) > 0x7f800000) return v >> 16 | 0x40;
  return (v + 0x7fff + (v >> 16 & 1)) >> 16;
}
U packedAddBf16(U a, U b) {
  U low = roundToBf16(asF32(a << 16) + asF32(b << 16));
  U high = roundToBf16(asF32(a & 0xffff0000) + asF32(b & 0xffff0000));
  return low | high << 16;
}

/// New value of memory from the old one, the operand, and the comparand of compare-and-swap.
template <Op kOp, class T>
inline T apply(T old, T data, T compare) {
  using S = std::make_signed_t<T>;
  using F = std::conditional_t<sizeof(T) == 8, double, float>;
  switch (kOp) {
    case Op::kSwap:
      return data;
    case Op::kAdd:
      return old + data;
    case Op::kSub:
      return old - data;
    case Op::kRsub:
      return data - old;
    case Op::kSmin:
      return static_cast<S>(data) < static_cast<S>(old) ? data : old;
    case Op::kUmin:
      return data < old ? data : old;
    case Op::kSmax:
      return static_cast<S>(data) > static_cast<S>(old) ? data : old;
    case Op::kUmax:
      return data > old ? data : old;
    case Op::kAnd:
      return old & data;
    case Op::kOr:
      return old | data;
    case Op::kXor:
      return old ^ data;
    case Op::kInc:
      return old >= data ? 0 : old + 1;
    case Op::kDec:
      return old == 0 || old > data ? data : old - 1;
    case Op::kCmpswap:
      return old == compare ? data : old;
    case Op::kFcmpswap:
      return std::bit_cast<F>(old) == std::bit_cast<F>(compare) ? data : old;
    case Op::kFadd:
      return std::bit_cast<T>(static_cast<F>(std::bit_cast<F>(old) + std::bit_cast<F>(data)));
    case Op::kFmin:
      return std::bit_cast<T>(minNum(std::bit_cast<F>(old), std::bit_cast<F>(data)));
    case Op::kFmax:
      return std::bit_cast<T>(maxNum(std::bit_cast<F>(old), std::bit_cast<F>(data)));
    case Op::kPkAddF16:
      return packedAddF16(static_cast<U>(old), static_cast<U>(data));
    case Op::kPkAddBf16:
      return packedAddBf16(static_cast<U>(old), static_cast<U>(data));
    case Op::kSubClamp:
      return old > data ? old - data : 0;
    case Op::kCondSub:
      return old >= data ? old - data : old;
  }
  return old;
}

template <Op kOp, class T>
T exchange(std::uint8_t* at, T data, T compare) {
  auto* p = reinterpret_cast<T*>(at);
  T old = __atomic_load_n(p, __ATOMIC_ACQUIRE);
  while (!__atomic_compare_exchange_n(p, &old, apply<kOp>(old, data, compare), false, __ATOMIC_ACQ_REL,
                                      __ATOMIC_ACQUIRE)) {
  }
  return old;
}
/// Scratch has one owner: a plain read and write.
template <Op kOp, class T>
T exchangeScratch(Wave& w, int lane, U offset, T data, T compare) {
  T old;
  scratchRead(w, lane, offset, sizeof old, &old);
  T now = apply<kOp>(old, data, compare);
  scratchWrite(w, lane, offset, sizeof now, &now);
  return old;
}

template <class T>
T laneValue(Wave& w, const Operand& o, int lane, int first = 0) {
  T v = static_cast<T>(w.row(o, first)[lane]);
  if constexpr (sizeof(T) == 8) v |= static_cast<T>(w.row(o, first + 1)[lane]) << 32;
  return v;
}
template <class T>
void setLane(Wave& w, const Operand& o, int lane, T v) {
  w.row(o, 0)[lane] = static_cast<U>(v);
  if constexpr (sizeof(T) == 8) w.row(o, 1)[lane] = static_cast<U>(v >> 32);
}

/// Data of compare-and-swap: the new value, then the comparand.
template <Segment S, Op kOp, class T>
void flatAtomic(Wave& w, const Inst& in) {
  Row64 at;
  laneAddresses<S>(w, in, at);
  constexpr int words = sizeof(T) / 4;
  forActive(w.mask, [&](int l) {
    T data = laneValue<T>(w, in.src[1], l);
    T compare = comparing(kOp) ? laneValue<T>(w, in.src[1], l, words) : T{};
    T old;
    if (S == Segment::kFlat && (at[l] & kApertureMask) == kSharedAperture)
      old = exchange<kOp>(ldsAccess(w, l, static_cast<U>(at[l]), sizeof(T), AccessKind::kAtomic, sizeof(T)), data,
                          compare);
    else if (S == Segment::kFlat && (at[l] & kApertureMask) == kPrivateAperture)
      old = exchangeScratch<kOp>(w, l, static_cast<U>(at[l]), data, compare);
    else
      old = exchange<kOp>(globalAccess(w, l, at[l], sizeof(T), AccessKind::kAtomic, sizeof(T)), data, compare);
    if (in.ndst) setLane(w, in.dst[0], l, old);
  });
  noteAtomic(w);
}
template <Op kOp, class T>
void bufferAtomic(Wave& w, const Inst& in) {
  Resource r(w, in);
  constexpr int words = sizeof(T) / 4;
  // The destination of the returning forms is the data register.
  forActive(w.mask, [&](int l) {
    T data = laneValue<T>(w, in.src[1], l);
    T compare = comparing(kOp) ? laneValue<T>(w, in.src[1], l, words) : T{};
    auto at = r.address(l, sizeof(T));
    T old = at ? exchange<kOp>(globalAccess(w, l, *at, sizeof(T), AccessKind::kAtomic, sizeof(T)), data, compare) : T{};
    if (in.ndst) setLane(w, in.dst[0], l, old);
  });
  noteAtomic(w);
}
/// kCompareFirst: gfx9's DS_CMPST takes the comparand as its first data operand, gfx11's DS_CMPSTORE as its second.
template <Op kOp, class T, bool kCompareFirst = false>
void dsAtomic(Wave& w, const Inst& in) {
  const U* base = w.row(in.src[0]);
  forActive(w.mask, [&](int l) {
    T data = laneValue<T>(w, in.src[comparing(kOp) && kCompareFirst ? 2 : 1], l);
    T compare = comparing(kOp) ? laneValue<T>(w, in.src[kCompareFirst ? 1 : 2], l) : T{};
    U at = base[l] + static_cast<U>(in.imm);
    T old = exchange<kOp>(ldsAccess(w, l, at, sizeof(T), AccessKind::kAtomic, sizeof(T)), data, compare);
    if (in.ndst) setLane(w, in.dst[0], l, old);
  });
  noteAtomic(w);
}

/// One operation under its names: gfx9's ("add", "add_x2") and gfx11's ("add_u32", "add_u64").
template <Op kOp>
void addInteger(OpTable& t, const std::string& old, const std::string& now32, const std::string& now64) {
  for (const char* p : {"global", "flat", "buffer"}) {
    std::string prefix = std::string(p) + "_atomic_";
    std::string n32, n64;
    auto join = [&](std::string& s, const std::string& n) {
      if (!n.empty()) s += (s.empty() ? "" : "|") + prefix + n;
    };
    join(n32, old);
    join(n32, now32);
    if (!old.empty()) join(n64, old + "_x2");
    join(n64, now64);
    bool global = prefix[0] == 'g', flat = prefix[0] == 'f';
    if (!n32.empty())
      t.add(n32, global ? flatAtomic<Segment::kGlobal, kOp, U>
                 : flat ? flatAtomic<Segment::kFlat, kOp, U>
                        : bufferAtomic<kOp, U>);
    if (!n64.empty())
      t.add(n64, global ? flatAtomic<Segment::kGlobal, kOp, UL>
                 : flat ? flatAtomic<Segment::kFlat, kOp, UL>
                        : bufferAtomic<kOp, UL>);
  }
}
template <Op kOp, class T>
void addFloat(OpTable& t, const std::string& names) {
  for (const char* p : {"global", "flat", "buffer"}) {
    std::string all, rest = names;
    while (!rest.empty()) {
      std::size_t bar = rest.find('|');
      all += (all.empty() ? "" : "|") + std::string(p) + "_atomic_" + rest.substr(0, bar);
      rest = bar == std::string::npos ? "" : rest.substr(bar + 1);
    }
    t.add(all, p[0] == 'g'   ? flatAtomic<Segment::kGlobal, kOp, T>
               : p[0] == 'f' ? flatAtomic<Segment::kFlat, kOp, T>
                             : bufferAtomic<kOp, T>);
  }
}
/// "ds_add_u32" and "ds_add_rtn_u32" and so on for 64 bits.
template <Op kOp>
void addDsInteger(OpTable& t, const std::string& op, const std::string& type32, const std::string& type64) {
  t.add("ds_" + op + "_" + type32 + "|ds_" + op + "_rtn_" + type32, dsAtomic<kOp, U>);
  t.add("ds_" + op + "_" + type64 + "|ds_" + op + "_rtn_" + type64, dsAtomic<kOp, UL>);
}

}  // namespace

void addAtomics(OpTable& t) {
  addInteger<Op::kSwap>(t, "swap", "swap_b32", "swap_b64");
  addInteger<Op::kCmpswap>(t, "cmpswap", "cmpswap_b32", "cmpswap_b64");
  addInteger<Op::kAdd>(t, "add", "add_u32", "add_u64");
  addInteger<Op::kSub>(t, "sub", "sub_u32", "sub_u64");
  addInteger<Op::kSmin>(t, "smin", "min_i32", "min_i64");
  addInteger<Op::kUmin>(t, "umin", "min_u32", "min_u64");
  addInteger<Op::kSmax>(t, "smax", "max_i32", "max_i64");
  addInteger<Op::kUmax>(t, "umax", "max_u32", "max_u64");
  addInteger<Op::kAnd>(t, "and", "and_b32", "and_b64");
  addInteger<Op::kOr>(t, "or", "or_b32", "or_b64");
  addInteger<Op::kXor>(t, "xor", "xor_b32", "xor_b64");
  addInteger<Op::kInc>(t, "inc", "inc_u32", "inc_u64");
  addInteger<Op::kDec>(t, "dec", "dec_u32", "dec_u64");
  addInteger<Op::kSubClamp>(t, "", "sub_clamp_u32", "");
  addInteger<Op::kCondSub>(t, "", "cond_sub_u32", "");
  addFloat<Op::kSubClamp, U>(t, "csub|csub_u32");  // names of sub_clamp on gfx10 and gfx11
  addFloat<Op::kFcmpswap, U>(t, "fcmpswap|cmpswap_f32");
  addFloat<Op::kFcmpswap, UL>(t, "fcmpswap_x2");
  addFloat<Op::kFadd, U>(t, "add_f32");
  addFloat<Op::kFadd, UL>(t, "add_f64");
  addFloat<Op::kFmin, U>(t, "fmin|min_f32|min_num_f32");
  addFloat<Op::kFmax, U>(t, "fmax|max_f32|max_num_f32");
  addFloat<Op::kFmin, UL>(t, "fmin_x2|min_f64|min_num_f64");
  addFloat<Op::kFmax, UL>(t, "fmax_x2|max_f64|max_num_f64");
  addFloat<Op::kPkAddF16, U>(t, "pk_add_f16");
  addFloat<Op::kPkAddBf16, U>(t, "pk_add_bf16");
  addDsInteger<Op::kAdd>(t, "add", "u32", "u64");
  addDsInteger<Op::kSub>(t, "sub", "u32", "u64");
  addDsInteger<Op::kRsub>(t, "rsub", "u32", "u64");
  addDsInteger<Op::kInc>(t, "inc", "u32", "u64");
  addDsInteger<Op::kDec>(t, "dec", "u32", "u64");
  addDsInteger<Op::kSmin>(t, "min", "i32", "i64");
  addDsInteger<Op::kSmax>(t, "max", "i32", "i64");
  addDsInteger<Op::kUmin>(t, "min", "u32", "u64");
  addDsInteger<Op::kUmax>(t, "max", "u32", "u64");
  addDsInteger<Op::kAnd>(t, "and", "b32", "b64");
  addDsInteger<Op::kOr>(t, "or", "b32", "b64");
  addDsInteger<Op::kXor>(t, "xor", "b32", "b64");
  addDsInteger<Op::kFadd>(t, "add", "f32", "f64");
  addDsInteger<Op::kFmin>(t, "min", "f32", "f64");
  addDsInteger<Op::kFmax>(t, "max", "f32", "f64");
  t.add("ds_min_num_f32|ds_min_num_rtn_f32", dsAtomic<Op::kFmin, U>);
  t.add("ds_max_num_f32|ds_max_num_rtn_f32", dsAtomic<Op::kFmax, U>);
  t.add("ds_min_num_f64|ds_min_num_rtn_f64", dsAtomic<Op::kFmin, UL>);
  t.add("ds_max_num_f64|ds_max_num_rtn_f64", dsAtomic<Op::kFmax, UL>);
  t.add("ds_wrxchg_rtn_b32|ds_storexchg_rtn_b32", dsAtomic<Op::kSwap, U>);
  t.add("ds_wrxchg_rtn_b64|ds_storexchg_rtn_b64", dsAtomic<Op::kSwap, UL>);
  t.add("ds_cmpst_b32|ds_cmpst_rtn_b32", dsAtomic<Op::kCmpswap, U, true>);
  t.add("ds_cmpst_b64|ds_cmpst_rtn_b64", dsAtomic<Op::kCmpswap, UL, true>);
  t.add("ds_cmpstore_b32|ds_cmpstore_rtn_b32", dsAtomic<Op::kCmpswap, U>);
  t.add("ds_cmpstore_b64|ds_cmpstore_rtn_b64", dsAtomic<Op::kCmpswap, UL>);
  t.add("ds_cmpst_f32|ds_cmpst_rtn_f32", dsAtomic<Op::kFcmpswap, U, true>);
  t.add("ds_cmpst_f64|ds_cmpst_rtn_f64", dsAtomic<Op::kFcmpswap, UL, true>);
  t.add("ds_cmpstore_f32|ds_cmpstore_rtn_f32", dsAtomic<Op::kFcmpswap, U>);
  t.add("ds_cmpstore_f64|ds_cmpstore_rtn_f64", dsAtomic<Op::kFcmpswap, UL>);
  t.add("ds_pk_add_f16|ds_pk_add_rtn_f16", dsAtomic<Op::kPkAddF16, U>);
  t.add("ds_pk_add_bf16|ds_pk_add_rtn_bf16", dsAtomic<Op::kPkAddBf16, U>);
  t.add("ds_sub_clamp_u32|ds_sub_clamp_rtn_u32", dsAtomic<Op::kSubClamp, U>);
  t.add("ds_cond_sub_u32|ds_cond_sub_rtn_u32", dsAtomic<Op::kCondSub, U>);
}

}  // namespace sardonyx::sim
