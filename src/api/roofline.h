// Roofline estimates: the shortest time that each launch of a program could take on a chip that need not be present. It
// is the longer of bytes / memory bandwidth and operations / peak rate, of the chip's default product (target/chip.h).
#pragma once
#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "api/code_report.h"
#include "program/program.h"

namespace sardonyx {

/// One launch of a run.
struct LaunchEstimate {
  std::string kernel;
  std::vector<std::string> nodes;
  double bytes = 0, operations = 0;
  double seconds = 0;           ///< at the roofline
  double tiling_seconds = 0;    ///< Hopper: of a GEMM or convolution, by the measured times of its tiling; 0: not known
  bool by_memory = true;        ///< bound by memory bandwidth rather than by arithmetic
  std::int64_t workgroups = 0;  ///< of GEMM and convolution kernels; 0: not known
  const KernelReport* code = nullptr;
  double matrix_share = 0;  ///< matrix instructions among all instructions of the code, 0 to 1
};

/// Estimates for the launches of the main block that run at these sizes (`dims`: symbols of the inputs' shapes). `code`
/// is code_report(program) and must outlive the result. Empty if the program's target is not a GPU. Throws
/// Error(kInvalidArgument) for a dim that is missing or unknown.
std::vector<LaunchEstimate> estimate(const Program& program, const std::vector<KernelReport>& code,
                                     const std::map<std::string, std::int64_t>& dims);

}  // namespace sardonyx
