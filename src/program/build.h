// From a graph to a program: fusion, code generation, compilation.
#pragma once
#include <memory>

#include "compile/cache.h"
#include "program/program.h"

namespace sardonyx {

struct BuildOptions {
  int threads = 1;             ///< for compiling
  CodeCache* cache = nullptr;  ///< of compiled code; null: none
  bool fuse = true;            ///< false: one kernel per value (to find a fault)
};

/// Builds a host program. The graph is consumed.
std::shared_ptr<Program> build_program(Graph& graph, const BuildOptions& options);

}  // namespace sardonyx
