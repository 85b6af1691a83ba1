// ONNX Runtime's structs of options for AMD's two providers, as names and values.
#pragma once
#include <onnxruntime_c_api.h>

#include <cstddef>
#include <string>
#include <utility>
#include <vector>

namespace sardonyx::ort_shim {

using NamesAndValues = std::vector<std::pair<std::string, std::string>>;

NamesAndValues names_and_values(const OrtMIGraphXProviderOptions& o);
NamesAndValues names_and_values(const OrtROCMProviderOptions& o);

/// Sets the field of this name; false if there is none, or if the value is not a number.
bool set_field(OrtROCMProviderOptions& o, const std::string& name, const std::string& value);

}  // namespace sardonyx::ort_shim
