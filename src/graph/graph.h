// The graph: tensors (Value) with a dtype and a symbolic shape, and nodes of a few typed kinds.
//
// Nearly every ONNX operator becomes LoopOps: "element [i, j, ...] of the output is this expression". Transpose, slice,
// pad, concat, gather, resize, broadcasts, arithmetic, pooling, reductions, softmax are all loops, which fusion then
// composes. What has its own algorithm is a tile kernel (MatMulOp, ConvOp, AttentionOp) or a routine (sort, scatter
// ...).
//
// Shapes are expressions over symbols. A symbol's value becomes known when the program starts (dims of inputs) or when
// a BindOp reads it from a small integer tensor (data-dependent sizes).
#pragma once
#include <deque>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <unordered_map>
#include <variant>
#include <vector>

#include "expr/expr.h"
#include "program/routine_names.h"
#include "support/data.h"
#include "support/error.h"

namespace sardonyx {

class Graph;
struct Node;

/// A tensor of the graph. Identity is its address; it lives as long as its graph.
class Value {
 public:
  int id = 0;
  std::string name;  ///< the model's name for it, or "" for one of ours
  DType dtype = DType::kFloat32;
  Exprs shape;
  Node* producer = nullptr;  ///< null for inputs of the graph
  int output_index = 0;      ///< which output of the producer
  Graph* graph = nullptr;    ///< where it is defined (a nested graph may use values of enclosing graphs)
  /// Known elements, row-major, for small tensors whose elements are constants or expressions of symbols.
  std::shared_ptr<const Exprs> content;
  /// Order of the dims in memory, outermost first; empty for row-major. Set by the layout pass.
  std::vector<int> storage_order;

  int rank() const { return static_cast<int>(shape.size()); }
  Expr elements() const { return idx::product(shape); }
  bool is_constant() const;
  /// Data of a constant; throws an internal error otherwise.
  const Data& constant() const;
  template <typename T>
  const T* constant_as() const {
    return reinterpret_cast<const T*>(constant().bytes);
  }
};

/// A tensor known when compiling.
struct ConstantOp {
  Data data;
};

/// output[vars...] = body. One output; its shape is the extents of vars.
struct LoopOp {
  Exprs vars;
  Expr body;
};

/// The same elements with another shape; no data moves.
struct ViewOp {};

/// output[vars...] = sum over k of a * b, accumulated in fp32 (int32 for integers, fp64 for fp64). vars ends with m and
/// n; a is free of n and b is free of m. a and b are usually plain loads; after fusion they may be any expression.
struct MatMulOp {
  Exprs vars;
  Expr k;
  Expr a, b;
  /// Set if rows are sorted by group, as those of experts: vars are the row, one of extent 1, and the column. `owner`,
  /// over the row, is how many groups have an `end` (int64, over the variable `group`) of at most the row's number, but
  /// never more than the last group's number. b depends on the row through `owner` only. So each group of rows is a
  /// GEMM; without these fields the node means the same.
  Expr owner = {}, group = {}, end = {};
};

/// Convolution of x [N, C, spatial...] with w [K, C/groups, kernel...] and an optional bias [K] (inputs x, w, bias). If
/// `transposed`, w is [C, K/groups, kernel...] and strides dilate the input. Shapes stay logical (channels first)
/// whatever the storage order is. x and w have one type, or are 8-bit integers with int32 sums.
struct ConvOp {
  std::vector<std::int64_t> strides, dilations;
  Exprs pads_begin, pads_end;
  std::int64_t groups = 1;
  /// Of the channels of each tap that the weights have, the last ones that x does not have: they count as 0.
  std::int64_t zeros = 0;
  std::int64_t padding = 0;  ///< what elements of x beyond its edges are; not 0 only for 8-bit integers
  bool transposed = false;
  bool has_bias = false;
  /// x and w are dequantised from 8 bits: a float32 sum of their products in any order is exact if the scales are
  /// powers of two. So it is a direct sum, not of transformed operands (Winograd).
  bool exact = false;
};

/// output[b, h, s, e] = softmax over t of score(b, h, s, t) times v, where the score is scale * q . k, then (with a
/// softcap) softcap * tanh(score / softcap), then bias is added. Made by the fuser. Operands are element expressions
/// over vars, which allow for strided, transposed and shared (grouped) operands without a copy. vars: b, h, s, t, d, e
/// (d: dims of q and k; e: dims of v).
struct AttentionOp {
  Expr scale;  ///< float32 scalar expression
  bool has_bias = false;
  double softcap = 0;  ///< 0: none
  Exprs vars;
  Expr q, k, v, bias;
  /// If not empty, k and v are int8 or float8 e4m3, and each is multiplied by its own: float32 over b, h, t.
  Expr k_scale, v_scale;
  /// Query s attends to begin <= t < end only: int64 over b, h, s; empty: no such limit.
  Expr begin, end;
  /// A further score, float32 over b and h, that takes part in the softmax but has no value; may be empty.
  Expr sink;
  bool zero_empty = false;  ///< a query that attends to no key gives zeros, rather than NaN
};

/// A launch of a kernel that a user wrote in CUDA's dialect (src/custom).
struct CustomLaunch {
  std::string source;  ///< text that defines the kernel
  std::string kernel;  ///< how it is called: "rope<float>"
  struct Argument {
    enum class Kind : std::uint8_t { kTensor, kWhole, kText };
    Kind kind = Kind::kTensor;
    int tensor = -1;        ///< index into the node's inputs, then outputs; -1: null (an omitted input)
    std::string type;       ///< C++ type of the tensor's elements; empty: any
    std::size_t param = 0;  ///< kWhole: index into the params
    std::string text;       ///< kText: a C++ expression, in which s0, s1, ... are the params from `first` + 7 on
  };
  std::vector<Argument> arguments;
  /// Index into the params: x, y and z of the grid and of a block, bytes of dynamic shared memory, and then the numbers
  /// that arguments use, up to `end`.
  std::size_t first = 0, end = 0;
};

/// A named algorithm that each device implements: sorting, scatter, non-zero, recurrent cells and others. See
/// src/routines/. Or, with `launches`, an operator that a user has defined.
struct RoutineOp {
  std::string name;
  Exprs params;                ///< int64, in the order that the routine documents
  std::vector<double> floats;  ///< in the order that the routine documents
  std::shared_ptr<const std::vector<CustomLaunch>> launches;
};

/// Reads the first elements of an integer tensor into symbols: symbols[k] = input[k].
struct BindOp {
  Exprs symbols;
};

/// Fails the run with `message` unless `condition` holds once its symbols are known. An `assumption` is not required by
/// the model, but code was generated under it (two symbolic dims that meet in a broadcast are equal, rather than one of
/// them 1): if it does not hold, the model must be compiled for these sizes.
struct CheckOp {
  Expr condition;
  std::string message;
  bool assumption = false;
};

/// `symbol` is set to `value`, at a time that the node defines.
struct SymbolBinding {
  Expr symbol, value;
};

/// Runs one of two graphs, which have no inputs: they use captured values and symbols. Inputs of the node: the captured
/// values of both. To run it: evaluate `condition` (its symbols are known); not 0 takes then_graph. Run that graph with
/// the same table of symbols. Output k of the node is output k of the graph that ran, which may be any value visible
/// there (computed in it, captured, constant): copy or alias it. At last evaluate the taken graph's bindings: dims of
/// the node's outputs are made of symbols known before and of these.
struct IfOp {
  std::unique_ptr<Graph> then_graph, else_graph;
  Expr condition;
  std::vector<SymbolBinding> then_symbols, else_symbols;
};

/// Runs a graph again and again. Inputs of the node: the initial values of `carried` tensors, then the captured values.
/// Inputs of the body: the carried tensors. Outputs of the body: their next values, then `stacked` values. Outputs of
/// the node: the last values of the carried tensors, then the stacked ones with a new dim 0, the iteration. Any visible
/// value may be an output of the body, its inputs included.
///
/// To run it: trips = 0; set the symbol of each CarriedDim to `initial`. While (trips < trip_count, if there is one)
/// and (`condition`, later `next_condition`, is not 0; an empty one is true):
/// 1. set `iteration` = trips;
/// 2. run the body with the same table of symbols; append its stacked outputs;
/// 3. evaluate `next_condition`, every CarriedDim's `next` and every stacked_dims' value, all of them before any symbol
/// is set;
/// 4. set the carried dims' symbols; set the stacked_dims' symbols, which must not change from one iteration to the
/// next (an error: the
///    stacked values differ in shape); the body's first outputs become its next inputs; ++trips.
/// Afterwards set `trips`, if it is not empty, to the count of iterations; without any iteration stacked_dims are 0 and
/// the node's first outputs are the initial values. The sizes of stacked outputs are known before the loop runs when
/// `trips` and stacked_dims are empty.
struct WhileOp {
  std::unique_ptr<Graph> body;
  int carried = 0;
  int stacked = 0;
  Expr iteration;       ///< symbol
  Expr trip_count;      ///< may be negative (no iteration); empty: no limit
  Expr condition;       ///< before the first iteration
  Expr next_condition;  ///< after an iteration, over symbols of the body
  Expr trips;           ///< symbol; empty if the loop runs max(trip_count, 0) times for sure
  /// A dim of a carried tensor that may differ between iterations. The body's input and the node's output have the
  /// symbol as this dim.
  struct CarriedDim {
    Expr symbol, initial, next;
  };
  std::vector<CarriedDim> carried_dims;
  std::vector<SymbolBinding> stacked_dims;  ///< dims of stacked outputs that only the body knows
};

using Payload =
    std::variant<ConstantOp, LoopOp, ViewOp, MatMulOp, ConvOp, AttentionOp, RoutineOp, BindOp, CheckOp, IfOp, WhileOp>;

struct Node {
  int id = 0;
  Payload op;
  std::vector<Value*>
      inputs;  ///< all tensors that it reads, including loads in expressions and values captured by nested graphs
  std::vector<Value*> outputs;
  std::string origin;  ///< the model's node: "conv1 (Conv)"; after fusion several: "conv1 (Conv) + relu1 (Relu)"

  template <typename T>
  T* as() {
    return std::get_if<T>(&op);
  }
  template <typename T>
  const T* as() const {
    return std::get_if<T>(&op);
  }
};

/// The origin of a symbol, for messages and binding.
struct SymbolInfo {
  std::string name;
};

/// Names and numbers of symbols: one table for a graph and its nested graphs.
class SymbolTable {
 public:
  /// A new symbol >= 0 (a dim). The name is made unique.
  Expr dim(const std::string& name);
  /// A new symbol of any sign.
  Expr data(const std::string& name);
  /// The symbol of this name from dim(), or a new one: dims of equal name in a model are equal.
  Expr named_dim(const std::string& name);
  int size() const { return static_cast<int>(infos_.size()); }
  const SymbolInfo& info(int id) const { return infos_[static_cast<std::size_t>(id)]; }

 private:
  std::string unique(const std::string& name);
  std::vector<SymbolInfo> infos_;
  std::unordered_map<std::string, Expr> by_name_;
  std::unordered_map<std::string, int> counts_;
};

class Graph {
 public:
  /// The outermost graph owns the symbols; nested ones share their parent's.
  explicit Graph(Graph* parent = nullptr);
  Graph(const Graph&) = delete;
  Graph& operator=(const Graph&) = delete;

  Graph* parent() const { return parent_; }
  SymbolTable& symbols() { return *symbols_; }
  const SymbolTable& symbols() const { return *symbols_; }

  std::vector<Value*> inputs, outputs;
  std::vector<std::string> output_names;  ///< of `outputs`, in the model's spelling
  /// Of a nested graph: expressions evaluated after it has run (see IfOp, WhileOp). Nodes that bind their symbols are
  /// not dead.
  Exprs final_expressions;
  std::vector<std::unique_ptr<Node>> nodes;  ///< in an order in which every value is defined before it is used

  /// A new input of the graph.
  Value* add_input(std::string name, DType dtype, Exprs shape);
  /// Appends a node with fresh outputs of the given types.
  Node* add_node(Payload op, std::vector<Value*> inputs, const std::vector<std::pair<DType, Exprs>>& outputs);
  /// A constant. Small ones (up to kMaxContent elements) get their content.
  Value* add_constant(DType dtype, std::vector<std::int64_t> dims, Data data);
  /// output[vars] = body. Folds to a constant or known content when all elements are known and few.
  Value* add_loop(Exprs vars, Expr body);
  /// The same elements with another shape. The caller guarantees equal element counts (see CheckOp). Chains and no-ops
  /// collapse.
  Value* add_view(Value* x, Exprs shape);
  /// Tensor of known elements (constants or expressions of symbols) with a constant shape.
  Value* add_content(DType dtype, std::vector<std::int64_t> dims, Exprs elements);
  /// Fails the run unless the condition holds; nothing if it is provably true; throws Error(kInvalidModel) if provably
  /// false.
  void add_check(const Expr& condition, std::string message, bool assumption = false);
  /// Symbols for the elements of an integer tensor of constant shape: its content if known, otherwise fresh symbols
  /// bound by a BindOp. `sizes`: the values are sizes, so not negative.
  Exprs bind(Value* integers, bool sizes = false);

  /// Origin of new nodes ("conv1 (Conv)").
  std::string origin;

  static constexpr std::int64_t kMaxContent = 1024;

  Value* new_value(DType dtype, Exprs shape);

 private:
  Graph* parent_;
  std::shared_ptr<SymbolTable> symbols_;
  std::deque<std::unique_ptr<Value>> values_;
  int* next_id_;
  Exprs checked_;  ///< conditions that add_check has seen
  int own_next_id_ = 0;
};

/// Tensors that an expression loads, each once, in order of first use.
std::vector<Value*> loads_of(const Expr& e);
/// Values that a nested graph (or graphs nested in it) uses but does not define, each once.
std::vector<Value*> captured_values(const Graph& nested);
/// Whether all dims are constants; `out` receives them. Throws Error(kInvalidModel) if their product overflows.
bool constant_dims(const Exprs& shape, std::vector<std::int64_t>& dims);
/// Element k of a constant as an expression of its dtype (empty for dtypes without constants in expressions, such as
/// fp8).
Expr constant_element(const Value& v, std::int64_t k);

/// A readable listing of the whole graph, for `sardonyx inspect` and tests.
std::string to_string(const Graph& g);

}  // namespace sardonyx
