// Groups of nodes; see partition.h.
#include "ep/partition.h"

#include <algorithm>
#include <set>

namespace sardonyx::ep {

bool hands_over_captured(const Ort& ort) { return ort.version() >= 27; }

std::string why_not(const Ort& ort, const OrtNode* n, const GraphReader& reader, const CustomOperators& custom) {
  std::string domain = ort.domain(n);
  if (domain == "ai.onnx") domain.clear();
  const std::string op = ort.op(n);
  const OpDef* def = find_operator(domain, op, &custom);
  if (!def) return fmt::format("the operator {}{}{} is not supported", domain, domain.empty() ? "" : "::", op);
  if (domain.empty() && reader.opset(domain) < def->min_opset)
    return fmt::format("{} of operator set {} is not supported, only from {} on", op, reader.opset(domain),
                       def->min_opset);
  return "";
}

Partition::Partition(const Ort& ort, const OrtGraph* graph, GraphReader& reader, const CustomOperators& custom)
    : ort_(ort), reader_(reader), custom_(custom) {
  const auto present = [](std::vector<const OrtValueInfo*> list) {
    std::erase(list, nullptr);
    return list;
  };
  for (const OrtNode* n : ort.nodes(graph)) {
    Node node;
    node.node = n;
    node.inputs = present(ort.inputs(n));
    node.captured = present(ort.captured(n));
    node.outputs = present(ort.outputs(n));
    const std::size_t index = nodes_.size();
    for (const OrtValueInfo* v : node.inputs) readers_[ort.name(v)].push_back(index);
    for (const OrtValueInfo* v : node.captured) readers_[ort.name(v)].push_back(index);
    for (const OrtValueInfo* v : node.outputs) producer_[ort.name(v)] = index;
    check_by_name(node);
    nodes_.push_back(std::move(node));
  }
  for (const OrtValueInfo* v : ort.outputs(graph)) graph_output_[ort.name(v)] = true;
}

bool Partition::holds_claimed(const OrtNode* n) const {
  for (const Ort::Nested& g : ort_.nested(n))
    for (const OrtNode* inner : ort_.nodes(g.graph))
      if (!ort_.ep_name(inner).empty() || holds_claimed(inner)) return true;
  return false;
}

void Partition::check_by_name(Node& n) {
  const std::string owner = ort_.ep_name(n.node);
  if (!owner.empty()) {  // a group of an earlier call, or another provider's node
    n.elsewhere = n.refused = true;
    return;
  }
  n.reason = holds_claimed(n.node) ? "parts of its nested graphs run in groups of their own"
                                   : why_not(ort_, n.node, reader_, custom_);
  n.refused = !n.reason.empty();
}

void Partition::refuse(std::size_t index, const std::string& reason) {
  Node& n = nodes_[index];
  if (n.refused) return;
  n.refused = true;
  n.reason = reason;
}

std::vector<Unclaimed> Partition::unclaimed() const {
  std::vector<Unclaimed> out;
  for (const Node& n : nodes_)
    if (n.refused && !n.elsewhere) out.push_back({describe(ort_, n.node), n.reason});
  return out;
}

std::vector<int> Partition::levels() const {
  std::vector<int> level(nodes_.size(), 0);
  for (std::size_t k = 0; k < nodes_.size(); ++k) {
    const Node& n = nodes_[k];
    const auto depend = [&](const OrtValueInfo* v) {
      const auto p = producer_.find(ort_.name(v));
      if (p == producer_.end() || p->second == k) return;
      const bool crosses = !nodes_[p->second].refused && n.refused;
      level[k] = std::max(level[k], level[p->second] + (crosses ? 1 : 0));
    };
    for (const OrtValueInfo* v : n.inputs) depend(v);
    for (const OrtValueInfo* v : n.captured) depend(v);
  }
  return level;
}

bool Partition::refuse_value(std::size_t index, const OrtValueInfo* v) {
  try {
    reader_.value(v);
    return false;
  } catch (const Error& e) {
    refuse(index, e.what());
    return true;
  }
}

// Whether all values can cross the group's border; refuses the nodes of those that cannot.
bool Partition::check_borders(const Group& g) {
  bool fine = true;
  std::set<std::string> inside, read;
  for (const std::size_t k : g.index) {
    for (const OrtValueInfo* v : nodes_[k].outputs) inside.insert(ort_.name(v));
    for (const OrtValueInfo* v : nodes_[k].inputs) read.insert(ort_.name(v));
  }
  for (const std::size_t k : g.index) {
    const Node& n = nodes_[k];
    for (const OrtValueInfo* v : n.inputs)
      if (!inside.count(ort_.name(v)) && !ort_.is_constant(v)) fine &= !refuse_value(k, v);
    for (const OrtValueInfo* v : n.captured) {
      const std::string name = ort_.name(v);
      if (inside.count(name) || ort_.is_constant(v)) continue;
      fine &= !refuse_value(k, v);
      if (hands_over_captured(ort_) || read.count(name)) continue;
      refuse(k,
             fmt::format("its nested graphs use '{}' of the graph around them, which ONNX Runtime before 1.27 does not "
                         "hand to providers",
                         name));
      fine = false;
    }
  }
  for (const OrtValueInfo* v : g.outputs) fine &= !refuse_value(producer_.at(ort_.name(v)), v);
  return fine;
}

std::vector<Group> Partition::groups() {
  for (;;) {
    const std::vector<int> level = levels();
    std::map<int, Group> by_level;
    for (std::size_t k = 0; k < nodes_.size(); ++k) {
      if (nodes_[k].refused) continue;
      Group& g = by_level[level[k]];
      g.nodes.push_back(nodes_[k].node);
      g.index.push_back(k);
      for (const OrtValueInfo* v : nodes_[k].outputs) {
        const std::string name = ort_.name(v);
        bool needed = graph_output_.count(name) > 0;
        for (const std::size_t reader : readers_[name]) needed |= nodes_[reader].refused || level[reader] != level[k];
        if (needed) g.outputs.push_back(v);
      }
    }
    bool fine = true;
    std::vector<Group> out;
    for (auto& [l, g] : by_level) {
      fine &= check_borders(g);
      if (!g.outputs.empty()) out.push_back(std::move(g));  // else it has no effect
    }
    if (fine) return out;
  }
}

}  // namespace sardonyx::ep
