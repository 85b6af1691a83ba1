// Checks that a program obeys the executor's rules.
#pragma once
#include "program/program.h"

namespace sardonyx {

/// Throws Error(kInvalidModel) unless every index (of buffers, symbols, kernels, constants) is in range, lists that
/// belong together have equal lengths, constants have the bytes of their shape, and steps write to temporaries only.
/// Then running the program is safe, provided that its machine code is and its shapes are right.
void validate(const Program& program);

}  // namespace sardonyx
