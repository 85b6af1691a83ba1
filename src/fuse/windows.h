// What passes and code generation agree on about windows: pooling, depthwise convolutions.
#pragma once
#include <cstdint>

namespace sardonyx {

/// Elements of a window at most. A longer reduction is not treated as a window.
inline constexpr std::int64_t kMostTaps = 2048;

}  // namespace sardonyx
