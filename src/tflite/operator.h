// An operator of a TFLite file while it is converted, and the graph that it is converted into.
#pragma once
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "tflite/nodes.h"
#include "tflite/reader.h"

namespace sardonyx::tflite {

class Operator;
using Handler = void (*)(Operator&);

/// A row of the tables of operators (elementwise.cpp, shapes.cpp, layers.cpp ...).
struct Rule {
  std::int32_t code;
  const char* name;  ///< as the schema spells it
  Handler handler;
  const char* onnx = nullptr;  ///< ONNX's operator, for handlers that serve several
};

/// One subgraph of the file, as nodes of one graph of the model.
class Converter {
 public:
  /// `depth`: of graphs that call one another.
  Converter(Reader& file, std::size_t subgraph, model::Graph& graph, Names& names, int depth);
  /// Gives a subgraph's input a value of the graph.
  void bind(std::int32_t tensor, std::string value) { values_[static_cast<std::size_t>(tensor)] = std::move(value); }
  /// Converts the operators; throws Error naming the operator.
  void run();

  /// The tensor's value as it is stored. Throws Error(kInvalidModel) if no operator before has computed it.
  std::string value(std::int32_t tensor);
  /// The tensor's real value: dequantised, in float32.
  std::string real(std::int32_t tensor);
  /// The value of a subgraph's outputs.
  std::vector<std::string> outputs();

  const SubgraphInfo& info() const { return info_; }
  const TensorInfo& tensor(std::int32_t k) const { return info_.tensors[static_cast<std::size_t>(k)]; }
  Reader& file() { return file_; }
  Nodes& nodes() { return nodes_; }
  int depth() const { return depth_; }

 private:
  Reader& file_;
  const SubgraphInfo& info_;
  Nodes nodes_;
  std::vector<std::string> values_, reals_;
  int depth_;
};

class Operator {
 public:
  Operator(Converter& graph, const OperatorInfo& info, const Rule& rule, std::size_t index)
      : make(graph.nodes()), graph(graph), info_(info), rule_(rule), index_(index) {}

  Nodes& make;
  Converter& graph;

  const char* onnx() const { return rule_.onnx; }
  std::size_t inputs() const { return info_.inputs.size(); }
  std::size_t outputs() const { return info_.outputs.size(); }
  bool has(std::size_t k) const { return k < info_.inputs.size() && info_.inputs[k] >= 0; }
  /// Throws Error(kInvalidModel) if the operator does not have it.
  const TensorInfo& in(std::size_t k) const { return graph.tensor(input(k)); }
  const TensorInfo& out(std::size_t k) const { return graph.tensor(output(k)); }
  std::int64_t rank(std::size_t k) const { return static_cast<std::int64_t>(in(k).shape.size()); }

  std::string raw(std::size_t k) { return graph.value(input(k)); }
  std::string real(std::size_t k) { return graph.real(input(k)); }
  /// An input as output 0 stores its elements: raw where both have the same scales.
  std::string as_output(std::size_t k);
  /// The element type of real(k).
  DType real_type(std::size_t k) const { return in(k).quantised() ? DType::kFloat32 : in(k).dtype; }
  /// An input of integers as an int64 vector, whatever its type and rank.
  std::string ints(std::size_t k);
  /// The same as a tensor without dims.
  std::string int_scalar(std::size_t k);
  /// The elements of an input, if they are in the file.
  std::optional<std::vector<std::int64_t>> constant_ints(std::size_t k) const;
  /// Throws Error(kUnsupported) unless they are in the file.
  std::vector<std::int64_t> known_ints(std::size_t k, const char* what) const;

  /// Output k is this value, as it is stored.
  void set(std::size_t k, std::string value) { graph.bind(output(k), std::move(value)); }
  /// Output k is this real value, after the fused activation function, quantised if the output is.
  void set_real(std::size_t k, std::string value, Activation activation = Activation::kNone);

  /// A field of the operator's options; the schema's default if the file has none.
  template <typename T>
  T option(int field, T fallback) const {
    return info_.options ? info_.options->get<T>(field, fallback) : fallback;
  }
  std::vector<std::int64_t> option_ints(int field) const;
  Activation activation(int field) const { return static_cast<Activation>(option<std::int8_t>(field, 0)); }

  [[noreturn]] void refuse(const std::string& why) const;   ///< kUnsupported
  [[noreturn]] void invalid(const std::string& why) const;  ///< kInvalidModel
  void require(bool condition, const char* why) const {
    if (!condition) invalid(why);
  }

 private:
  std::int32_t input(std::size_t k) const;
  std::int32_t output(std::size_t k) const;
  std::string describe() const;

  const OperatorInfo& info_;
  const Rule& rule_;
  std::size_t index_;
};

/// The rows of each file; Converter looks operators up in all of them.
std::span<const Rule> elementwise_rules();
std::span<const Rule> shape_rules();
std::span<const Rule> index_rules();
std::span<const Rule> layer_rules();
std::span<const Rule> sequence_rules();
std::span<const Rule> control_rules();

// ---- Shared by the operators ----

/// x after a fused activation function, of real numbers.
std::string activated(Operator& op, const std::string& x, Activation activation);
/// The real values `x` stored as `type` with these scales.
std::string quantize(Nodes& make, const std::string& x, const TensorInfo& as);
std::string dequantize(Nodes& make, const std::string& x, const TensorInfo& as);
/// The axis, which may count from the end, within a tensor of this rank.
std::int64_t checked_axis(const Operator& op, std::int64_t axis, std::int64_t rank);

/// Permutations between channels last and first, for tensors with `spatial` dims between batch and channels.
std::vector<std::int64_t> to_channels_first(std::size_t spatial);
std::vector<std::int64_t> to_channels_last(std::size_t spatial);

}  // namespace sardonyx::tflite
