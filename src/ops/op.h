// What an operator's definition consists of, and what its lowering may use.
//
//   // Relu: y = max(x, 0)
//   void relu(OpContext& c) {
//     c.out(0, tensor::map1(c.graph(), c.in(0), [](const Expr& x) { return binary(Op::kMax, x, constant(0, x->dtype));
//     }));
//   }
//   void register_activation(OpRegistry& r) {
//     r.add({.name = "Relu", .lower = relu, .dtypes = "floats, signed integers"});
//   }
#pragma once
#include <functional>
#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "graph/graph.h"
#include "model/model.h"

namespace sardonyx {

class OpContext;
using LowerFn = std::function<void(OpContext&)>;

struct OpDef {
  std::string name;
  std::string domain = "";  ///< "" or "com.microsoft"
  int min_opset = 6;        ///< older versions of its semantics are refused
  LowerFn lower = nullptr;
  std::string dtypes = "all";  ///< for the documentation
  std::string notes = "";      ///< limits, for the documentation
  bool sequences = false;      ///< takes or makes sequences of tensors
};

/// A sequence of tensors, whose length is known when compiling.
using Sequence = std::vector<Value*>;

class OpRegistry {
 public:
  /// All operators.
  static const OpRegistry& instance();
  void add(OpDef def);
  const OpDef* find(std::string_view domain, std::string_view name) const;
  std::vector<const OpDef*> all() const;

 private:
  std::map<std::pair<std::string, std::string>, OpDef> ops_;
};

/// Thrown by lowering if the value (axes given at run time) or the rank of an input of the graph must be known to
/// compile. The caller then compiles a variant for the value (or rank) that it sees at run time.
struct NeedInput {
  std::string input;
  enum Kind { kValue, kRank } kind;
  std::string why;
};

/// Lowers a nested graph (bodies of If, Loop, Scan). Implemented by import/.
class GraphLowerer {
 public:
  virtual ~GraphLowerer() = default;
  /// Lowers `body` into `into` (whose parent is the current graph). `inputs`: values of `into` for the body's inputs,
  /// in order. Returns the body's outputs.
  virtual std::vector<Value*> lower_body(const model::Graph& body, Graph& into, const std::vector<Value*>& inputs) = 0;
  /// For an If whose condition is over dims of the model's inputs and decides more than sizes: which branch to assume;
  /// true for the one where the condition holds. If the rest can't be lowered, the import starts again with the other
  /// branch.
  virtual bool assume(const model::Node& node) = 0;
};

/// One node being lowered.
class OpContext {
 public:
  OpContext(const model::Node& node, Graph& graph, std::vector<Value*> inputs, GraphLowerer& lowerer);

  const model::Node& node() const { return node_; }
  Graph& graph() { return graph_; }
  GraphLowerer& lowerer() { return lowerer_; }
  std::int64_t opset() const { return node_.opset; }

  int input_count() const { return static_cast<int>(inputs_.size()); }
  bool has(int k) const { return k < input_count() && inputs_[static_cast<std::size_t>(k)]; }
  /// Input k; an error if absent.
  Value* in(int k) const;
  /// Input k or null.
  Value* opt(int k) const { return has(k) ? inputs_[static_cast<std::size_t>(k)] : nullptr; }
  int output_count() const { return static_cast<int>(node_.outputs.size()); }
  /// Whether the model uses output k.
  bool wants(int k) const { return k < output_count() && !node_.outputs[static_cast<std::size_t>(k)].empty(); }
  void out(int k, Value* v);
  const std::vector<Value*>& outputs() const { return outputs_; }

  /// Inputs that are sequences, by their number; in() and opt() have none for them.
  void set_sequences(std::map<int, Sequence> inputs) { sequences_ = std::move(inputs); }
  bool is_sequence(int k) const { return sequences_.count(k) > 0; }
  /// Input k, which must be a sequence.
  const Sequence& sequence(int k) const;
  void out_sequence(int k, Sequence elements) { sequence_outputs_[k] = std::move(elements); }
  const std::map<int, Sequence>& sequence_outputs() const { return sequence_outputs_; }

  // Attributes, by type; the model's own value or the fallback.
  bool has_attr(std::string_view name) const { return node_.find(name) != nullptr; }
  std::int64_t attr(std::string_view name, std::int64_t fallback) const { return node_.get_int(name, fallback); }
  float attr_f(std::string_view name, float fallback) const { return node_.get_float(name, fallback); }
  std::string attr_s(std::string_view name, std::string_view fallback) const {
    return node_.get_string(name, fallback);
  }
  std::vector<std::int64_t> attr_ints(std::string_view name, const std::vector<std::int64_t>& fallback = {}) const {
    return node_.get_ints(name, fallback);
  }
  std::vector<float> attr_floats(std::string_view name, const std::vector<float>& fallback = {}) const {
    return node_.get_floats(name, fallback);
  }

  /// An axis attribute or value made non-negative; an error outside [-rank, rank).
  int axis(std::int64_t a, int rank) const;
  /// Elements of an integer input that must be known when compiling (axes ...). If it is an input of the whole model,
  /// asks for a variant per value (NeedInput); otherwise refuses with `what`.
  std::vector<std::int64_t> const_ints(Value* v, std::string_view what) const;
  /// The same for floats (scales of Resize ...).
  std::vector<double> const_floats(Value* v, std::string_view what) const;
  /// Elements of an integer input as int64 expressions: known ones, or symbols read at run time. How many there are
  /// must be known when compiling; if not, as const_ints.
  Exprs ints(Value* v, bool sizes = false);
  /// One element likewise.
  Expr int_scalar(Value* v, bool size = false);

  /// Refuses the node as unsupported: `reason` says what and what to do instead.
  template <typename... Args>
  [[noreturn]] void refuse(fmt::format_string<Args...> format, Args&&... args) const {
    refuse_at(ErrorKind::kUnsupported, fmt::format(format, std::forward<Args>(args)...));
  }
  /// Rejects the node as malformed.
  template <typename... Args>
  [[noreturn]] void invalid(fmt::format_string<Args...> format, Args&&... args) const {
    refuse_at(ErrorKind::kInvalidModel, fmt::format(format, std::forward<Args>(args)...));
  }
  template <typename... Args>
  void require(bool ok, fmt::format_string<Args...> format, Args&&... args) const {
    if (!ok) invalid(format, std::forward<Args>(args)...);
  }

 private:
  [[noreturn]] void refuse_at(ErrorKind kind, const std::string& reason) const;
  const model::Node& node_;
  Graph& graph_;
  std::vector<Value*> inputs_, outputs_;
  std::map<int, Sequence> sequences_, sequence_outputs_;
  GraphLowerer& lowerer_;
};

}  // namespace sardonyx
