// Builds a graph from operators by name, for front ends whose models are not lists of nodes:
//
//   std::unique_ptr<Graph> MySource::import(const ImportOptions& options) const {
//     OpBuilder b(options);
//     Value* x = b.input(declared_);
//     Value* y = b.op("MatMul", {x, b.constant(weights_)});
//     b.output("y", b.op("LeakyRelu", {y}, {{"alpha", 0.1F}}));
//     return b.finish();
//   }
//
// The dtype and shape of each result are known at once (Value). Operators, their inputs and attributes are those of
// docs/operators.md.
#pragma once
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "import/model_source.h"
#include "model/model.h"
#include "sardonyx/tensor.h"

namespace sardonyx {

class OpBuilder {
 public:
  using Attributes = std::map<std::string, model::Attribute, std::less<>>;

  /// `options`: what ModelSource::import() was asked for; must outlive the builder. `opset`: version of ONNX's
  /// operators.
  explicit OpBuilder(const ImportOptions& options, std::int64_t opset = model::kMaxOpset);

  /// As the options say: an input with the declared dims or with fixed ones, or a constant. Throws as add_input().
  Value* input(const model::ValueInfo& declared);
  /// Shares the tensor's memory.
  Value* constant(const Tensor& value);
  /// An operator with one output. `inputs`: in the operator's order, null where an optional one is omitted. `domain`:
  /// "" or "com.microsoft". Throws Error naming the operator: kUnsupported; kInvalidModel for inputs and attributes
  /// that do not fit; NeedInput if the value of an input of the model must be known. Graphs as attributes (If, Loop,
  /// Scan) are refused: they need a list of nodes, see NodeSource.
  Value* op(const std::string& type, std::vector<Value*> inputs, Attributes attributes = {},
            const std::string& domain = "");
  /// The same with `outputs` outputs.
  std::vector<Value*> op_with_outputs(std::size_t outputs, const std::string& type, std::vector<Value*> inputs,
                                      Attributes attributes = {}, const std::string& domain = "");
  void output(const std::string& name, Value* value);
  /// The graph; the builder is empty afterwards.
  std::unique_ptr<Graph> finish();

 private:
  const ImportOptions& options_;
  std::int64_t opset_, count_ = 0;  ///< of operators so far
  std::unique_ptr<Graph> graph_;
  std::map<std::string, Value*> results_;  ///< of operators, by name
};

}  // namespace sardonyx
