// The kernels of kernels/ that compute a contraction, as candidates for choose_tiling(), and what each costs.
#pragma once
#include <fmt/format.h>

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "program/kernel_spec.h"
#include "program/tiling.h"
#include "sardonyx/dtype.h"

namespace sardonyx::codegen {

/// A tiling and the kernel that has it.
struct Candidate {
  std::string kernel;
  GpuTiling tiling;
  std::uint32_t shared = 0;  ///< bytes of dynamic LDS
  bool may_share = false;    ///< its k's among workgroups
  LaunchBounds bounds;
  std::string name() const { return tiling.shares > 1 ? fmt::format("{} / {}", kernel, tiling.shares) : kernel; }
};

/// Kernels of kernels/skinny.h: by columns (in units of the 16 that an instruction takes), and by how many spans of k
/// are on their way, which is no more than a wave has. `bits`: of an element of b; `width`: rows that an instruction
/// takes.
void add_skinny(std::vector<Candidate>& t, std::string_view arch, int bits, std::int64_t depth, int width, int rows,
                bool makes_rows);

/// All others but those of tma_tiling.h. `vectors`: both operands are fetched as such. `skinny_bits`: of an element of
/// b where kernels/skinny.h takes it, else 0. `depth`: the number of k's, 0 if it isn't known.
std::vector<Candidate> candidates_for(std::string_view arch, DType type, bool vectors, bool may_gemv, int skinny_bits,
                                      bool pairs, std::int64_t depth);

}  // namespace sardonyx::codegen
