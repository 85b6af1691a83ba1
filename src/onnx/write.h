// Writes a model::Model as an ONNX file. No protobuf in this header.
#pragma once
#include <string>

#include "model/model.h"

namespace sardonyx::onnx {

/// The serialised ModelProto, with all weights inside, which parse() reads back. Functions that were expanded when the
/// model was read stay expanded. Throws Error(kUnsupported) for a model that one ONNX file can't hold: 2 GiB or more,
/// tensors without data, or nodes of one domain with different operator set versions.
std::string serialize(const model::Model& model);

}  // namespace sardonyx::onnx
