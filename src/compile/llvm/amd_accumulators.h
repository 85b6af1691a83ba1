// Checks kernels that assign registers themselves, which the compiler does not know.
#pragma once
#include <string>
#include <string_view>

namespace sardonyx {

/// Whether nothing but a kernel's own code uses registers that it assigns. `object` is a relocatable object for `chip`.
/// Kernels that assign registers have a symbol in their code; others are not looked at. With one that begins with
/// "sdx_own_accumulators", a write to accumulation registers may be
/// - the number 0, once for each register, or
/// - a matrix instruction that adds to the registers that it writes.
/// All else the compiler may have put there for values of its own, which would destroy sums. With one that begins with
/// "sdx_own_m0", M0 may be set, and be used by loads to LDS. Thread-safe.
bool keeps_own_registers(std::string_view object, const std::string& chip);

}  // namespace sardonyx
