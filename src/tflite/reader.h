// A TFLite file's tensors, operators and signature as plain structs; the operators' options stay in the file.
#pragma once
#include <memory>
#include <optional>
#include <string>
#include <unordered_map>
#include <vector>

#include "model/model.h"
#include "tflite/flatbuffer.h"
#include "tflite/schema.h"

namespace sardonyx::tflite {

/// real = scale * (stored - zero); per tensor, or one scale for each index of a dim.
struct Quantization {
  std::vector<float> scale;  ///< empty: not quantised
  std::vector<std::int64_t> zero;
  std::int64_t axis = 0;

  bool per_tensor() const { return scale.size() == 1; }
  bool operator==(const Quantization&) const = default;
};

struct TensorInfo {
  std::string name;
  DType dtype = DType::kFloat32;
  std::string unsupported;          ///< not empty: why there is no DType, or no data
  std::vector<std::int64_t> shape;  ///< -1: varies
  Quantization quantization;
  std::optional<model::Tensor> constant;
  bool variable = false;  ///< state that persists between runs

  bool quantised() const { return !quantization.scale.empty(); }
};

struct OperatorInfo {
  std::int32_t code = 0;
  std::string custom;                         ///< the name of a custom operator
  std::vector<std::int32_t> inputs, outputs;  ///< tensors; -1: omitted
  std::optional<Table> options;
};

struct SubgraphInfo {
  std::string name;
  std::vector<TensorInfo> tensors;
  std::vector<std::int32_t> inputs, outputs;
  std::vector<OperatorInfo> operators;
};

/// Names that a signature gives to tensors.
struct NamedTensor {
  std::string name;
  std::int64_t tensor = 0;
};

class Reader {
 public:
  /// `bytes` must live as long as the Reader; `owner` keeps them alive for the constants.
  Reader(std::span<const std::byte> bytes, std::shared_ptr<const void> owner);

  const std::vector<SubgraphInfo>& subgraphs() const { return subgraphs_; }
  const std::vector<NamedTensor>& named_inputs() const { return named_inputs_; }
  const std::vector<NamedTensor>& named_outputs() const { return named_outputs_; }
  std::string description() const { return root_.text(field::kDescription, 1000); }
  /// Counts what is made of the file: `items` operands, constants' elements and the like. Subgraphs are copied wherever
  /// they are called, and lists may share their bytes: throws Error(kUnsupported) if that multiplies a file beyond
  /// reason.
  void charge(std::size_t items);

 private:
  SubgraphInfo read_subgraph(const Table& table);
  TensorInfo read_tensor(const Table& table);
  void read_data(const Table& table, Type type, TensorInfo& out);
  std::span<const std::byte> buffer(std::uint32_t index) const;
  OperatorInfo read_operator(const Table& table, std::size_t tensors);
  std::vector<std::int32_t> indices(const Numbers<std::int32_t>& from, std::size_t tensors, const char* what);
  void read_signature();

  Bytes bytes_;
  std::shared_ptr<const void> owner_;
  Table root_;
  Tables buffers_, codes_;
  /// Aligned or unpacked copies of buffers, by buffer and by whether 4-bit elements were unpacked.
  std::unordered_map<std::uint64_t, model::Tensor> copies_;
  std::vector<SubgraphInfo> subgraphs_;
  std::vector<NamedTensor> named_inputs_, named_outputs_;
  std::size_t budget_, listed_ = 0;
};

}  // namespace sardonyx::tflite
