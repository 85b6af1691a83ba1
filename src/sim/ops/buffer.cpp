// Untyped buffer loads and stores: addresses come from a 128-bit resource (V#), and accesses outside it read zero and
// write nothing. ISA documents: "Untyped Buffer Memory Operations", "Buffer Addressing", "Range checking".
#include "sim/ops/families.h"
#include "sim/ops/resource.h"

namespace sardonyx::sim {
namespace {

using U = std::uint32_t;

template <int kDwords>
void load(Wave& w, const Inst& in) {
  Resource r(w, in);
  forActive(w.mask, [&](int l) {
    // Each dword is checked by itself: what lies outside reads as zero.
    U data[kDwords] = {};
    for (unsigned k = 0; k < kDwords; ++k) r.read(l, 4, data + k, k * 4);
    for (int k = 0; k < kDwords; ++k) w.row(in.dst[0], k)[l] = data[k];
  });
}
template <int kDwords>
void store(Wave& w, const Inst& in) {
  Resource r(w, in);
  forActive(w.mask, [&](int l) {
    for (unsigned k = 0; k < kDwords; ++k) r.write(l, 4, &w.row(in.src[1], static_cast<int>(k))[l], k * 4);
  });
}
enum class Half { kFull, kLow, kHigh };
template <class T, Half kHalf>
void loadSmall(Wave& w, const Inst& in) {
  Resource r(w, in);
  U* to = w.row(in.dst[0]);
  forActive(w.mask, [&](int l) {
    T value = 0;
    r.read(l, sizeof value, &value);
    U v = static_cast<U>(static_cast<std::int32_t>(value));
    to[l] = kHalf == Half::kFull ? v : withLoadedHalf(w, to[l], v, kHalf == Half::kHigh);
  });
}
template <class T, bool kHigh>
void storeSmall(Wave& w, const Inst& in) {
  Resource r(w, in);
  const U* from = w.row(in.src[1]);
  forActive(w.mask, [&](int l) {
    T value = static_cast<T>(from[l] >> (kHigh ? 16 : 0));
    r.write(l, sizeof value, &value);
  });
}

}  // namespace

void addBuffer(OpTable& t) {
  t.add("buffer_load_dword|buffer_load_b32", load<1>);
  t.add("buffer_load_dwordx2|buffer_load_b64", load<2>);
  t.add("buffer_load_dwordx3|buffer_load_b96", load<3>);
  t.add("buffer_load_dwordx4|buffer_load_b128", load<4>);
  t.add("buffer_store_dword|buffer_store_b32", store<1>);
  t.add("buffer_store_dwordx2|buffer_store_b64", store<2>);
  t.add("buffer_store_dwordx3|buffer_store_b96", store<3>);
  t.add("buffer_store_dwordx4|buffer_store_b128", store<4>);
  t.add("buffer_load_ubyte|buffer_load_u8", loadSmall<std::uint8_t, Half::kFull>);
  t.add("buffer_load_sbyte|buffer_load_i8", loadSmall<std::int8_t, Half::kFull>);
  t.add("buffer_load_ushort|buffer_load_u16", loadSmall<std::uint16_t, Half::kFull>);
  t.add("buffer_load_sshort|buffer_load_i16", loadSmall<std::int16_t, Half::kFull>);
  t.add("buffer_load_ubyte_d16|buffer_load_d16_u8", loadSmall<std::uint8_t, Half::kLow>);
  t.add("buffer_load_sbyte_d16|buffer_load_d16_i8", loadSmall<std::int8_t, Half::kLow>);
  t.add("buffer_load_short_d16|buffer_load_d16_b16", loadSmall<std::uint16_t, Half::kLow>);
  t.add("buffer_load_ubyte_d16_hi|buffer_load_d16_hi_u8", loadSmall<std::uint8_t, Half::kHigh>);
  t.add("buffer_load_sbyte_d16_hi|buffer_load_d16_hi_i8", loadSmall<std::int8_t, Half::kHigh>);
  t.add("buffer_load_short_d16_hi|buffer_load_d16_hi_b16", loadSmall<std::uint16_t, Half::kHigh>);
  t.add("buffer_store_byte|buffer_store_b8", storeSmall<std::uint8_t, false>);
  t.add("buffer_store_short|buffer_store_b16", storeSmall<std::uint16_t, false>);
  t.add("buffer_store_byte_d16_hi|buffer_store_d16_hi_b8", storeSmall<std::uint8_t, true>);
  t.add("buffer_store_short_d16_hi|buffer_store_d16_hi_b16", storeSmall<std::uint16_t, true>);
}

}  // namespace sardonyx::sim
