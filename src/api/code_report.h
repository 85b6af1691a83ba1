// Compiled kernels of a program for a GPU: registers, memory, occupancy, matrix instructions.
#pragma once
#include <string>
#include <vector>

#include "compile/kernel_code.h"
#include "program/program.h"

namespace sardonyx {

struct KernelReport {
  KernelCode code;                 ///< lds includes what launches add
  std::vector<std::string> nodes;  ///< the model's nodes, of the first step that uses the kernel
  int waves = 0;                   ///< waves that a SIMD holds (occupancy); 0: unknown
  /// "good", or what is wrong: "spills VGPRs", "uses scratch" (both are memory), "spills SGPRs" (to lanes of VGPRs),
  /// "few waves".
  std::string verdict;
};

/// In the order of Program::kernels. Throws Error(kUnsupported) for a program of the host.
std::vector<KernelReport> code_report(const Program& program);

}  // namespace sardonyx
