// Operand a of a product made on the way: a row's normalisation (RMSNorm), which the one row of a language model's
// step does not deserve a launch for. Each workgroup computes the rows' sums and keeps the rows in LDS
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
  Expr term;     ///< over row and k: what is summed, float32
  Expr element;  ///< over row and k: an element of a, in which a load of `total` is the row's sum
  const Value* total = nullptr;
};

/// Of a product whose left operand is what `rows` stores, if that is a sum over each row and then elements of it.
std::optional<RowPrologue> row_prologue(const Contraction& c, const LoopKernel& rows);
/// The functions row_part and row_elements of skinny.h.
void emit_row_prologue(Emitter& e, const Contraction& c, const RowPrologue& p);
/// The same in the form of stream.h, if what they read is runs of floats: what is `loaded` (constant, in memory before
/// any launch) is read by one function, all else by another. Returns the declaration of the struct that holds both.
std::string emit_streamed_row(Emitter& e, const Contraction& c, const RowPrologue& p,
                              const std::function<bool(const Value*)>& loaded);

}  // namespace sardonyx::codegen
