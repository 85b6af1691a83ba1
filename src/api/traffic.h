// What the steps of a run must move and compute, by the sizes of their tensors: for rooflines.
#pragma once
#include <cstdint>
#include <vector>

#include "runtime/executor.h"

namespace sardonyx {

/// Of one step. Operations are those of products, convolutions and attention (a multiplication and an addition are
/// two); what other kernels compute costs less than their bytes. Every tensor counts once and whole, whatever part of
/// it is touched and however often: what a kernel that wastes nothing would move.
struct StepTraffic {
  double bytes_read = 0, bytes_written = 0;
  double operations = 0;
};

struct Traffic {
  std::vector<StepTraffic> steps;  ///< by step of the main block; one that runs others (If, Loop) counts nothing
  double bytes = 0;                ///< of all steps, read and written
  double operations = 0;           ///< of all steps
  int unknown = 0;                 ///< tensors whose size only a run knows; they are not counted
};

/// For such values of the inputs' symbols.
Traffic traffic_of(const Program& program, const SymbolValues& symbols);

}  // namespace sardonyx
