// What model/model.h promises of every Model, checked: for the fuzz targets of front ends.
#pragma once
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <set>
#include <string>

#include "model/model.h"

namespace sardonyx::fuzz {

using model::Graph;
using model::GraphPtr;
using model::Node;
using model::Tensor;
using model::ValueInfo;

inline void require(bool holds, const char* what) {
  if (holds) return;
  std::fprintf(stderr, "broken promise: %s\n", what);
  std::abort();
}

inline void verify(const Tensor& t) {
  std::int64_t elements = 1;
  for (const std::int64_t d : t.dims) {
    require(d >= 0, "dims are not negative");
    require(!__builtin_mul_overflow(elements, d, &elements), "the product of dims fits");
  }
  require(elements == t.elements(), "elements()");
  if (!t.unsupported.empty()) {
    require(t.data == nullptr && t.bytes == 0, "unsupported tensors have no data");
    return;
  }
  require(t.bytes == static_cast<std::size_t>(elements) * size_of(t.dtype), "data holds exactly the elements");
  require(reinterpret_cast<std::uintptr_t>(t.data) % 16 == 0, "data is aligned");
  unsigned sum = 0;
  for (std::size_t i = 0; i < t.bytes; ++i) sum += static_cast<unsigned>(t.data[i]);
  static volatile unsigned sink;
  sink = sum;  // all of it can be read
}

inline void verify(const Graph& graph, const std::set<std::string>& outer) {
  std::set<std::string> own, known = outer;
  const auto define = [&](const std::string& name) {
    require(!outer.contains(name), "a nested graph redefines no outer name");
    require(own.insert(name).second, "a name is defined once");
    known.insert(name);
  };
  for (const ValueInfo& v : graph.inputs) define(v.name);
  for (const Tensor& t : graph.initializers) {
    verify(t);
    if (known.insert(t.name).second) own.insert(t.name);
  }
  // A nested graph must not redefine what this one defines later, either.
  std::set<std::string> all = known;
  for (const Node& n : graph.nodes) all.insert(n.outputs.begin(), n.outputs.end());
  all.erase("");
  for (const Node& n : graph.nodes) {
    for (const std::string& name : n.inputs) require(name.empty() || known.contains(name), "inputs are defined before");
    require(!n.op_type.empty() && n.domain != "ai.onnx" && n.opset > 0, "operators are known");
    for (const auto& [key, value] : n.attributes) {
      if (const auto* t = std::get_if<Tensor>(&value)) verify(*t);
      if (const auto* g = std::get_if<GraphPtr>(&value)) verify(**g, all);
      if (const auto* gs = std::get_if<std::vector<GraphPtr>>(&value))
        for (const GraphPtr& g : *gs) verify(*g, all);
    }
    for (const std::string& name : n.outputs)
      if (!name.empty()) define(name);
  }
  for (const ValueInfo& v : graph.outputs) require(known.contains(v.name), "graph outputs are defined");
}

}  // namespace sardonyx::fuzz
