// Quantisation to 8 bits: the ranges of a program's tensors from examples.
#include <cmath>
#include <nlohmann/json.hpp>

#include "import/node_source.h"
#include "migraphx/argument.h"
#include "migraphx/program.h"
#include "migraphx/shape.h"
#include "support/error.h"

namespace sardonyx::mgx {
namespace {

using Ranges = std::map<std::string, float>;

void widen(Ranges& ranges, const std::string& name, const Tensor& t) {
  if (t.dtype != DType::kFloat32) return;
  float& largest = ranges[name];
  for (const float v : t.as<float>())
    if (std::isfinite(v)) largest = std::max(largest, std::fabs(v));
}

/// The value of a scalar of float32; negative for other arguments.
float scalar(const migraphx_argument& a) {
  if (a.shape.is_dynamic() || a.shape.type != migraphx_shape_float_type || elements_of(a.shape) != 1 || !a.data)
    return -1;
  return std::fabs(*static_cast<const float*>(a.data));
}

/// Runs the float model with every intermediate value as an output.
class Observer {
 public:
  Observer(const model::Model& nodes, Options options) {
    options.device = "host";
    options.all_outputs = true;
    model_ = std::make_unique<Model>(std::make_unique<NodeSource>(nodes), options);
  }

  void run(const std::map<std::string, migraphx_argument>& parameters, Ranges& ranges) {
    std::map<std::string, Tensor> inputs;
    for (const TensorInfo& input : model_->inputs()) {
      const auto found = parameters.find(input.name);
      if (found == parameters.end())
        fail(ErrorKind::kInvalidArgument, "the calibration data has no parameter '{}'", input.name);
      Tensor t = packed(found->second, "the calibration data of '" + input.name + "'");
      if (input.shape.empty() && t.elements() == 1) t.dims.clear();
      widen(ranges, input.name, t);
      inputs[input.name] = std::move(t);
    }
    const std::vector<Tensor> outputs = model_->run(inputs);
    const std::vector<std::string> names = model_->output_names();
    for (std::size_t k = 0; k < outputs.size(); ++k) widen(ranges, names[k], outputs[k]);
  }

 private:
  std::unique_ptr<Model> model_;
};

/// Every float tensor with MIGraphX's default range.
Ranges default_ranges(const model::Model& nodes, float largest) {
  Ranges ranges;
  ImportOptions options;
  options.all_outputs = true;
  const std::unique_ptr<Graph> graph = NodeSource(nodes).import(options);
  for (const Value* v : graph->inputs) ranges[v->name] = largest;
  for (std::size_t k = 0; k < graph->outputs.size(); ++k)
    if (graph->outputs[k]->dtype == DType::kFloat32) ranges[graph->output_names[k]] = largest;
  return ranges;
}

}  // namespace

void MigraphxProgram::calibrate(const std::string& precision,
                                const std::vector<migraphx_program_parameters>& calibration) {
  require_uncompiled("quantisation");
  require_no_custom_operators("quantised to 8 bits");
  Ranges ranges;
  std::unique_ptr<Observer> observer;
  for (const migraphx_program_parameters& example : calibration) {
    bool runs = inputs_.empty();
    for (const auto& [name, argument] : example.arguments) {
      const bool input =
          std::any_of(inputs_.begin(), inputs_.end(), [&name = name](const Parameter& p) { return p.name == name; });
      runs |= input;
      // ONNX Runtime's provider passes the ranges of a calibration table as scalars.
      if (const float largest = input ? -1 : scalar(argument); largest >= 0 && std::isfinite(largest))
        ranges[name] = std::max(ranges[name], largest);
    }
    if (!runs) continue;
    if (!observer) observer = std::make_unique<Observer>(*nodes_, compile_options("ref"));
    observer->run(example.arguments, ranges);
  }
  // MIGraphX multiplies by 64 where it has seen no data.
  if (ranges.empty()) ranges = default_ranges(*nodes_, (precision == "int8" ? 127.0F : 448.0F) / 64);
  nlohmann::json table = nlohmann::json::object();
  for (const auto& [name, largest] : ranges)
    if (largest > 0) table[name] = {-largest, largest};
  calibration_ = table.dump();
  precision_ = precision;
}

}  // namespace sardonyx::mgx
