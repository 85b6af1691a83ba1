// LDS: loads, stores, their two-address forms, and permutes between lanes that go through the LDS hardware.
#include "sim/exec/access.h"
#include "sim/ops/families.h"
#include "sim/ops/lanes.h"

namespace sardonyx::sim {
namespace {

using U = std::uint32_t;

U address(const Wave&, const U* base, int lane, std::int64_t offset) { return base[lane] + static_cast<U>(offset); }

template <int kDwords>
void load(Wave& w, const Inst& in) {
  const U* at = w.row(in.src[0]);
  U* to[kDwords];
  for (int k = 0; k < kDwords; ++k) to[k] = w.row(in.dst[0], k);
  forActive(w.mask, [&](int l) {
    U data[kDwords];
    std::memcpy(data, ldsAccess(w, l, address(w, at, l, in.imm), kDwords * 4, AccessKind::kRead), kDwords * 4);
    for (int k = 0; k < kDwords; ++k) to[k][l] = data[k];
  });
}
template <int kDwords>
void store(Wave& w, const Inst& in) {
  const U* at = w.row(in.src[0]);
  const U* from[kDwords];
  for (int k = 0; k < kDwords; ++k) from[k] = w.row(in.src[1], k);
  forActive(w.mask, [&](int l) {
    U data[kDwords];
    for (int k = 0; k < kDwords; ++k) data[k] = from[k][l];
    std::memcpy(ldsAccess(w, l, address(w, at, l, in.imm), kDwords * 4, AccessKind::kWrite), data, kDwords * 4);
  });
}
/// Two loads at offsets in units of the element (times 64 for the st64 forms).
template <int kDwords, int kStride>
void load2(Wave& w, const Inst& in) {
  const U* at = w.row(in.src[0]);
  U* to[2 * kDwords];
  for (int k = 0; k < 2 * kDwords; ++k) to[k] = w.row(in.dst[0], k);
  U offset[2] = {static_cast<U>(in.imm) * kDwords * 4 * kStride, static_cast<U>(in.imm2) * kDwords * 4 * kStride};
  forActive(w.mask, [&](int l) {
    U base = at[l], data[2 * kDwords];
    for (int i = 0; i < 2; ++i)
      std::memcpy(data + i * kDwords, ldsAccess(w, l, base + offset[i], kDwords * 4, AccessKind::kRead), kDwords * 4);
    for (int k = 0; k < 2 * kDwords; ++k) to[k][l] = data[k];
  });
}
template <int kDwords, int kStride>
void store2(Wave& w, const Inst& in) {
  const U* at = w.row(in.src[0]);
  U offset[2] = {static_cast<U>(in.imm) * kDwords * 4 * kStride, static_cast<U>(in.imm2) * kDwords * 4 * kStride};
  forActive(w.mask, [&](int l) {
    for (int i = 0; i < 2; ++i) {
      U data[kDwords];
      for (int k = 0; k < kDwords; ++k) data[k] = w.row(in.src[1 + i], k)[l];
      std::memcpy(ldsAccess(w, l, at[l] + offset[i], kDwords * 4, AccessKind::kWrite), data, kDwords * 4);
    }
  });
}
enum class Half { kFull, kLow, kHigh };
template <class T, Half kHalf>
void loadSmall(Wave& w, const Inst& in) {
  const U* at = w.row(in.src[0]);
  U* to = w.row(in.dst[0]);
  bool high = kHalf == Half::kHigh || (kHalf == Half::kLow && in.dst[0].hi);
  forActive(w.mask, [&](int l) {
    T value;
    std::memcpy(&value, ldsAccess(w, l, address(w, at, l, in.imm), sizeof value, AccessKind::kRead), sizeof value);
    U v = static_cast<U>(static_cast<std::int32_t>(value));
    to[l] = kHalf == Half::kFull ? v : withLoadedHalf(w, to[l], v, high);
  });
}
template <class T, bool kHigh>
void storeSmall(Wave& w, const Inst& in) {
  const U* at = w.row(in.src[0]);
  const U* from = w.row(in.src[1]);
  int shift = kHigh || in.src[1].hi ? 16 : 0;
  forActive(w.mask, [&](int l) {
    T value = static_cast<T>(from[l] >> shift);
    std::memcpy(ldsAccess(w, l, address(w, at, l, in.imm), sizeof value, AccessKind::kWrite), &value, sizeof value);
  });
}

/// The lane that a permute of lane `l` names by `address` (a multiple of four for each lane). On gfx10 and gfx11 the
/// two halves of a wave64 are permuted by themselves (LLVM: GCNSubtarget::supportsWaveWideBPermute).
U permutedLane(const Wave& w, int l, U address) {
  bool halves = !w.wave32 && (w.chip->gen == Gen::kGfx10 || w.chip->gen == Gen::kGfx11);
  if (halves) return (static_cast<U>(l) & 32) | (address >> 2 & 31);
  return address >> 2 & static_cast<U>(w.lanes - 1);
}
/// Lane l receives what lane address/4 holds; inactive source lanes give 0.
template <bool kFetchInactive>
void bpermute(Wave& w, const Inst& in) {
  const U* at = w.row(in.src[0]);
  const U* data = w.row(in.src[1]);
  Row out;
  for (int l = 0; l < w.lanes; ++l) {
    U lane = permutedLane(w, l, address(w, at, l, in.imm));
    out[l] = kFetchInactive || (w.mask >> lane & 1) ? data[lane] : 0;
  }
  writeB32(w, in.dst[0], out);
}
/// Lane l sends its value to lane address/4; the highest sender wins, and lanes without a sender get 0.
void permute(Wave& w, const Inst& in) {
  const U* at = w.row(in.src[0]);
  const U* data = w.row(in.src[1]);
  Row out = {};
  forActive(w.mask, [&](int l) { out[permutedLane(w, l, address(w, at, l, in.imm))] = data[l]; });
  writeB32(w, in.dst[0], out);
}
/// DS_SWIZZLE_B32: offset bit 15 chooses quad permutes (or, gfx9 and later, FFT and rotate modes at 0xe000 and 0xc000)
/// over and/or/xor masks within 32 lanes.
void swizzle(Wave& w, const Inst& in) {
  auto offset = static_cast<U>(in.imm) & 0xffff;
  const U* data = w.row(in.src[0]);
  Row out;
  for (int l = 0; l < w.lanes; ++l) {
    U lane = static_cast<U>(l), from;
    if (offset >= 0xe000) {
      U mask = offset & 0x1f;  // FFT: bits reversed within the lanes that the mask leaves
      U reversed = 0;
      for (int b = 0; b < 5; ++b) reversed |= (lane >> b & 1) << (4 - b);
      U count = static_cast<U>(std::popcount(mask));
      from = (lane & 0x20) | ((reversed >> count) | (lane & mask & 0x1f));
    } else if (offset >= 0xc000) {
      U mask = offset & 0x1f, rotate = offset >> 5 & 0x1f;
      if (offset >> 10 & 1) rotate = 32 - rotate;  // to the other side
      from = (lane & 0x20) | (lane & mask) | ((lane + rotate) & ~mask & 0x1f);
    } else if (offset & 0x8000) {
      from = (lane & ~3u) | (offset >> (2 * (lane & 3)) & 3);
    } else {
      U andMask = offset & 0x1f, orMask = offset >> 5 & 0x1f, xorMask = offset >> 10 & 0x1f;
      from = (lane & 0x20) | ((((lane & 0x1f) & andMask) | orMask) ^ xorMask);
    }
    out[l] = w.mask >> from & 1 ? data[from] : 0;
  }
  writeB32(w, in.dst[0], out);
}

/// Addresses made of M0, the offset and the lane: no address register.
void loadAddTid(Wave& w, const Inst& in) {
  U* to = w.row(in.dst[0]);
  forActive(w.mask, [&](int l) {
    U at = (w.s[kM0] & 0xffff) + static_cast<U>(in.imm) + static_cast<U>(l) * 4;
    std::memcpy(&to[l], ldsAccess(w, l, at, 4, AccessKind::kRead), 4);
  });
}
void storeAddTid(Wave& w, const Inst& in) {
  const U* from = w.row(in.src[0]);
  forActive(w.mask, [&](int l) {
    U at = (w.s[kM0] & 0xffff) + static_cast<U>(in.imm) + static_cast<U>(l) * 4;
    std::memcpy(ldsAccess(w, l, at, 4, AccessKind::kWrite), &from[l], 4);
  });
}

}  // namespace

void addDs(OpTable& t) {
  t.add("ds_read_b32|ds_load_b32", load<1>);
  t.add("ds_read_b64|ds_load_b64", load<2>);
  t.add("ds_read_b96|ds_load_b96", load<3>);
  t.add("ds_read_b128|ds_load_b128", load<4>);
  t.add("ds_write_b32|ds_store_b32", store<1>);
  t.add("ds_write_b64|ds_store_b64", store<2>);
  t.add("ds_write_b96|ds_store_b96", store<3>);
  t.add("ds_write_b128|ds_store_b128", store<4>);
  t.add("ds_read2_b32|ds_load_2addr_b32", load2<1, 1>);
  t.add("ds_read2_b64|ds_load_2addr_b64", load2<2, 1>);
  t.add("ds_read2st64_b32|ds_load_2addr_stride64_b32", load2<1, 64>);
  t.add("ds_read2st64_b64|ds_load_2addr_stride64_b64", load2<2, 64>);
  t.add("ds_write2_b32|ds_store_2addr_b32", store2<1, 1>);
  t.add("ds_write2_b64|ds_store_2addr_b64", store2<2, 1>);
  t.add("ds_write2st64_b32|ds_store_2addr_stride64_b32", store2<1, 64>);
  t.add("ds_write2st64_b64|ds_store_2addr_stride64_b64", store2<2, 64>);
  t.add("ds_read_u8|ds_load_u8", loadSmall<std::uint8_t, Half::kFull>);
  t.add("ds_read_i8|ds_load_i8", loadSmall<std::int8_t, Half::kFull>);
  t.add("ds_read_u16|ds_load_u16", loadSmall<std::uint16_t, Half::kFull>);
  t.add("ds_read_i16|ds_load_i16", loadSmall<std::int16_t, Half::kFull>);
  t.add("ds_read_u8_d16|ds_load_u8_d16", loadSmall<std::uint8_t, Half::kLow>);
  t.add("ds_read_i8_d16|ds_load_i8_d16", loadSmall<std::int8_t, Half::kLow>);
  t.add("ds_read_u16_d16|ds_load_u16_d16", loadSmall<std::uint16_t, Half::kLow>);
  t.add("ds_read_u8_d16_hi|ds_load_u8_d16_hi", loadSmall<std::uint8_t, Half::kHigh>);
  t.add("ds_read_i8_d16_hi|ds_load_i8_d16_hi", loadSmall<std::int8_t, Half::kHigh>);
  t.add("ds_read_u16_d16_hi|ds_load_u16_d16_hi", loadSmall<std::uint16_t, Half::kHigh>);
  t.add("ds_write_b8|ds_store_b8", storeSmall<std::uint8_t, false>);
  t.add("ds_write_b16|ds_store_b16", storeSmall<std::uint16_t, false>);
  t.add("ds_write_b8_d16_hi|ds_store_b8_d16_hi", storeSmall<std::uint8_t, true>);
  t.add("ds_write_b16_d16_hi|ds_store_b16_d16_hi", storeSmall<std::uint16_t, true>);
  t.add("ds_bpermute_b32", bpermute<false>, kReadsLane);
  t.add("ds_bpermute_fi_b32", bpermute<true>, kReadsLane);
  t.add("ds_permute_b32", permute, kReadsLane);
  t.add("ds_swizzle_b32", swizzle, kReadsLane);
  t.add("ds_read_addtid_b32|ds_load_addtid_b32", loadAddTid);
  t.add("ds_write_addtid_b32|ds_store_addtid_b32", storeAddTid);
  t.add("ds_nop", [](Wave&, const Inst&) {});
}

}  // namespace sardonyx::sim
