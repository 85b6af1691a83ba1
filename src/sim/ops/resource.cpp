// See resource.h. Fields: base [47:0], stride [61:48], swizzle enable [63] on gfx9 and gfx10, [63:62] on later chips,
// records [95:64], index stride [118:117], add tid [119], OOB_SELECT [125:124] from gfx10 on. ISA documents:
// "Buffer Addressing" and "Range checking".
#include "sim/ops/resource.h"

#include "sim/exec/fault.h"
#include "sim/isa/operands.h"

namespace sardonyx::sim {

Resource::Resource(Wave& w, const Inst& in) : w_(w) {
  const std::uint32_t* r = &w.s[in.src[2].index];
  bool gfx9 = w.chip->gen == Gen::kGfx9;
  base_ = r[0] | static_cast<std::uint64_t>(r[1] & 0xffff) << 32;
  if (base_ >> 47) base_ |= 0xffffull << 48;
  stride_ = r[1] >> 16 & 0x3fff;
  std::uint32_t swizzle = r[1] >> 30;
  bool oneBit = w.chip->gen <= Gen::kGfx10;
  swizzle_ = oneBit ? swizzle >> 1 : swizzle != 0;
  if (!oneBit && swizzle > 1) element_ = swizzle == 2 ? 8 : 16;
  records_ = r[2];
  word3_ = r[3];
  indexStride_ = 8u << (r[3] >> 21 & 3);
  addTid_ = r[3] >> 23 & 1;
  if (gfx9 && addTid_) stride_ |= (r[3] >> 15 & 15) << 14;  // the data format field extends the stride
  if (!gfx9) outOfBounds_ = static_cast<int>(r[3] >> 28 & 3);
  bool offen = in.imm2 & kOffen, idxen = in.imm2 & kIdxen;
  if (idxen) index_ = w.row(in.src[0], 0);
  if (offen) offset_ = w.row(in.src[0], idxen ? 1 : 0);
  scalarOffset_ = in.src[3].present() ? scalar32(w, in.src[3]) : 0;
  constant_ = static_cast<std::uint32_t>(in.imm);
  private_ = w.chip->scratchDwordSwizzle && swizzle_ && addTid_ && w.scratchBytes && base_ == w.scratchBase;
  if (private_) stride_ = 0;
}

std::uint32_t Resource::indexOf(int lane) const {
  return (index_ ? index_[lane] : 0) + (addTid_ ? static_cast<std::uint32_t>(lane) : 0);
}
std::uint32_t Resource::offsetOf(int lane) const { return constant_ + (offset_ ? offset_[lane] : 0); }

bool Resource::inside(std::uint32_t index, std::uint64_t offset, unsigned size) const {
  bool inElement = offset + size <= stride_, inRecords = index < records_;
  // A raw resource counts bytes, of which the scalar offset uses up some.
  std::uint64_t bytes = records_ > scalarOffset_ ? records_ - scalarOffset_ : 0;
  switch (outOfBounds_) {
    case 0:
      return inRecords && inElement;
    case 1:
      return inRecords;
    case 2:
      return records_ != 0;
    case 3:
      return swizzle_ && stride_ ? inRecords && inElement : offset + size <= bytes;
    default:
      // gfx9: structured when there is a stride and an index or a swizzle asks for one.
      if (stride_ == 0 || !(index_ || swizzle_ || addTid_)) return offset + size <= bytes;
      return inRecords && (!swizzle_ || inElement);
  }
}

std::optional<std::uint64_t> Resource::address(int lane, unsigned size, unsigned extra) const {
  std::uint32_t index = indexOf(lane);
  std::uint64_t offset = static_cast<std::uint64_t>(offsetOf(lane)) + extra;
  if (!inside(index, offset, size)) return std::nullopt;
  std::uint64_t at;
  if (swizzle_) {
    std::uint64_t msb = index / indexStride_, lsb = index % indexStride_;
    at = (msb * stride_ + offset / element_ * element_) * indexStride_ + lsb * element_ + offset % element_;
  } else {
    at = static_cast<std::uint64_t>(stride_) * index + offset;
  }
  return base_ + scalarOffset_ + at;
}

bool Resource::read(int lane, unsigned size, void* data, unsigned extra) const {
  if (private_) {
    // The scalar offset counts unswizzled bytes: a wave's worth of a lane's.
    scratchRead(w_, lane, offsetOf(lane) + extra + scalarOffset_ / static_cast<unsigned>(w_.lanes), size, data);
    return true;
  }
  auto at = address(lane, size, extra);
  if (!at) return false;
  std::memcpy(data, globalAccess(w_, lane, *at, size, AccessKind::kRead), size);
  return true;
}

bool Resource::write(int lane, unsigned size, const void* data, unsigned extra) const {
  if (private_) {
    scratchWrite(w_, lane, offsetOf(lane) + extra + scalarOffset_ / static_cast<unsigned>(w_.lanes), size, data);
    return true;
  }
  auto at = address(lane, size, extra);
  if (!at) return false;
  std::memcpy(globalAccess(w_, lane, *at, size, AccessKind::kWrite), data, size);
  return true;
}

}  // namespace sardonyx::sim
