// ModelProto to Model: names, types, attributes, nested graphs, model-local functions. Only for .cpp files of this
// component.
#pragma once
#include <cstdint>
#include <map>
#include <string>
#include <string_view>
#include <tuple>
#include <unordered_map>
#include <unordered_set>
#include <vector>

#include "onnx/load.h"
#include "onnx/proto.h"
#include "onnx/tensor.h"

namespace sardonyx::onnx {

inline constexpr int kMaxGraphDepth = 64;     ///< of nested graphs, counted through function calls
inline constexpr int kMaxFunctionDepth = 64;  ///< of functions that call functions

using OpsetMap = std::map<std::string, std::int64_t, std::less<>>;

/// The names that one graph or function body defines, and their names in the Model.
struct Scope {
  const Scope* parent = nullptr;  ///< the enclosing graph's; null for the main graph and for function bodies
  std::unordered_map<std::string, std::string> names;
};

/// The origin of nodes: the main graph (function null) or a call of a function.
struct Frame {
  const Frame* caller = nullptr;
  pb::FunctionProto* function = nullptr;
  std::string prefix;                                       ///< of the names made for this call
  std::map<std::string, Attribute, std::less<>> arguments;  ///< attributes of the call, and defaults
  OpsetMap opsets;
  int depth = 0;
};

class ModelReader {
 public:
  /// Consumes `proto`. `bytes` is its serialised size, which limits what inlining may produce.
  ModelReader(pb::ModelProto& proto, TensorReader tensors, std::uint64_t bytes);
  Model read();

 private:
  using FunctionKey = std::tuple<std::string, std::string, std::string>;  // domain, name, overload

  // reader.cpp
  void collect_names(const pb::GraphProto& graph);
  Graph read_graph(pb::GraphProto& proto, const Frame& frame, const Scope* outer, int depth);
  void declare(Scope& scope, const Frame& frame, const std::string& name, const std::string& what);
  const std::string& resolve(const Scope& scope, const std::string& name, const std::string& reader) const;
  void read_node(pb::NodeProto& proto, std::int64_t index, const Frame& frame, const Scope& scope, int depth,
                 std::vector<Node>& out);
  void finish(Graph& graph);
  std::int64_t opset_of(const Frame& frame, const std::string& domain, const std::string& node) const;
  std::string unique(const std::string& wanted);
  void charge(std::uint64_t bytes, const std::string& node);

  // functions.cpp
  void read_functions();
  pb::FunctionProto* find_function(const pb::NodeProto& node);
  void inline_call(pb::FunctionProto& function, const Node& call, const Frame& caller, int depth,
                   std::vector<Node>& out);
  Frame enter(pb::FunctionProto& function, const Node& call, const Frame& caller, int depth);

  // attributes.cpp. False if it refers to an attribute that the function's caller did not pass.
  bool read_attribute(pb::AttributeProto& proto, const Frame& frame, const Scope& scope, int depth,
                      const std::string& node, Attribute& out);
  /// Bytes of a copy of the attribute, without tensors' data and graphs, which copies share.
  std::uint64_t cost_of_attribute(const Attribute& a) const;
  GraphPtr read_nested(pb::GraphProto& proto, const Frame& frame, const Scope& scope, int depth,
                       const std::string& node);

  pb::ModelProto& proto_;
  TensorReader tensors_;
  std::map<FunctionKey, pb::FunctionProto*> functions_;
  OpsetMap opsets_;
  std::unordered_set<std::string> used_;                  ///< every name of a value so far
  std::unordered_map<std::string, std::int64_t> suffix_;  ///< by wanted name, the next number to try
  std::unordered_map<const Graph*, std::vector<std::string>> captures_;
  std::uint64_t inlined_ = 0, max_inlined_;
};

/// "" for the default domain's two spellings.
std::string normal_domain(const std::string& domain);
OpsetMap read_opsets(const google::protobuf::RepeatedPtrField<pb::OperatorSetIdProto>& imports,
                     const std::string& what);

// types.cpp
/// `what` names the value in messages. Throws Error(kInvalidModel) for unknown element types and negative dimensions
/// (-1, which some exporters write for unknown ones, is read as unknown).
ValueInfo read_value_info(const pb::ValueInfoProto& proto, const std::string& what);
ValueInfo read_type(const pb::TypeProto& proto, const std::string& what);
/// Bytes that a ValueInfo takes, for the bound on inlining.
std::uint64_t cost_of(const ValueInfo& v);

}  // namespace sardonyx::onnx
