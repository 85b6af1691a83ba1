// Fourier transforms on a GPU: the call of kernels/routines_fourier.h that a routine `fourier` is.
#pragma once
#include <optional>
#include <string>

#include "graph/graph.h"

namespace sardonyx::codegen {

struct FourierForm {
  std::string call;  ///< of b0, the input, b1, the output, and s0, s1, s2, the values
  Exprs values;
  Expr threads;
};
/// `units`: compute units, among which few transforms are divided. Empty if the routine's params are not known.
std::optional<FourierForm> fourier_form(const RoutineOp& op, const Value& x, int units);

}  // namespace sardonyx::codegen
