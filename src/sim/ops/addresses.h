// Lane addresses of the flat family.
#pragma once
#include "sim/exec/access.h"
#include "sim/ops/lanes.h"

namespace sardonyx::sim {

enum class Segment { kGlobal, kFlat, kScratch };

/// Address of every lane: vector address + scalar address + offset. Global: a 64-bit vector address, or a 64-bit scalar
/// base with a 32-bit unsigned vector offset. Scratch: byte offsets in the lane's own memory; either part may be
/// absent.
template <Segment S>
inline void laneAddresses(Wave& w, const Inst& in, Row64& out) {
  const Operand& vector = in.src[0];
  const Operand& scalar = in.src[2];
  std::uint64_t offset = static_cast<std::uint64_t>(in.imm);
  if constexpr (S == Segment::kScratch) {
    std::uint32_t base = static_cast<std::uint32_t>(offset) + (scalar.present() ? scalar32(w, scalar) : 0);
    const std::uint32_t* v = vector.present() ? w.row(vector) : nullptr;
    forLanes(w.lanes, [&](int l) { out[l] = static_cast<std::uint32_t>(base + (v ? v[l] : 0)); });
  } else {
    bool haveBase = scalar.present() && scalar.file == RegFile::kSgpr;
    if (haveBase) {
      std::uint64_t base = scalar64(w, scalar) + offset;
      const std::uint32_t* v = w.row(vector);
      forLanes(w.lanes, [&](int l) { out[l] = base + v[l]; });
    } else {
      const std::uint32_t* lo = w.row(vector, 0);
      const std::uint32_t* hi = w.row(vector, 1);
      forLanes(w.lanes, [&](int l) { out[l] = (lo[l] | static_cast<std::uint64_t>(hi[l]) << 32) + offset; });
    }
  }
}

}  // namespace sardonyx::sim
