// Programs before they are compiled: parsing, shapes, listings.
#include "migraphx/program.h"

#include <algorithm>
#include <limits>
#include <optional>

#include "import/node_source.h"
#include "migraphx/lenient.h"
#include "migraphx/loops.h"
#include "migraphx/model_text.h"
#include "migraphx/shape.h"
#include "onnx/load.h"
#include "support/error.h"

namespace sardonyx::mgx {
namespace {

using model::ValueInfo;

constexpr std::size_t kUnknownSize = std::numeric_limits<std::size_t>::max();

/// The dims of one input as the options say. A dim that stays open keeps the file's name, so that dims of equal names
/// are equal.
class InputShape {
 public:
  InputShape(ValueInfo& input, const migraphx_onnx_options& options) : input_(input), options_(options) {}

  Parameter apply() {
    if (input_.kind != ValueInfo::Kind::kTensor)
      fail(ErrorKind::kUnsupported, "the input '{}' is not a tensor", input_.name);
    if (!input_.dtype)
      fail(ErrorKind::kUnsupported, "the input '{}' has no element type that is supported: {}", input_.name,
           input_.unsupported.empty() ? "none is declared" : input_.unsupported);
    const migraphx_shape_datatype_t type = type_of(*input_.dtype, "the input '" + input_.name + "'");
    const std::vector<migraphx_dynamic_dimension> dims = wanted();
    std::vector<model::Dim> out(dims.size());
    std::vector<std::size_t> lengths;
    bool open = false;
    for (std::size_t k = 0; k < dims.size(); ++k) {
      if (dims[k].max > static_cast<std::size_t>(std::numeric_limits<std::int64_t>::max()))
        fail(ErrorKind::kInvalidArgument, "the input '{}': a dim of {}", input_.name, dims[k].max);
      lengths.push_back(dims[k].max);
      if (dims[k].min == dims[k].max) {
        out[k].value = static_cast<std::int64_t>(dims[k].max);
      } else {
        open = true;
        out[k].param = name(k);
      }
    }
    input_.shape = std::move(out);
    if (open) return {input_.name, migraphx_shape{type, {}, {}, dims}};
    return {input_.name, standard_shape(type, lengths)};
  }

 private:
  std::vector<migraphx_dynamic_dimension> wanted() const {
    std::vector<migraphx_dynamic_dimension> dims;
    if (const auto given = options_.lengths.find(input_.name); given != options_.lengths.end()) {
      for (const std::size_t n : given->second) dims.push_back({n, n, {}});
      return dims;
    }
    if (const auto given = options_.dynamic.find(input_.name); given != options_.dynamic.end()) return given->second;
    if (!input_.shape) return dims;  // of unknown rank: a scalar, as in MIGraphX
    for (const model::Dim& d : *input_.shape) {
      if (d.value) {
        const auto n = static_cast<std::size_t>(*d.value);
        dims.push_back({n, n, {}});
      } else if (const auto named = options_.dim_params.find(d.param); named != options_.dim_params.end()) {
        dims.push_back(named->second);
      } else {
        dims.push_back(options_.default_dim);
      }
    }
    return dims;
  }

  std::string name(std::size_t k) const {
    if (input_.shape && k < input_.shape->size() && !(*input_.shape)[k].param.empty()) return (*input_.shape)[k].param;
    return fmt::format("{}#{}", input_.name, k);
  }

  ValueInfo& input_;
  const migraphx_onnx_options& options_;
};

/// The sizes of a graph's symbols at the smaller or larger end of the inputs' ranges.
SymbolValues ends(const Graph& graph, const std::vector<Parameter>& inputs, bool large) {
  SymbolValues values;
  for (const Value* v : graph.inputs) {
    const auto p = std::find_if(inputs.begin(), inputs.end(), [&](const Parameter& x) { return x.name == v->name; });
    if (p == inputs.end() || !p->shape.is_dynamic()) continue;
    for (std::size_t k = 0; k < v->shape.size() && k < p->shape.dynamic.size(); ++k) {
      const migraphx_dynamic_dimension& d = p->shape.dynamic[k];
      if (v->shape[k]->op == Op::kSym)
        values.set(static_cast<int>(v->shape[k]->i), static_cast<std::int64_t>(large ? d.max : d.min));
    }
  }
  return values;
}

/// Nothing for a size that depends on data.
std::optional<std::size_t> size_at(const Expr& dim, const SymbolValues& symbols) {
  try {
    return static_cast<std::size_t>(std::max<std::int64_t>(evaluate(dim, symbols), 0));
  } catch (const Error&) {
    return std::nullopt;
  }
}

/// `declared`: the file's own declaration, for sizes that depend on data; may be null.
migraphx_shape shape_of(const Value& v, const std::string& what, const SymbolValues& small, const SymbolValues& large,
                        const ValueInfo* declared) {
  const migraphx_shape_datatype_t type = type_of(v.dtype, what);
  const bool has_dims = declared && declared->shape && declared->shape->size() == v.shape.size();
  std::vector<std::size_t> lengths;
  std::vector<migraphx_dynamic_dimension> dims;
  for (std::size_t k = 0; k < v.shape.size(); ++k) {
    const auto a = size_at(v.shape[k], small), b = size_at(v.shape[k], large);
    migraphx_dynamic_dimension d{0, kUnknownSize, {}};
    if (a && b)
      d = {std::min(*a, *b), std::max(*a, *b), {}};
    else if (has_dims && (*declared->shape)[k].value)
      d.min = d.max = static_cast<std::size_t>(*(*declared->shape)[k].value);
    dims.push_back(d);
    lengths.push_back(d.max);
  }
  const bool fixed = std::all_of(dims.begin(), dims.end(), [](const auto& d) { return d.min == d.max; });
  if (fixed) return standard_shape(type, lengths);
  return {type, {}, {}, dims};
}

/// The shape that the file declares, for a program that depends on an input's value.
migraphx_shape declared_shape(const ValueInfo& v) {
  if (!v.dtype) fail(ErrorKind::kUnsupported, "the output '{}' has no declared element type", v.name);
  const migraphx_shape_datatype_t type = type_of(*v.dtype, "the output '" + v.name + "'");
  std::vector<std::size_t> lengths;
  std::vector<migraphx_dynamic_dimension> dims;
  bool fixed = true;
  if (v.shape) {
    for (const model::Dim& d : *v.shape) {
      const std::size_t n = d.value ? static_cast<std::size_t>(*d.value) : kUnknownSize;
      dims.push_back({d.value ? n : 0, n, {}});
      lengths.push_back(n);
      fixed = fixed && d.value;
    }
  }
  if (fixed) return standard_shape(type, lengths);
  return {type, {}, {}, dims};
}

}  // namespace

MigraphxProgram MigraphxProgram::of_nodes(model::Model nodes, std::vector<Parameter> inputs) {
  MigraphxProgram p;
  p.nodes_ = std::make_shared<const model::Model>(std::move(nodes));
  p.inputs_ = std::move(inputs);
  p.describe_outputs();
  return p;
}

namespace {

MigraphxProgram with_shapes(model::Model nodes, const migraphx_onnx_options& options) {
  mend(nodes);
  bound_loops(nodes, options);
  std::vector<Parameter> inputs;
  for (ValueInfo& v : nodes.graph.inputs)
    if (!v.has_default) inputs.push_back(InputShape(v, options).apply());
  return MigraphxProgram::of_nodes(std::move(nodes), std::move(inputs));
}

}  // namespace

MigraphxProgram MigraphxProgram::parse(std::span<const std::byte> bytes, const migraphx_onnx_options& options,
                                       const std::filesystem::path& folder) {
  return with_shapes(onnx::parse(bytes, folder), options);
}

MigraphxProgram MigraphxProgram::parse(const std::filesystem::path& path, const migraphx_onnx_options& options) {
  return with_shapes(onnx::load(path), options);
}

std::vector<migraphx_shape> output_shapes(const model::Model& nodes, const std::vector<Parameter>& inputs) {
  std::vector<migraphx_shape> shapes;
  const std::unique_ptr<Graph> graph = NodeSource(nodes).import({});
  const SymbolValues small = ends(*graph, inputs, false), large = ends(*graph, inputs, true);
  for (std::size_t k = 0; k < graph->outputs.size(); ++k) {
    const ValueInfo* declared = k < nodes.graph.outputs.size() ? &nodes.graph.outputs[k] : nullptr;
    const std::string what = "the output '" + graph->output_names[k] + "'";
    shapes.push_back(shape_of(*graph->outputs[k], what, small, large, declared));
  }
  return shapes;
}

// Importing also refuses models that can't be compiled.
void MigraphxProgram::describe_outputs() {
  outputs_.clear();
  try {
    outputs_ = output_shapes(*nodes_, inputs_);
  } catch (const NeedInput&) {
    for (const ValueInfo& v : nodes_->graph.outputs) outputs_.push_back(declared_shape(v));
  }
}

ModuleGraph& MigraphxProgram::graph() {
  if (!graph_) {
    graph_ = std::make_shared<ModuleGraph>();
    if (nodes_ || compiled_) graph_->freeze();
    if (nodes_) graph_->list(nodes_->graph, value_shapes());
  }
  return *graph_;
}

void MigraphxProgram::settle() {
  if (!graph_ || graph_->version() == settled_) return;
  model::Model nodes = graph_->onnx_model();
  inputs_.clear();
  for (const Instruction* p : graph_->main().parameters()) {
    const Result& r = p->result();
    inputs_.push_back({r.name, r.shape});
  }
  nodes_ = std::make_shared<const model::Model>(std::move(nodes));
  describe_outputs();
  settled_ = graph_->version();
}

MigraphxProgram MigraphxProgram::trimmed(std::size_t nodes) const {
  require_uncompiled("leaving out nodes");
  if (has_graph()) fail(ErrorKind::kUnsupported, "only models that were read can be trimmed");
  model::Model m = *nodes_;
  if (nodes >= m.graph.nodes.size())
    fail(ErrorKind::kInvalidArgument, "{} nodes can't be left out of {}", nodes, m.graph.nodes.size());
  if (nodes == 0) return *this;
  m.graph.nodes.resize(m.graph.nodes.size() - nodes);
  m.graph.outputs.clear();
  for (const std::string& name : m.graph.nodes.back().outputs) {
    ValueInfo v;
    v.name = name;
    if (!name.empty()) m.graph.outputs.push_back(std::move(v));
  }
  return of_nodes(std::move(m), inputs_);
}

void MigraphxProgram::require_uncompiled(const char* what) const {
  if (is_compiled()) fail(ErrorKind::kInvalidArgument, "the program is compiled already; {} must come before", what);
  if (!nodes_) fail(ErrorKind::kInvalidArgument, "the program is empty; parse a model first");
}

void MigraphxProgram::quantize(const std::string& precision) {
  require_uncompiled("quantisation");
  // 8 bits are the narrower choice, and what is not in 8 bits then stays in float32.
  if (calibration_.empty()) precision_ = precision;
}

std::vector<Parameter> MigraphxProgram::parameters() const {
  std::vector<Parameter> all = inputs_;
  if (uses_device_memory())
    for (std::size_t k = 0; k < outputs_.size(); ++k)
      if (!outputs_[k].is_dynamic()) all.push_back({output_parameter(k), outputs_[k]});
  return all;
}

migraphx_shape MigraphxProgram::result_shape(migraphx_shape s) const {
  if (uses_device_memory() && s.is_scalar()) {
    s.lengths.clear();
    s.strides.clear();
  }
  return s;
}

std::vector<migraphx_shape> MigraphxProgram::outputs() const {
  std::vector<migraphx_shape> all;
  for (const migraphx_shape& s : outputs_) all.push_back(result_shape(s));
  return all;
}

std::string output_parameter(std::size_t index) { return fmt::format("main:#output_{}", index); }

std::string MigraphxProgram::text() const {
  if (has_graph()) return graph_->text();
  std::string out = "module: \"main\"\n";
  for (const Parameter& p : inputs_) out += fmt::format("{} = @param:{} -> {}\n", p.name, p.name, to_text(p.shape));
  if (nodes_) out += model_text(*nodes_);
  return out;
}

bool MigraphxProgram::operator==(const MigraphxProgram& other) const {
  if (nodes_ == nullptr || other.nodes_ == nullptr) return nodes_ == other.nodes_ && compiled_ == other.compiled_;
  return text() == other.text() && precision_ == other.precision_ && calibration_ == other.calibration_ &&
         (nodes_ == other.nodes_ || same_weights(*nodes_, *other.nodes_));
}

}  // namespace sardonyx::mgx
