// Executes operations, and routes those of capturing streams into graphs.
#include <algorithm>
#include <cmath>
#include <cstdio>
#include <cstring>

#include "sim/api/graph.h"
#include "sim/exec/device_memory.h"
#include "target/chip.h"

namespace sardonyx::sim {
namespace {

constexpr std::size_t kMostTimed = 100'000;  // launches that are remembered

/// A range that begins in a known allocation must end in it; other pointers are the program's own responsibility.
bool rangeFits(const void* pointer, std::size_t size) {
  auto a = DeviceMemory::instance().find(reinterpret_cast<std::uint64_t>(pointer));
  if (!a) return !DeviceMemory::instance().inArena(reinterpret_cast<std::uint64_t>(pointer));
  return size <= a->end() - reinterpret_cast<std::uint64_t>(pointer);
}

bool isPageable(const void* pointer) {
  return !DeviceMemory::instance().find(reinterpret_cast<std::uint64_t>(pointer));
}

hipError_t copy(const CopyOp& op) {
  if (!op.width || !op.height || !op.depth) return hipSuccess;
  if (!op.destination || !op.source) return hipErrorInvalidValue;
  bool rows = op.height > 1 || op.depth > 1;
  std::size_t dp = rows ? op.destinationPitch : op.width, sp = rows ? op.sourcePitch : op.width;
  std::size_t ds = op.depth > 1 ? op.destinationSlice : 0, ss = op.depth > 1 ? op.sourceSlice : 0;
  if (dp < op.width || sp < op.width) return hipErrorInvalidPitchValue;
  if (!rangeFits(op.destination, ds * (op.depth - 1) + dp * (op.height - 1) + op.width) ||
      !rangeFits(op.source, ss * (op.depth - 1) + sp * (op.height - 1) + op.width))
    return hipErrorInvalidValue;
  for (std::size_t z = 0; z < op.depth; ++z)
    for (std::size_t y = 0; y < op.height; ++y) {
      char* to = static_cast<char*>(op.destination) + z * ds + y * dp;
      const char* from = static_cast<const char*>(op.source) + z * ss + y * sp;
      DeviceMemory::instance().noteHostWrite(reinterpret_cast<std::uint64_t>(to), reinterpret_cast<std::uint64_t>(from),
                                             op.width);
      std::memmove(to, from, op.width);
    }
  return hipSuccess;
}

hipError_t set(const SetOp& op) {
  if (!op.width || !op.height) return hipSuccess;
  if (!op.destination) return hipErrorInvalidValue;
  std::size_t row = op.width * op.elementSize, pitch = op.height > 1 ? op.pitch : row;
  if (pitch < row) return hipErrorInvalidPitchValue;
  if (!rangeFits(op.destination, pitch * (op.height - 1) + row)) return hipErrorInvalidValue;
  for (std::size_t y = 0; y < op.height; ++y) {
    char* to = static_cast<char*>(op.destination) + y * pitch;
    DeviceMemory::instance().noteHostWrite(reinterpret_cast<std::uint64_t>(to), 0, row);
    if (op.elementSize == 1)
      std::memset(to, static_cast<int>(op.value), op.width);
    else
      for (std::size_t x = 0; x < op.width; ++x) std::memcpy(to + x * op.elementSize, &op.value, op.elementSize);
  }
  return hipSuccess;
}

timing::DeviceCaches& cachesOf(Device& d) {
  if (!d.caches) {
    const auto mall = static_cast<std::uint64_t>(d.chip->product->infinity_mib) << 20;
    d.caches =
        std::make_unique<timing::DeviceCaches>(d.chip->xccCount, static_cast<std::uint64_t>(d.chip->l2Bytes), mall);
  }
  return *d.caches;
}

void noteTime(Runtime& rt, const LaunchRequest& r, std::shared_ptr<timing::Estimate> estimate) {
  timing::TimedLaunch l;
  l.kernel = r.kernel->shown;
  for (int d = 0; d < 3; ++d) l.grid[d] = r.grid[d], l.block[d] = r.block[d];
  std::lock_guard lock(rt.mutex);
  const bool seen = std::any_of(rt.timed.begin(), rt.timed.end(), [&](const timing::TimedLaunch& t) {
    return t.kernel == l.kernel && std::equal(t.grid, t.grid + 3, l.grid);
  });
  if (seen) estimate->instructions.clear(), estimate->timeline.clear(), estimate->lives.clear();
  l.start = rt.microseconds;
  rt.microseconds += estimate->microseconds + estimate->launchMicroseconds;
  l.estimate = std::move(estimate);
  if (rt.timed.size() < kMostTimed) rt.timed.push_back(std::move(l));
}

/// What launches have in common that differ in addresses alone: words of the arguments that point into device memory
/// are left out. A structure passed by value is masked in the same way, as its pointers are aligned to 8 bytes too.
std::string repeatKey(const LaunchRequest& r) {
  std::string key(static_cast<const char*>(r.arguments), r.argumentBytes);
  for (std::size_t at = 0; at + 8 <= key.size(); at += 8) {
    std::uint64_t word;
    std::memcpy(&word, &key[at], 8);
    if (DeviceMemory::instance().find(word)) std::memset(&key[at], 0, 8);
  }
  const auto add = [&](const void* p, std::size_t n) { key.append(static_cast<const char*>(p), n); };
  const auto kernel = reinterpret_cast<std::uintptr_t>(r.kernel);
  add(&kernel, sizeof kernel);
  add(&r.device, sizeof r.device);
  add(r.grid, sizeof r.grid);
  add(r.block, sizeof r.block);
  add(&r.dynamicLds, sizeof r.dynamicLds);
  return key;
}

hipError_t launch(const KernelOp& op) {
  Runtime& rt = Runtime::get();
  LaunchRequest r;
  r.kernel = op.function->kernel;
  r.device = op.function->device;
  r.chip = rt.devices[static_cast<std::size_t>(r.device)]->chip;
  for (int d = 0; d < 3; ++d) r.grid[d] = op.grid[d], r.block[d] = op.block[d], r.total[d] = op.total[d];
  r.dynamicLds = op.shared;
  r.arguments = op.arguments.data();
  r.argumentBytes = op.arguments.size();
  if (rt.config().timing != Timing::kOff) r.caches = &cachesOf(*rt.devices[static_cast<std::size_t>(r.device)]);
  const bool repeats = rt.config().timing == Timing::kSample && rt.config().timingRepeats > 0;
  const std::string key = repeats ? repeatKey(r) : std::string();
  if (repeats)
    if (Repeated& known = rt.repeated[key]; known.simulated >= rt.config().timingRepeats) {
      noteTime(rt, r, std::make_shared<timing::Estimate>(*known.last));
      return hipSuccess;
    }
  LaunchCounts counts;
  std::string failure = runLaunch(r, rt.config(), &counts);
  if (!counts.byCategory.empty()) {
    std::lock_guard lock(rt.mutex);
    KernelCounts& k = rt.summary[r.kernel->name];
    k.shown = r.kernel->shown;
    ++k.launches;
    for (std::size_t i = 0; i < counts.byCategory.size(); ++i) k.byCategory[i] += counts.byCategory[i];
    k.traffic += counts.traffic;
  }
  if (counts.estimate) {
    if (repeats) {
      Repeated& known = rt.repeated[key];
      ++known.simulated;
      known.last = counts.estimate;
    }
    noteTime(rt, r, std::move(counts.estimate));
  }
  if (failure.empty()) return hipSuccess;
  if (rt.config().printFailures) std::fprintf(stderr, "simulated GPU: %s\n", failure.c_str());
  std::lock_guard lock(rt.mutex);
  rt.lastFailure = std::move(failure);
  return counts.refused ? hipErrorInvalidConfiguration : hipErrorLaunchFailure;
}

struct Executor {
  hipError_t operator()(const KernelOp& op) const { return launch(op); }
  hipError_t operator()(const CopyOp& op) const { return copy(op); }
  hipError_t operator()(const SetOp& op) const { return set(op); }
  hipError_t operator()(const HostOp& op) const {
    if (op.call)
      op.call();
    else
      op.function(op.data);
    return hipSuccess;
  }
  hipError_t operator()(const EmptyOp&) const { return hipSuccess; }
  hipError_t operator()(const WaitOp& op) const {
    return Runtime::get().alive(op.event) ? hipSuccess : hipErrorInvalidHandle;
  }
  hipError_t operator()(const RecordOp& op) const {
    if (!Runtime::get().alive(op.event)) return hipErrorInvalidHandle;
    op.event->recorded = true;
    op.event->reached = std::max(op.event->reached, op.number != 0 ? op.number : ++op.event->issued);
    Runtime& rt = Runtime::get();
    if (rt.config().timing == Timing::kOff)
      op.event->time = std::chrono::steady_clock::now();
    else  // the time that the clock has counted so far
      op.event->time =
          std::chrono::steady_clock::time_point(std::chrono::nanoseconds(std::llround(rt.microseconds * 1e3)));
    return hipSuccess;
  }
  hipError_t operator()(const FreeOp& op) const {
    return DeviceMemory::instance().release(reinterpret_cast<std::uint64_t>(op.pointer)) ? hipSuccess
                                                                                         : hipErrorInvalidValue;
  }
  hipError_t operator()(const ChildOp& op) const { return run(*op.graph); }
};

}  // namespace

hipError_t execute(const Operation& operation, int) {
  std::lock_guard lock(Runtime::get().execution);
  return std::visit(Executor{}, operation);
}

hipError_t submit(hipStream_t handle, Operation operation) {
  ihipStream_t* s = Runtime::get().stream(handle);
  if (!s) return hipErrorContextIsDestroyed;
  if (s->capture == hipStreamCaptureStatusInvalidated) return hipErrorStreamCaptureInvalidated;
  if (s->capture == hipStreamCaptureStatusActive) {
    hipGraphNode* node = s->graph->add(std::move(operation), s->frontier.data(), s->frontier.size());
    node->device = s->device;
    s->frontier = {node};
    return hipSuccess;
  }
  Runtime& rt = Runtime::get();
  if (auto* record = std::get_if<RecordOp>(&operation)) record->number = ++record->event->issued;
  if (rt.held + rt.waiting > 0) {
    std::unique_lock lock(rt.execution);
    if (mustWait(*s, operation)) {
      // A copy from or to memory that is not pinned is over when its call returns, as on a card.
      const auto* copied = std::get_if<CopyOp>(&operation);
      const bool blocks = copied && (isPageable(copied->source) || isPageable(copied->destination));
      defer(*s, std::move(operation));
      lock.unlock();
      if (blocks) finishStream(*s);
      return hipSuccess;
    }
  }
  hipError_t e = execute(operation, s->device);
  if (e == hipErrorLaunchFailure) s->failure = e;
  return e;
}

hipError_t run(const Graph& graph) {
  std::vector<hipGraphNode*> order;
  if (!graph.order(order)) return hipErrorInvalidValue;
  for (hipGraphNode* node : order)
    if (hipError_t e = execute(node->operation, node->device); e != hipSuccess) return e;
  return hipSuccess;
}

hipGraphNode* Graph::add(Operation operation, const hipGraphNode_t* dependencies, std::size_t count) {
  auto node = std::make_unique<hipGraphNode>();
  node->operation = std::move(operation);
  node->dependencies.assign(dependencies, dependencies + count);
  node->owner = this;
  node->index = nodes.size();
  nodes.push_back(std::move(node));
  return nodes.back().get();
}

bool Graph::order(std::vector<hipGraphNode*>& out) const {
  // Kahn's algorithm; ready nodes in the order they were added.
  std::vector<int> waiting(nodes.size());
  std::vector<std::vector<std::size_t>> next(nodes.size());
  for (const auto& n : nodes) {
    waiting[n->index] = static_cast<int>(n->dependencies.size());
    for (hipGraphNode* d : n->dependencies) next[d->index].push_back(n->index);
  }
  std::set<std::size_t> ready;
  for (const auto& n : nodes)
    if (!waiting[n->index]) ready.insert(n->index);
  while (!ready.empty()) {
    std::size_t i = *ready.begin();
    ready.erase(ready.begin());
    out.push_back(nodes[i].get());
    for (std::size_t j : next[i])
      if (--waiting[j] == 0) ready.insert(j);
  }
  return out.size() == nodes.size();
}

std::shared_ptr<Graph> Graph::clone() const {
  auto copy = std::make_shared<Graph>();
  for (const auto& n : nodes) {
    hipGraphNode* c = copy->add(n->operation, nullptr, 0);
    c->device = n->device;
    if (auto* child = std::get_if<ChildOp>(&c->operation)) child->graph = child->graph->clone();
  }
  for (const auto& n : nodes)
    for (hipGraphNode* d : n->dependencies) copy->nodes[n->index]->dependencies.push_back(copy->nodes[d->index].get());
  return copy;
}

}  // namespace sardonyx::sim
