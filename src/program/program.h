// A program: steps over buffers, whose sizes are expressions of symbols. Plain data that can be saved; independent of
// graphs.
#pragma once
#include <cstdint>
#include <memory>
#include <string>
#include <variant>
#include <vector>

#include "epilogue/post_kind.h"
#include "expr/expr.h"
#include "program/choice.h"
#include "program/kernel_spec.h"
#include "program/launch.h"
#include "program/objects.h"
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

/// A buffer viewed with a shape of the same number of elements; views share memory.
struct TensorRef {
  int buffer = 0;
  Exprs shape;
};

/// A call of generated code; see codegen/loop_codegen.h. Arguments on the host: buffers, symbols and a range of work
/// items. On a GPU: buffers, then 64-bit numbers: `symbols` (expressions), divisor_argument() of each divisor, and with
/// `repeat` the number of the launch.
struct LaunchStep {
  int kernel = 0;  ///< index into Program::kernels
  std::vector<int> buffers;
  Exprs symbols;
  Expr work_items;  ///< on a GPU: threads
  Expr work;        ///< approximate number of operations, in the unit KernelSpec::work_unit
  Exprs divisors;
  Expr limit;   ///< the code is valid for sizes that give less than 2^31 - 2^29 here; for others the run fails like a
                ///< wrong assumption. Empty: valid for all sizes
  Expr repeat;  ///< number of launches, one after another; empty: one
  /// Kernels of family kCustom only: x, y and z of the grid and of a block, and bytes of dynamic shared memory.
  /// `work_items` is then the number of blocks. On the host these numbers come before the symbols.
  Exprs grid, block;
  Expr shared;
};

/// Generated code that turns the int32 accumulators of a GEMM of 8-bit integers into results, a block of rows and
/// columns at a time, while the accumulators are in the caches. Work item row * ceil(columns / kAccumulatorBlock) +
/// block computes columns [kAccumulatorBlock * block, ...) of a row; rows are those of the GEMM, in the order of the
/// accumulators in memory.
struct AccumulatorEpilogue {
  std::vector<LaunchStep> launch;  ///< one; none: the accumulators are the result
  /// Index into the launch's buffers: the accumulators; the buffer there is only a placeholder.
  int accumulators = 0;
};

/// An operand in memory, of kernels that load it by TMA (GpuTiling::tma). Element [z, line, k] is at offset + z *
/// batch + line * pitch + k, in elements; with `across`, where lines and not K are contiguous, at offset + z * batch +
/// k
/// * pitch + line.
struct CopiedOperand {
  std::int32_t buffer = -1;  ///< index into the launch's buffers
  std::int64_t offset = 0, pitch = 0;
  std::int64_t batch = 0;  ///< 0: all batches have the same operand
  bool across = false;
  /// With `across`: only so many lines are contiguous; the others are as many matrices, `batch` elements apart, as it
  /// takes. 0: all are contiguous.
  std::int64_t inner = 0;
  /// So many neighbouring batches (heads between tokens) are `head` elements apart, and each such group `batch`. 0: all
  /// batches are `batch` apart.
  std::int64_t heads = 0, head = 0;
};
struct CopiedOperands {
  CopiedOperand a, b;
  std::vector<CopiedWindows> windows;  ///< at most one: `a` is images; of `operands[0]` only the buffer is used
};

/// The same GEMM as a call of a vendor's library (vendor/gemm_library.h).
struct LibraryCall {
  int a = -1, b = -1, out = -1, bias = -1, residual = -1, workspace = -1;  ///< buffers; -1: none
  bool trans_a = false, trans_b = false, one_a = false, one_b = false;
  GemmActivation activation = GemmActivation::kNone;
  Expr batches, m, n, k;
};

/// On a GPU: a GEMM, convolution or attention, as one of several candidates (choice.h). See codegen/gpu_choice.h.
struct ChoiceStep {
  Choice choice;
  /// The launches of each candidate, in order; without limit, divisors and repeat. The first launch of a candidate with
  /// a tiling has no `work_items`: the tiling gives its grid.
  std::vector<std::vector<LaunchStep>> launches;
  std::vector<CopiedOperands> copied;  ///< at most one: for tilings that load by TMA
  std::vector<LibraryCall> library;    ///< at most one
  int partial = -1;                    ///< workspace; also among the launches' buffers
  DType type = DType::kFloat32;        ///< of the operands that are multiplied
  Expr work;                           ///< number of operations
  Expr limit;                          ///< as in LaunchStep
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

/// Sets a symbol to a value.
struct SymbolStep {
  int symbol = -1;
  Expr value;
};

/// Control flow, as defined by IfOp and WhileOp in graph/graph.h.
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

/// A step of an epilogue; see PostOp.
struct PostInfo {
  PostKind kind = PostKind::kAddTensor;
  float alpha = 0, beta = 0;
  DType dtype = DType::kFloat32;
  int operand = -1;  ///< buffer
  Exprs dims;        ///< of the operand, in the output's axis order
};

/// out = post(a . b); see host::GemmDesc. Of 8-bit integers (host/integer_tiles.h): out is of the sums, or of what the
/// epilogue makes of them.
struct GemmStep {
  int a = 0, b = 0, out = 0;
  Exprs batch_a, batch_b;
  Expr m, n, k;
  bool trans_a = false, trans_b = false;
  std::vector<PostInfo> post;
  AccumulatorEpilogue epilogue;
};

/// out = post(convolution of x with w + bias); see host::ConvDesc. Shapes are the buffers' (channels first).
struct ConvStep {
  int x = 0, w = 0, bias = -1, out = 0;
  std::vector<std::int64_t> strides, dilations;
  Exprs pads_begin, pads_end;
  std::int64_t groups = 1;
  bool transposed = false;
  bool channels_last = false;  ///< in memory, x and out; of integers: the sums, and x always
  Exprs x_shape, w_shape, out_shape;
  std::vector<PostInfo> post;
  AccumulatorEpilogue epilogue;  ///< of 8-bit integers
  std::int64_t padding = 0;      ///< what elements of x beyond its edges are, if they are integers
  bool exact = false;            ///< see ConvOp
};

/// A tensor of attention in its buffer: elements are at offset + strides . (batch, head, row, element).
struct HeadRef {
  int buffer = -1;
  Expr offset;
  Exprs strides;  ///< 4 of them; empty: there is no such tensor
};

/// out = softmax(scale * q . k + bias) . v; see host::AttentionDesc.
struct AttentionStep {
  HeadRef q, k, v, bias, out;
  HeadRef begin, end, sink;  ///< over batch, head, row
  HeadRef pages;             ///< int64, over batch and (as row, with stride 1) page: where keys and values lie
  std::int64_t page_rows = 0;
  Expr k_page, v_page;              ///< elements of a page of k and of v; empty without pages
  HeadRef k_scale, v_scale;         ///< float32, over batch, head, row: k, v are of 8 bits in pages, times these
  Expr k_scale_page, v_scale_page;  ///< elements of a page of them; empty without scales
  Expr batch, heads, queries, keys, head_dim, value_dim;
  std::int64_t group = 1;
  float scale = 1, softcap = 0;
  bool zero_empty = false;
};

/// The operation of a step. To add one: a struct here, its fields in fields.h, its rules in validate.cpp, and its code
/// in the backends that run it. Code that only looks for expressions, launches, buffers or nested blocks in steps finds
/// them through visit.h.
using StepOp = std::variant<LaunchStep, ChoiceStep, GemmStep, ConvStep, AttentionStep, RoutineStep, BindStep, CheckStep,
                            IfStep, WhileStep>;

struct ProgramStep {
  StepOp op;
  std::string origin;
  std::vector<int> reads, writes;  ///< buffers, for the memory plan
  /// The step runs if this is not 0; empty: always. If it does not run, another step computes the same, or the result
  /// is not used. The executor checks it (Executor::Run::block), and code that counts or prepares steps before a run.
  Expr when;
};

/// The steps of a graph or a nested graph.
struct Block {
  std::vector<TensorRef> inputs, outputs;
  std::vector<ProgramStep> steps;
};

/// A kernel of a program. Kernels with equal specs are stored once.
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
  Objects objects;     ///< of the kernels, for `target`
  std::string target;  ///< "x86_64 znver4 ...", "gfx942", "sm_90"; see compile/compiler.h
  Block init;          ///< computes constants; run once, when the program is loaded
  Block main;
  std::vector<std::string> input_names, output_names;
};

}  // namespace sardonyx
