// A GEMM that computes its left operand itself: the normalisation (RMSNorm) of a single row in a language model's
// decoding step, which is not worth a launch. Each workgroup computes the rows' sums and keeps the rows in LDS
// (kernels/skinny.h).
#pragma once
#include <functional>
#include <optional>
#include <string>

#include "codegen/contraction.h"

namespace sardonyx::codegen {

class Emitter;

struct RowPrologue {
  Expr run, k;   ///< variables: runs of 8 elements along k; k itself
  Expr term;     ///< over row and k: the term of the sum, float32
  Expr element;  ///< over row and k: an element of a; a load of `total` is the row's sum
  const Value* total = nullptr;
};

/// Recognises a GEMM whose left operand is stored by `rows`, as a sum over each row followed by its elements.
std::optional<RowPrologue> row_prologue(const Contraction& c, const LoopKernel& rows);
/// The functions row_part and row_elements of skinny.h.
void emit_row_prologue(Emitter& e, const Contraction& c, const RowPrologue& p);
/// The same in the form of stream.h, if the loads are runs of floats. Tensors that are `loaded` (constant, in memory
/// before any launch) are read by one function, the others by another one. Returns the declaration of the struct that
/// holds both.
std::string emit_streamed_row(Emitter& e, const Contraction& c, const RowPrologue& p,
                              const std::function<bool(const Value*)>& loaded);

}  // namespace sardonyx::codegen
