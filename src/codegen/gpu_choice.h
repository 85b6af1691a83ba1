// What code generation makes of a GEMM, convolution or attention on a GPU: candidates, their kernels and launches, from
// which lower/ makes a ChoiceStep.
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
    bool partial = false;    ///< the kernel takes the working memory as a further buffer, after `buffers`
  };
  Choice choice;
  std::vector<KernelSpec> kernels;
  std::vector<std::vector<Launch>> launches;  ///< by candidate
  std::vector<Value*> buffers;                ///< the first arguments of every kernel
  Exprs symbols;                              ///< the 64-bit arguments of every kernel
  Expr partial;                               ///< float32 elements of working memory; empty: none
  std::vector<CopiedOperands> copied;         ///< at most one: of tilings that copy
  DType type = DType::kFloat32;               ///< of the factors that are multiplied
  Expr work;                                  ///< operations
  Expr limit;                                 ///< see LaunchStep::limit; empty: none
};

/// Which candidates of a choice are compiled: those that the rule takes for some sizes, those that were measured to be
/// the fastest for some, and with `selection.all` every one. Sets choice.tuned. Where the sizes are known and one
/// candidate was measured to be the fastest, that one alone.
std::vector<bool> select_candidates(Choice& choice, const TileSelection& selection, std::string_view arch);

}  // namespace sardonyx::codegen
