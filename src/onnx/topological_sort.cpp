// See topological_sort.h.
#include "onnx/topological_sort.h"

#include <functional>
#include <queue>
#include <unordered_map>

#include "onnx/load.h"
#include "support/error.h"

namespace sardonyx::onnx {
namespace {

constexpr std::size_t kNamedOnCycle = 8;  // nodes of a cycle that a message lists

/// Text of one cycle among the nodes that are not done. Each of them waits for another such node, so walking from any
/// to one it waits for must come back to a node seen before.
std::string describe_cycle(const std::vector<Node>& nodes, const std::vector<std::vector<std::size_t>>& producers,
                           const std::vector<bool>& done) {
  std::size_t at = 0;
  while (done[at]) ++at;
  std::vector<std::size_t> path;
  std::vector<std::size_t> seen_at(nodes.size(), nodes.size());
  while (seen_at[at] == nodes.size()) {
    seen_at[at] = path.size();
    path.push_back(at);
    for (const std::size_t p : producers[at])
      if (!done[p]) {
        at = p;
        break;
      }
  }
  std::string text;
  const std::size_t first = seen_at[at];
  for (std::size_t i = path.size(); i-- > first;) {
    if (path.size() - i > kNamedOnCycle) return text + " -> ...";
    text += (text.empty() ? "" : " -> ") + nodes[path[i]].describe();
  }
  return text + " -> " + nodes[path.back()].describe();
}

}  // namespace

void sort_topologically(std::vector<Node>& nodes, const std::vector<std::vector<std::string>>& captures) {
  std::unordered_map<std::string_view, std::size_t> producer_of;
  for (std::size_t i = 0; i < nodes.size(); ++i)
    for (const std::string& name : nodes[i].outputs)
      if (!name.empty()) producer_of.emplace(name, i);

  std::vector<std::vector<std::size_t>> producers(nodes.size()), consumers(nodes.size());
  bool sorted = true;
  for (std::size_t i = 0; i < nodes.size(); ++i) {
    const auto reads = [&](const std::string& name) {
      const auto found = producer_of.find(name);
      if (found == producer_of.end()) return;
      producers[i].push_back(found->second);
      consumers[found->second].push_back(i);
      sorted = sorted && found->second < i;
    };
    for (const std::string& name : nodes[i].inputs) reads(name);
    for (const std::string& name : captures[i]) reads(name);
  }
  if (sorted) return;

  std::vector<std::size_t> waiting(nodes.size());
  std::priority_queue<std::size_t, std::vector<std::size_t>, std::greater<>> ready;
  for (std::size_t i = 0; i < nodes.size(); ++i) {
    waiting[i] = producers[i].size();
    if (waiting[i] == 0) ready.push(i);
  }
  std::vector<std::size_t> order;
  std::vector<bool> done(nodes.size(), false);
  while (!ready.empty()) {
    const std::size_t i = ready.top();
    ready.pop();
    done[i] = true;
    order.push_back(i);
    for (const std::size_t c : consumers[i])
      if (--waiting[c] == 0) ready.push(c);
  }
  if (order.size() != nodes.size())
    fail(ErrorKind::kInvalidModel, "the graph has a cycle: {}", describe_cycle(nodes, producers, done));
  std::vector<Node> result;
  result.reserve(nodes.size());
  for (const std::size_t i : order) result.push_back(std::move(nodes[i]));
  nodes = std::move(result);
}

}  // namespace sardonyx::onnx
