// Queries and changes of single graph nodes: parameters, neighbours, in a graph and in an executable.
#include <algorithm>

#include "sim/api/graph.h"

using namespace sardonyx::sim;

namespace {

template <class Op>
Op* operationOf(hipGraphNode_t node) {
  return node ? std::get_if<Op>(&node->operation) : nullptr;
}
hipError_t list(const std::vector<hipGraphNode_t>& all, hipGraphNode_t* out, std::size_t* count) {
  if (!count) return hipErrorInvalidValue;
  if (out) std::copy_n(all.begin(), std::min(*count, all.size()), out);
  *count = out ? std::min(*count, all.size()) : all.size();
  return hipSuccess;
}
template <class Op, class F>
hipError_t change(hipGraphNode* node, F make) {
  Op op;
  if (!operationOf<Op>(node)) return hipErrorInvalidValue;
  hipError_t e = make(op);
  if (e == hipSuccess) node->operation = std::move(op);
  return e;
}
auto copyOf(void* to, const void* from, std::size_t size) {
  return [=](CopyOp& op) {
    if (!to || !from) return hipErrorInvalidValue;
    op = CopyOp{to, from, size};
    return hipSuccess;
  };
}
auto hostOf(const hipHostNodeParams* p) {
  return [=](HostOp& op) {
    if (!p || !p->fn) return hipErrorInvalidValue;
    op = HostOp{{}, p->fn, p->userData};
    return hipSuccess;
  };
}
auto setOf(const hipMemsetParams* p) {
  return [=](SetOp& op) { return setOperation(p, op); };
}
auto childOf(hipGraph_t child) {
  return [=](ChildOp& op) {
    if (!Runtime::get().alive(child)) return hipErrorInvalidValue;
    op = ChildOp{child->graph->clone()};
    return hipSuccess;
  };
}

}  // namespace

extern "C" {

hipError_t hipGraphNodeGetDependencies(hipGraphNode_t node, hipGraphNode_t* out, size_t* count) {
  return guarded([&] { return node ? list(node->dependencies, out, count) : hipErrorInvalidValue; });
}
hipError_t hipGraphNodeGetDependentNodes(hipGraphNode_t node, hipGraphNode_t* out, size_t* count) {
  return guarded([&] {
    if (!node) return hipErrorInvalidValue;
    std::vector<hipGraphNode_t> all;
    for (auto& n : node->owner->nodes)
      if (std::count(n->dependencies.begin(), n->dependencies.end(), node)) all.push_back(n.get());
    return list(all, out, count);
  });
}
hipError_t hipGraphRemoveDependencies(hipGraph_t graph, const hipGraphNode_t* from, const hipGraphNode_t* to,
                                      size_t count) {
  return guarded([&] {
    if (!Runtime::get().alive(graph) || (count && (!from || !to))) return hipErrorInvalidValue;
    for (std::size_t i = 0; i < count; ++i) {
      if (!graph->graph->owns(from[i]) || !graph->graph->owns(to[i])) return hipErrorInvalidValue;
      auto& d = to[i]->dependencies;
      auto it = std::find(d.begin(), d.end(), from[i]);
      if (it == d.end()) return hipErrorInvalidValue;
      d.erase(it);
    }
    return hipSuccess;
  });
}

hipError_t hipGraphKernelNodeGetParams(hipGraphNode_t node, hipKernelNodeParams* p) {
  return guarded([&] {
    auto* op = operationOf<KernelOp>(node);
    if (!op || !p) return hipErrorInvalidValue;
    // The arguments in the form of `extra`; they live as long as the node holds them.
    node->extra[0] = HIP_LAUNCH_PARAM_BUFFER_POINTER;
    node->extra[1] = op->arguments.data();
    node->extra[2] = HIP_LAUNCH_PARAM_BUFFER_SIZE;
    node->extraSize = op->arguments.size();
    node->extra[3] = &node->extraSize;
    node->extra[4] = HIP_LAUNCH_PARAM_END;
    *p = {};
    p->func = op->function;
    p->gridDim = {op->grid[0], op->grid[1], op->grid[2]};
    p->blockDim = {op->block[0], op->block[1], op->block[2]};
    p->sharedMemBytes = op->shared;
    p->extra = node->extra;
    return hipSuccess;
  });
}
hipError_t hipGraphMemsetNodeGetParams(hipGraphNode_t node, hipMemsetParams* p) {
  return guarded([&] {
    auto* op = operationOf<SetOp>(node);
    if (!op || !p) return hipErrorInvalidValue;
    *p = {op->destination, op->elementSize, op->height, op->pitch, op->value, op->width};
    return hipSuccess;
  });
}
hipError_t hipGraphHostNodeGetParams(hipGraphNode_t node, hipHostNodeParams* p) {
  return guarded([&] {
    auto* op = operationOf<HostOp>(node);
    if (!op || !p || !op->function) return hipErrorInvalidValue;
    *p = {op->function, op->data};
    return hipSuccess;
  });
}
hipError_t hipGraphChildGraphNodeGetGraph(hipGraphNode_t node, hipGraph_t* graph) {
  return guarded([&] {
    auto* op = operationOf<ChildOp>(node);
    if (!op || !graph) return hipErrorInvalidValue;
    *graph = Runtime::get().add(std::make_unique<ihipGraph>(ihipGraph{op->graph}));
    return hipSuccess;
  });
}
hipError_t hipGraphMemsetNodeSetParams(hipGraphNode_t node, const hipMemsetParams* p) {
  return guarded([&] { return change<SetOp>(node, setOf(p)); });
}
hipError_t hipGraphMemcpyNodeSetParams1D(hipGraphNode_t node, void* to, const void* from, size_t size, hipMemcpyKind) {
  return guarded([&] { return change<CopyOp>(node, copyOf(to, from, size)); });
}
hipError_t hipGraphHostNodeSetParams(hipGraphNode_t node, const hipHostNodeParams* p) {
  return guarded([&] { return change<HostOp>(node, hostOf(p)); });
}
hipError_t hipGraphExecHostNodeSetParams(hipGraphExec_t e, hipGraphNode_t node, const hipHostNodeParams* p) {
  return guarded([&] { return change<HostOp>(counterpart<HostOp>(e, node), hostOf(p)); });
}
hipError_t hipGraphExecChildGraphNodeSetParams(hipGraphExec_t e, hipGraphNode_t node, hipGraph_t child) {
  return guarded([&] { return change<ChildOp>(counterpart<ChildOp>(e, node), childOf(child)); });
}

hipError_t hipGraphAddEventRecordNode(hipGraphNode_t* node, hipGraph_t graph, const hipGraphNode_t* dependencies,
                                      size_t count, hipEvent_t event) {
  return guarded([&] {
    if (!Runtime::get().alive(event)) return hipErrorInvalidHandle;
    return addNode(node, graph, dependencies, count, RecordOp{event});
  });
}
/// Operations run in order, so waiting is done by the time the node runs.
hipError_t hipGraphAddEventWaitNode(hipGraphNode_t* node, hipGraph_t graph, const hipGraphNode_t* dependencies,
                                    size_t count, hipEvent_t event) {
  return guarded([&] {
    if (!Runtime::get().alive(event)) return hipErrorInvalidHandle;
    return addNode(node, graph, dependencies, count, WaitOp{event});
  });
}

hipError_t hipStreamGetCaptureInfo_v2(hipStream_t h, hipStreamCaptureStatus* status, unsigned long long* id,
                                      hipGraph_t* graph, const hipGraphNode_t** dependencies, size_t* count) {
  return guarded([&] {
    ihipStream_t* s = Runtime::get().stream(h);
    if (!status) return hipErrorInvalidValue;
    if (!s) return hipErrorContextIsDestroyed;
    *status = s->capture;
    if (s->capture != hipStreamCaptureStatusActive) return hipSuccess;
    if (id) *id = s->captureId;
    if (graph) *graph = Runtime::get().add(std::make_unique<ihipGraph>(ihipGraph{s->graph}));
    if (dependencies) *dependencies = s->frontier.data();
    if (count) *count = s->frontier.size();
    return hipSuccess;
  });
}
hipError_t hipStreamUpdateCaptureDependencies(hipStream_t h, hipGraphNode_t* dependencies, size_t count,
                                              unsigned int flags) {
  return guarded([&] {
    ihipStream_t* s = Runtime::get().stream(h);
    if (!s) return hipErrorContextIsDestroyed;
    if (flags > hipStreamSetCaptureDependencies || (count && !dependencies)) return hipErrorInvalidValue;
    if (s->capture != hipStreamCaptureStatusActive) return hipErrorIllegalState;
    for (std::size_t i = 0; i < count; ++i)
      if (!s->graph->owns(dependencies[i])) return hipErrorInvalidValue;
    if (flags == hipStreamSetCaptureDependencies) s->frontier.clear();
    s->frontier.insert(s->frontier.end(), dependencies, dependencies + count);
    return hipSuccess;
  });
}

}  // extern "C"
