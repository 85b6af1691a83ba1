// Warnings to the user: one line on stderr.
#pragma once
#include <fmt/format.h>

#include <cstdio>
#include <string>

namespace sardonyx {

inline void warn(const std::string& text) { fmt::print(stderr, "sardonyx: {}\n", text); }

}  // namespace sardonyx
