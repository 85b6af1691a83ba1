// Generated kernels and routines on a GPU.
#include <algorithm>

#include "collective/peer.h"
#include "program/limits.h"
#include "program/routine_names.h"
#include "runtime/gpu_backend.h"
#include "runtime/host_backend.h"
#include "runtime/routine_step.h"

namespace sardonyx {
namespace {

constexpr std::int64_t kMaxBlocks = 1 << 20;  // maximum grid of a loop kernel; each thread loops over further elements

class GpuLaunchStep : public GpuStep {
 public:
  GpuLaunchStep(const LaunchStep& step, GpuQueue& queue, const RunState& run)
      : GpuStep(queue), info_(run.kernel(step.kernel)) {
    calls_ = launch_calls(step, queue.backend(), run);
  }
  std::string name() const override { return info_.symbol; }

 private:
  const KernelInfo& info_;
};

/// A routine that runs on the host: its tensors are copied there and back.
class GpuRoutine : public PreparedStep {
 public:
  GpuRoutine(const RoutineStep& step, GpuQueue& queue, const RunState& run)
      : step_(step), queue_(queue), function_(routine_function(step)), sizes_(step, run) {}

  void enqueue(RunState& run) override {
    routines::Call call = routine_call(step_, sizes_, run);
    const auto size = [](const routines::Tensor& x) {
      return static_cast<std::size_t>(x.elements()) * size_of(x.dtype);
    };
    std::vector<std::shared_ptr<void>> here;
    std::vector<void*> there;
    for (routines::Tensor& x : call.inputs) {
      here.push_back(allocate_host(size(x)));
      queue_.download(here.back().get(), x.data, size(x));
      x.data = here.back().get();
    }
    for (routines::Tensor& x : call.outputs) {
      here.push_back(allocate_host(size(x)));
      there.push_back(x.data);
      x.data = here.back().get();
    }
    function_(call);
    for (std::size_t k = 0; k < there.size(); ++k) queue_.upload(there[k], call.outputs[k].data, size(call.outputs[k]));
  }
  std::string name() const override { return step_.name; }

 private:
  const RoutineStep& step_;
  GpuQueue& queue_;
  routines::Fn function_;
  RoutineSizes sizes_;
};

/// A launch if the communicator has one for this size, otherwise a call of the communicator.
class GpuCollectiveStep : public GpuCollective {
 public:
  GpuCollectiveStep(const RoutineStep& step, GpuQueue& queue, const RunState& run)
      : GpuCollective(queue),
        step_(step),
        group_(*queue.backend().communicator()),
        launched_(dynamic_cast<const LaunchedCollectives*>(&group_)),
        sizes_(step, run) {
    std::size_t elements = 1;
    for (const std::int64_t d : sizes_.inputs[0]) elements *= static_cast<std::size_t>(d);
    if (!launched_ || elements == 0) return;
    const TensorRef &in = step.inputs[0], &out = step.outputs[0];
    const DType dtype = run.info(in.buffer).dtype;
    const auto l = step.name == "all_reduce" ? launched_->sum_launch(elements, dtype)
                                             : launched_->gather_launch(elements * size_of(dtype));
    if (!l) return;
    calls_.push_back(std::make_shared<GpuCall>(l->function, l->blocks, PeerExchange::kThreads, 0,
                                               std::vector<int>{in.buffer, out.buffer}, l->values));
    calls_[0]->launch.starts_early = l->starts_early;
  }
  void enqueue(RunState& run) override {
    if (!calls_.empty()) {
      launched_->begin_launches(1);
      return GpuStep::enqueue(run);
    }
    run_collective(step_, sizes_, group_, run, queue_.stream());
    queue_.resume();
  }
  std::string name() const override { return step_.name; }

 private:
  const RoutineStep& step_;
  Communicator& group_;
  const LaunchedCollectives* launched_;  ///< null: calls only
  RoutineSizes sizes_;
};

}  // namespace

GpuCalls launch_calls(const LaunchStep& l, const GpuBackend& backend, const RunState& run) {
  check(l.buffers.size() <= kMaxKernelArguments, "a kernel with {} buffers", l.buffers.size());
  GpuCalls calls;
  const std::int64_t items = run.eval(l.work_items);
  if (items <= 0) return calls;
  if (l.limit) check_limit(l.limit, run.symbols);
  std::vector<std::int64_t> values;
  for (const Expr& s : l.symbols) values.push_back(run.eval(s));
  for (const Expr& d : l.divisors) values.push_back(static_cast<std::int64_t>(divisor_argument(run.eval(d))));
  const std::int64_t blocks = (items - 1) / kGpuThreads + 1, repeat = l.repeat ? run.eval(l.repeat) : 1;
  for (std::int64_t number = 0; number < repeat; ++number) {
    std::vector<std::int64_t> all = values;
    if (l.repeat) all.push_back(number);
    calls.push_back(backend.call(l.kernel, static_cast<std::uint32_t>(std::min(blocks, kMaxBlocks)), kGpuThreads,
                                 l.buffers, std::move(all)));
  }
  return calls;
}

std::unique_ptr<PreparedStep> GpuQueue::prepare(const ProgramStep& s, RunState& run) {
  if (const auto* l = std::get_if<LaunchStep>(&s.op)) return std::make_unique<GpuLaunchStep>(*l, *this, run);
  if (const auto* c = std::get_if<ChoiceStep>(&s.op)) return prepare_choice(*c, *this, run);
  const auto* r = std::get_if<RoutineStep>(&s.op);
  if (!r) fail(ErrorKind::kInternal, "internal error: a step of the host's program on a GPU");
  if (is_collective(r->name)) return std::make_unique<GpuCollectiveStep>(*r, *this, run);
  return std::make_unique<GpuRoutine>(*r, *this, run);
}

}  // namespace sardonyx
