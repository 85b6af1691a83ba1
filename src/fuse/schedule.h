// What fusion produces: steps in order, each one kernel launch, routine or act of the run time.
#pragma once
#include <functional>
#include <memory>
#include <string>
#include <variant>
#include <vector>

#include "graph/graph.h"

namespace sardonyx {

/// One value computed within a loop kernel: for every point of the kernel's outer variables, for every point of
/// `inner`, out[index] = body.
struct Stage {
  Value* out = nullptr;
  Exprs index;  ///< one per dim of out: an outer variable, an inner variable, or 0
  Exprs inner;  ///< outermost first
  Expr body;
  bool stored =
      true;  ///< false: only later stages of this kernel read it (then `inner` is empty and it lives in a register)
  bool used_after = true;  ///< false: the same of a stage with `inner`, which may still need the memory
};

/// Stages that share their outer variables run one after another for each outer point; a later stage may load what an
/// earlier one computed at the same outer point. A kernel of one stage has no outer variables: code generation splits
/// its inner ones.
struct LoopKernel {
  Exprs outer;
  std::vector<Stage> stages;
};

/// A matrix product, convolution or attention with an epilogue: out[vars] = epilogue, in which a load of the node's
/// output at `vars` is the accumulated result. Without one, epilogue is empty and out is the node's output.
struct TileKernel {
  Node* node = nullptr;
  Value* out = nullptr;
  Exprs vars;
  Expr epilogue;
  /// `vars` are of `out`, which has half as many columns as the node's output: each takes two that lie side by side.
  bool pairs = false;
};

struct Schedule;

/// Everything else runs as the node says: routine, bind, check, if, while.
struct NodeStep {
  Node* node = nullptr;
  std::vector<std::unique_ptr<Schedule>> bodies;  ///< of IfOp (then, else) and WhileOp
};

struct Step {
  std::variant<LoopKernel, TileKernel, NodeStep> op;
  std::string origin;  ///< the model's nodes that this step computes
  std::vector<Value*> reads, writes;
};

struct Schedule {
  Graph* graph = nullptr;
  std::vector<Step> init;  ///< of constants only: run once, when the program is loaded
  std::vector<Step> steps;
};

/// What a device can take as one kernel.
struct FuseOptions {
  /// Whether this tile kernel can run with this epilogue (one epilogue step is tried at a time).
  std::function<bool(const TileKernel&)> accepts_epilogue;
  /// Whether this node runs as a tile kernel at all; others become loop kernels.
  std::function<bool(const Node&)> accepts_tile;
  /// float16 or bfloat16: weights and activations are kept in it; see fuse/narrow.h. float32: in the model's own types.
  DType precision = DType::kFloat32;
  /// No 16-bit float arithmetic: such values are kept in float32; see fuse/widen.h.
  bool widen_halves = false;
  /// Products of 8-bit tensors are tile kernels rather than routines; see fuse/integer_products.h.
  bool integer_tiles = false;
  /// Products of dequantised floats of this 8-bit type are tile kernels of it; float32: none. See
  /// fuse/float8_products.h.
  DType float8_tiles = DType::kFloat32;
  /// Two products whose results meet in one loop are one with an epilogue; see fuse/pair_products.h.
  bool pair_products = false;
  /// Operands of matrix products may be any expression; see fuse/prologue.h.
  bool prologues = false;
  /// Constant operands of tile kernels are stored with what is summed over contiguous; see fuse/pack.h.
  bool contiguous_sums = false;
  /// Attention takes masks, limits and biases as expressions, a soft cap, a sink, and heads in groups.
  bool attention_expressions = false;
  /// Attention takes limits of the keys, a soft cap, a sink and heads in groups, as tensors in memory.
  bool attention_limits = false;
  /// Epilogues of matrix products load tensors in whatever order these lie in memory.
  bool epilogues_in_any_order = false;
  /// A selection computes only the side that it chooses, so that what both sides need may become part of both.
  bool lazy_selections = false;
  /// Long reductions to few results are split; see fuse/split.h.
  bool split_reductions = false;
  /// Convolutions of few channels get more of them; see fuse/few_channels.h.
  bool fill_channels = false;
  /// Dims along which a loop's output repeats become 1; see fuse/repeats.h.
  bool shrink_repeats = false;
  /// No fusion: each value of the graph in memory, one kernel each (to find a fault).
  bool disabled = false;
};

/// Fuses a graph (which it rewrites: bodies are inlined in place, dead nodes go).
Schedule fuse(Graph& graph, const FuseOptions& options);

/// The buffer that holds v: v itself, or what it is a view of.
Value* storage_of(Value* v);

}  // namespace sardonyx
