// Whether a program keeps the executor's rules.
#pragma once
#include "program/program.h"

namespace sardonyx {

/// Throws Error(kInvalidModel) unless every number that refers to something (buffers, symbols, kernels, constants)
/// does, lists that belong together have equal lengths, constants have the bytes of their shape, and steps write to
/// temporaries only. With that, running it is safe as far as its own machine code is and its shapes are true.
void validate(const Program& program);

}  // namespace sardonyx
