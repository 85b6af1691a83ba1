// Internal to code generation of expressions: the types of arithmetic.
#pragma once
#include <fmt/format.h>

#include <cstdint>
#include <string>

#include "codegen/emit.h"

namespace sardonyx::codegen {

inline bool plain_float(DType t) { return t == DType::kFloat32 || t == DType::kFloat64; }
inline bool narrow_int(DType t) {
  return t == DType::kInt4 || t == DType::kUInt4 || t == DType::kInt2 || t == DType::kUInt2;
}
/// Type in which arithmetic on t is done; results are rounded back.
inline DType compute_type(DType t) {
  if (narrow_int(t)) return DType::kInt32;
  return is_float(t) && !plain_float(t) ? DType::kFloat32 : t;
}

/// Whether it is a rounding to float16 that has to saturate: not of what is at most 1.
bool saturates(const Expr& e);

/// `x` as another type; `mode`: how Op::kCast rounds.
inline std::string cast_text(DType from, DType to, std::int64_t mode, const std::string& x) {
  if (from == to) return x;
  const bool fp8 = size_of(to) == 1 && is_float(to);
  if (!fp8) return fmt::format("cast<{}>({})", type_name(to), x);
  const char* round = (mode & 2) != 0 ? "Round::kDown" : (mode & 4) != 0 ? "Round::kNearest" : "Round::kUp";
  return fmt::format("cast<{}, {}, {}>({})", type_name(to), (mode & 1) != 0 ? "true" : "false", round, x);
}

}  // namespace sardonyx::codegen
