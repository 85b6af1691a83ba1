// The text of a contraction's kernels: the struct P that kernels/gemm_problem.h requires, and the properties of the
// problem that decide which kernels support it.
#pragma once
#include <functional>
#include <optional>
#include <string_view>
#include <vector>

#include "codegen/contraction.h"
#include "codegen/kernel_family.h"
#include "codegen/row_prologue.h"
#include "codegen/tile_choices.h"
#include "program/program.h"

namespace sardonyx::codegen {

struct ContractionSource {
  ContractionProblem problem;
  ContractionText text;
  std::vector<Value*> buffers;         ///< parameters, in order
  Exprs symbols;                       ///< then these, and size_arguments()
  std::vector<CopiedOperands> copied;  ///< one, if problem.tma
  KernelSpec unpack;                   ///< see GpuUnpackedTile; empty body: b has 16 bits or more
};

/// The smallest possible value of a size: symbols may be as small as 1.
std::int64_t smallest(const Expr& size);

/// The last arguments of every kernel: M; N, and K in the upper half; batches.
Exprs size_arguments(const Contraction& c);

/// With `rows`, the kernel computes its rows of a itself, `row_height` of them. `selection`: see TileSelection.
ContractionSource contraction_source(const Contraction& c, const Value& accumulator, std::string_view arch,
                                     const TileSelection& selection, const RowPrologue* rows = nullptr,
                                     int row_height = 0);

}  // namespace sardonyx::codegen
