// Loads from memory straight into LDS (gfx9). Lane l's data goes to LDS at M0 + offset + l * size, whatever lanes are
// active; bytes and shorts are widened to a dword. The same offset is added to the memory address. MI300 ISA, "Memory
// Buffer Load to LDS" and GLOBAL_LOAD_LDS_*; the sizes 12 and 16 are gfx950's. The data counts as written when a wait
// on vmcnt covers the load (exec/lds_checks.cpp).
#include "sim/exec/checks.h"
#include "sim/ops/addresses.h"
#include "sim/ops/families.h"
#include "sim/ops/resource.h"

namespace sardonyx::sim {
namespace {

using U = std::uint32_t;

/// M0 holds 16 bits of LDS address where LDS has 64 KiB, more on chips with more.
U ldsBase(const Wave& w, const Inst& in) {
  U m0 = w.s[kM0];
  return (w.chip->ldsBytes > 0x10000 ? m0 : m0 & 0xffff) + static_cast<U>(in.imm);
}

template <class T, int kCount>
void put(Wave& w, const Inst& in, int lane, const T* data) {
  constexpr unsigned size = sizeof(T) < 4 ? 4 : sizeof(T) * kCount;
  U at = ldsBase(w, in) + static_cast<U>(lane) * size;
  std::uint8_t* to = ldsAccess(w, lane, at, size, AccessKind::kTransfer, 4);
  if constexpr (sizeof(T) < 4) {
    U wide = static_cast<U>(static_cast<std::int32_t>(*data));
    std::memcpy(to, &wide, 4);
  } else {
    std::memcpy(to, data, size);
  }
  noteLdsTransfer(w, at, size);
}

template <class T, int kCount = 1>
void globalToLds(Wave& w, const Inst& in) {
  Row64 at;
  laneAddresses<Segment::kGlobal>(w, in, at);
  forActive(w.mask, [&](int l) {
    T data[kCount];
    std::memcpy(data, globalAccess(w, l, at[l], sizeof data, AccessKind::kRead), sizeof data);
    put<T, kCount>(w, in, l, data);
  });
}
template <class T>
void scratchToLds(Wave& w, const Inst& in) {
  Row64 at;
  laneAddresses<Segment::kScratch>(w, in, at);
  forActive(w.mask, [&](int l) {
    T data;
    scratchRead(w, l, static_cast<U>(at[l]), sizeof data, &data);
    put<T, 1>(w, in, l, &data);
  });
}
template <class T, int kCount = 1>
void bufferToLds(Wave& w, const Inst& in) {
  Resource r(w, in);
  forActive(w.mask, [&](int l) {
    T data[kCount] = {};
    for (unsigned k = 0; k < kCount; ++k) r.read(l, sizeof(T), data + k, k * sizeof(T));
    put<T, kCount>(w, in, l, data);
  });
}
void ldsToBuffer(Wave& w, const Inst& in) {
  Resource r(w, in);
  forActive(w.mask, [&](int l) {
    U value;
    std::memcpy(&value, ldsAccess(w, l, ldsBase(w, in) + static_cast<U>(l) * 4, 4, AccessKind::kRead, 4), 4);
    r.write(l, 4, &value);
  });
}

}  // namespace

void addLdsTransfer(OpTable& t) {
  t.add("global_load_lds_dword", globalToLds<U>);
  t.add("global_load_lds_dwordx3", globalToLds<U, 3>);
  t.add("global_load_lds_dwordx4", globalToLds<U, 4>);
  t.add("global_load_lds_ubyte", globalToLds<std::uint8_t>);
  t.add("global_load_lds_sbyte", globalToLds<std::int8_t>);
  t.add("global_load_lds_ushort", globalToLds<std::uint16_t>);
  t.add("global_load_lds_sshort", globalToLds<std::int16_t>);
  t.add("scratch_load_lds_dword", scratchToLds<U>);
  t.add("scratch_load_lds_ubyte", scratchToLds<std::uint8_t>);
  t.add("scratch_load_lds_sbyte", scratchToLds<std::int8_t>);
  t.add("scratch_load_lds_ushort", scratchToLds<std::uint16_t>);
  t.add("scratch_load_lds_sshort", scratchToLds<std::int16_t>);
  // The decoder adds _lds to the mnemonic of a buffer load whose LDS bit is set.
  t.add("buffer_load_dword_lds", bufferToLds<U>);
  t.add("buffer_load_dwordx3_lds", bufferToLds<U, 3>);
  t.add("buffer_load_dwordx4_lds", bufferToLds<U, 4>);
  t.add("buffer_load_ubyte_lds", bufferToLds<std::uint8_t>);
  t.add("buffer_load_sbyte_lds", bufferToLds<std::int8_t>);
  t.add("buffer_load_ushort_lds", bufferToLds<std::uint16_t>);
  t.add("buffer_load_sshort_lds", bufferToLds<std::int16_t>);
  t.add("buffer_store_lds_dword_lds", ldsToBuffer);
}

}  // namespace sardonyx::sim
