// Graphs that programs of MIGraphX's interface build themselves: modules of instructions, each of which becomes ONNX
// nodes (operators.h). The shapes of results are those of the compiler's own import of the nodes.
#pragma once
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "migraphx/objects.h"
#include "migraphx/operation.h"
#include "model/model.h"

struct migraphx_module;

namespace sardonyx::mgx {

class ModuleGraph;
using Module = ::migraphx_module;

/// A value that an instruction computes.
struct Result {
  std::string name;  ///< in the ONNX graph
  migraphx_shape shape;
};

struct Instruction {
  enum class Kind { kParameter, kLiteral, kOperator, kReturn };
  Kind kind = Kind::kOperator;
  const Module* module = nullptr;
  migraphx_operation op;  ///< of parameters "@param", of literals "@literal", of returns "@return"
  std::vector<std::shared_ptr<const Instruction>> inputs;
  std::vector<const Module*> modules;
  std::vector<Result> results;
  migraphx_shape declared;            ///< of a custom operator: what its compute_shape() said, perhaps with strides
  bool is_tuple = false;              ///< results are used through get_tuple_elem
  std::map<std::string, Result> rnn;  ///< of recurrent layers: "hidden" and "cell", their last states
  std::vector<model::Node> nodes;
  std::vector<model::Tensor> constants;

  /// The one result. Throws Error(kInvalidArgument) for tuples and returns.
  const Result& result() const;
};

using InstructionPtr = std::shared_ptr<const Instruction>;

}  // namespace sardonyx::mgx

/// A list of instructions; may belong to a program, of which it is the main module or one that If or Loop runs.
struct migraphx_module {
 public:
  using Instruction = sardonyx::mgx::Instruction;
  using InstructionPtr = sardonyx::mgx::InstructionPtr;

  /// `owner`: null for a module that belongs to no program yet.
  migraphx_module(std::string name, sardonyx::mgx::ModuleGraph* owner) : name_(std::move(name)), owner_(owner) {}

  /// These add an instruction and return it. They throw Error: kInvalidArgument for what does not fit, kUnsupported.
  InstructionPtr add_parameter(const std::string& name, const migraphx_shape& shape);
  /// Copies the elements, which lie as the shape's strides say.
  InstructionPtr add_literal(const migraphx_shape& shape, const void* data);
  InstructionPtr add_operator(const migraphx_operation& op, std::vector<InstructionPtr> inputs,
                              const std::vector<migraphx_module*>& modules = {});
  /// Memory of the main module for a custom operator's result.
  InstructionPtr add_allocation(const migraphx_shape& shape);
  /// The results of the module. `replace`: instead of those it had.
  InstructionPtr add_return(std::vector<InstructionPtr> inputs, bool replace = false);
  /// The same as add_operator, before another instruction of this module.
  InstructionPtr insert_operator(const InstructionPtr& before, const migraphx_operation& op,
                                 std::vector<InstructionPtr> inputs);

  const std::string& name() const { return name_; }
  const std::vector<InstructionPtr>& instructions() const { return instructions_; }
  /// The results: those of add_return, otherwise the last instruction's.
  std::vector<sardonyx::mgx::Result> results() const;
  std::vector<const Instruction*> parameters() const;
  /// Position of an instruction of this module.
  std::size_t index_of(const Instruction& i) const;
  /// Listing in MIGraphX's form.
  std::string text() const;
  sardonyx::model::Graph onnx_graph() const;
  /// Values of enclosing modules that this one uses, by name.
  std::map<std::string, sardonyx::mgx::Result> captured() const;
  bool is_used() const { return used_; }

 private:
  friend class sardonyx::mgx::ModuleGraph;
  std::shared_ptr<Instruction> start(const migraphx_operation& op) const;
  std::shared_ptr<Instruction> make_operator(const migraphx_operation& op, std::vector<InstructionPtr> inputs,
                                             const std::vector<migraphx_module*>& modules);
  void make_custom(Instruction& i);
  void require_outside_allowed(const std::string& what) const;
  void require_open(const char* what) const;
  std::string value_name(const char* kind);
  void place(InstructionPtr i);

  std::string name_;
  sardonyx::mgx::ModuleGraph* owner_;
  std::vector<InstructionPtr> instructions_;
  InstructionPtr return_;
  bool used_ = false;  ///< by an instruction: nothing can be added
  int depth_ = 1;
  std::size_t count_ = 0;
};

namespace sardonyx::mgx {

/// The modules of a program.
class ModuleGraph {
 public:
  ModuleGraph();
  Module& main() { return *modules_.at("main"); }
  /// Throws Error(kInvalidArgument) for a name in use.
  Module& create(const std::string& name);
  /// Fills the main module with a model's nodes, for inspection only: the graph is frozen. `shapes`: of values.
  void list(const model::Graph& graph, const std::map<std::string, migraphx_shape>& shapes);
  /// The whole program as a model, with its parameters.
  model::Model onnx_model() const;
  /// All modules' listings.
  std::string text() const;
  /// Whether instructions are computed outside of ONNX nodes (custom_operators.h).
  bool has_custom_operators() const;
  /// Grows with every change.
  std::size_t version() const { return version_; }
  void changed() { ++version_; }
  /// After this nothing can be added.
  void freeze() { frozen_ = true; }
  bool is_frozen() const { return frozen_; }

 private:
  std::map<std::string, std::unique_ptr<Module>> modules_;
  std::size_t version_ = 1;
  bool frozen_ = false;
};

/// Version of ONNX's operators in such graphs.
inline constexpr std::int64_t kGraphOpset = 21;

/// An input of an ONNX graph with this shape; open dims are named after it.
model::ValueInfo declare(const std::string& name, const migraphx_shape& shape);

}  // namespace sardonyx::mgx

struct migraphx_instruction {
  sardonyx::mgx::InstructionPtr instruction;
};

struct migraphx_instructions {
  std::vector<sardonyx::mgx::InstructionPtr> instructions;
};
