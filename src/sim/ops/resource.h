// A buffer resource (V#) with the operands of one buffer instruction: lane addresses, bounds, and access.
#pragma once
#include "sim/exec/access.h"
#include "sim/ops/lanes.h"

namespace sardonyx::sim {

class Resource {
 public:
  Resource(Wave& w, const Inst& in);

  /// Device address of `lane`'s element, or 0 when it lies outside the resource.
  std::uint64_t address(int lane, unsigned size) const;
  /// Reads or writes `size` bytes; out of the resource's bounds, reads leave `data` alone and writes do nothing.
  void read(int lane, unsigned size, void* data) const;
  void write(int lane, unsigned size, const void* data) const;

 private:
  std::uint32_t indexOf(int lane) const;
  std::uint32_t offsetOf(int lane) const;

  Wave& w_;
  std::uint64_t base_;
  std::uint32_t stride_, records_, scalarOffset_, constant_;
  std::uint32_t indexStride_;
  bool swizzle_, addTid_;
  bool private_;                           ///< the private segment buffer over this wave's scratch
  const std::uint32_t* index_ = nullptr;   ///< row of indices, when the instruction has one
  const std::uint32_t* offset_ = nullptr;  ///< row of byte offsets
};

}  // namespace sardonyx::sim
