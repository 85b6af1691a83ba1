// Scalar memory: loads into scalar registers, clocks, cache maintenance.
#include "sim/exec/access.h"
#include "sim/ops/families.h"
#include "sim/ops/hwreg.h"
#include "sim/ops/lanes.h"

namespace sardonyx::sim {
namespace {

std::uint64_t offsetOf(Wave& w, const Inst& in) {
  std::uint64_t offset = static_cast<std::uint64_t>(in.imm);
  if (in.src[1].present()) offset += scalar32(w, in.src[1]);
  return offset;
}

template <int kDwords>
void load(Wave& w, const Inst& in) {
  // The two low bits of the address are ignored ("Scalar Memory Operations", alignment).
  std::uint64_t address = (scalar64(w, in.src[0]) + offsetOf(w, in)) & ~3ull;
  std::memcpy(&w.s[in.dst[0].index], globalAccess(w, -1, address, kDwords * 4, AccessKind::kRead), kDwords * 4);
}

/// Sub-dword loads of gfx12.
template <class T>
void loadSmall(Wave& w, const Inst& in) {
  T value;
  std::uint64_t address = scalar64(w, in.src[0]) + offsetOf(w, in);
  std::memcpy(&value, globalAccess(w, -1, address, sizeof value, AccessKind::kRead), sizeof value);
  w.s[in.dst[0].index] = static_cast<std::uint32_t>(static_cast<std::int32_t>(value));
}

/// Base and size of a buffer resource as scalar loads use it: base [47:0], stride [61:48], records [95:64].
struct Range {
  std::uint64_t base, bytes;
};
Range bufferRange(const Wave& w, const Operand& resource) {
  const std::uint32_t* r = &w.s[resource.index];
  std::uint64_t base = r[0] | static_cast<std::uint64_t>(r[1] & 0xffff) << 32;
  std::uint64_t stride = r[1] >> 16 & 0x3fff, records = r[2];
  return {base, stride ? stride * records : records};
}
template <int kDwords>
void bufferLoad(Wave& w, const Inst& in) {
  Range range = bufferRange(w, in.src[0]);
  std::uint64_t offset = offsetOf(w, in) & ~3ull;
  for (int i = 0; i < kDwords; ++i) {
    // Dwords past the resource read as zero.
    std::uint64_t at = offset + static_cast<unsigned>(i) * 4;
    std::uint32_t value = 0;
    if (at + 4 <= range.bytes) std::memcpy(&value, globalAccess(w, -1, range.base + at, 4, AccessKind::kRead), 4);
    w.s[in.dst[0].index + i] = value;
  }
}
template <class T>
void bufferLoadSmall(Wave& w, const Inst& in) {
  Range range = bufferRange(w, in.src[0]);
  std::uint64_t at = offsetOf(w, in);
  T value = 0;
  if (at + sizeof value <= range.bytes)
    std::memcpy(&value, globalAccess(w, -1, range.base + at, sizeof value, AccessKind::kRead), sizeof value);
  w.s[in.dst[0].index] = static_cast<std::uint32_t>(static_cast<std::int32_t>(value));
}

void memtime(Wave& w, const Inst& in) { setScalar64(w, in.dst[0], cycleCounter(w)); }
void memrealtime(Wave& w, const Inst& in) { setScalar64(w, in.dst[0], realtimeClock()); }
void nothing(Wave&, const Inst&) {}

}  // namespace

void addSmem(OpTable& t) {
  t.add("s_load_dword|s_load_b32", load<1>);
  t.add("s_load_dwordx2|s_load_b64", load<2>);
  t.add("s_load_dwordx3|s_load_b96", load<3>);
  t.add("s_load_dwordx4|s_load_b128", load<4>);
  t.add("s_load_dwordx8|s_load_b256", load<8>);
  t.add("s_load_dwordx16|s_load_b512", load<16>);
  t.add("s_load_i8", loadSmall<std::int8_t>);
  t.add("s_load_u8", loadSmall<std::uint8_t>);
  t.add("s_load_i16", loadSmall<std::int16_t>);
  t.add("s_load_u16", loadSmall<std::uint16_t>);
  t.add("s_buffer_load_dword|s_buffer_load_b32", bufferLoad<1>);
  t.add("s_buffer_load_dwordx2|s_buffer_load_b64", bufferLoad<2>);
  t.add("s_buffer_load_dwordx3|s_buffer_load_b96", bufferLoad<3>);
  t.add("s_buffer_load_dwordx4|s_buffer_load_b128", bufferLoad<4>);
  t.add("s_buffer_load_dwordx8|s_buffer_load_b256", bufferLoad<8>);
  t.add("s_buffer_load_dwordx16|s_buffer_load_b512", bufferLoad<16>);
  t.add("s_buffer_load_i8", bufferLoadSmall<std::int8_t>);
  t.add("s_buffer_load_u8", bufferLoadSmall<std::uint8_t>);
  t.add("s_buffer_load_i16", bufferLoadSmall<std::int16_t>);
  t.add("s_buffer_load_u16", bufferLoadSmall<std::uint16_t>);
  t.add("s_memtime", memtime);
  t.add("s_memrealtime", memrealtime);
  for (const char* hint :
       {"s_dcache_inv", "s_dcache_wb", "s_dcache_inv_vol", "s_dcache_wb_vol", "s_gl1_inv", "s_prefetch_inst",
        "s_prefetch_inst_pc_rel", "s_prefetch_data", "s_prefetch_data_pc_rel", "s_buffer_prefetch_data"})
    t.add(hint, nothing);
}

}  // namespace sardonyx::sim
