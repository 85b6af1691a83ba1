// Arrays of float16 and bfloat16 to float32 and back.
#pragma once
#include <cstdint>

#include "support/dtype.h"

namespace sardonyx::host {

/// Reads `count` values of `type` (float32, float16, bfloat16).
void to_float32(DType type, const void* in, float* out, std::int64_t count, int threads);
/// Writes `count` values as `type`, rounded to nearest, ties to even; too large ones become infinite, NaN stays NaN.
void from_float32(DType type, const float* in, void* out, std::int64_t count, int threads);

}  // namespace sardonyx::host
