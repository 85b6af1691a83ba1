// Tensors in files: .npy, .npz (numpy), .pb (ONNX TensorProto) and directories of ONNX test data. Contents are
// untrusted.
#pragma once
#include <filesystem>
#include <map>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "sardonyx/tensor.h"

namespace sardonyx {

using NamedTensors = std::vector<std::pair<std::string, Tensor>>;

/// The dtypes of a model's tensors by name, which numpy files may lack. `fallback` is for files without names.
using DTypeOf = std::map<std::string, DType>;

/// Reads every tensor of a file. Names are those in an .npz or .pb, "" for an .npy. `wanted`: reads only these tensors
/// of an .npz (all if null), and decides what raw two-byte and one-byte elements are (see npy.h). Throws Error: kIo for
/// unreadable files, kInvalidArgument for what is inside, each naming the file.
NamedTensors read_tensors(const std::filesystem::path& file, const DTypeOf* wanted);
/// The same for one .npy file that holds `name`.
Tensor read_npy(const std::filesystem::path& file, std::optional<DType> dtype);
/// prefix_0.pb, prefix_1.pb ... of a directory; names are those inside, which may be "".
NamedTensors read_test_data(const std::filesystem::path& folder, const std::string& prefix);

/// Whether write_tensors can write a file of this name: .npz (all), .npy or .pb (one).
bool is_tensor_file(const std::filesystem::path& file);
/// Writes to a temporary file that then takes the name. Throws Error(kIo).
void write_tensors(const std::filesystem::path& file, const NamedTensors& tensors);
/// Writes bytes in the same way.
void write_file(const std::filesystem::path& file, std::string_view bytes);
/// Writes text to a file, or to stdout if the name is "-".
void write_text(const std::string& file, const std::string& text);
/// Reads a whole file of at most `limit` bytes. Throws Error(kIo).
std::string read_file(const std::filesystem::path& file, std::uint64_t limit = std::uint64_t{1} << 40);

}  // namespace sardonyx
