// The library's version.
#pragma once
#include <string_view>

namespace sardonyx {

/// "0.1.0".
std::string_view version();

}  // namespace sardonyx
