// A buffer resource (V#) with the operands of one buffer instruction: lane addresses, bounds, and access.
#pragma once
#include <optional>

#include "sim/exec/access.h"
#include "sim/ops/lanes.h"

namespace sardonyx::sim {

class Resource {
 public:
  Resource(Wave& w, const Inst& in);

  /// Device address of `lane`'s element of `size` bytes, `extra` bytes into it; nothing when any byte of it lies
  /// outside the resource.
  std::optional<std::uint64_t> address(int lane, unsigned size, unsigned extra = 0) const;
  /// Moves `size` bytes, all or none: outside the resource, reads leave `data` alone and writes do nothing. False if
  /// outside.
  bool read(int lane, unsigned size, void* data, unsigned extra = 0) const;
  bool write(int lane, unsigned size, const void* data, unsigned extra = 0) const;

  /// The last dword of the resource: destination selects and format.
  std::uint32_t word3() const { return word3_; }

 private:
  std::uint32_t indexOf(int lane) const;
  std::uint32_t offsetOf(int lane) const;
  bool inside(std::uint32_t index, std::uint64_t offset, unsigned size) const;

  Wave& w_;
  std::uint64_t base_;
  std::uint32_t stride_, records_, scalarOffset_, constant_, word3_;
  std::uint32_t indexStride_;
  std::uint32_t element_ = 4;  ///< bytes that stay together in a swizzled resource
  int outOfBounds_ = -1;       ///< OOB_SELECT; -1: the chip has no such field
  bool swizzle_, addTid_;
  bool private_;                           ///< the private segment buffer over this wave's scratch
  const std::uint32_t* index_ = nullptr;   ///< row of indices, when the instruction has one
  const std::uint32_t* offset_ = nullptr;  ///< row of byte offsets
};

}  // namespace sardonyx::sim
