// Up to where values are stored in float16, if their ranges are known.
#pragma once

namespace sardonyx {

/// Half of float16's largest value: other data may reach further than those that the ranges are from.
inline constexpr float kHalfRange = 32752;

}  // namespace sardonyx
