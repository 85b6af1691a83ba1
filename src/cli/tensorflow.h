// TensorFlow models, which tf2onnx converts: the package sardonyx.tensorflow does that in a Python of its own.
#pragma once
#include <memory>

#include "cli/arguments.h"
#include "support/process.h"

namespace sardonyx::cli {

/// If the model is a SavedModel folder, a Keras file or a frozen graph, converts it to an ONNX file, which
/// `arguments.model.file` then names, and returns the folder of that file; null for other models. Throws Error: what
/// the package refuses, and kUnsupported if there is no Python with tensorflow.
std::unique_ptr<TemporaryFolder> convert_tensorflow(Arguments& arguments);

/// The directory of the Python package in a build, next to bin/; empty if there is none (Python then finds it or
/// reports an error).
std::string package_folder();

}  // namespace sardonyx::cli
