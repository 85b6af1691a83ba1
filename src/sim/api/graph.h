// Operations that a stream executes, and graphs of them.
#pragma once
#include <cstdint>
#include <memory>
#include <variant>
#include <vector>

#include "sim/api/runtime.h"

namespace sardonyx::sim {

struct KernelOp {
  hipFunction_t function = nullptr;
  std::uint32_t grid[3] = {1, 1, 1}, block[3] = {1, 1, 1};
  std::uint32_t total[3] = {};
  std::uint32_t shared = 0;
  std::vector<std::uint8_t> arguments;
};
struct CopyOp {
  void* destination = nullptr;
  const void* source = nullptr;
  std::size_t width = 0, height = 1, destinationPitch = 0, sourcePitch = 0;
  std::size_t depth = 1, destinationSlice = 0, sourceSlice = 0;  ///< slices in bytes
};
struct SetOp {
  void* destination = nullptr;
  std::uint32_t value = 0;
  unsigned elementSize = 1;
  std::size_t width = 0, height = 1, pitch = 0;  ///< width in elements, pitch in bytes
};
struct HostOp {
  std::function<void()> call;
  hipHostFn_t function = nullptr;
  void* data = nullptr;
};
struct EmptyOp {};
struct RecordOp {
  hipEvent_t event = nullptr;
  unsigned long long number = 0;  ///< of the event's records; 0: that of a graph, which counts when it is executed
};
struct FreeOp {
  void* pointer = nullptr;
};
struct ChildOp {
  std::shared_ptr<Graph> graph;
};
struct WaitOp {
  hipEvent_t event = nullptr;
  unsigned long long number = 0;  ///< the record that a stream waits for
};
using Operation = std::variant<KernelOp, CopyOp, SetOp, HostOp, EmptyOp, RecordOp, FreeOp, ChildOp, WaitOp>;

/// Executes an operation now, on `device`.
hipError_t execute(const Operation& operation, int device);
/// Executes it on a stream, or adds it to the graph that the stream captures. It waits if it comes after work that
/// waits.
hipError_t submit(hipStream_t stream, Operation operation);

/// Whether an operation that is submitted to a stream now has to wait. Call with Runtime::execution locked.
bool mustWait(const ihipStream_t& stream, const Operation& operation);
/// Adds an operation to those of a stream that wait.
void defer(ihipStream_t& stream, Operation operation);
/// Executes what no longer has to wait.
void proceed();
/// Block until no operation of the stream, of the current device, or of any device waits. Not with Runtime::execution
/// locked.
void finishStream(ihipStream_t& stream);
void finishDevice();
void finishAll();
/// Whether operations of the stream wait.
bool isBusy(const ihipStream_t& stream);

}  // namespace sardonyx::sim

struct hipGraphNode {
  sardonyx::sim::Operation operation;
  std::vector<hipGraphNode*> dependencies;
  sardonyx::sim::Graph* owner = nullptr;
  int device = 0;
  std::size_t index = 0;  ///< position in its graph; the same in an executable made from it
  void* extra[5] = {};    ///< what hipGraphKernelNodeGetParams hands out
  std::size_t extraSize = 0;
};

namespace sardonyx::sim {

struct Graph {
  std::vector<std::unique_ptr<hipGraphNode>> nodes;
  hipGraphNode* add(Operation operation, const hipGraphNode_t* dependencies, std::size_t count);
  bool owns(const hipGraphNode* node) const { return node && node->owner == this; }
  /// Nodes in an order that respects dependencies; false when there is a cycle.
  bool order(std::vector<hipGraphNode*>& out) const;
  std::shared_ptr<Graph> clone() const;
};

hipError_t run(const Graph& graph);

/// Streams and events that took part in a capture leave it.
void releaseCapture(const Graph* graph);

}  // namespace sardonyx::sim

struct ihipGraph {
  std::shared_ptr<sardonyx::sim::Graph> graph;
};
struct hipGraphExec {
  std::shared_ptr<sardonyx::sim::Graph> graph;
};

namespace sardonyx::sim {

hipError_t addNode(hipGraphNode_t* node, hipGraph_t graph, const hipGraphNode_t* dependencies, std::size_t count,
                   Operation op);
hipError_t setOperation(const hipMemsetParams* p, SetOp& op);

/// The executable's node that was made from `node` of the graph it was instantiated from; null when there is none with
/// such an operation.
template <class Op>
hipGraphNode* counterpart(hipGraphExec_t executable, hipGraphNode_t node) {
  if (!Runtime::get().alive(executable) || !node || node->index >= executable->graph->nodes.size()) return nullptr;
  hipGraphNode* n = executable->graph->nodes[node->index].get();
  return std::holds_alternative<Op>(n->operation) ? n : nullptr;
}

}  // namespace sardonyx::sim
