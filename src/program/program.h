// A program: steps over buffers, with sizes that are expressions of symbols. Plain data: it can be saved, and knows
// nothing of graphs.
#pragma once
#include <cstdint>
#include <memory>
#include <string>
#include <variant>
#include <vector>

#include "expr/expr.h"
#include "program/kernel_spec.h"
#include "program/launch.h"
#include "program/post_kind.h"
#include "program/tiling.h"
#include "support/data.h"

namespace sardonyx {

/// A tensor in memory.
struct BufferInfo {
  enum class Kind : std::uint8_t { kInput, kConstant, kTemporary };
  Kind kind = Kind::kTemporary;
  DType dtype = DType::kFloat32;
  Exprs shape;
  std::vector<int> storage_order;  ///< empty: row-major
  std::string name;                ///< the model's name, if it has one
  int constant = -1;               ///< index into Program::constants
};

/// A buffer seen under a shape (of the same element count; views share memory).
struct TensorRef {
  int buffer = 0;
  Exprs shape;
};

/// A call of generated code; see codegen/loop_codegen.h. On the host, it takes buffers, symbols and a range of points.
/// On a GPU: buffers, then these as 64-bit numbers: symbols (any expressions of them), what divisor_argument() makes of
/// the divisors, and with `repeat` the number of the launch.
struct LaunchStep {
  int kernel = 0;  ///< index into Program::kernels
  std::vector<int> buffers;
  Exprs symbols;
  Expr points;  ///< on a GPU: threads
  Expr work;    ///< approximate number of operations, counted as the kernel's spec says (KernelSpec::work_unit)
  Exprs divisors;
  Expr limit;  ///< the code is for sizes that give less than 2^31 - 2^29 here; others are refused as an assumption that
               ///< does not hold. Empty: for all sizes
  Expr repeat;  ///< how many launches, one after another; empty: one
};

/// A tile kernel of a GPU; see codegen/tile_codegen.h. One of `kernels` is launched, by the tiling that suits the
/// sizes.
struct TileLaunchStep {
  /// A tiling that was measured to be the fastest for these sizes.
  struct Tuned {
    std::int64_t batches = 0, m = 0, n = 0, k = 0;
    std::int32_t tiling = 0;
    std::string library;  ///< not empty: not that tiling but this candidate of a vendor's library, if it is here
  };
  /// The same as a product of a vendor's library (vendor/product_library.h).
  struct Library {
    int a = -1, b = -1, out = -1, bias = -1, residual = -1, workspace = -1;  ///< buffers; -1: none
    bool trans_a = false, trans_b = false, one_a = false, one_b = false;
    ProductActivation activation = ProductActivation::kNone;
    Expr batches, m, n, k;
  };
  std::vector<int> kernels;  ///< as many as tilings
  std::vector<GpuTiling> tilings;
  std::vector<std::string> names;  ///< of tilings, as many
  std::string problem;             ///< see codegen::TileChoices
  std::vector<Tuned> tuned;        ///< of equal sizes, the first that is possible; else the model of cost decides
  std::vector<Library> library;    ///< one, or none
  std::vector<int> buffers;
  /// For tilings that copy (GpuTiling::copies): the operands in memory, see CopiedOperand.
  struct Copied {
    std::int32_t buffer = -1;  ///< index into `buffers`
    std::int64_t offset = 0, pitch = 0, batch = 0;
  };
  Copied copied_a, copied_b;
  std::vector<CopiedWindows> windows;  ///< one, of copied_a, whose buffer alone counts then; or none
  /// For tilings with shares: the kernel that adds them up, and the buffer of their sums, which is not among `buffers`.
  int finish = -1, partial = -1;
  Exprs symbols;
  Expr batches, m, n, k;
};

/// Attention on a GPU; see codegen/attention_codegen.h. One of its forms runs.
struct AttentionLaunchStep {
  struct Form {
    std::string name;
    Expr applies;                      ///< not 0: it computes these sizes
    std::vector<LaunchStep> launches;  ///< one after another; without a limit of their own
  };
  std::vector<Form> forms;
  Expr needed;                               ///< 0: another kernel has computed it for these sizes; empty: never
  Expr rule;                                 ///< the form that is taken where nothing was measured
  std::string problem;                       ///< see codegen::TileChoices
  std::vector<TileLaunchStep::Tuned> tuned;  ///< `tiling` is the form
  Expr batches, m, n, k;                     ///< heads of all sequences, queries, keys, elements of a head
  Expr work;                                 ///< operations
  Expr limit;                                ///< as a LaunchStep's
  int partial = -1;                          ///< working memory, which is also among the launches' buffers
};

struct RoutineStep {
  std::string name;
  std::vector<TensorRef> inputs, outputs;
  Exprs params;
  std::vector<double> floats;
};

/// symbols[k] = element k of an integer buffer.
struct BindStep {
  int buffer = 0;
  std::vector<int> symbols;
};

struct CheckStep {
  Expr condition;
  std::string message;
  bool assumption = false;  ///< see CheckOp
};

struct Block;

/// Sets symbol `symbol` to a value.
struct SymbolStep {
  int symbol = -1;
  Expr value;
};

/// See IfOp, WhileOp in graph/graph.h for what running them means.
struct IfStep {
  Expr condition;
  std::unique_ptr<Block> then_block, else_block;
  std::vector<SymbolStep> then_symbols, else_symbols;
  std::vector<TensorRef> outputs;
};

struct WhileStep {
  std::unique_ptr<Block> body;
  std::vector<TensorRef> initial, outputs;
  int carried = 0, stacked = 0;
  int iteration = -1, trips = -1;  ///< symbols
  Expr trip_count, condition, next_condition;
  struct CarriedDim {
    int symbol;
    Expr initial, next;
  };
  std::vector<CarriedDim> carried_dims;
  std::vector<SymbolStep> stacked_dims;
};

/// A step of an epilogue; see host::PostOp.
struct PostInfo {
  PostKind kind = PostKind::kAddTensor;
  float alpha = 0, beta = 0;
  DType dtype = DType::kFloat32;
  int operand = -1;  ///< buffer
  Exprs dims;        ///< of the operand, in the output's axis order
};

/// out = post(a . b); see host::GemmDesc.
struct GemmStep {
  int a = 0, b = 0, out = 0;
  Exprs batch_a, batch_b;
  Expr m, n, k;
  bool trans_a = false, trans_b = false;
  std::vector<PostInfo> post;
};

/// out = post(convolution of x with w + bias); see host::ConvDesc. Shapes are the buffers' (channels first).
struct ConvStep {
  int x = 0, w = 0, bias = -1, out = 0;
  std::vector<std::int64_t> strides, dilations;
  Exprs pads_begin, pads_end;
  std::int64_t groups = 1;
  bool transposed = false;
  bool channels_last = false;  ///< in memory, x and out
  Exprs x_shape, w_shape, out_shape;
  std::vector<PostInfo> post;
};

/// Where a tensor of attention lies in its buffer: elements at offset + strides . (batch, head, row, element).
struct HeadRef {
  int buffer = -1;
  Expr offset;
  Exprs strides;  ///< 4; empty for no tensor
};

/// out = softmax(scale * q . k + bias) . v; see host::AttentionDesc.
struct AttentionStep {
  HeadRef q, k, v, bias, out;
  HeadRef begin, end, sink;  ///< over batch, head, row
  Expr batch, heads, queries, keys, head_dim, value_dim;
  std::int64_t group = 1;
  float scale = 1, softcap = 0;
  bool zero_empty = false;
};

struct ProgramStep {
  std::variant<LaunchStep, TileLaunchStep, AttentionLaunchStep, GemmStep, ConvStep, AttentionStep, RoutineStep,
               BindStep, CheckStep, IfStep, WhileStep>
      op;
  std::string origin;
  std::vector<int> reads, writes;  ///< buffers, for the memory plan
};

/// Steps of a graph or a nested graph.
struct Block {
  std::vector<TensorRef> inputs, outputs;
  std::vector<ProgramStep> steps;
};

/// One kernel of a program. Kernels of equal specs are one.
struct KernelInfo {
  std::string symbol;  ///< extern "C" name in the object code
  KernelSpec spec;
  int object = 0;  ///< index into Program::objects
};

struct Program {
  std::vector<std::string> symbol_names;
  std::vector<BufferInfo> buffers;
  std::vector<Data> constants;
  std::vector<KernelInfo> kernels;
  std::vector<std::string> objects;  ///< relocatable objects of the kernels, for `target`
  std::string target;                ///< "x86_64 znver4 ...", "gfx942", "sm_90"; see compile/compiler.h
  Block init;                        ///< of constants only, run once
  Block main;
  std::vector<std::string> input_names, output_names;
};

}  // namespace sardonyx
