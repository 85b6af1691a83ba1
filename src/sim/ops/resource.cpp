// See resource.h. Fields: base [47:0], stride [61:48], swizzle enable [63] on gfx9 and [63:62] on gfx11 and gfx12,
// records [95:64], index stride [118:117], add tid [119].
#include "sim/ops/resource.h"

namespace sardonyx::sim {
namespace {
constexpr std::uint32_t kElement = 4;  // bytes of a swizzle element
}

Resource::Resource(Wave& w, const Inst& in) : w_(w) {
  const std::uint32_t* r = &w.s[in.src[2].index];
  bool gfx9 = w.chip->gen == Gen::kGfx9;
  base_ = r[0] | static_cast<std::uint64_t>(r[1] & 0xffff) << 32;
  if (base_ >> 47) base_ |= 0xffffull << 48;
  stride_ = r[1] >> 16 & 0x3fff;
  swizzle_ = gfx9 ? r[1] >> 31 & 1 : (r[1] >> 30 & 3) != 0;
  records_ = r[2];
  indexStride_ = 8u << (r[3] >> 21 & 3);
  addTid_ = r[3] >> 23 & 1;
  if (gfx9 && addTid_) stride_ |= (r[3] >> 15 & 15) << 14;  // the data format field extends the stride
  bool offen = in.imm2 & 1, idxen = in.imm2 & 2;
  if (idxen) index_ = w.row(in.src[0], 0);
  if (offen) offset_ = w.row(in.src[0], idxen ? 1 : 0);
  scalarOffset_ = in.src[3].present() ? scalar32(w, in.src[3]) : 0;
  constant_ = static_cast<std::uint32_t>(in.imm);
  private_ = swizzle_ && addTid_ && w.scratchBytes && base_ == w.scratchBase;
  if (private_) stride_ = 0;
}

std::uint32_t Resource::indexOf(int lane) const {
  return (index_ ? index_[lane] : 0) + (addTid_ ? static_cast<std::uint32_t>(lane) : 0);
}
std::uint32_t Resource::offsetOf(int lane) const { return constant_ + (offset_ ? offset_[lane] : 0); }

std::uint64_t Resource::address(int lane, unsigned size) const {
  std::uint32_t index = indexOf(lane), offset = offsetOf(lane);
  bool structured = stride_ != 0 && (index_ || swizzle_ || addTid_);
  if (structured) {
    if (index >= records_ || (swizzle_ && (offset > stride_ || size > stride_ - offset))) return 0;
  } else {
    std::uint64_t end = static_cast<std::uint64_t>(offset) + size + (swizzle_ ? 0 : scalarOffset_);
    std::uint64_t bytes = stride_ ? static_cast<std::uint64_t>(stride_) * records_ : records_;
    if (end > bytes) return 0;
  }
  std::uint64_t at;
  if (swizzle_) {
    std::uint64_t msb = index / indexStride_, lsb = index % indexStride_;
    at = (msb * stride_ + offset / kElement * kElement) * indexStride_ + lsb * kElement + offset % kElement;
  } else {
    at = static_cast<std::uint64_t>(stride_) * index + offset;
  }
  return base_ + scalarOffset_ + at;
}

void Resource::read(int lane, unsigned size, void* data) const {
  if (private_) {
    // The scalar offset counts unswizzled bytes: a wave's worth of a lane's.
    scratchRead(w_, lane, offsetOf(lane) + scalarOffset_ / static_cast<unsigned>(w_.lanes), size, data);
    return;
  }
  if (std::uint64_t at = address(lane, size))
    std::memcpy(data, globalAccess(w_, lane, at, size, AccessKind::kRead), size);
}

void Resource::write(int lane, unsigned size, const void* data) const {
  if (private_) {
    scratchWrite(w_, lane, offsetOf(lane) + scalarOffset_ / static_cast<unsigned>(w_.lanes), size, data);
    return;
  }
  if (std::uint64_t at = address(lane, size))
    std::memcpy(globalAccess(w_, lane, at, size, AccessKind::kWrite), data, size);
}

}  // namespace sardonyx::sim
