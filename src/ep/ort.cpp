// ONNX Runtime's functions; see ort.h.
#include "ep/ort.h"

#include <algorithm>
#include <cstdlib>

namespace sardonyx::ep {
namespace {

OrtErrorCode code_of(ErrorKind kind) {
  switch (kind) {
    case ErrorKind::kInvalidArgument:
      return ORT_INVALID_ARGUMENT;
    case ErrorKind::kInvalidModel:
      return ORT_INVALID_GRAPH;
    case ErrorKind::kUnsupported:
      return ORT_NOT_IMPLEMENTED;
    case ErrorKind::kIo:
      return ORT_NO_SUCHFILE;
    default:
      return ORT_EP_FAIL;
  }
}

// A list that the runtime returns with two calls, one for its length and one for its elements.
template <typename T, typename Object>
std::vector<const T*> list(const Ort& ort, OrtStatus* (*count)(const Object*, std::size_t*),
                           OrtStatus* (*get)(const Object*, const T**, std::size_t), const Object* object) {
  std::size_t n = 0;
  ort.require(count(object, &n));
  std::vector<const T*> out(n);
  if (n > 0) ort.require(get(object, out.data(), n));
  return out;
}

template <typename Object>
std::string text(const Ort& ort, OrtStatus* (*get)(const Object*, const char**), const Object* object) {
  const char* s = nullptr;
  ort.require(get(object, &s));
  return s ? s : "";
}

}  // namespace

Ort::Ort(const OrtApiBase* base) {
  const std::string text = base->GetVersionString();
  const std::size_t dot = text.find('.');
  version_ =
      dot == std::string::npos ? 0 : static_cast<std::uint32_t>(std::strtoul(text.c_str() + dot + 1, nullptr, 10));
  api_ = base->GetApi(23);
  if (!api_) fail(ErrorKind::kUnsupported, "{} needs ONNX Runtime 1.23 or later; this one is {}", kProvider, text);
  ep_ = api_->GetEpApi();
  editor_ = api_->GetModelEditorApi();
  if (version_ >= 24)
    if (const OrtApi* newer = base->GetApi(std::min(version_, kNewestApi))) {
      later_api_ = static_cast<const LaterApi*>(newer);
      later_ = static_cast<const LaterEpApi*>(newer->GetEpApi());
    }
}

void Ort::require(OrtStatus* status) const {
  if (!status) return;
  const std::string message = api_->GetErrorMessage(status);
  api_->ReleaseStatus(status);
  throw Error(ErrorKind::kInternal, "ONNX Runtime: " + message);
}

OrtStatus* Ort::status(const std::exception& e) const noexcept {
  const auto* error = dynamic_cast<const Error*>(&e);
  try {
    return api_->CreateStatus(error ? code_of(error->kind()) : ORT_EP_FAIL,
                              (std::string(kProvider) + ": " + e.what()).c_str());
  } catch (...) {
    return api_->CreateStatus(ORT_EP_FAIL, kProvider);
  }
}

std::vector<const OrtNode*> Ort::nodes(const OrtGraph* g) const {
  return list<OrtNode, OrtGraph>(*this, api_->Graph_GetNumNodes, api_->Graph_GetNodes, g);
}
std::vector<const OrtValueInfo*> Ort::inputs(const OrtGraph* g) const {
  return list<OrtValueInfo, OrtGraph>(*this, api_->Graph_GetNumInputs, api_->Graph_GetInputs, g);
}
std::vector<const OrtValueInfo*> Ort::outputs(const OrtGraph* g) const {
  return list<OrtValueInfo, OrtGraph>(*this, api_->Graph_GetNumOutputs, api_->Graph_GetOutputs, g);
}
std::vector<const OrtValueInfo*> Ort::initializers(const OrtGraph* g) const {
  return list<OrtValueInfo, OrtGraph>(*this, api_->Graph_GetNumInitializers, api_->Graph_GetInitializers, g);
}
const OrtNode* Ort::parent(const OrtGraph* g) const {
  const OrtNode* n = nullptr;
  require(api_->Graph_GetParentNode(g, &n));
  return n;
}
std::string Ort::model_path(const OrtGraph* g) const { return text<OrtGraph>(*this, api_->Graph_GetModelPath, g); }

std::size_t Ort::id(const OrtNode* n) const {
  std::size_t id = 0;
  require(api_->Node_GetId(n, &id));
  return id;
}
std::string Ort::name(const OrtNode* n) const { return text<OrtNode>(*this, api_->Node_GetName, n); }
std::string Ort::op(const OrtNode* n) const { return text<OrtNode>(*this, api_->Node_GetOperatorType, n); }
std::string Ort::domain(const OrtNode* n) const { return text<OrtNode>(*this, api_->Node_GetDomain, n); }
std::string Ort::ep_name(const OrtNode* n) const { return text<OrtNode>(*this, api_->Node_GetEpName, n); }
std::vector<const OrtValueInfo*> Ort::inputs(const OrtNode* n) const {
  return list<OrtValueInfo, OrtNode>(*this, api_->Node_GetNumInputs, api_->Node_GetInputs, n);
}
std::vector<const OrtValueInfo*> Ort::outputs(const OrtNode* n) const {
  return list<OrtValueInfo, OrtNode>(*this, api_->Node_GetNumOutputs, api_->Node_GetOutputs, n);
}
std::vector<const OrtValueInfo*> Ort::captured(const OrtNode* n) const {
  return list<OrtValueInfo, OrtNode>(*this, api_->Node_GetNumImplicitInputs, api_->Node_GetImplicitInputs, n);
}
std::vector<const OrtOpAttr*> Ort::attributes(const OrtNode* n) const {
  return list<OrtOpAttr, OrtNode>(*this, api_->Node_GetNumAttributes, api_->Node_GetAttributes, n);
}
std::vector<Ort::Nested> Ort::nested(const OrtNode* n) const {
  std::size_t count = 0;
  require(api_->Node_GetNumSubgraphs(n, &count));
  std::vector<const OrtGraph*> graphs(count);
  std::vector<const char*> names(count);
  if (count > 0) require(api_->Node_GetSubgraphs(n, graphs.data(), count, names.data()));
  std::vector<Nested> out;
  for (std::size_t k = 0; k < count; ++k) out.push_back({names[k], graphs[k]});
  return out;
}

std::string Ort::name(const OrtValueInfo* v) const { return text<OrtValueInfo>(*this, api_->GetValueInfoName, v); }
bool Ort::is_constant(const OrtValueInfo* v) const {
  bool is = false;
  require(api_->ValueInfo_IsConstantInitializer(v, &is));
  return is;
}

bool Ort::has_shape(const OrtTensorTypeAndShapeInfo* t, std::size_t rank) const {
  return later_api_ ? later_api_->TensorTypeAndShape_HasShape(t) : rank > 0;
}

void Ort::dims(const OrtValue* v, std::vector<std::int64_t>& dims) const {
  if (later_api_) {
    ONNXTensorElementDataType type;
    const std::int64_t* data = nullptr;
    std::size_t rank = 0;
    require(later_api_->GetTensorElementTypeAndShapeDataReference(v, &type, &data, &rank));
    dims.assign(data, data + rank);
    return;
  }
  OrtTensorTypeAndShapeInfo* info = nullptr;
  require(api_->GetTensorTypeAndShape(v, &info));
  std::size_t rank = 0;
  OrtStatus* s = api_->GetDimensionsCount(info, &rank);
  dims.resize(rank);
  if (!s) s = api_->GetDimensions(info, dims.data(), rank);
  api_->ReleaseTensorTypeAndShapeInfo(info);
  require(s);
}

bool Ort::on_device(const OrtValue* v) const {
  const OrtMemoryDevice* d = ep_->Value_GetMemoryDevice(v);
  return d && ep_->MemoryDevice_GetDeviceType(d) == OrtMemoryInfoDeviceType_GPU &&
         ep_->MemoryDevice_GetMemoryType(d) == OrtDeviceMemoryType_DEFAULT;
}

void Log::write(OrtLoggingLevel level, const std::string& text) const noexcept {
  if (!logger_) return;
  const std::string line = std::string(kProvider) + ": " + text;
  OrtStatus* s = (*ort_)->Logger_LogMessage(logger_, level, line.c_str(), ORT_FILE, __LINE__, kProvider);
  if (s) (*ort_)->ReleaseStatus(s);
}

}  // namespace sardonyx::ep
