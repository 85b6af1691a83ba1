// Which nodes of a graph run here, and in which groups: as few and as large as the graph's order allows.
//
// A group must be convex: no path from one of its nodes to another may leave it. Give every node a level: nodes that
// run here have the highest level of what they depend on, others that level, and one more after a node that runs here.
// Then the nodes of one level that run here are one group, and there are no more groups than there are changes of sides
// on some path.
#pragma once
#include <map>
#include <string>
#include <vector>

#include "ep/graph_reader.h"
#include "ep/ort.h"

namespace sardonyx::ep {

struct Group {
  std::vector<const OrtNode*> nodes;         ///< in topological order
  std::vector<std::size_t> index;            ///< of each, among the graph's nodes
  std::vector<const OrtValueInfo*> outputs;  ///< what others need of it
};

/// A node that does not run here.
struct Unclaimed {
  std::string node, reason;
};

class Partition {
 public:
  Partition(const Ort& ort, const OrtGraph* graph, GraphReader& reader);

  /// The groups of the nodes that are not refused. Nodes at whose borders there are values that can't be handed over
  /// are refused by this.
  std::vector<Group> groups();
  /// Node `index` of the graph does not run here.
  void refuse(std::size_t index, const std::string& reason);
  std::vector<Unclaimed> unclaimed() const;
  std::size_t node_count() const { return nodes_.size(); }

 private:
  struct Node {
    const OrtNode* node = nullptr;
    std::vector<const OrtValueInfo*> inputs, captured, outputs;  ///< present ones
    bool elsewhere = false;                                      ///< compiled already, or another provider's
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
  std::vector<Node> nodes_;
  std::map<std::string, std::size_t> producer_;              ///< by value
  std::map<std::string, std::vector<std::size_t>> readers_;  ///< by value
  std::map<std::string, bool> graph_output_;
};

/// Whether ONNX Runtime hands a provider the values that nested graphs capture (from 1.27 on).
bool hands_over_captured(const Ort& ort);

/// Why the node's operator does not run here at all, or "".
std::string why_not(const Ort& ort, const OrtNode* n, const GraphReader& reader);

}  // namespace sardonyx::ep
