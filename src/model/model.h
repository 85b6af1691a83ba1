// A model as a front end reads it from a file: nodes, weights and declared types, as plain data without graph
// compilation. Operators have the names, attributes and versions of ONNX's operator sets (docs/operators.md), whatever
// the file's format. onnx/ makes Models from ONNX files, ep/ from ONNX Runtime's graphs, GraphBuilder from calls;
// import/ turns them into graphs.
//
// What a Model promises, whatever bytes it was read from:
// - nodes of every graph are in topological order; every input of a node is "" (omitted), or a graph input, an
//   initializer, an earlier node's output, or a value of an enclosing graph;
// - a name is defined once per graph, and a nested graph never redefines a name that is visible from outside it;
// - ONNX's own operators have the domain ""; names are any UTF-8 text without NUL;
// - a tensor's dims are >= 0, their product fits, and data holds exactly the elements, unless `unsupported` says why
// not.
#pragma once
#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

#include "support/dtype.h"

namespace sardonyx::model {

/// The versions of ONNX's operator set that are accepted.
inline constexpr std::int64_t kMinOpset = 1;  ///< operators have their own, mostly later, first version
inline constexpr std::int64_t kMaxOpset = 28;

/// A constant of the file. Little-endian, row-major, sub-byte types one element per byte (sign-extended for int4/int2;
/// the 4-bit code for float4), bool 0 or 1. `data` is aligned to at least 16 bytes, but not for large tensors on
/// x86-64, and stays valid while `owner` (or any copy of the Tensor) lives; copies share it.
struct Tensor {
  std::string name;
  DType dtype = DType::kFloat32;
  std::vector<std::int64_t> dims;
  std::shared_ptr<const void> owner;
  const std::byte* data = nullptr;
  std::size_t bytes = 0;
  /// Not empty: the file's tensor can't be represented (strings, an element type without a DType, absent weights), and
  /// this says why. Then data is null, and dtype means nothing unless only the weights are absent.
  std::string unsupported;

  std::int64_t elements() const;
  /// Throws Error(kUnsupported) with the reason if the tensor has no usable data.
  void require() const;
  /// The elements as T; throws like require(), and an internal error when T does not have the dtype's size.
  template <typename T>
  std::span<const T> as() const {
    require_size(sizeof(T));
    return {reinterpret_cast<const T*>(data), bytes / sizeof(T)};
  }

 private:
  void require_size(std::size_t element_size) const;
};

/// One dimension of a declared shape. Neither value nor param: unknown.
struct Dim {
  std::optional<std::int64_t> value;
  std::string param;
};

/// A declared type, and the name of the value that has it ("" in type attributes).
struct ValueInfo {
  enum class Kind { kTensor, kSequence, kOptional, kSparse, kMap, kOther };
  std::string name;
  Kind kind = Kind::kTensor;
  std::optional<DType> dtype;                ///< of tensors and sparse tensors; absent if undeclared or unsupported
  std::optional<std::vector<Dim>> shape;     ///< absent: unknown rank
  std::shared_ptr<const ValueInfo> element;  ///< what a sequence or an optional holds, if declared
  std::string unsupported;                   ///< not empty: why the declared element type has no DType
  /// Graph inputs: an initializer of the same name gives the value when the caller gives none. In files of IR version
  /// below 4 every initializer must be listed so, and such inputs are constants, not inputs, by convention.
  bool has_default = false;
};

struct Graph;
using GraphPtr = std::shared_ptr<const Graph>;
/// Sparse tensors arrive as dense Tensors, type_proto attributes as ValueInfo.
using Attribute = std::variant<std::int64_t, float, std::string, Tensor, GraphPtr, ValueInfo, std::vector<std::int64_t>,
                               std::vector<float>, std::vector<std::string>, std::vector<Tensor>, std::vector<GraphPtr>,
                               std::vector<ValueInfo>>;

struct Node {
  std::string name;  ///< as in the file; nodes from functions are prefixed with their call's name
  std::string op_type;
  std::string domain;                        ///< "" for the default operator set
  std::int64_t opset = 0;                    ///< version of `domain` in force for this node
  std::int64_t index = 0;                    ///< position in the graph or function of the file
  std::vector<std::string> inputs, outputs;  ///< "" where an optional one is omitted
  std::map<std::string, Attribute, std::less<>> attributes;

  /// For messages: "node 12 'conv1' (Conv)".
  std::string describe() const;
  const Attribute* find(std::string_view attribute) const;
  /// Attribute values by type. The first ones return `fallback` if absent; all throw Error(kInvalidModel), naming the
  /// node, if the attribute has another type.
  std::int64_t get_int(std::string_view attribute, std::int64_t fallback) const;
  float get_float(std::string_view attribute, float fallback) const;
  std::string get_string(std::string_view attribute, std::string_view fallback) const;
  std::vector<std::int64_t> get_ints(std::string_view attribute, const std::vector<std::int64_t>& fallback = {}) const;
  std::vector<float> get_floats(std::string_view attribute, const std::vector<float>& fallback = {}) const;
  const Tensor* get_tensor(std::string_view attribute) const;  ///< null if absent
  GraphPtr get_graph(std::string_view attribute) const;        ///< null if absent
};

struct Graph {
  std::string name;
  std::vector<Node> nodes;
  std::vector<ValueInfo> inputs, outputs;
  std::vector<ValueInfo> value_info;  ///< declared types of other values
  std::vector<Tensor> initializers;   ///< sparse ones are made dense
};

struct Model {
  std::int64_t ir_version = 0;
  std::string producer_name, producer_version, domain;
  std::int64_t model_version = 0;
  std::map<std::string, std::int64_t, std::less<>> opsets;  ///< of the model; a Node knows its own
  Graph graph;
  std::map<std::string, std::string, std::less<>> metadata;
};

}  // namespace sardonyx::model
