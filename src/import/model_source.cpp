#include "import/model_source.h"

namespace sardonyx {
namespace {

using Dims = std::map<std::string, std::int64_t>;

// An unnamed dim has the name that add_input() gives its symbol.
std::string dim_text(const model::Dim& d, const std::string& tensor, std::size_t k, const Dims& dims) {
  if (d.value) return std::to_string(*d.value);
  if (d.param.empty()) return tensor + "." + std::to_string(k);
  const auto fixed = dims.find(d.param);
  return fixed == dims.end() ? d.param : std::to_string(fixed->second);
}

TensorInfo info_of(const model::ValueInfo& v, const Dims& dims) {
  TensorInfo t;
  t.name = v.name;
  if (v.dtype) t.dtype = *v.dtype;
  t.known_rank = v.shape.has_value();
  if (v.shape)
    for (std::size_t k = 0; k < v.shape->size(); ++k) t.shape.push_back(dim_text((*v.shape)[k], v.name, k, dims));
  return t;
}

}  // namespace

Signature declared_signature(const std::vector<model::ValueInfo>& inputs, const std::vector<model::ValueInfo>& outputs,
                             const Dims& dims) {
  Signature s;
  for (const model::ValueInfo& v : inputs) {
    s.inputs.push_back(info_of(v, dims));
    if (!v.shape) continue;
    for (const model::Dim& d : *v.shape)
      if (!d.param.empty()) s.dims.insert(d.param);
  }
  for (const model::ValueInfo& v : outputs) s.outputs.push_back(info_of(v, dims));
  return s;
}

}  // namespace sardonyx
