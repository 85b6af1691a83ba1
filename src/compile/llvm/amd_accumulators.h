// Checks kernels that assign accumulation registers themselves, which the compiler does not know.
#pragma once
#include <string>
#include <string_view>

namespace sardonyx {

/// Whether nothing but a kernel's own code writes its accumulation registers. `object` is a relocatable object for
/// `chip`. Kernels that assign registers have a symbol that begins with "sdx_own_accumulators" in their code; others
/// are not looked at. In their code, a write to accumulation registers may be
/// - the number 0, once for each register, or
/// - a matrix instruction that adds to the registers that it writes.
/// All else the compiler may have put there for values of its own, which would destroy sums. Thread-safe.
bool keeps_accumulators(std::string_view object, const std::string& chip);

}  // namespace sardonyx
