// Reads the properties of kernels from a linked code object.
#pragma once
#include <string>
#include <string_view>
#include <vector>

#include "compile/kernel_code.h"

namespace sardonyx {

/// See read_kernel_code(). Throws Error(kInvalidModel).
std::vector<KernelCode> read_amd(std::string_view object, const std::string& chip);

}  // namespace sardonyx
