// Graphs: capture, construction by hand, instantiation, launch and update.
#include <algorithm>
#include <atomic>

#include "sim/api/graph.h"

using namespace sardonyx::sim;

namespace {

std::atomic<unsigned long long> captures{0};

hipError_t kernelOp(const hipKernelNodeParams* p, KernelOp& op) {
  if (!p || !p->func) return hipErrorInvalidValue;
  // `func` is a host symbol, or a module's function.
  op.function = functionOfSymbol(p->func);
  if (!op.function) op.function = static_cast<hipFunction_t>(p->func);
  const std::uint32_t g[3] = {p->gridDim.x, p->gridDim.y, p->gridDim.z},
                      b[3] = {p->blockDim.x, p->blockDim.y, p->blockDim.z};
  for (int d = 0; d < 3; ++d) {
    if (!g[d] || !b[d]) return hipErrorInvalidConfiguration;
    op.grid[d] = g[d], op.block[d] = b[d];
  }
  op.shared = p->sharedMemBytes;
  return packArguments(*op.function->kernel, p->kernelParams, p->extra, op.arguments) ? hipSuccess
                                                                                      : hipErrorInvalidValue;
}
hipGraphNodeType typeOf(const Operation& op) {
  constexpr hipGraphNodeType types[] = {hipGraphNodeTypeKernel,  hipGraphNodeTypeMemcpy, hipGraphNodeTypeMemset,
                                        hipGraphNodeTypeHost,    hipGraphNodeTypeEmpty,  hipGraphNodeTypeEventRecord,
                                        hipGraphNodeTypeMemFree, hipGraphNodeTypeGraph,  hipGraphNodeTypeWaitEvent};
  return types[op.index()];
}
hipError_t listNodes(const std::vector<hipGraphNode_t>& all, hipGraphNode_t* nodes, std::size_t* count) {
  if (!count) return hipErrorInvalidValue;
  if (nodes) {
    *count = std::min(*count, all.size());
    std::copy_n(all.begin(), *count, nodes);
  } else {
    *count = all.size();
  }
  return hipSuccess;
}
hipError_t instantiate(hipGraphExec_t* executable, hipGraph_t graph) {
  if (!executable || !Runtime::get().alive(graph)) return hipErrorInvalidValue;
  std::vector<hipGraphNode*> order;
  if (!graph->graph->order(order)) return hipErrorInvalidValue;
  auto e = std::make_unique<hipGraphExec>();
  e->graph = graph->graph->clone();
  *executable = Runtime::get().add(std::move(e));
  ++Runtime::get().graphs;
  return hipSuccess;
}

}  // namespace

namespace sardonyx::sim {

hipError_t setOperation(const hipMemsetParams* p, SetOp& op) {
  if (!p || !p->dst || (p->elementSize != 1 && p->elementSize != 2 && p->elementSize != 4)) return hipErrorInvalidValue;
  op = SetOp{p->dst, p->value, p->elementSize, p->width, p->height, p->pitch};
  return hipSuccess;
}
hipError_t addNode(hipGraphNode_t* node, hipGraph_t graph, const hipGraphNode_t* dependencies, std::size_t count,
                   Operation op) {
  if (!node || !Runtime::get().alive(graph) || (count && !dependencies)) return hipErrorInvalidValue;
  for (std::size_t i = 0; i < count; ++i)
    if (!graph->graph->owns(dependencies[i])) return hipErrorInvalidValue;
  *node = graph->graph->add(std::move(op), dependencies, count);
  (*node)->device = device().ordinal;
  return hipSuccess;
}

}  // namespace sardonyx::sim

extern "C" {

hipError_t hipStreamBeginCapture(hipStream_t h, hipStreamCaptureMode mode) {
  return guarded([&] {
    if (mode < hipStreamCaptureModeGlobal || mode > hipStreamCaptureModeRelaxed) return hipErrorInvalidValue;
    if (h == nullptr || h == hipStreamLegacy) return hipErrorStreamCaptureUnsupported;
    ihipStream_t* s = Runtime::get().stream(h);
    if (!s) return hipErrorContextIsDestroyed;
    if (s->capture != hipStreamCaptureStatusNone) return hipErrorIllegalState;
    s->capture = hipStreamCaptureStatusActive;
    s->origin = true;
    s->graph = std::make_shared<Graph>();
    s->frontier.clear();
    s->captureId = ++captures;
    return hipSuccess;
  });
}
hipError_t hipStreamEndCapture(hipStream_t h, hipGraph_t* graph) {
  return guarded([&] {
    ihipStream_t* s = Runtime::get().stream(h);
    if (!graph) return hipErrorInvalidValue;
    if (!s) return hipErrorContextIsDestroyed;
    if (s->capture == hipStreamCaptureStatusNone) return hipErrorIllegalState;
    if (!s->origin) return hipErrorStreamCaptureUnmatched;
    bool valid = s->capture == hipStreamCaptureStatusActive;
    auto captured = std::move(s->graph);
    // Every node must lead to the origin stream's end: work of other streams has to be joined by an event.
    bool joined = true;
    std::set<const hipGraphNode*> reached;
    std::vector<hipGraphNode_t> open = s->frontier;
    while (!open.empty()) {
      hipGraphNode_t n = open.back();
      open.pop_back();
      if (reached.insert(n).second) open.insert(open.end(), n->dependencies.begin(), n->dependencies.end());
    }
    joined = reached.size() == captured->nodes.size();
    s->capture = hipStreamCaptureStatusNone;
    s->frontier.clear();
    s->origin = false;
    releaseCapture(captured.get());
    if (!valid) {
      *graph = nullptr;
      return hipErrorStreamCaptureInvalidated;
    }
    if (!joined) {
      *graph = nullptr;
      return hipErrorStreamCaptureUnjoined;
    }
    *graph = Runtime::get().add(std::make_unique<ihipGraph>(ihipGraph{std::move(captured)}));
    return hipSuccess;
  });
}
hipError_t hipStreamIsCapturing(hipStream_t h, hipStreamCaptureStatus* status) {
  return guarded([&] {
    ihipStream_t* s = Runtime::get().stream(h);
    if (!status) return hipErrorInvalidValue;
    if (!s) return hipErrorContextIsDestroyed;
    *status = s->capture;
    return hipSuccess;
  });
}
hipError_t hipStreamGetCaptureInfo(hipStream_t h, hipStreamCaptureStatus* status, unsigned long long* id) {
  return guarded([&] {
    ihipStream_t* s = Runtime::get().stream(h);
    if (!status) return hipErrorInvalidValue;
    if (!s) return hipErrorContextIsDestroyed;
    *status = s->capture;
    if (id && s->capture == hipStreamCaptureStatusActive) *id = s->captureId;
    return hipSuccess;
  });
}
hipError_t hipThreadExchangeStreamCaptureMode(hipStreamCaptureMode* mode) {
  thread_local hipStreamCaptureMode current = hipStreamCaptureModeGlobal;
  if (!mode || *mode < hipStreamCaptureModeGlobal || *mode > hipStreamCaptureModeRelaxed)
    return lastError() = hipErrorInvalidValue;
  std::swap(*mode, current);
  return hipSuccess;
}

hipError_t hipGraphCreate(hipGraph_t* graph, unsigned int flags) {
  return guarded([&] {
    if (!graph || flags) return hipErrorInvalidValue;
    *graph = Runtime::get().add(std::make_unique<ihipGraph>(ihipGraph{std::make_shared<Graph>()}));
    return hipSuccess;
  });
}
hipError_t hipGraphDestroy(hipGraph_t graph) {
  return guarded([&] { return Runtime::get().remove(graph) ? hipSuccess : hipErrorInvalidValue; });
}
hipError_t hipGraphClone(hipGraph_t* clone, hipGraph_t graph) {
  return guarded([&] {
    if (!clone || !Runtime::get().alive(graph)) return hipErrorInvalidValue;
    *clone = Runtime::get().add(std::make_unique<ihipGraph>(ihipGraph{graph->graph->clone()}));
    return hipSuccess;
  });
}
hipError_t hipGraphGetNodes(hipGraph_t graph, hipGraphNode_t* nodes, size_t* count) {
  return guarded([&] {
    if (!Runtime::get().alive(graph)) return hipErrorInvalidValue;
    std::vector<hipGraphNode_t> all;
    for (auto& n : graph->graph->nodes) all.push_back(n.get());
    return listNodes(all, nodes, count);
  });
}
hipError_t hipGraphGetRootNodes(hipGraph_t graph, hipGraphNode_t* nodes, size_t* count) {
  return guarded([&] {
    if (!Runtime::get().alive(graph)) return hipErrorInvalidValue;
    std::vector<hipGraphNode_t> roots;
    for (auto& n : graph->graph->nodes)
      if (n->dependencies.empty()) roots.push_back(n.get());
    return listNodes(roots, nodes, count);
  });
}
hipError_t hipGraphGetEdges(hipGraph_t graph, hipGraphNode_t* from, hipGraphNode_t* to, size_t* count) {
  return guarded([&] {
    if (!Runtime::get().alive(graph) || !count || (from == nullptr) != (to == nullptr)) return hipErrorInvalidValue;
    std::size_t n = 0;
    for (auto& node : graph->graph->nodes)
      for (hipGraphNode_t d : node->dependencies) {
        if (from && n < *count) from[n] = d, to[n] = node.get();
        ++n;
      }
    *count = from ? std::min(*count, n) : n;
    return hipSuccess;
  });
}
hipError_t hipGraphNodeGetType(hipGraphNode_t node, hipGraphNodeType* type) {
  return guarded([&] {
    if (!node || !type) return hipErrorInvalidValue;
    *type = typeOf(node->operation);
    return hipSuccess;
  });
}
hipError_t hipGraphAddDependencies(hipGraph_t graph, const hipGraphNode_t* from, const hipGraphNode_t* to,
                                   size_t count) {
  return guarded([&] {
    if (!Runtime::get().alive(graph) || (count && (!from || !to))) return hipErrorInvalidValue;
    for (std::size_t i = 0; i < count; ++i)
      if (!graph->graph->owns(from[i]) || !graph->graph->owns(to[i]) || from[i] == to[i]) return hipErrorInvalidValue;
    for (std::size_t i = 0; i < count; ++i) to[i]->dependencies.push_back(from[i]);
    return hipSuccess;
  });
}
hipError_t hipGraphAddKernelNode(hipGraphNode_t* node, hipGraph_t graph, const hipGraphNode_t* dependencies,
                                 size_t count, const hipKernelNodeParams* p) {
  return guarded([&] {
    KernelOp op;
    hipError_t e = kernelOp(p, op);
    return e == hipSuccess ? addNode(node, graph, dependencies, count, std::move(op)) : e;
  });
}
hipError_t hipGraphAddMemcpyNode1D(hipGraphNode_t* node, hipGraph_t graph, const hipGraphNode_t* dependencies,
                                   size_t count, void* to, const void* from, size_t size, hipMemcpyKind) {
  return guarded([&] {
    return to && from ? addNode(node, graph, dependencies, count, CopyOp{to, from, size}) : hipErrorInvalidValue;
  });
}
hipError_t hipGraphAddMemsetNode(hipGraphNode_t* node, hipGraph_t graph, const hipGraphNode_t* dependencies,
                                 size_t count, const hipMemsetParams* p) {
  return guarded([&] {
    SetOp op;
    hipError_t e = setOperation(p, op);
    return e == hipSuccess ? addNode(node, graph, dependencies, count, op) : e;
  });
}
hipError_t hipGraphAddHostNode(hipGraphNode_t* node, hipGraph_t graph, const hipGraphNode_t* dependencies, size_t count,
                               const hipHostNodeParams* p) {
  return guarded([&] {
    if (!p || !p->fn) return hipErrorInvalidValue;
    return addNode(node, graph, dependencies, count, HostOp{{}, p->fn, p->userData});
  });
}
hipError_t hipGraphAddEmptyNode(hipGraphNode_t* node, hipGraph_t graph, const hipGraphNode_t* dependencies,
                                size_t count) {
  return guarded([&] { return addNode(node, graph, dependencies, count, EmptyOp{}); });
}
hipError_t hipGraphAddChildGraphNode(hipGraphNode_t* node, hipGraph_t graph, const hipGraphNode_t* dependencies,
                                     size_t count, hipGraph_t child) {
  return guarded([&] {
    if (!Runtime::get().alive(child) || child == graph) return hipErrorInvalidValue;
    return addNode(node, graph, dependencies, count, ChildOp{child->graph->clone()});
  });
}
hipError_t hipGraphKernelNodeSetParams(hipGraphNode_t node, const hipKernelNodeParams* p) {
  return guarded([&] {
    KernelOp op;
    if (!node || !std::holds_alternative<KernelOp>(node->operation)) return hipErrorInvalidValue;
    hipError_t e = kernelOp(p, op);
    if (e == hipSuccess) node->operation = std::move(op);
    return e;
  });
}

hipError_t hipGraphInstantiate(hipGraphExec_t* executable, hipGraph_t graph, hipGraphNode_t* errorNode, char* log,
                               size_t logSize) {
  if (errorNode) *errorNode = nullptr;
  if (log && logSize) *log = 0;
  return guarded([&] { return instantiate(executable, graph); });
}
hipError_t hipGraphInstantiateWithFlags(hipGraphExec_t* executable, hipGraph_t graph, unsigned long long) {
  return guarded([&] { return instantiate(executable, graph); });
}
hipError_t hipGraphLaunch(hipGraphExec_t executable, hipStream_t stream) {
  return guarded([&] {
    if (!Runtime::get().alive(executable)) return hipErrorInvalidValue;
    ++Runtime::get().graphLaunches;
    return submit(stream, ChildOp{executable->graph});
  });
}
hipError_t hipGraphUpload(hipGraphExec_t executable, hipStream_t) {
  return guarded([&] { return Runtime::get().alive(executable) ? hipSuccess : hipErrorInvalidValue; });
}
hipError_t hipGraphExecDestroy(hipGraphExec_t executable) {
  return guarded([&] { return Runtime::get().remove(executable) ? hipSuccess : hipErrorInvalidValue; });
}
hipError_t hipGraphExecUpdate(hipGraphExec_t executable, hipGraph_t graph, hipGraphNode_t* errorNode,
                              hipGraphExecUpdateResult* result) {
  return guarded([&] {
    if (errorNode) *errorNode = nullptr;
    auto refuse = [&](hipGraphExecUpdateResult why, hipGraphNode_t node) {
      if (result) *result = why;
      if (errorNode) *errorNode = node;
      return hipErrorGraphExecUpdateFailure;
    };
    if (!Runtime::get().alive(executable) || !Runtime::get().alive(graph)) return hipErrorInvalidValue;
    const auto& old = executable->graph->nodes;
    const auto& now = graph->graph->nodes;
    if (old.size() != now.size()) return refuse(hipGraphExecUpdateErrorTopologyChanged, nullptr);
    for (std::size_t i = 0; i < now.size(); ++i) {
      if (old[i]->operation.index() != now[i]->operation.index())
        return refuse(hipGraphExecUpdateErrorNodeTypeChanged, now[i].get());
      bool same = old[i]->dependencies.size() == now[i]->dependencies.size();
      for (std::size_t k = 0; same && k < now[i]->dependencies.size(); ++k)
        same = old[i]->dependencies[k]->index == now[i]->dependencies[k]->index;
      if (!same) return refuse(hipGraphExecUpdateErrorTopologyChanged, now[i].get());
    }
    for (std::size_t i = 0; i < now.size(); ++i) old[i]->operation = now[i]->operation;
    if (result) *result = hipGraphExecUpdateSuccess;
    return hipSuccess;
  });
}
hipError_t hipGraphExecKernelNodeSetParams(hipGraphExec_t executable, hipGraphNode_t node,
                                           const hipKernelNodeParams* p) {
  return guarded([&] {
    hipGraphNode* n = counterpart<KernelOp>(executable, node);
    KernelOp op;
    if (!n) return hipErrorInvalidValue;
    hipError_t e = kernelOp(p, op);
    if (e == hipSuccess) n->operation = std::move(op);
    return e;
  });
}
hipError_t hipGraphExecMemcpyNodeSetParams1D(hipGraphExec_t executable, hipGraphNode_t node, void* to, const void* from,
                                             size_t size, hipMemcpyKind) {
  return guarded([&] {
    hipGraphNode* n = counterpart<CopyOp>(executable, node);
    if (!n || !to || !from) return hipErrorInvalidValue;
    n->operation = CopyOp{to, from, size};
    return hipSuccess;
  });
}
hipError_t hipGraphExecMemsetNodeSetParams(hipGraphExec_t executable, hipGraphNode_t node, const hipMemsetParams* p) {
  return guarded([&] {
    hipGraphNode* n = counterpart<SetOp>(executable, node);
    SetOp op;
    if (!n) return hipErrorInvalidValue;
    hipError_t e = setOperation(p, op);
    if (e == hipSuccess) n->operation = op;
    return e;
  });
}

}  // extern "C"
