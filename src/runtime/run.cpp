// A run from inputs to outputs: symbols from the inputs' dims, an arena that is planned once per set of dims, the
// steps, and copies of tensors.
#include "runtime/run.h"

#include <algorithm>
#include <cstdint>
#include <optional>

#include "support/profiler.h"

namespace sardonyx {
namespace {

constexpr std::size_t kMaxPlans = 256;  // sets of dims whose plans are kept

}  // namespace

Executor::Run::Run(Executor& executor, Context& c, const RunOptions& o, int host_threads)
    : RunState{*executor.program_, host_threads, executor.constants_},
      e(executor),
      context(c),
      queue(*c.queue),
      options(o) {
  address.resize(program.buffers.size());
  for (std::size_t k = 0; k < constants.size(); ++k) address[k] = const_cast<void*>(constants[k]);
}

// Takes the inputs: binds symbols and addresses, and reserves arena memory for those that are copied.
void Executor::Run::take_inputs(const std::vector<TensorView>& inputs, std::vector<std::int64_t>& key,
                                std::vector<bool>& staged) {
  if (inputs.size() != program.main.inputs.size())
    fail(ErrorKind::kInvalidArgument, "{} inputs given; the model has {}", inputs.size(), program.main.inputs.size());
  std::vector<std::vector<std::int64_t>> input_dims;
  for (std::size_t k = 0; k < inputs.size(); ++k) {
    const BufferInfo& b = info(program.main.inputs[k].buffer);
    if (inputs[k].dtype != b.dtype)
      fail(ErrorKind::kInvalidArgument, "input '{}' has dtype {}; the model expects {}", b.name, name(inputs[k].dtype),
           name(b.dtype));
    input_dims.push_back(inputs[k].dims);
    key.insert(key.end(), inputs[k].dims.begin(), inputs[k].dims.end());
    staged.push_back(e.separate_memory_ && !(inputs[k].on_device && aligned(inputs[k].data)));
    void* data = const_cast<void*>(inputs[k].data);
    if (e.separate_memory_ && !inputs[k].on_device) {
      host_inputs.resize(program.buffers.size());
      host_inputs[static_cast<std::size_t>(program.main.inputs[k].buffer)] = data;
    }
    address[static_cast<std::size_t>(program.main.inputs[k].buffer)] = data ? data : nowhere();
  }
  symbols = e.bind(input_dims);
}

// Finds the plan for these dims; makes it when they are first seen.
void Executor::Run::choose_plan(const std::vector<std::int64_t>& key, const Staged& staged) {
  auto it = context.plans.find(key);
  if (it == context.plans.end()) {
    Plan made{e.plan(symbols, staged), {}};
    made.steps.resize(static_cast<std::size_t>(e.step_count_));
    if (context.plans.size() >= kMaxPlans) context.plans.clear();
    it = context.plans.emplace(key, std::move(made)).first;
  }
  plan = &it->second;
  if (plan->arena.total > context.arena_size) {
    context.arena.reset();
    context.arena_size = 0;
    context.arena = e.backend_->allocate_lasting(plan->arena.total);
    context.arena_size = plan->arena.total;
  }
  for (const auto& [buffer, offset] : plan->arena.offsets)
    address[static_cast<std::size_t>(buffer)] = static_cast<char*>(context.arena.get()) + offset;
  arena_plan = &plan->arena;
  arena = context.arena.get();
  prefetch = &plan->prefetch;
}

// First the checks that depend on inputs' dims only, so that their failure costs nothing, and says more than what would
// fail for it later, such as a negative dim. Assumptions come before all others: where one fails, another program may
// not have the other checks. So those after an assumption that isn't known yet are left to their own step.
void Executor::Run::check_dims() const {
  const Lives& lives = *e.lives_.at(&program.main);
  const auto check = [&](bool assumptions) {
    for (std::size_t k = 0; k < program.main.steps.size(); ++k) {
      const auto* c = std::get_if<CheckStep>(&program.main.steps[k].op);
      if (c && c->assumption && !lives.known_at_start[k] && !assumptions) return;
      if (c && c->assumption == assumptions && lives.known_at_start[k])
        check_condition(*c, program.main.steps[k].origin);
    }
  };
  check(true);
  check(false);
  for (std::size_t k = 0; k < program.main.steps.size(); ++k)
    if (lives.known_at_start[k]) check_limit(program.main.steps[k], symbols);
}

// Copies inputs that the device's kernels can't use where they are.
void Executor::Run::stage_inputs(const std::vector<TensorView>& inputs, const Staged& staged) {
  for (std::size_t k = 0; k < inputs.size(); ++k) {
    if (!staged.inputs[k]) continue;
    const int buffer = program.main.inputs[k].buffer;
    if (inputs[k].on_device)
      queue.copy(at(buffer), inputs[k].data, bytes(buffer));
    else
      queue.upload(at(buffer), inputs[k].data, bytes(buffer));
  }
}

void Executor::run(const std::vector<TensorView>& inputs, const OutputSink& sink, const RunOptions& options) {
  const Program& p = *program_;
  if (!options.synchronize && !options.stream && separate_memory_)
    fail(ErrorKind::kInvalidArgument, "synchronize = false needs a stream (RunOptions::stream)");
  const ProfilerRange range("sardonyx: run");
  auto context = acquire();
  Run run(*this, *context, options, options.threads > 0 ? options.threads : threads_);
  // On any exit, waits for the work in the queue, or remembers it.
  struct Release {
    Executor& e;
    Run& run;
    std::unique_ptr<Context>& c;
    bool finished = false;
    ~Release() {
      c->queue->end(finished);
      run.owned.clear();
      e.release(std::move(c));
    }
  } release{*this, run, context};
  run.queue.begin(options);

  std::vector<std::int64_t> key = {run.threads};
  Staged staged;
  run.take_inputs(inputs, key, staged.inputs);
  for (const TensorView& t : inputs) {
    const auto from = reinterpret_cast<std::uintptr_t>(t.data);
    std::uintptr_t bytes = size_of(t.dtype);
    for (const std::int64_t d : t.dims) bytes *= static_cast<std::uintptr_t>(d);
    run.input_memory.emplace_back(from, from + bytes);
  }
  if (!context->checked.contains(key)) {  // checks of a large program take milliseconds
    run.check_dims();
    if (context->checked.size() >= kMaxPlans) context->checked.clear();
    context->checked.insert(key);
  }

  Run::Outputs outputs{sink, early_outputs_, std::vector<Run::Outputs::Target>(p.main.outputs.size())};
  run.outputs = &outputs;
  for (std::size_t k = 0; k < p.main.outputs.size(); ++k) {
    const TensorRef& o = p.main.outputs[k];
    const bool direct = direct_output_[static_cast<std::size_t>(o.buffer)] == static_cast<int>(k);
    staged.outputs.push_back(!(direct && outputs.place(run, o.buffer)));
  }
  for (const auto* list : {&staged.inputs, &staged.outputs}) key.insert(key.end(), list->begin(), list->end());
  run.choose_plan(key, staged);
  run.stage_inputs(inputs, staged);

  if (!run.plan->complete) backend_->make_kernels(p.main, run);
  {
    std::optional<host::SoloRun> solo;
    if (!separate_memory_ && run.threads > 1 && run.plan->complete) solo.emplace(run.plan->solo);
    run.all_steps();
  }
  run.plan->complete = true;
  outputs.deliver(run);
  if (separate_memory_ && options.synchronize) {
    run.queue.synchronize();
    release.finished = true;
    if (collective_) backend_->communicator()->check();  // work of a broken group ends without a result
  }
}

std::vector<HostTensor> Executor::run(const std::vector<HostTensor>& inputs, const RunOptions& options) {
  std::vector<TensorView> views;
  for (const HostTensor& t : inputs) views.push_back({t.dtype, t.dims, t.data, false});
  std::vector<HostTensor> out(program_->main.outputs.size());
  OutputSink sink;
  sink.allocate = [&](std::size_t k, DType dtype, const std::vector<std::int64_t>& dims) {
    out[k] = allocate_tensor(dtype, dims);
    return OutputMemory{out[k].data, false};
  };
  sink.take = [&](std::size_t k, Tensor&& t) {
    out[k] = std::move(t);
    return true;
  };
  run(views, sink, options);
  return out;
}

}  // namespace sardonyx
