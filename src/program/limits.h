// Limits of programs, which validation checks and backends rely on.
#pragma once
#include <cstddef>

namespace sardonyx {

/// Buffers, symbols and divisors of a kernel, each: backends pass them in arrays on the stack.
inline constexpr std::size_t kMaxKernelArguments = 64;

}  // namespace sardonyx
