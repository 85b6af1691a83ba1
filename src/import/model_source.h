// A model in any format, as the compiler and Model see it. A front end implements ModelSource, or reads its format into
// a model::Model, of which NodeSource makes one.
#pragma once
#include <cstdint>
#include <map>
#include <memory>
#include <set>
#include <string>
#include <vector>

#include "custom/operators.h"
#include "graph/graph.h"
#include "import/calibration.h"
#include "model/model.h"
#include "ops/op.h"
#include "sardonyx/options.h"
#include "sardonyx/tensor.h"

namespace sardonyx {

struct ImportOptions {
  /// Inputs of the model whose value is known: they become constants (see NeedInput). dims and dtype must fit the
  /// declaration.
  std::map<std::string, Tensor> values;
  /// Ranks of inputs that the model declares without a shape.
  std::map<std::string, int> ranks;
  /// Dims of inputs, by name, for a program of these very sizes.
  std::map<std::string, std::vector<std::int64_t>> shapes;
  /// Fixed sizes of symbolic dims, by name ("batch" -> 1).
  std::map<std::string, std::int64_t> dims;
  /// Operators that users have defined; null: none.
  std::shared_ptr<const CustomOperators> custom;
  /// Also make every named intermediate value an output (for `verify --bisect`).
  bool all_outputs = false;
};

/// A model's interface as its file declares it.
struct Signature {
  std::vector<TensorInfo> inputs;  ///< what callers must give, in the model's order
  std::vector<TensorInfo> outputs;
  std::set<std::string> dims;  ///< names of symbolic dims, which ImportOptions::dims may fix
};

/// The signature of declared inputs and outputs. `dims`: as ImportOptions::dims.
Signature declared_signature(const std::vector<model::ValueInfo>& inputs, const std::vector<model::ValueInfo>& outputs,
                             const std::map<std::string, std::int64_t>& dims);

class ModelSource {
 public:
  virtual ~ModelSource() = default;
  /// `dims`: as ImportOptions::dims; such dims are numbers in the result.
  virtual Signature signature(const std::map<std::string, std::int64_t>& dims) const = 0;
  /// The graph of the model. May be called from several threads at once. Throws Error (kInvalidModel, kUnsupported), or
  /// NeedInput where the graph depends on the value or the rank of an input that `options` does not give.
  virtual std::unique_ptr<Graph> import(const ImportOptions& options) const = 0;
  /// Rounds the operands of matrix products and convolutions to `type`; later imports give the rounded model. Throws
  /// Error(kUnsupported) if the format can't be quantised.
  virtual QuantizationReport quantize(const CalibrationTable& table, DType type) = 0;
  /// Drops the weights' data; import() refuses the model afterwards.
  virtual void release_weights() = 0;
  /// The model as a list of nodes, for reports; null if its format has none.
  virtual const model::Model* nodes() const { return nullptr; }
  /// What the model's file says about itself under names of its author's choice.
  virtual std::map<std::string, std::string> metadata() const { return {}; }
};

}  // namespace sardonyx
