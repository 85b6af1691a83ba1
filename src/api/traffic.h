// Bytes that the steps of a run must move and operations they must compute, from the sizes of their tensors. For
// rooflines.
#pragma once
#include <cstdint>
#include <vector>

#include "runtime/executor.h"

namespace sardonyx {

/// Of one step. Operations are those of GEMM, convolution and attention (a multiply-add is two); in other kernels they
/// cost less than the bytes. Every tensor counts once and completely, as for an ideal kernel.
struct StepTraffic {
  double bytes_read = 0, bytes_written = 0;
  double operations = 0;
};

struct Traffic {
  std::vector<StepTraffic> steps;  ///< of the main block; steps that run nested blocks (If, Loop) count as 0
  double bytes = 0;                ///< of all steps, read and written
  double operations = 0;           ///< of all steps
  int unknown = 0;                 ///< tensors whose size is known only at run time; not counted
};

/// For these values of the inputs' symbols.
Traffic traffic_of(const Program& program, const SymbolValues& symbols);

}  // namespace sardonyx
