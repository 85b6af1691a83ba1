// Throwing the library's one exception type (sardonyx/error.h, which is installed) with formatted messages.
#pragma once
#include <fmt/format.h>

#include <string>
#include <utility>

#include "sardonyx/error.h"

namespace sardonyx {

/// Throws Error of `kind` with a message in fmt's syntax.
template <typename... Args>
[[noreturn]] void fail(ErrorKind kind, fmt::format_string<Args...> format, Args&&... args) {
  throw Error(kind, fmt::format(format, std::forward<Args>(args)...));
}

/// Throws an internal error unless `condition` holds: for our own invariants, never for checks of input.
template <typename... Args>
void check(bool condition, fmt::format_string<Args...> format, Args&&... args) {
  if (!condition)
    throw Error(ErrorKind::kInternal, "internal error: " + fmt::format(format, std::forward<Args>(args)...));
}

}  // namespace sardonyx
