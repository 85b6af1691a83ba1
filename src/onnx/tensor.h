// TensorProto and SparseTensorProto to Tensor. Only for .cpp files of this component.
#pragma once
#include <cstdint>
#include <string>
#include <unordered_map>

#include "onnx/external_data.h"
#include "onnx/load.h"
#include "onnx/proto.h"

namespace sardonyx::onnx {

/// Bytes to which all sparse tensors of a model may expand; the file's size does not limit it.
inline constexpr std::uint64_t kMaxDensifiedBytes = std::uint64_t{256} << 20;
inline constexpr int kMaxRank = 64;

/// The element type as a DType; empty if there is none, with the reason in `unsupported`. Throws Error(kInvalidModel),
/// naming `what`, for a number that ONNX does not define.
std::optional<DType> read_dtype(int data_type, const std::string& what, std::string& unsupported);

/// Product of dims. Throws Error(kInvalidModel) if one is negative, or if the product of the positive ones times 16
/// bytes exceeds 63 bits (so that neither sizes nor strides overflow anywhere).
std::int64_t checked_elements(const std::vector<std::int64_t>& dims, const std::string& what);

/// The inverse of TensorReader::read(), for a tensor in Tensor's layout. Throws as serialize_tensor().
void write_tensor(pb::TensorProto& proto, std::string_view tensor_name, DType dtype, std::span<const std::int64_t> dims,
                  std::span<const std::byte> data);

class TensorReader {
 public:
  TensorReader(ExternalFiles files, const LoadOptions& options) : files_(std::move(files)), options_(options) {}

  /// Supplies the raw data of `proto`, which does not contain it.
  void add_raw(const pb::TensorProto& proto, Bytes raw) { raw_[&proto] = std::move(raw); }

  /// Moves large raw data out of `proto`; reading the same object again returns the same tensor. `what` names it in
  /// messages ("initializer 'w'").
  Tensor read(pb::TensorProto& proto, const std::string& what);
  Tensor read(pb::SparseTensorProto& proto, const std::string& what);

 private:
  Tensor convert(pb::TensorProto& proto, const std::string& what);
  Tensor densify(pb::SparseTensorProto& proto, const std::string& what);
  Bytes stored(pb::TensorProto& proto, DType dtype, std::int64_t elements, const std::string& what, bool& missing);

  ExternalFiles files_;
  LoadOptions options_;
  std::uint64_t densified_ = 0;
  std::unordered_map<const pb::TensorProto*, Bytes> raw_;
  std::unordered_map<const void*, Tensor>
      done_;  ///< a function's constants are read only once, however often it is called
};

}  // namespace sardonyx::onnx
