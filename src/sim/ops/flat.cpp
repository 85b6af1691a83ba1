// Loads and stores of global, flat and scratch addresses, all widths, and the 16-bit forms that fill one half of a
// register.
#include <string>

#include "sim/ops/addresses.h"
#include "sim/ops/families.h"
#include "sim/ops/lanes.h"
#include "sim/timing/record.h"

namespace sardonyx::sim {
namespace {

using U = std::uint32_t;

/// What a small load writes: the whole register, or one half (see withLoadedHalf).
enum class Half { kFull, kLow, kHigh };

template <Segment S>
inline void readLane(Wave& w, int lane, std::uint64_t address, unsigned size, void* data) {
  if constexpr (S == Segment::kGlobal)
    std::memcpy(data, globalAccess(w, lane, address, size, AccessKind::kRead), size);
  else if constexpr (S == Segment::kScratch)
    scratchRead(w, lane, static_cast<U>(address), size, data);
  else
    flatRead(w, lane, address, size, data);
}
template <Segment S>
inline void writeLane(Wave& w, int lane, std::uint64_t address, unsigned size, const void* data) {
  if constexpr (S == Segment::kGlobal)
    std::memcpy(globalAccess(w, lane, address, size, AccessKind::kWrite), data, size);
  else if constexpr (S == Segment::kScratch)
    scratchWrite(w, lane, static_cast<U>(address), size, data);
  else
    flatWrite(w, lane, address, size, data);
}

template <Segment S, int kDwords>
void load(Wave& w, const Inst& in) {
  Row64 at;
  laneAddresses<S>(w, in, at);
  U* to[kDwords];
  for (int k = 0; k < kDwords; ++k) to[k] = w.row(in.dst[0], k);
  forActive(w.mask, [&](int l) {
    U data[kDwords];
    readLane<S>(w, l, at[l], kDwords * 4, data);
    for (int k = 0; k < kDwords; ++k) to[k][l] = data[k];
  });
}
template <Segment S, class T, Half kHalf>
void loadSmall(Wave& w, const Inst& in) {
  Row64 at;
  laneAddresses<S>(w, in, at);
  U* to = w.row(in.dst[0]);
  bool high = kHalf == Half::kHigh || (kHalf == Half::kLow && in.dst[0].hi);
  forActive(w.mask, [&](int l) {
    T value;
    readLane<S>(w, l, at[l], sizeof value, &value);
    U v = static_cast<U>(static_cast<std::int32_t>(value));
    to[l] = kHalf == Half::kFull ? v : withLoadedHalf(w, to[l], v, high);
  });
}
template <Segment S, int kDwords>
void store(Wave& w, const Inst& in) {
  Row64 at;
  laneAddresses<S>(w, in, at);
  const U* from[kDwords];
  for (int k = 0; k < kDwords; ++k) from[k] = w.row(in.src[1], k);
  forActive(w.mask, [&](int l) {
    U data[kDwords];
    for (int k = 0; k < kDwords; ++k) data[k] = from[k][l];
    writeLane<S>(w, l, at[l], kDwords * 4, data);
  });
}
template <Segment S, class T, bool kHigh>
void storeSmall(Wave& w, const Inst& in) {
  Row64 at;
  laneAddresses<S>(w, in, at);
  const U* from = w.row(in.src[1]);
  int shift = kHigh || in.src[1].hi ? 16 : 0;
  forActive(w.mask, [&](int l) {
    T value = static_cast<T>(from[l] >> shift);
    writeLane<S>(w, l, at[l], sizeof value, &value);
  });
}

/// Addresses made of a scalar base and the lane: base + offset + lane * 4.
std::uint64_t tidAddress(Wave& w, const Inst& in, int lane) {
  std::uint64_t base = in.src[2].present() ? scalar64(w, in.src[2]) : 0;
  return base + static_cast<std::uint64_t>(in.imm) + static_cast<unsigned>(lane) * 4;
}
void loadAddTid(Wave& w, const Inst& in) {
  forActive(w.mask, [&](int l) { readLane<Segment::kGlobal>(w, l, tidAddress(w, in, l), 4, &w.row(in.dst[0])[l]); });
}
void storeAddTid(Wave& w, const Inst& in) {
  // The only vector operand is the data.
  const Operand& data = in.src[1].present() ? in.src[1] : in.src[0];
  forActive(w.mask, [&](int l) { writeLane<Segment::kGlobal>(w, l, tidAddress(w, in, l), 4, &w.row(data)[l]); });
}

template <Segment S>
void addSegment(OpTable& t, const std::string& p) {
  auto names = [&](const char* old, const char* now) { return p + old + "|" + p + now; };
  t.add(names("_load_dword", "_load_b32"), load<S, 1>);
  t.add(names("_load_dwordx2", "_load_b64"), load<S, 2>);
  t.add(names("_load_dwordx3", "_load_b96"), load<S, 3>);
  t.add(names("_load_dwordx4", "_load_b128"), load<S, 4>);
  t.add(names("_load_ubyte", "_load_u8"), loadSmall<S, std::uint8_t, Half::kFull>);
  t.add(names("_load_sbyte", "_load_i8"), loadSmall<S, std::int8_t, Half::kFull>);
  t.add(names("_load_ushort", "_load_u16"), loadSmall<S, std::uint16_t, Half::kFull>);
  t.add(names("_load_sshort", "_load_i16"), loadSmall<S, std::int16_t, Half::kFull>);
  t.add(names("_load_ubyte_d16", "_load_d16_u8"), loadSmall<S, std::uint8_t, Half::kLow>);
  t.add(names("_load_sbyte_d16", "_load_d16_i8"), loadSmall<S, std::int8_t, Half::kLow>);
  t.add(names("_load_short_d16", "_load_d16_b16"), loadSmall<S, std::uint16_t, Half::kLow>);
  t.add(names("_load_ubyte_d16_hi", "_load_d16_hi_u8"), loadSmall<S, std::uint8_t, Half::kHigh>);
  t.add(names("_load_sbyte_d16_hi", "_load_d16_hi_i8"), loadSmall<S, std::int8_t, Half::kHigh>);
  t.add(names("_load_short_d16_hi", "_load_d16_hi_b16"), loadSmall<S, std::uint16_t, Half::kHigh>);
  t.add(names("_store_dword", "_store_b32"), store<S, 1>);
  t.add(names("_store_dwordx2", "_store_b64"), store<S, 2>);
  t.add(names("_store_dwordx3", "_store_b96"), store<S, 3>);
  t.add(names("_store_dwordx4", "_store_b128"), store<S, 4>);
  t.add(names("_store_byte", "_store_b8"), storeSmall<S, std::uint8_t, false>);
  t.add(names("_store_short", "_store_b16"), storeSmall<S, std::uint16_t, false>);
  t.add(names("_store_byte_d16_hi", "_store_d16_hi_b8"), storeSmall<S, std::uint8_t, true>);
  t.add(names("_store_short_d16_hi", "_store_d16_hi_b16"), storeSmall<S, std::uint16_t, true>);
}

void nothing(Wave&, const Inst&) {}

// Memory is coherent here; the clock wants to know what follows stores of other workgroups.
void invalidate(Wave& w, const Inst& in) {
  constexpr std::uint32_t kDevice = 0x10;  // SC1 of gfx940, SCOPE_DEV of gfx12
  const std::string_view name = in.op->name;
  const bool scoped = name == "buffer_inv" || name == "global_inv";
  if (w.recorder && (!scoped || (in.cpol & kDevice) != 0)) w.recorder->acquired();
}

}  // namespace

void addFlat(OpTable& t) {
  addSegment<Segment::kGlobal>(t, "global");
  addSegment<Segment::kFlat>(t, "flat");
  addSegment<Segment::kScratch>(t, "scratch");
  t.add("global_load_dword_addtid|global_load_addtid_b32", loadAddTid);
  t.add("global_store_dword_addtid|global_store_addtid_b32", storeAddTid);
  // Cache maintenance: memory is coherent here.
  for (const char* name :
       {"global_wb", "global_wbinv", "buffer_wbl2", "buffer_wbinvl1", "buffer_invl2", "buffer_gl0_inv"})
    t.add(name, nothing);
  for (const char* name : {"global_inv", "buffer_inv", "buffer_wbinvl1_vol", "buffer_gl1_inv"}) t.add(name, invalidate);
}

}  // namespace sardonyx::sim
