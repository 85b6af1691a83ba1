// Reads TensorFlow Lite files (.tflite, FlatBuffers with the identifier TFL3) into model::Model. Their operators become
// ONNX's; layers keep their channels last, between transposes that the layout pass absorbs. Quantised tensors stay
// integers: products of 8-bit operands sum integers and round once, other operators dequantise, compute and quantise.
#pragma once
#include <cstddef>
#include <filesystem>
#include <span>

#include "model/model.h"

namespace sardonyx::tflite {

/// Whether a file with these first bytes says that it is a TFLite model.
bool is_tflite(std::span<const std::byte> bytes);

/// Reads a model. Large weights stay in the file, which is mapped: it must not be truncated while a Tensor of it lives.
/// Inputs and outputs have the names of the file's signature, or else of their tensors. Throws Error(kIo) for
/// unreadable files, kInvalidModel for malformed ones, kUnsupported naming the operator; the message starts with the
/// path.
model::Model load(const std::filesystem::path& path);

/// The same for a file's bytes, of which the weights are copied.
model::Model parse(std::span<const std::byte> bytes);

}  // namespace sardonyx::tflite
