#include "runtime/host_backend.h"

#include <cstdlib>
#include <cstring>
#include <set>
#include <span>

#include "compile/host_threads.h"
#include "host/parallel.h"
#include "program/limits.h"
#include "program/routine_names.h"
#include "runtime/grid_sizes.h"
#include "runtime/needed_kernels.h"
#include "runtime/routine_step.h"
#include "support/mapped_file.h"
#include "support/pages.h"
#include "support/tasks.h"

namespace sardonyx {
namespace {

constexpr std::int64_t kGrain =
    131072;  // minimum number of operations for a thread: longer than the microseconds to wake it

void check_size(std::size_t bytes) {
  if (bytes > (std::size_t{1} << 46))
    fail(ErrorKind::kInvalidArgument, "a tensor of {} bytes is needed for these input shapes; use smaller ones", bytes);
}

/// A call of generated code.
class HostLaunch : public PreparedStep {
 public:
  HostLaunch(const LaunchStep& step, const HostBackend& backend, const RunState& run)
      : step_(step), info_(run.kernel(step.kernel)), kernel_(backend.kernel(step.kernel)) {
    check(step.buffers.size() <= kMaxKernelArguments, "a kernel with {} buffers", step.buffers.size());
    if (!step.grid.empty()) {
      const GridSizes sizes = grid_sizes(step, run);
      for (const auto* axes : {&sizes.grid, &sizes.block}) values_.insert(values_.end(), axes->begin(), axes->end());
      values_.push_back(sizes.shared);
      shared_ = static_cast<std::size_t>(sizes.shared);
    }
    items_ = run.eval(step.work_items);
    if (items_ <= 0) return;
    if (step.limit) check_limit(step.limit, run.symbols);
    for (const Expr& s : step.symbols) values_.push_back(run.eval(s));
    for (const Expr& d : step.divisors) values_.push_back(static_cast<std::int64_t>(divisor_argument(run.eval(d))));
    grain_ = std::max<std::int64_t>(1, kGrain / std::max<std::int64_t>(1, run.eval(step.work)));
  }

  void enqueue(RunState& run) override {
    if (items_ <= 0) return;
    char* buffers[kMaxKernelArguments];
    for (std::size_t k = 0; k < step_.buffers.size(); ++k) buffers[k] = static_cast<char*>(run.at(step_.buffers[k]));
    const auto range = [&](std::int64_t begin, std::int64_t end) {
      if (step_.grid.empty()) return kernel_(buffers, values_.data(), begin, end);
      const BlockThreads here(shared_);
      kernel_(buffers, values_.data(), begin, end);
      here.check(info_.symbol);
    };
    if (items_ <= grain_) return range(0, items_);
    host::parallel_for(items_, grain_, run.threads, range);
  }
  std::string name() const override { return info_.symbol; }

 private:
  const LaunchStep& step_;
  const KernelInfo& info_;
  HostKernel kernel_;
  std::vector<std::int64_t> values_;  ///< arguments after the buffers
  std::int64_t items_ = 0, grain_ = 1;
  std::size_t shared_ = 0;  ///< of custom kernels
};

class HostRoutine : public PreparedStep {
 public:
  HostRoutine(const RoutineStep& step, const RunState& run)
      : step_(step), function_(routine_function(step)), sizes_(step, run) {}
  void enqueue(RunState& run) override {
    routines::Call call = routine_call(step_, sizes_, run);
    function_(call);
  }
  std::string name() const override { return step_.name; }

 private:
  const RoutineStep& step_;
  routines::Fn function_;
  RoutineSizes sizes_;
};

class HostCollective : public PreparedStep {
 public:
  HostCollective(const RoutineStep& step, Communicator& group, const RunState& run)
      : step_(step), group_(group), sizes_(step, run) {}
  void enqueue(RunState& run) override { run_collective(step_, sizes_, group_, run, nullptr); }
  std::string name() const override { return step_.name; }

 private:
  const RoutineStep& step_;
  Communicator& group_;
  RoutineSizes sizes_;
};

}  // namespace

std::shared_ptr<void> allocate_host(std::size_t bytes) {
  check_size(bytes);
  void* p = std::aligned_alloc(64, (bytes + 127) / 64 * 64);
  if (!p) fail(ErrorKind::kDevice, "out of memory: {} bytes", bytes);
  return std::shared_ptr<void>(p, std::free);
}

// Of a complete program all code is linked here; code that may still be compiling, when it is needed.
void HostBackend::load(const Program& program, int threads) {
  program_ = &program;
  threads_ = threads;
  modules_ = std::vector<Module>(program.objects.size());
  kernels_ = std::vector<std::atomic<HostKernel>>(program.kernels.size());
  if (!program.objects.done()) return;
  for (std::size_t k = 0; k < program.kernels.size(); ++k) kernel(static_cast<int>(k));
}

const HostModule& HostBackend::module(int object) const {
  const auto at = static_cast<std::size_t>(object);
  Module& m = modules_[at];
  std::call_once(m.once, [&] { m.code = std::make_unique<HostModule>(std::span(&program_->objects[at], 1)); });
  return *m.code;
}

HostKernel HostBackend::kernel(int number) const {
  const auto at = static_cast<std::size_t>(number);
  if (const HostKernel known = kernels_[at]) return known;
  const KernelInfo& info = program_->kernels[at];
  const auto made = reinterpret_cast<HostKernel>(module(info.object).find(info.symbol));
  check(made != nullptr, "kernel {} is not in the compiled code", info.symbol);
  kernels_[at] = made;
  return made;
}

void HostBackend::make_kernels(const Block& b, const RunState& run) {
  std::set<int> objects;
  for (const int k : needed_kernels(b, run, {}))
    if (!kernels_[static_cast<std::size_t>(k)].load())
      objects.insert(program_->kernels[static_cast<std::size_t>(k)].object);
  if (objects.empty()) return;
  const std::vector<int> missing(objects.begin(), objects.end());
  const BackgroundTexts::Pause pause;
  run_tasks(missing.size(), threads_, [&](std::size_t k) { module(missing[k]); });
}

std::unique_ptr<Queue> HostBackend::create_queue() { return std::make_unique<HostQueue>(*this); }

std::shared_ptr<void> HostBackend::allocate_lasting(std::size_t bytes) {
  check_size(bytes);
  auto p = allocate_on_large_pages(bytes + 64);
  if (!p) fail(ErrorKind::kDevice, "out of memory: {} bytes", bytes);
  return p;
}

std::shared_ptr<host::PackedWeights> HostBackend::packed(int buffer, const host::TileKernel& kernel,
                                                         const RunState& run) {
  const std::lock_guard lock(packed_mutex_);
  auto& slot = packed_[{buffer, kernel.weights_form()}];
  if (!slot) {
    slot = kernel.pack(run.at(buffer));
    // The original is needed again only for saving, or for packing in another layout.
    forget_pages(run.at(buffer), run.bytes(buffer));
  }
  return slot;
}

std::shared_ptr<void> HostQueue::allocate(std::size_t bytes) { return allocate_host(bytes); }

void HostQueue::copy(void* to, const void* from, std::size_t bytes) {
  if (bytes) std::memcpy(to, from, bytes);
}

void* HostQueue::scratch(std::size_t bytes) {
  if (bytes > scratch_size_) {
    scratch_ = backend_.allocate_lasting(bytes);
    scratch_size_ = bytes;
  }
  return scratch_.get();
}

std::unique_ptr<PreparedStep> HostQueue::prepare(const ProgramStep& s, RunState& run) {
  if (const auto* l = std::get_if<LaunchStep>(&s.op)) return std::make_unique<HostLaunch>(*l, backend_, run);
  if (const auto* g = std::get_if<GemmStep>(&s.op)) return prepare_host_tile(*g, *this, run);
  if (const auto* c = std::get_if<ConvStep>(&s.op)) return prepare_host_tile(*c, *this, run);
  if (const auto* a = std::get_if<AttentionStep>(&s.op)) return prepare_host_attention(*a, run);
  const auto* r = std::get_if<RoutineStep>(&s.op);
  if (!r) fail(ErrorKind::kInternal, "internal error: a step of a GPU's program on the host");
  if (is_collective(r->name)) return std::make_unique<HostCollective>(*r, *backend_.communicator(), run);
  return std::make_unique<HostRoutine>(*r, run);
}

}  // namespace sardonyx
