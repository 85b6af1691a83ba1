// Appends nodes with ONNX's operators to a graph of model/, with names that occur once in the whole model.
#pragma once
#include <cstdint>
#include <string>
#include <string_view>
#include <unordered_map>
#include <unordered_set>
#include <vector>

#include "model/model.h"

namespace sardonyx::tflite {

inline constexpr std::int64_t kOpset = 21;

/// The names of a model's values.
class Names {
 public:
  /// `wanted`, with a number after it if that is taken already.
  std::string unique(const std::string& wanted);

 private:
  std::unordered_set<std::string> used_;
  std::unordered_map<std::string, std::int64_t> next_;
};

using Attributes = std::map<std::string, model::Attribute, std::less<>>;
using Inputs = std::vector<std::string>;

class Nodes {
 public:
  Nodes(model::Graph& graph, Names& names) : graph_(graph), names_(names) {}
  /// Nodes from now on come from an operator of the file: its name and position, for messages and reports.
  void begin(std::string origin, std::int64_t index);

  /// Appends a node, and returns the name of its output.
  std::string add(std::string_view op_type, Inputs inputs, Attributes attributes = {});
  std::vector<std::string> add_many(std::string_view op_type, Inputs inputs, std::size_t outputs,
                                    Attributes attributes = {});
  /// The last node, whose attributes may be completed.
  model::Node& last() { return graph_.nodes.back(); }

  /// An int64 vector.
  std::string ints(const std::vector<std::int64_t>& values);
  std::string floats(const std::vector<float>& values);
  /// A tensor without dims; integers are rounded towards zero.
  std::string scalar(DType type, double value);
  /// A vector of integers of another type.
  std::string ints_as(DType type, const std::vector<std::int64_t>& values, bool is_scalar = false);
  /// An initializer that shares its data with `tensor`.
  std::string constant(const model::Tensor& tensor);

  std::string transpose(const std::string& x, const std::vector<std::int64_t>& perm);
  std::string cast(const std::string& x, DType to);
  std::string reshape(const std::string& x, const std::vector<std::int64_t>& shape);

  Names& names() { return names_; }
  model::Graph& graph() { return graph_; }

 private:
  std::string data(DType type, std::vector<std::int64_t> dims, const void* bytes, std::size_t size);

  model::Graph& graph_;
  Names& names_;
  std::string origin_;
  std::int64_t index_ = 0;
};

}  // namespace sardonyx::tflite
