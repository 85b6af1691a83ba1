// From a graph to a program: fusion, code generation, compilation.
#pragma once
#include <cstddef>
#include <functional>
#include <map>
#include <memory>
#include <string>

#include "codegen/tile_choices.h"
#include "compile/cache.h"
#include "fuse/options.h"
#include "graph/graph.h"
#include "program/program.h"

namespace sardonyx {

struct BuildOptions {
  int threads = 1;                    ///< for compiling
  std::shared_ptr<CodeCache> cache;   ///< for compiled code; null: none
  std::string target;                 ///< of a GPU ("gfx942", "sm_90"); empty: this machine's CPU
  DType precision = DType::kFloat32;  ///< float16 or bfloat16: of weights and activations; see fuse/narrow_floats.h
  /// For float16: the largest absolute values that values of the model have, by name; null: unknown.
  std::shared_ptr<const std::map<std::string, float, std::less<>>> ranges;
  const codegen::TileChoices* choices = nullptr;  ///< measured choices; null: none
  bool all_tilings = false;                       ///< keep every candidate, so that the tuner can time them
  bool libraries = true;                          ///< whether a vendor's GEMM library may be a candidate
  bool fuse = true;                               ///< false: one kernel per value (to locate a fault)
  bool unpacked_weights = false;                  ///< GEMMs of many rows read constant weights that init has unpacked
  /// Whether kernels that only some runs need (candidates of a choice, branches, steps under a condition) are compiled
  /// after the program is built: in the background, or when a run first needs one (program/objects.h).
  bool background = false;
  /// Called while kernels compile before the program is built, with the number of finished translation units and of
  /// all; one call at a time.
  std::function<void(std::size_t, std::size_t)> progress;
};

/// How graphs are fused for the target of these options.
FuseOptions fuse_options_of(const BuildOptions& options);

/// Builds a program. The graph is consumed.
std::shared_ptr<Program> build_program(Graph& graph, const BuildOptions& options);

}  // namespace sardonyx
