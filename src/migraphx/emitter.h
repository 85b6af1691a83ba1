// How a row of the table of operators (operators.h) makes ONNX nodes of an instruction.
#pragma once
#include <string>
#include <vector>

#include "migraphx/graph.h"
#include "migraphx/operators.h"

namespace sardonyx::mgx {

class Emitter {
 public:
  using Attributes = std::map<std::string, model::Attribute, std::less<>>;
  using Names = std::vector<std::string>;
  using Ints = std::vector<std::int64_t>;

  /// Adds to `instruction`, whose inputs are set. `prefix` begins the names of its values. Throws
  /// Error(kInvalidArgument) for a wrong number of inputs.
  Emitter(Instruction& instruction, std::string prefix);

  const OperatorRule& rule() const { return rule_; }
  const Instruction& instruction() const { return instruction_; }

  // Inputs. Where one is used as a tensor it must not be a tuple: Error(kInvalidArgument).
  std::size_t inputs() const { return instruction_.inputs.size(); }
  std::string in(std::size_t k) const;
  Names all_inputs() const;
  const migraphx_shape& shape(std::size_t k) const;
  DType type(std::size_t k) const;
  std::size_t rank(std::size_t k) const;
  /// Sizes. Throws Error(kUnsupported) if the shape is dynamic.
  Ints dims(std::size_t k) const;
  /// An input that was left out: MIGraphX's operator `undefined`.
  bool is_undefined(std::size_t k) const;
  /// Throws Error(kInvalidArgument) unless all inputs have one element type and equal dims, as MIGraphX demands.
  void require_equal_shapes() const;

  // Attributes, with defaults. They throw Error(kInvalidArgument) for a value of another kind.
  bool given(const char* name) const { return instruction_.op.attributes.contains(name); }
  std::int64_t integer(const char* name) const;
  float number(const char* name) const;
  bool flag(const char* name) const;
  Ints ints(const char* name) const;
  std::vector<float> numbers(const char* name) const;
  const nlohmann::json& value(const char* name) const;
  /// One of `names`, by name or by its position.
  std::size_t choice(const char* name, const Names& names) const;
  /// An element type by name ("float_type", "float") or number.
  DType dtype(const char* name) const;
  /// A module argument. Throws Error(kInvalidArgument) if there is none.
  const Module& module(std::size_t k) const;

  // Nodes. They return the names of the results.
  std::string node(const std::string& type, Names inputs, Attributes attributes = {});
  Names nodes(std::size_t results, const std::string& type, Names inputs, Attributes attributes = {});
  std::string cast(const std::string& value, DType type);
  /// A constant of rank 1 and of one element.
  std::string int_list(const Ints& values);
  std::string scalar(DType type, double value);

  /// A result of the instruction, in their order.
  void result(const std::string& value);
  /// The result is one that another instruction computes.
  void alias(const Result& of) { instruction_.results.push_back(of); }
  /// The results are a tuple.
  void tuple() { instruction_.is_tuple = true; }
  void rnn_state(const std::string& which, const std::string& value) { instruction_.rnn[which].name = value; }

  [[noreturn]] void refuse(const std::string& why) const;
  [[noreturn]] void invalid(const std::string& why) const;

 private:
  std::string fresh();

  Instruction& instruction_;
  const OperatorRule& rule_;
  nlohmann::json attributes_;
  std::string prefix_;
  std::size_t count_ = 0;
};

}  // namespace sardonyx::mgx
