// A run as captured graphs of launches. Collectives that are calls of the communicator divide it into several graphs.
#include <algorithm>

#include "collective/peer.h"
#include "runtime/gpu_backend.h"

namespace sardonyx {
namespace {

struct CapturedGraphs : CapturedRun {
  struct Segment {
    std::unique_ptr<GpuGraph> graph;  ///< null: no launches
    std::size_t first = 0;            ///< its first call
    int collective = -1;              ///< step that follows it; -1: none
  };
  std::vector<GpuCall*> calls;
  std::vector<std::size_t> segment_of;  ///< by call: its segment
  std::vector<Segment> segments;
  std::size_t collective_calls = 0;  ///< number of `calls` that are collectives, which need the other GPUs
  bool usable = true;                ///< the driver supports graphs
  const void* arena = nullptr;       ///< arena that the calls' addresses refer to
  std::vector<std::size_t> outside;  ///< calls with buffers outside of the arena and the constants
};

class Recorder {
 public:
  Recorder(Gpu& gpu, const RunState& run) : gpu_(gpu), run_(run), fixed_(run.address.size()) {
    for (const auto& [buffer, offset] : run.arena_plan->offsets) fixed_[static_cast<std::size_t>(buffer)] = true;
    for (std::size_t k = 0; k < run.constants.size(); ++k) fixed_[k] = fixed_[k] || run.constants[k] != nullptr;
    made_->segments.emplace_back();
  }

  std::unique_ptr<CapturedRun> record(PreparedSteps steps) {
    for (std::size_t k = 0; k < steps.size(); ++k) {
      const auto* step = dynamic_cast<const GpuStep*>(steps[k].get());
      if (!step) continue;  // a check, or a step that does not run
      if (dynamic_cast<const GpuCollective*>(step)) {
        if (step->calls().empty()) {
          end_segment(static_cast<int>(k));
          continue;
        }
        ++made_->collective_calls;
      }
      for (const auto& call : step->calls()) add(*call);
    }
    made_->arena = run_.arena;
    end_segment(-1);
    return std::move(made_);
  }

 private:
  void add(GpuCall& call) {
    call.place(run_.address);
    if (std::any_of(call.buffers.begin(), call.buffers.end(),
                    [&](int b) { return !fixed_[static_cast<std::size_t>(b)]; }))
      made_->outside.push_back(made_->calls.size());
    made_->calls.push_back(&call);
    made_->segment_of.push_back(made_->segments.size() - 1);
    launches_.push_back(call.launch);
  }

  // Makes a graph of the launches since the last collective.
  void end_segment(int collective) {
    CapturedGraphs::Segment& segment = made_->segments.back();
    if (!launches_.empty()) {
      segment.graph = gpu_.make_graph(launches_);
      made_->usable = made_->usable && segment.graph;
    }
    segment.collective = collective;
    launches_.clear();
    if (collective >= 0) made_->segments.push_back({nullptr, made_->calls.size()});
  }

  Gpu& gpu_;
  const RunState& run_;
  std::vector<bool> fixed_;  ///< by buffer: fixed relative to the arena, or constant
  std::unique_ptr<CapturedGraphs> made_ = std::make_unique<CapturedGraphs>();
  std::vector<GpuLaunch> launches_;
};

}  // namespace

// If the vendor's library launches something that can't be captured, our own kernels replace it.
bool GpuQueue::replay(PreparedSteps steps, std::unique_ptr<CapturedRun>& captured, RunState& run) {
  if (!backend_.graphs()) return false;
  if (!backend_.library_used()) return replay_launches(steps, captured, run);
  std::vector<GpuChoiceStep*> theirs;
  for (const auto& s : steps)
    if (auto* t = dynamic_cast<GpuChoiceStep*>(s.get()); t && t->by_library()) theirs.push_back(t);
  if (theirs.empty()) return replay_launches(steps, captured, run);
  try {
    return replay_launches(steps, captured, run);
  } catch (const Error& error) {
    captured.reset();
    for (GpuChoiceStep* t : theirs) t->give_up(error.what());
  }
  return replay_launches(steps, captured, run);
}

bool GpuQueue::replay_launches(PreparedSteps steps, std::unique_ptr<CapturedRun>& captured, RunState& run) {
  if (!captured) captured = Recorder(gpu_, run).record(steps);
  auto& c = static_cast<CapturedGraphs&>(*captured);
  if (!c.usable || c.calls.empty()) return false;
  if (c.collective_calls > 0)
    dynamic_cast<const LaunchedCollectives&>(*backend_.communicator()).begin_launches(c.collective_calls);
  const auto update = [&](std::size_t k) {
    const CapturedGraphs::Segment& segment = c.segments[c.segment_of[k]];
    if (c.calls[k]->place(run.address)) segment.graph->set(k - segment.first, c.calls[k]->launch);
  };
  if (c.arena == run.arena) {
    for (std::size_t k : c.outside) update(k);
  } else {
    for (std::size_t k = 0; k < c.calls.size(); ++k) update(k);
    c.arena = run.arena;
  }
  for (const CapturedGraphs::Segment& segment : c.segments) {
    if (segment.graph) segment.graph->launch(stream_);
    if (segment.collective >= 0) steps[static_cast<std::size_t>(segment.collective)]->enqueue(run);
  }
  return true;
}

}  // namespace sardonyx
