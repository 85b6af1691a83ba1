// Divides the kernels of a program into translation units, each of which becomes one object of the program.
#pragma once
#include <cstddef>
#include <vector>

#include "program/program.h"

namespace sardonyx {

/// Kernels that are compiled together.
struct Unit {
  std::vector<std::size_t> kernels;
  bool always = false;  ///< they are compiled before the program is built
};

enum class Grouping {
  kByNeed,    ///< a run compiles nothing that it does not need
  kAnyKernel  ///< everything is compiled: as few units as possible, since each costs 10 to 20 ms of CPU time
};

/// At most `most` kernels are in a unit; with kByNeed only kernels that are needed by the same candidates, branches and
/// conditions. Custom kernels are alone, because sources may define the same names. With kByNeed, units that every run
/// or the program's constants need come first, and custom kernels, so that errors in their sources are reported before
/// a model is ready. With kAnyKernel all are compiled before.
std::vector<Unit> units_of(const Program& program, std::size_t most, Grouping grouping);

}  // namespace sardonyx
