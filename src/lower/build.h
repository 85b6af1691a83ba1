// From a graph to a program: fusion, code generation, compilation.
#pragma once
#include <cstddef>
#include <functional>
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
  CodeCache* cache = nullptr;         ///< of compiled code; null: none
  std::string target;                 ///< of a GPU ("gfx942", "sm_90"); empty: this machine's CPU
  DType precision = DType::kFloat32;  ///< float16, bfloat16: of weights and activations; see fuse/narrow_floats.h
  const codegen::TileChoices* choices = nullptr;  ///< measured choices of tilings; null: none
  bool all_tilings = false;                       ///< tile kernels keep every tiling, for whoever times them
  bool libraries = true;                          ///< whether choices may be of a vendor's library of products
  bool fuse = true;                               ///< false: one kernel per value (to find a fault)
  /// Called while kernels compile with how many translation units are done and how many there are; one thread at a
  /// time.
  std::function<void(std::size_t, std::size_t)> progress;
};

/// How graphs are fused for these options' target.
FuseOptions fuse_options_of(const BuildOptions& options);

/// Builds a program. The graph is consumed.
std::shared_ptr<Program> build_program(Graph& graph, const BuildOptions& options);

}  // namespace sardonyx
