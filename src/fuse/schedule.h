// The result of fusion: steps in order, each one kernel launch, routine, or action of the runtime.
#pragma once
#include <memory>
#include <string>
#include <variant>
#include <vector>

#include "fuse/options.h"
#include "graph/analysis.h"
#include "graph/graph.h"

namespace sardonyx {

/// One value computed within a loop kernel: for each iteration of the kernel's outer variables and of `inner`,
/// out[index] = body.
struct Stage {
  Value* out = nullptr;
  Exprs index;  ///< one per dim of out: an outer variable, an inner variable, or 0
  Exprs inner;  ///< outermost first
  Expr body;
  /// False: only later stages of this kernel read it, and it lives in a register (`inner` is empty then).
  bool stored = true;
  /// False: only later stages of this kernel read it; a stage with `inner` may still need memory for it.
  bool used_after = true;
};

/// Stages that share their outer variables run one after another for each outer iteration; a later stage may load what
/// an earlier one computed in the same iteration. A kernel of one stage has no outer variables: code generation
/// divides its inner ones.
struct LoopKernel {
  Exprs outer;
  std::vector<Stage> stages;
};

/// A GEMM, convolution or attention with an epilogue: out[vars] = epilogue, in which a load of the node's output at
/// `vars` is the accumulated result. Without one, epilogue is empty and out is the node's output.
struct TileKernel {
  Node* node = nullptr;
  Value* out = nullptr;
  Exprs vars;
  Expr epilogue;
  /// `vars` index `out`, which has half as many columns as the node's output; each reads two adjacent columns.
  bool pairs = false;
};

struct Schedule;

/// An input of a routine that the routine's kernels compute instead of reading it: the result of a loop without
/// reductions, row by row, which is in no memory.
struct ComputedInput {
  std::size_t input = 0;  ///< its number
  Stage stage;
};

/// Every other node runs as it is: routine, bind, check, if, while.
struct NodeStep {
  Node* node = nullptr;
  std::vector<ComputedInput> computed;            ///< of RoutineOp
  std::vector<std::unique_ptr<Schedule>> bodies;  ///< of IfOp (then, else) and WhileOp
};

struct Step {
  std::variant<LoopKernel, TileKernel, NodeStep> op;
  std::string origin;  ///< the model's nodes that this step computes
  std::vector<Value*> reads, writes;
};

struct Schedule {
  Graph* graph = nullptr;
  std::vector<Step> init;  ///< depend only on constants: run once, when the program is loaded
  std::vector<Step> steps;
};

/// Runs all passes (fuse/passes.h) over the graph, which they rewrite in place, groups its nodes into kernels and puts
/// these in order. Nested graphs are fused with the same options. Throws Error(kInternal) if verification is on and a
/// pass left an invalid graph.
Schedule fuse(Graph& graph, const FuseOptions& options);

}  // namespace sardonyx
