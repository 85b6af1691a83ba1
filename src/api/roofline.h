// What a program's launches would take at best on a chip that need not be here: bytes over its memory's speed or
// operations over its matrix units', whichever is longer.
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

/// A chip's ceilings, by its maker's data sheet, for dense matrices.
struct ChipPeaks {
  std::string_view arch, card;  ///< "gfx942", "MI300X"
  int units = 0;                ///< compute units
  double bytes_per_second = 0;
  double float32 = 0, half = 0, byte = 0;  ///< operations per second on float32, 16-bit floats, 8-bit integers
};
/// Null for a chip that is not known.
const ChipPeaks* peaks_of(std::string_view arch);

/// One launch of a run.
struct LaunchEstimate {
  std::string kernel;
  std::vector<std::string> nodes;
  double bytes = 0, operations = 0;
  double seconds = 0;           ///< at the roofline
  bool by_memory = true;        ///< what bounds it
  std::int64_t workgroups = 0;  ///< of tile kernels; 0: not known
  const KernelReport* code = nullptr;
  /// How many of the instructions in the code are matrix instructions.
  double matrix_share = 0;
};

/// Of the launches of the main block for these sizes of the inputs' symbols, that do something. `code`: of
/// code_report(program), which must live as long. Empty for a chip that is not known. Throws Error(kInvalidArgument)
/// for a dim that is missing or unknown.
std::vector<LaunchEstimate> estimate(const Program& program, const std::vector<KernelReport>& code,
                                     const std::map<std::string, std::int64_t>& dims);

}  // namespace sardonyx
