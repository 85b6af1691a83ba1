// Calibration tables: the ranges of a model's float tensors, as measured by programs that run the float model on
// examples. They are needed to run float models in 8 bits; see quantize.h.
#pragma once
#include <cstddef>
#include <filesystem>
#include <map>
#include <span>
#include <string>

namespace sardonyx {

struct CalibrationTable {
  /// The largest absolute value of each tensor, by its name in the model; finite, above 0.
  std::map<std::string, float, std::less<>> largest;
};

inline constexpr std::size_t kMaxCalibrationBytes = std::size_t{64} << 20;

/// Reads a table of one of these forms, told apart by their content:
///
///     TRT-8601-EntropyCalibration2                  TensorRT's cache: the bits of a float32, the largest value / 127
///     input: 3c010a14
///     {"input": [-2.0, 1.5], ...}                   calibration.json of ONNX Runtime's calibrators, of all versions
///     input 2.0                                     their calibration.cache
///     (binary)                                      their calibration.flatbuffers
///
/// Tensors that are 0 everywhere have no entry. `what` is for messages. Throws Error(kInvalidArgument), naming the line
/// or tensor, for anything else.
CalibrationTable parse_calibration(std::span<const std::byte> bytes, const std::string& what);

/// The same from a file. Throws Error(kIo) if it can't be read or is larger than kMaxCalibrationBytes.
CalibrationTable read_calibration(const std::filesystem::path& path);

}  // namespace sardonyx
