// The C++ interface's GraphBuilder: builds a list of nodes in memory, which is imported like one from a file.
#include <cstring>
#include <set>

#include "api/compiled_model.h"
#include "import/node_source.h"
#include "model/model.h"
#include "support/error.h"

namespace sardonyx {

struct GraphBuilder::Impl {
  model::Model model;
  std::set<std::string> names;  ///< of values
  std::set<std::string> output_names;

  std::string fresh(const std::string& base) {
    for (std::size_t k = names.size();; ++k)
      if (std::string name = base + "_" + std::to_string(k); names.insert(name).second) return name;
  }

  void require(const std::string& value, const std::string& who) const {
    if (!names.count(value)) fail(ErrorKind::kInvalidArgument, "{}: there is no value '{}' in the graph", who, value);
  }

  model::Attribute attribute(const std::string& key, const AttributeValue& v) const;
};

namespace {

constexpr std::int64_t kMinOpset = 7;  // the oldest version that defines every operator

model::Tensor copy_of(const Tensor& t, const std::string& name) {
  for (const std::int64_t d : t.dims)
    if (d < 0) fail(ErrorKind::kInvalidArgument, "a constant with the negative dim {}", d);
  // allocate() refuses sizes that overflow.
  Tensor copy = Tensor::allocate(t.dtype, t.dims);
  if (t.data == nullptr && copy.bytes() > 0) fail(ErrorKind::kInvalidArgument, "a constant without data");
  if (copy.bytes() > 0) std::memcpy(copy.data, t.data, copy.bytes());
  model::Tensor out;
  out.name = name;
  out.dtype = t.dtype;
  out.dims = t.dims;
  out.data = static_cast<const std::byte*>(copy.data);
  out.bytes = copy.bytes();
  out.owner = std::move(copy.owner);
  return out;
}

}  // namespace

model::Attribute GraphBuilder::Impl::attribute(const std::string& key, const AttributeValue& v) const {
  if (const auto* t = std::get_if<Tensor>(&v)) return copy_of(*t, key);
  if (const auto* i = std::get_if<std::int64_t>(&v)) return *i;
  if (const auto* f = std::get_if<float>(&v)) return *f;
  if (const auto* s = std::get_if<std::string>(&v)) return *s;
  if (const auto* is = std::get_if<std::vector<std::int64_t>>(&v)) return *is;
  if (const auto* fs = std::get_if<std::vector<float>>(&v)) return *fs;
  return std::get<std::vector<std::string>>(v);
}

GraphBuilder::GraphBuilder(std::int64_t opset) : impl_(std::make_unique<Impl>()) {
  if (opset == 0) opset = model::kMaxOpset;
  if (opset < kMinOpset || opset > model::kMaxOpset)
    fail(ErrorKind::kUnsupported, "operator set {}; use {} to {}", opset, kMinOpset, model::kMaxOpset);
  impl_->model.ir_version = 10;
  impl_->model.producer_name = "sardonyx";
  impl_->model.opsets[""] = opset;
  impl_->model.graph.name = "graph";
}

GraphBuilder::~GraphBuilder() = default;
GraphBuilder::GraphBuilder(GraphBuilder&&) noexcept = default;
GraphBuilder& GraphBuilder::operator=(GraphBuilder&&) noexcept = default;

std::string GraphBuilder::input(const std::string& name, DType dtype, const std::vector<Dim>& shape) {
  model::ValueInfo v;
  v.name = name;
  v.dtype = dtype;
  v.shape.emplace();
  for (const Dim& d : shape) {
    model::Dim dim;
    if (d.symbol.empty()) {
      if (d.size < 0) fail(ErrorKind::kInvalidArgument, "input '{}': a dim of {}", name, d.size);
      dim.value = d.size;
    }
    dim.param = d.symbol;
    v.shape->push_back(std::move(dim));
  }
  if (name.empty() || !impl_->names.insert(name).second)
    fail(ErrorKind::kInvalidArgument, "'{}' can't be an input's name: it is empty or in use", name);
  impl_->model.graph.inputs.push_back(std::move(v));
  return name;
}

std::string GraphBuilder::constant(const Tensor& value) {
  model::Tensor t = copy_of(value, "");
  t.name = impl_->fresh("constant");
  impl_->model.graph.initializers.push_back(t);
  return t.name;
}

std::string GraphBuilder::op(const std::string& type, const std::vector<std::string>& inputs,
                             const std::map<std::string, AttributeValue>& attributes, const std::string& domain) {
  return op_with_outputs(1, type, inputs, attributes, domain).front();
}

std::vector<std::string> GraphBuilder::op_with_outputs(std::size_t outputs, const std::string& type,
                                                       const std::vector<std::string>& inputs,
                                                       const std::map<std::string, AttributeValue>& attributes,
                                                       const std::string& domain) {
  model::Node n;
  n.op_type = type;
  n.domain = domain == "ai.onnx" ? "" : domain;
  n.index = static_cast<std::int64_t>(impl_->model.graph.nodes.size());
  n.name = type + "_" + std::to_string(n.index);
  n.opset = impl_->model.opsets.emplace(n.domain, 1).first->second;
  for (const std::string& name : inputs)
    if (!name.empty()) impl_->require(name, n.name);
  n.inputs = inputs;
  for (const auto& [key, value] : attributes) n.attributes.emplace(key, impl_->attribute(key, value));
  for (std::size_t k = 0; k < outputs; ++k) n.outputs.push_back(impl_->fresh(n.name));
  impl_->model.graph.nodes.push_back(n);
  return n.outputs;
}

void GraphBuilder::output(const std::string& value, const std::string& name) {
  impl_->require(value, "output '" + name + "'");
  if (name.empty() || !impl_->output_names.insert(name).second || (name != value && !impl_->names.insert(name).second))
    fail(ErrorKind::kInvalidArgument, "'{}' can't be an output's name: it is empty or in use", name);
  if (name != value) {
    model::Node n;
    n.op_type = "Identity";
    n.index = static_cast<std::int64_t>(impl_->model.graph.nodes.size());
    n.name = "output " + name;
    n.opset = impl_->model.opsets[""];
    n.inputs = {value};
    n.outputs = {name};
    impl_->model.graph.nodes.push_back(std::move(n));
  }
  model::ValueInfo v;
  v.name = name;
  impl_->model.graph.outputs.push_back(std::move(v));
}

CompiledModel GraphBuilder::compile(const Options& options) const {
  if (impl_->model.graph.outputs.empty()) fail(ErrorKind::kInvalidArgument, "the graph has no outputs; call output()");
  return CompiledModel(std::make_shared<CompiledModel::Impl>(
      CompiledModel::Impl{std::make_unique<Model>(std::make_unique<NodeSource>(impl_->model), options)}));
}

}  // namespace sardonyx
