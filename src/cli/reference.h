// Reference results: from ONNX Runtime in a Python process, or from a folder.
#pragma once
#include <filesystem>
#include <string>
#include <vector>

#include "cli/inputs.h"

namespace sardonyx::cli {

struct Reference {
  std::string from;                 ///< "ONNX Runtime 1.20", or the folder
  NamedTensors tensors;             ///< in the model's order
  std::vector<std::string> others;  ///< outputs that are not numeric tensors
};

/// Runs the model with ONNX Runtime's CPU provider in `python`. `values`: intermediate values that become outputs too.
/// Throws Error: kUnsupported when there is no such Python or it has no onnxruntime (the message says what to install),
/// or when ONNX Runtime refuses the model.
Reference run_onnxruntime(const std::string& python, const std::filesystem::path& model, const Inputs& inputs,
                          const std::vector<std::string>& values, int threads);

/// output_0.pb ... of a directory of ONNX test data, named like the model's outputs.
Reference read_reference(const std::filesystem::path& folder, const std::vector<std::string>& names);

}  // namespace sardonyx::cli
