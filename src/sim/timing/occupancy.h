// How many workgroups of a kernel are resident on a pool of SIMDs at a time.
#pragma once
#include <cstdint>

namespace sardonyx::sim {
struct Kernel;
struct Chip;
namespace timing {

struct Occupancy {
  int wavesPerGroup = 1;
  int groups = 1;           ///< resident on a pool: a compute unit of CDNA, a workgroup processor of RDNA
  int wavesPerSimd = 1;     ///< then
  int maxWavesPerSimd = 1;  ///< of any kernel
  int simds = 4;            ///< of a pool
  int simdsPerGroup = 4;    ///< fewer than `simds` where RDNA's kernel runs in CU mode
  const char* limit = "";   ///< "registers", "LDS", "waves", "workgroups"
};

/// `threads`: work-items of a workgroup; `ldsBytes`: static and dynamic.
Occupancy occupancy(const Kernel& kernel, const Chip& chip, std::uint32_t threads, std::uint32_t ldsBytes);

}  // namespace timing
}  // namespace sardonyx::sim
