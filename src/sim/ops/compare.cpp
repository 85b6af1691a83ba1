// Vector compares. V_CMP writes one bit a lane (zero for inactive lanes); V_CMPX writes EXEC, on gfx9 the named mask as
// well.
#include <string>

#include "sim/ops/families.h"
#include "sim/ops/floats.h"
#include "sim/ops/lanes.h"

namespace sardonyx::sim {
namespace {

using U = std::uint32_t;
using UL = std::uint64_t;

/// The float relations, in the order of the ISA's names below.
constexpr const char* kFloatNames[16] = {"f", "lt",  "eq",  "le",  "gt",  "lg",  "ge",  "o",
                                         "u", "nge", "nlg", "ngt", "nle", "neq", "nlt", "t"};
constexpr const char* kIntNames[8] = {"f", "lt", "eq", "le", "gt", "ne", "ge", "t"};

template <int kRelation, class T>
inline bool floatRelation(T a, T b) {
  switch (kRelation & 7) {
    case 0:
      return kRelation >= 8 ? (a != a) || (b != b) : false;  // u, f
    case 1:
      return kRelation >= 8 ? !(a >= b) : a < b;  // nge, lt
    case 2:
      return kRelation >= 8 ? !(a < b || a > b) : a == b;  // nlg, eq
    case 3:
      return kRelation >= 8 ? !(a > b) : a <= b;  // ngt, le
    case 4:
      return kRelation >= 8 ? !(a <= b) : a > b;  // nle, gt
    case 5:
      return kRelation >= 8 ? !(a == b) : a < b || a > b;  // neq, lg
    case 6:
      return kRelation >= 8 ? !(a < b) : a >= b;  // nlt, ge
    default:
      return kRelation >= 8 ? true : a == a && b == b;  // t, o
  }
}
template <int kRelation, class T>
inline bool intRelation(T a, T b) {
  switch (kRelation) {
    case 0:
      return false;
    case 1:
      return a < b;
    case 2:
      return a == b;
    case 3:
      return a <= b;
    case 4:
      return a > b;
    case 5:
      return a != b;
    case 6:
      return a >= b;
    default:
      return true;
  }
}

void finish(Wave& w, const Inst& in, const Row& hit, bool writesExec) {
  UL bits = 0;
  for (int b = 0; b < w.lanes; b += 32) {
    U half = 0;
    for (int l = 0; l < 32; ++l) half |= (hit[b + l] & 1) << l;
    bits |= static_cast<UL>(half) << b;
  }
  bits &= w.mask;
  if (in.ndst) setMask(w, in.dst[0], bits);
  if (writesExec) {
    if (w.wave32)
      w.s[kExec] = static_cast<U>(bits);
    else
      w.setPair(kExec, bits);
  }
}

template <class T, int kRelation, bool kExecToo>
void compare(Wave& w, const Inst& in) {
  Row hit;
  if constexpr (sizeof(T) == 8) {
    Row64 a, b;
    if constexpr (std::is_same_v<T, double>) {
      readF64(w, in.src[0], a);
      readF64(w, in.src[1], b);
      forLanes(w.lanes, [&](int l) { hit[l] = floatRelation<kRelation>(asF64(a[l]), asF64(b[l])); });
    } else {
      readB64(w, in.src[0], a);
      readB64(w, in.src[1], b);
      forLanes(w.lanes, [&](int l) { hit[l] = intRelation<kRelation>(static_cast<T>(a[l]), static_cast<T>(b[l])); });
    }
  } else if constexpr (std::is_same_v<T, float>) {
    Row t0, t1;
    const U* a = readF32(w, in.src[0], t0);
    const U* b = readF32(w, in.src[1], t1);
    forLanes(w.lanes, [&](int l) { hit[l] = floatRelation<kRelation>(asF32(a[l]), asF32(b[l])); });
  } else if constexpr (sizeof(T) == 4) {
    Row t0, t1;
    const U* a = readB32(w, in.src[0], t0);
    const U* b = readB32(w, in.src[1], t1);
    forLanes(w.lanes, [&](int l) { hit[l] = intRelation<kRelation>(static_cast<T>(a[l]), static_cast<T>(b[l])); });
  } else {
    Row t0, t1;
    const U* a = readB16(w, in.src[0], t0);
    const U* b = readB16(w, in.src[1], t1);
    forLanes(w.lanes, [&](int l) { hit[l] = intRelation<kRelation>(static_cast<T>(a[l]), static_cast<T>(b[l])); });
  }
  finish(w, in, hit, kExecToo);
}
template <int kRelation, bool kExecToo>
void compareF16(Wave& w, const Inst& in) {
  Row a, b, hit;
  readF16(w, in.src[0], a);
  readF16(w, in.src[1], b);
  forLanes(w.lanes, [&](int l) { hit[l] = floatRelation<kRelation>(asF32(a[l]), asF32(b[l])); });
  finish(w, in, hit, kExecToo);
}

/// Sign modifiers apply to classes; denormals are told apart whatever the mode says.
template <bool kExecToo>
void class32(Wave& w, const Inst& in) {
  Row t0, t1, hit;
  const U* a = readB32(w, in.src[0], t0);
  const U* m = readB32(w, in.src[1], t1);
  U keep = in.src[0].abs ? 0x7fffffffu : ~0u, flip = in.src[0].neg ? 0x80000000u : 0;
  forLanes(w.lanes, [&](int l) { hit[l] = (classBit<U, 8, 23>((a[l] & keep) ^ flip) & m[l]) != 0; });
  finish(w, in, hit, kExecToo);
}
template <bool kExecToo>
void class16(Wave& w, const Inst& in) {
  Row t0, t1, hit;
  const U* a = readB16(w, in.src[0], t0);
  const U* m = readB16(w, in.src[1], t1);
  U keep = in.src[0].abs ? 0x7fffu : 0xffffu, flip = in.src[0].neg ? 0x8000u : 0;
  forLanes(w.lanes, [&](int l) { hit[l] = (classBit<U, 5, 10>((a[l] & keep) ^ flip) & m[l]) != 0; });
  finish(w, in, hit, kExecToo);
}
template <bool kExecToo>
void class64(Wave& w, const Inst& in) {
  Row t1, hit;
  Row64 a;
  readB64(w, in.src[0], a);
  const U* m = readB32(w, in.src[1], t1);
  UL keep = in.src[0].abs ? ~(1ull << 63) : ~0ull, flip = in.src[0].neg ? 1ull << 63 : 0;
  forLanes(w.lanes, [&](int l) { hit[l] = (classBit<UL, 11, 52>((a[l] & keep) ^ flip) & m[l]) != 0; });
  finish(w, in, hit, kExecToo);
}

template <int kRelation>
void addFloats(OpTable& t) {
  std::string r = kFloatNames[kRelation];
  t.add("v_cmp_" + r + "_f32", compare<float, kRelation, false>);
  t.add("v_cmpx_" + r + "_f32", compare<float, kRelation, true>);
  t.add("v_cmp_" + r + "_f64", compare<double, kRelation, false>);
  t.add("v_cmpx_" + r + "_f64", compare<double, kRelation, true>);
  t.add("v_cmp_" + r + "_f16", compareF16<kRelation, false>);
  t.add("v_cmpx_" + r + "_f16", compareF16<kRelation, true>);
  if constexpr (kRelation == 15) {  // gfx9 writes "tru"
    t.add("v_cmp_tru_f32", compare<float, kRelation, false>);
    t.add("v_cmpx_tru_f32", compare<float, kRelation, true>);
    t.add("v_cmp_tru_f64", compare<double, kRelation, false>);
    t.add("v_cmpx_tru_f64", compare<double, kRelation, true>);
    t.add("v_cmp_tru_f16", compareF16<kRelation, false>);
    t.add("v_cmpx_tru_f16", compareF16<kRelation, true>);
  }
  if constexpr (kRelation < 15) addFloats<kRelation + 1>(t);
}
template <class T>
struct IntName;
template <>
struct IntName<std::int16_t> {
  static constexpr const char* value = "_i16";
};
template <>
struct IntName<std::uint16_t> {
  static constexpr const char* value = "_u16";
};
template <>
struct IntName<std::int32_t> {
  static constexpr const char* value = "_i32";
};
template <>
struct IntName<std::uint32_t> {
  static constexpr const char* value = "_u32";
};
template <>
struct IntName<std::int64_t> {
  static constexpr const char* value = "_i64";
};
template <>
struct IntName<std::uint64_t> {
  static constexpr const char* value = "_u64";
};

template <class T, int kRelation = 0>
void addInts(OpTable& t) {
  std::string name = std::string(kIntNames[kRelation]) + IntName<T>::value;
  t.add("v_cmp_" + name, compare<T, kRelation, false>);
  t.add("v_cmpx_" + name, compare<T, kRelation, true>);
  if constexpr (kRelation < 7) addInts<T, kRelation + 1>(t);
}

}  // namespace

void addCompare(OpTable& t) {
  addFloats<0>(t);
  addInts<std::int16_t>(t);
  addInts<std::uint16_t>(t);
  addInts<std::int32_t>(t);
  addInts<std::uint32_t>(t);
  addInts<std::int64_t>(t);
  addInts<std::uint64_t>(t);
  t.add("v_cmp_class_f32", class32<false>);
  t.add("v_cmpx_class_f32", class32<true>);
  t.add("v_cmp_class_f16", class16<false>);
  t.add("v_cmpx_class_f16", class16<true>);
  t.add("v_cmp_class_f64", class64<false>);
  t.add("v_cmpx_class_f64", class64<true>);
}

}  // namespace sardonyx::sim
