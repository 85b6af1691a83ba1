// Which nodes of a graph the provider claims, in as few groups as possible.
//
// A group must be convex: no path from one of its nodes to another may leave it. Every node gets a level. A claimed
// node has the highest level of its predecessors; any other node has that level too, plus one if a claimed node is
// among its predecessors. The claimed nodes of one level form a group. No partition has fewer groups, because some path
// alternates between claimed and other nodes that often.
#pragma once
#include <map>
#include <string>
#include <vector>

#include "custom/operators.h"
#include "ep/graph_reader.h"
#include "ep/ort.h"

namespace sardonyx::ep {

struct Group {
  std::vector<const OrtNode*> nodes;         ///< in topological order
  std::vector<std::size_t> index;            ///< index of each node in the graph
  std::vector<const OrtValueInfo*> outputs;  ///< values that nodes outside of the group need
};

/// A node that the provider does not claim.
struct Unclaimed {
  std::string node, reason;
};

class Partition {
 public:
  /// `custom`: operators that users have defined; outlives this.
  Partition(const Ort& ort, const OrtGraph* graph, GraphReader& reader, const CustomOperators& custom);

  /// The groups of the nodes that are not refused. Refuses nodes whose inputs or outputs cannot cross a group's border.
  std::vector<Group> groups();
  /// Node `index` of the graph is not claimed.
  void refuse(std::size_t index, const std::string& reason);
  std::vector<Unclaimed> unclaimed() const;
  std::size_t node_count() const { return nodes_.size(); }

 private:
  struct Node {
    const OrtNode* node = nullptr;
    std::vector<const OrtValueInfo*> inputs, captured, outputs;  ///< without omitted ones
    bool elsewhere = false;                                      ///< already compiled, or claimed by another provider
    bool refused = false;
    std::string reason;
  };
  void check_by_name(Node& n);
  bool holds_claimed(const OrtNode* n) const;
  std::vector<int> levels() const;
  bool check_borders(const Group& g);
  bool refuse_value(std::size_t index, const OrtValueInfo* v);

  const Ort& ort_;
  GraphReader& reader_;
  const CustomOperators& custom_;
  std::vector<Node> nodes_;
  std::map<std::string, std::size_t> producer_;              ///< by value
  std::map<std::string, std::vector<std::size_t>> readers_;  ///< by value
  std::map<std::string, bool> graph_output_;
};

/// Whether ONNX Runtime passes captured values of nested graphs to providers (from 1.27 on).
bool hands_over_captured(const Ort& ort);

/// Why the provider does not support the node's operator, or "".
std::string why_not(const Ort& ort, const OrtNode* n, const GraphReader& reader, const CustomOperators& custom);

}  // namespace sardonyx::ep
