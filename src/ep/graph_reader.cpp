// OrtGraph to model::Model; see graph_reader.h.
#include "ep/graph_reader.h"

#include "ep/weights.h"
#include "support/dtype.h"

namespace sardonyx::ep {
namespace {

constexpr int kMaxDepth = 64;  // of nested graphs, as for files (onnx/reader.h): reading recurses

// A string that identifies a graph's structure; not for people.
class Describer {
 public:
  explicit Describer(std::string& out) : out_(out) {}

  void graph(const model::Graph& g) {
    word("graph");
    for (const model::ValueInfo& v : g.inputs) value(v);
    word("->");
    for (const model::ValueInfo& v : g.outputs) word(v.name);
    for (const model::Node& n : g.nodes) node(n);
    word("end");
  }

 private:
  void word(std::string_view w) {
    out_ += std::to_string(w.size());
    out_ += ':';
    out_ += w;
  }
  void value(const model::ValueInfo& v) {
    word(v.name);
    word(v.dtype ? std::to_string(static_cast<int>(*v.dtype)) : "?");
    if (!v.shape) return word("*");
    for (const model::Dim& d : *v.shape) word(d.value ? std::to_string(*d.value) : "'" + d.param);
    word(".");
  }
  void node(const model::Node& n) {
    word(n.name);
    word(n.domain);
    word(n.op_type);
    word(std::to_string(n.opset));
    for (const std::string& s : n.inputs) word(s);
    word("->");
    for (const std::string& s : n.outputs) word(s);
    for (const auto& [name, a] : n.attributes) {
      word(name);
      attribute(a);
    }
  }
  void attribute(const model::Attribute& a) {
    word(std::to_string(a.index()));
    if (const auto* i = std::get_if<std::int64_t>(&a)) return word(std::to_string(*i));
    if (const auto* f = std::get_if<float>(&a)) return raw(f, 1);
    if (const auto* s = std::get_if<std::string>(&a)) return word(*s);
    if (const auto* is = std::get_if<std::vector<std::int64_t>>(&a)) return raw(is->data(), is->size());
    if (const auto* fs = std::get_if<std::vector<float>>(&a)) return raw(fs->data(), fs->size());
    if (const auto* g = std::get_if<model::GraphPtr>(&a)) return graph(**g);
    if (const auto* t = std::get_if<model::Tensor>(&a)) return word(t->name);  // its key, see GraphReader::tensor
    if (const auto* ss = std::get_if<std::vector<std::string>>(&a))
      for (const std::string& s : *ss) word(s);
  }
  template <typename T>
  void raw(const T* data, std::size_t n) {
    word({reinterpret_cast<const char*>(data), n * sizeof(T)});
  }

  std::string& out_;
};

}  // namespace

DType dtype_of(ONNXTensorElementDataType type, const std::string& what) {
  for (const DTypeInfo& t : all_dtypes())
    if (t.onnxruntime != 0 && t.onnxruntime == static_cast<int>(type)) return t.type;
  fail(ErrorKind::kUnsupported, "{} has the type {}, which the provider does not support", what,
       type == ONNX_TENSOR_ELEMENT_DATA_TYPE_STRING ? "strings"
                                                    : fmt::format("elements of type {}", static_cast<int>(type)));
}

ONNXTensorElementDataType onnx_type(DType dtype) {
  return static_cast<ONNXTensorElementDataType>(dtype_info(dtype).onnxruntime);
}

std::string describe(const Ort& ort, const OrtNode* n) {
  std::string name = ort.name(n);
  if (name.empty())
    for (const OrtValueInfo* v : ort.outputs(n))
      if (v) {
        name = "computing " + ort.name(v);
        break;
      }
  const std::string domain = ort.domain(n);
  return fmt::format("node '{}' ({}{}{})", name, domain == "ai.onnx" ? "" : domain,
                     domain.empty() || domain == "ai.onnx" ? "" : "::", ort.op(n));
}

GraphReader::GraphReader(const Ort& ort, const OrtGraph* graph) : ort_(ort), graph_(graph) {
  std::size_t n = 0;
  ort_.require(ort_->Graph_GetNumOperatorSets(graph, &n));
  std::vector<const char*> domains(n);
  std::vector<std::int64_t> versions(n);
  if (n > 0) ort_.require(ort_->Graph_GetOperatorSets(graph, domains.data(), versions.data(), n));
  for (std::size_t k = 0; k < n; ++k) {
    const std::string domain = domains[k];
    opsets_[domain == "ai.onnx" ? "" : domain] = versions[k];
  }
}

std::int64_t GraphReader::opset(const std::string& domain) const {
  const auto it = opsets_.find(domain);
  return it == opsets_.end() ? 1 : it->second;
}

model::ValueInfo GraphReader::value(const OrtValueInfo* v) {
  model::ValueInfo out;
  out.name = ort_.name(v);
  const OrtTypeInfo* type = nullptr;
  ort_.require(ort_->GetValueInfoTypeInfo(v, &type));
  const OrtTensorTypeAndShapeInfo* tensor = nullptr;
  if (type) ort_.require(ort_->CastTypeInfoToTensorInfo(type, &tensor));
  if (!tensor) fail(ErrorKind::kUnsupported, "'{}' is not a tensor, or of unknown type", out.name);
  ONNXTensorElementDataType element = ONNX_TENSOR_ELEMENT_DATA_TYPE_UNDEFINED;
  ort_.require(ort_->GetTensorElementType(tensor, &element));
  out.dtype = dtype_of(element, "'" + out.name + "'");
  std::size_t rank = 0;
  ort_.require(ort_->GetDimensionsCount(tensor, &rank));
  if (!ort_.has_shape(tensor, rank)) return out;
  std::vector<std::int64_t> dims(rank);
  std::vector<const char*> symbols(rank);
  ort_.require(ort_->GetDimensions(tensor, dims.data(), rank));
  ort_.require(ort_->GetSymbolicDimensions(tensor, symbols.data(), rank));
  out.shape.emplace();
  for (std::size_t k = 0; k < rank; ++k) {
    model::Dim d;
    if (dims[k] >= 0)
      d.value = dims[k];
    else if (symbols[k])
      d.param = symbols[k];
    out.shape->push_back(std::move(d));
  }
  return out;
}

model::Tensor GraphReader::tensor(const OrtValue* v, const std::string& name) {
  OrtTensorTypeAndShapeInfo* info = nullptr;
  ort_.require(ort_->GetTensorTypeAndShape(v, &info));
  ONNXTensorElementDataType element = ONNX_TENSOR_ELEMENT_DATA_TYPE_UNDEFINED;
  std::size_t rank = 0;
  std::vector<std::int64_t> dims;
  OrtStatus* s = ort_->GetTensorElementType(info, &element);
  if (!s) s = ort_->GetDimensionsCount(info, &rank);
  dims.resize(rank);
  if (!s) s = ort_->GetDimensions(info, dims.data(), rank);
  ort_->ReleaseTensorTypeAndShapeInfo(info);
  ort_.require(s);
  const DType dtype = dtype_of(element, "'" + name + "'");
  void* data = nullptr;
  ort_.require(ort_->GetTensorMutableData(const_cast<OrtValue*>(v), &data));
  std::string key;
  model::Tensor t = Weights::instance().copy(name, dtype, std::move(dims), data, key);
  key_ = std::move(key);
  return t;
}

model::Tensor GraphReader::initializer(const OrtValueInfo* v) {
  const std::string name = ort_.name(v);
  if (const auto it = constants_.find(name); it != constants_.end()) {
    key_ = it->second.second;
    return it->second.first;
  }
  OrtExternalInitializerInfo* external = nullptr;
  ort_.require(ort_->ValueInfo_GetExternalInitializerInfo(v, &external));
  model::Tensor t;
  if (external) {
    const std::filesystem::path base = std::filesystem::path(ort_.model_path(graph_)).parent_path();
    const std::filesystem::path file = base / ort_->ExternalInitializerInfo_GetFilePath(external);
    const std::int64_t offset = ort_->ExternalInitializerInfo_GetFileOffset(external);
    const std::size_t bytes = ort_->ExternalInitializerInfo_GetByteSize(external);
    ort_->ReleaseExternalInitializerInfo(external);
    std::error_code none;
    if (std::filesystem::is_regular_file(file, none)) {
      const model::ValueInfo info = value(v);
      std::vector<std::int64_t> dims;
      for (const model::Dim& d : info.shape.value_or(std::vector<model::Dim>{})) dims.push_back(d.value.value_or(0));
      t = Weights::instance().map(name, *info.dtype, std::move(dims), file, static_cast<std::uint64_t>(offset), bytes,
                                  key_);
      constants_[name] = {t, key_};
      return t;
    }
  }
  const OrtValue* held = nullptr;
  ort_.require(ort_->ValueInfo_GetInitializerValue(v, &held));
  if (!held) fail(ErrorKind::kInvalidModel, "initializer '{}' has no value", name);
  t = tensor(held, name);
  constants_[name] = {t, key_};
  return t;
}

void GraphReader::attributes(const OrtNode* n, model::Node& out) {
  for (const OrtOpAttr* a : ort_.attributes(n)) {
    const char* name_text = nullptr;
    ort_.require(ort_->OpAttr_GetName(a, &name_text));
    const std::string name = name_text;
    OrtOpAttrType type = ORT_OP_ATTR_UNDEFINED;
    ort_.require(ort_->OpAttr_GetType(a, &type));
    // The first call fails and returns the size; the second reads.
    std::size_t bytes = 0;
    const auto read = [&](void* to, std::size_t capacity) {
      OrtStatus* s = ort_->ReadOpAttr(a, type, to, capacity, &bytes);
      if (!s) return true;
      ort_->ReleaseStatus(s);
      return false;
    };
    const auto fetch = [&](auto& values) {
      using T = typename std::remove_reference_t<decltype(values)>::value_type;
      if (read(nullptr, 0)) return;
      values.resize(bytes / sizeof(T));
      if (!read(values.data(), values.size() * sizeof(T)))
        fail(ErrorKind::kInvalidModel, "attribute '{}' can't be read", name);
    };
    switch (type) {
      case ORT_OP_ATTR_INT: {
        std::int64_t value = 0;
        if (!read(&value, sizeof value)) fail(ErrorKind::kInvalidModel, "attribute '{}' can't be read", name);
        out.attributes[name] = value;
        break;
      }
      case ORT_OP_ATTR_FLOAT: {
        float value = 0;
        if (!read(&value, sizeof value)) fail(ErrorKind::kInvalidModel, "attribute '{}' can't be read", name);
        out.attributes[name] = value;
        break;
      }
      case ORT_OP_ATTR_STRING: {
        std::string value;
        fetch(value);
        while (!value.empty() && value.back() == '\0') value.pop_back();
        out.attributes[name] = std::move(value);
        break;
      }
      case ORT_OP_ATTR_INTS: {
        std::vector<std::int64_t> value;
        fetch(value);
        out.attributes[name] = std::move(value);
        break;
      }
      case ORT_OP_ATTR_FLOATS: {
        std::vector<float> value;
        fetch(value);
        out.attributes[name] = std::move(value);
        break;
      }
      case ORT_OP_ATTR_STRINGS: {
        std::vector<char> text;
        fetch(text);  // each string ends with a zero
        std::vector<std::string> value;
        for (std::size_t at = 0; at < text.size();) {
          value.emplace_back(text.data() + at);
          at += value.back().size() + 1;
        }
        out.attributes[name] = std::move(value);
        break;
      }
      case ORT_OP_ATTR_TENSOR: {
        OrtValue* v = nullptr;
        ort_.require(ort_->OpAttr_GetTensorAttributeAsOrtValue(a, &v));
        struct Release {
          const Ort& ort;
          OrtValue* v;
          ~Release() { ort->ReleaseValue(v); }
        } release{ort_, v};
        model::Tensor t = tensor(v, name);
        t.name = key_;  // for Describer; the name of an attribute tensor has no other use
        out.attributes[name] = std::move(t);
        break;
      }
      case ORT_OP_ATTR_GRAPH:
        break;  // see nested()
      default:
        fail(ErrorKind::kUnsupported, "attribute '{}' is of a kind that ONNX Runtime does not pass to providers", name);
    }
  }
}

model::Node GraphReader::node(const OrtNode* n, int depth) {
  model::Node out;
  out.name = ort_.name(n);
  out.op_type = ort_.op(n);
  out.domain = ort_.domain(n);
  if (out.domain == "ai.onnx") out.domain.clear();
  out.opset = opset(out.domain);
  for (const OrtValueInfo* v : ort_.inputs(n)) out.inputs.push_back(v ? ort_.name(v) : "");
  while (!out.inputs.empty() && out.inputs.back().empty()) out.inputs.pop_back();
  for (const OrtValueInfo* v : ort_.outputs(n)) out.outputs.push_back(v ? ort_.name(v) : "");
  while (!out.outputs.empty() && out.outputs.back().empty()) out.outputs.pop_back();
  attributes(n, out);
  // ONNX Runtime adds default attributes; for RNN those are for two directions even if there is one.
  if (out.op_type == "RNN" && out.get_string("direction", "forward") != "bidirectional")
    if (const auto a = out.attributes.find("activations"); a != out.attributes.end())
      if (auto* list = std::get_if<std::vector<std::string>>(&a->second); list && list->size() == 2) list->pop_back();
  for (const Ort::Nested& g : ort_.nested(n)) out.attributes[g.attribute] = nested(g.graph, depth + 1);
  return out;
}

model::GraphPtr GraphReader::nested(const OrtGraph* g, int depth) {
  if (depth > kMaxDepth) fail(ErrorKind::kUnsupported, "graphs are nested deeper than {}", kMaxDepth);
  auto out = std::make_shared<model::Graph>();
  for (const OrtValueInfo* v : ort_.inputs(g)) {
    bool has_default = false;
    ort_.require(ort_->ValueInfo_IsOptionalGraphInput(v, &has_default));
    out->inputs.push_back(value(v));
    out->inputs.back().has_default = has_default;
  }
  for (const OrtValueInfo* v : ort_.initializers(g)) {
    out->initializers.push_back(initializer(v));
    note_weight(out->initializers.back());
  }
  for (const OrtNode* n : ort_.nodes(g)) {
    out->nodes.push_back(node(n, depth));
    out->nodes.back().index = static_cast<std::int64_t>(out->nodes.size()) - 1;
  }
  for (const OrtValueInfo* v : ort_.outputs(g)) {
    model::ValueInfo info;
    info.name = ort_.name(v);
    out->outputs.push_back(std::move(info));
  }
  return out;
}

GroupModel GraphReader::group(std::span<const OrtNode* const> nodes, std::span<const OrtValueInfo* const> outputs) {
  GroupModel out;
  model::Graph& g = out.model.graph;
  out.model.ir_version = 10;
  out.model.producer_name = kProvider;
  out.model.opsets = opsets_;
  std::set<std::string> known;
  weights_.clear();
  const auto take = [&](const OrtValueInfo* v) {
    if (!v || !known.insert(ort_.name(v)).second) return;
    if (ort_.is_constant(v)) {
      g.initializers.push_back(initializer(v));
      note_weight(g.initializers.back());
    } else {
      g.inputs.push_back(value(v));
    }
  };
  for (const OrtNode* n : nodes) {
    for (const OrtValueInfo* v : ort_.inputs(n)) take(v);
    for (const OrtValueInfo* v : ort_.captured(n)) take(v);
    g.nodes.push_back(node(n, 0));
    g.nodes.back().index = static_cast<std::int64_t>(g.nodes.size()) - 1;
    for (const OrtValueInfo* v : ort_.outputs(n))
      if (v) known.insert(ort_.name(v));
  }
  for (const OrtValueInfo* v : outputs) g.outputs.push_back(value(v));
  Describer(out.key).graph(g);
  out.key += weights_;
  return out;
}

void GraphReader::note_weight(const model::Tensor& t) {
  weights_ += fmt::format("{}={}[{}];", t.name, key_, fmt::join(t.dims, ","));
}

}  // namespace sardonyx::ep
