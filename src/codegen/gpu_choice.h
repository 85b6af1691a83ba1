// The result of code generation for a GEMM, convolution or attention on a GPU: candidates, their kernels and launches,
// from which lower/ makes a ChoiceStep.
#pragma once
#include <cstddef>
#include <string_view>
#include <vector>

#include "codegen/tile_choices.h"
#include "graph/graph.h"
#include "program/kernel_spec.h"
#include "program/program.h"

namespace sardonyx::codegen {

struct GpuChoice {
  struct Launch {
    std::size_t kernel = 0;  ///< index into `kernels`
    Expr work_items;         ///< threads; empty: the candidate's tiling gives the grid
    Exprs more;              ///< 64-bit arguments after `symbols`
    bool partial = false;    ///< the kernel takes the workspace as a further buffer, after `buffers`
    Exprs symbols;           ///< in place of GpuChoice::symbols; empty: those
  };
  Choice choice;
  std::vector<KernelSpec> kernels;
  std::vector<std::vector<Launch>> launches;  ///< by candidate
  std::vector<Value*> buffers;                ///< the first arguments of every kernel
  Exprs symbols;                              ///< the 64-bit arguments of every kernel
  Expr partial;                               ///< float32 elements of workspace; empty: none
  std::vector<CopiedOperands> copied;         ///< at most one: for tilings that load by TMA
  DType type = DType::kFloat32;               ///< of the operands that are multiplied
  Expr work;                                  ///< number of operations
  Expr limit;                                 ///< see LaunchStep::limit; empty: none
};

/// Selects the candidates of a choice that are compiled: those that the cost model chooses for some sizes, those that
/// were measured to be the fastest for some, and with `selection.all` every one. Sets choice.tuned. If the sizes are
/// known and one candidate was measured to be the fastest, only that one is selected.
std::vector<bool> select_candidates(Choice& choice, const TileSelection& selection, std::string_view arch);

}  // namespace sardonyx::codegen
