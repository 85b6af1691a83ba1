// What became of a program's kernels on its GPU: registers, memory, occupancy, matrix instructions.
#pragma once
#include <string>
#include <vector>

#include "compile/kernel_code.h"
#include "program/program.h"

namespace sardonyx {

struct KernelReport {
  KernelCode code;                 ///< its LDS includes what launches add
  std::vector<std::string> nodes;  ///< the model's, of the first step that uses it
  int waves = 0;                   ///< that a SIMD holds at a time; 0: not known
  /// "good", or what is wrong: "spills VGPRs", "uses scratch" (both are memory), "spills SGPRs" (to lanes of VGPRs),
  /// "few waves".
  std::string verdict;
};

/// In the order of Program::kernels. Throws Error(kUnsupported) for a program of the host.
std::vector<KernelReport> code_report(const Program& program);

}  // namespace sardonyx
