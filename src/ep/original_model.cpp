// Parts of original models; see original_model.h.
#include "ep/original_model.h"

#include <algorithm>
#include <array>
#include <functional>
#include <set>

#include "compile/cache.h"
#include "onnx/load.h"
#include "support/mapped_file.h"

namespace sardonyx::ep {
namespace {

// Names that a graph and its nested graphs read.
void names_read(const model::Node& n, std::set<std::string>& out) {
  for (const std::string& i : n.inputs)
    if (!i.empty()) out.insert(i);
  const auto graph = [&](const model::GraphPtr& g) {
    for (const model::Node& inner : g->nodes) names_read(inner, out);
    for (const model::ValueInfo& v : g->outputs) out.insert(v.name);
  };
  for (const auto& [name, a] : n.attributes) {
    if (const auto* one = std::get_if<model::GraphPtr>(&a)) graph(*one);
    if (const auto* many = std::get_if<std::vector<model::GraphPtr>>(&a))
      for (const model::GraphPtr& g : *many) graph(g);
  }
}

}  // namespace

std::string fingerprint(const std::filesystem::path& file) {
  const MappedFile map(file);
  const std::array<std::string_view, 2> parts = {
      "original model", std::string_view(reinterpret_cast<const char*>(map.data()), map.size())};
  return cache_key(parts).hex();
}

GroupModel original_subgraph(const std::filesystem::path& file, const std::string& recorded,
                             std::span<const model::ValueInfo> inputs, std::span<const model::ValueInfo> outputs) {
  const std::string now = fingerprint(file);
  if (!recorded.empty() && recorded != now)
    fail(ErrorKind::kInvalidModel, "{} is not the model that the program was compiled from, or was changed since",
         file.string());
  GroupModel out;
  out.model = onnx::load(file);
  model::Graph& g = out.model.graph;
  std::set<std::string> given, needed, constant;
  for (const model::ValueInfo& v : inputs) given.insert(v.name);
  for (const model::ValueInfo& v : outputs) needed.insert(v.name);
  for (const model::Tensor& t : g.initializers) constant.insert(t.name);
  // Backwards: a node is needed if one of its outputs is.
  std::vector<model::Node> kept;
  std::set<std::string> made;
  for (auto n = g.nodes.rbegin(); n != g.nodes.rend(); ++n) {
    const bool wanted = std::any_of(n->outputs.begin(), n->outputs.end(), [&](const std::string& o) {
      return !o.empty() && needed.count(o) && !given.count(o);
    });
    if (!wanted) continue;
    names_read(*n, needed);
    made.insert(n->outputs.begin(), n->outputs.end());
    kept.push_back(std::move(*n));
  }
  std::reverse(kept.begin(), kept.end());
  for (const model::ValueInfo& v : outputs)
    if (!made.count(v.name) && !given.count(v.name) && !constant.count(v.name))
      fail(ErrorKind::kInvalidModel, "{} has no value '{}', which the compiled program gives", file.string(), v.name);
  for (const model::ValueInfo& v : g.inputs)
    if (needed.count(v.name) && !given.count(v.name) && !constant.count(v.name))
      fail(ErrorKind::kInvalidModel, "in {}, what the compiled program gives depends on '{}', which it does not take",
           file.string(), v.name);
  std::erase_if(g.initializers, [&](const model::Tensor& t) { return !needed.count(t.name) || given.count(t.name); });
  g.nodes = std::move(kept);
  g.inputs.assign(inputs.begin(), inputs.end());
  g.outputs.assign(outputs.begin(), outputs.end());
  g.value_info.clear();
  out.key = "original " + now;
  for (const std::string& name : given) out.key += " <" + name;
  for (const model::ValueInfo& v : outputs) out.key += " >" + v.name;
  return out;
}

}  // namespace sardonyx::ep
