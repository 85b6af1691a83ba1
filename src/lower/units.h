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

/// At most `most` kernels are in a unit, and only kernels that are needed by the same candidates, branches and
/// conditions, so that a run compiles nothing that it does not need. Custom kernels are alone, because sources may
/// define the same names. First come units that every run or the program's constants need, and custom kernels, so that
/// errors in their sources are reported before a model is ready.
std::vector<Unit> units_of(const Program& program, std::size_t most);

}  // namespace sardonyx
