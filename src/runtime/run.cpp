// A run from its inputs to its outputs: symbols from input shapes, an arena laid out once per set of shapes, the steps,
// and tensors on their way.
#include "runtime/run.h"

#include <algorithm>
#include <cstdint>
#include <cstring>

#include "runtime/memory_plan.h"
#include "sardonyx/communicator.h"

namespace sardonyx {
namespace {

constexpr std::size_t kMaxPlans = 64;  // sets of shapes that are remembered
constexpr std::size_t kHostAlignment = 64, kGpuAlignment = 256;

// Where tensors of no elements are.
void* nowhere() {
  static std::max_align_t nothing;
  return &nothing;
}

// Kernels of GPUs read and write 16 bytes at a time; memory of a caller that lies otherwise is copied.
bool aligned(const void* p) { return reinterpret_cast<std::uintptr_t>(p) % 16 == 0; }

}  // namespace

ArenaPlan Executor::plan(const SymbolValues& symbols) const {
  const Program& p = *program_;
  return plan(symbols, {std::vector<bool>(p.main.inputs.size(), gpu_ != nullptr),
                        std::vector<bool>(p.main.outputs.size(), gpu_ != nullptr)});
}

ArenaPlan Executor::plan(const SymbolValues& symbols, const Staged& staged) const {
  const Program& p = *program_;
  const Lives& lives = *lives_.at(&p.main);
  std::vector<bool> elsewhere(p.buffers.size());
  for (std::size_t k = 0; k < p.main.outputs.size(); ++k) {
    const auto b = static_cast<std::size_t>(p.main.outputs[k].buffer);
    // On the host, whoever runs it gets the memory of what is not written to its place at once.
    if (!gpu_ || (direct_output_[b] == static_cast<int>(k) && !staged.outputs[k])) elsewhere[b] = true;
  }
  ArenaPlan plan;
  std::vector<Lifetime> list;
  for (std::size_t k = 0; k < p.main.inputs.size(); ++k) {
    const int b = p.main.inputs[k].buffer;
    if (staged.inputs[k])
      list.push_back({b, buffer_bytes(p.buffers[static_cast<std::size_t>(b)], symbols), -1, input_last_used_[k]});
  }
  for (int t : lives.temporaries) {
    if (elsewhere[static_cast<std::size_t>(t)]) continue;
    const BufferInfo& b = p.buffers[static_cast<std::size_t>(t)];
    bool known = true;
    for (const Expr& d : b.shape) known = known && evaluable(d, symbols);
    if (!known) {
      ++plan.unplanned;
      continue;
    }
    const auto& range = lives.range.at(t);
    list.push_back({t, buffer_bytes(b, symbols), range.first, range.second});
  }
  std::vector<std::size_t> offsets;
  plan.total = plan_memory(list, offsets, gpu_ ? kGpuAlignment : kHostAlignment);
  plan.live = most_alive(list);
  for (std::size_t k = 0; k < list.size(); ++k) plan.offsets.emplace_back(list[k].buffer, offsets[k]);
  return plan;
}

SymbolValues Executor::bind(const std::vector<std::vector<std::int64_t>>& input_dims) const {
  const Program& p = *program_;
  check(input_dims.size() == p.main.inputs.size(), "{} inputs for {}", input_dims.size(), p.main.inputs.size());
  SymbolValues symbols;
  const auto info = [&](std::size_t k) -> const BufferInfo& {
    return p.buffers[static_cast<std::size_t>(p.main.inputs[k].buffer)];
  };
  // Bare symbols are bound first, then everything is checked.
  for (std::size_t k = 0; k < input_dims.size(); ++k) {
    const BufferInfo& b = info(k);
    if (input_dims[k].size() != b.shape.size())
      fail(ErrorKind::kInvalidArgument, "input '{}' has rank {}; the model wants {} {}", b.name, input_dims[k].size(),
           b.shape.size(), to_string(b.shape));
    for (std::size_t d = 0; d < b.shape.size(); ++d) {
      if (input_dims[k][d] < 0)
        fail(ErrorKind::kInvalidArgument, "input '{}': dim {} is negative ({})", b.name, d, input_dims[k][d]);
      const Expr& e = b.shape[d];
      if (e->op == Op::kSym && !symbols.has(static_cast<int>(e->i)))
        symbols.set(static_cast<int>(e->i), input_dims[k][d]);
    }
  }
  for (std::size_t k = 0; k < input_dims.size(); ++k) {
    const BufferInfo& b = info(k);
    for (std::size_t d = 0; d < b.shape.size(); ++d) {
      const std::int64_t wanted = evaluate(b.shape[d], symbols);
      if (wanted == input_dims[k][d]) continue;
      const std::string what = is_const(b.shape[d]) ? "" : to_string(b.shape[d]) + " = ";
      fail(ErrorKind::kInvalidArgument, "input '{}': dim {} is {}, but {}{} is wanted", b.name, d, input_dims[k][d],
           what, wanted);
    }
  }
  return symbols;
}

std::vector<std::vector<std::int64_t>> Executor::output_dims(const SymbolValues& symbols) const {
  std::vector<std::vector<std::int64_t>> out;
  for (const TensorRef& o : program_->main.outputs) {
    out.emplace_back();
    for (const Expr& d : o.shape) out.back().push_back(evaluable(d, symbols) ? evaluate(d, symbols) : -1);
  }
  return out;
}

// Waits for the work that the last run left behind, if it was asked not to.
void Executor::Context::finish() noexcept {
  if (!pending) return;
  pending = false;
  try {
    done->synchronize();
  } catch (const Error&) {
    return;  // the device is lost; what comes next says so
  }
}

// Remembers work that is not waited for; that of a failed run is waited for here unless it is on a caller's stream.
void Executor::Context::leave(GpuStream given) noexcept {
  try {
    done->record(given);
  } catch (const Error&) {
    return;  // the device is lost; what comes next says so
  }
  pending = true;
  if (given == stream.get()) finish();
}

// Asks for the memory of an output whose dims are known, and makes it the buffer's if steps can write there.
bool Executor::Run::Outputs::place(Run& run, int buffer) {
  const int k = run.e.direct_output_[static_cast<std::size_t>(buffer)];
  if (k < 0 || !early) return false;
  for (const Expr& d : run.p.main.outputs[static_cast<std::size_t>(k)].shape)
    if (!evaluable(d, run.symbols)) return false;
  Target& t = ask(run, static_cast<std::size_t>(k));
  if (run.e.gpu_ && !(t.memory.on_device && aligned(t.memory.data))) return false;
  if (!in_place(run, buffer, t)) return false;
  run.address[static_cast<std::size_t>(buffer)] = t.memory.data;
  t.written = true;
  return true;
}

// Whether a step may write straight to memory that the caller gave. If an input lies there too, only a step that
// appends to it in place may: what others write is copied there when all is computed.
bool Executor::Run::Outputs::in_place(const Run& run, int buffer, const Target& t) const {
  const auto begin = reinterpret_cast<std::uintptr_t>(t.memory.data), end = begin + t.bytes;
  for (const auto& [from, to] : run.input_memory) {
    if (from >= end || begin >= to) continue;
    const auto appends = [&](const ProgramStep& s) {
      if (std::find(s.writes.begin(), s.writes.end(), buffer) == s.writes.end()) return false;
      if (const auto* r = std::get_if<RoutineStep>(&s.op)) return r->name == "append";
      const auto* l = std::get_if<LaunchStep>(&s.op);
      return l && run.p.kernels[static_cast<std::size_t>(l->kernel)].spec.appends_in_place;
    };
    if (from != begin || std::none_of(run.p.main.steps.begin(), run.p.main.steps.end(), appends)) return false;
  }
  return true;
}

Executor::Run::Outputs::Target& Executor::Run::Outputs::ask(Run& run, std::size_t index) {
  Target& t = targets[index];
  if (t.asked) return t;
  const TensorRef& o = run.p.main.outputs[index];
  const std::vector<std::int64_t> dims = run.dims(o.shape);
  t.memory = sink.allocate(index, run.info(o.buffer).dtype, dims);
  if (run.scope) run.scope->again();
  t.asked = true;
  t.bytes = size_of(run.info(o.buffer).dtype);
  for (std::int64_t d : dims) t.bytes *= static_cast<std::size_t>(d);
  if (t.bytes == 0) t.memory.data = nowhere();
  if (!t.memory.data)
    fail(ErrorKind::kInvalidArgument, "no memory was given for output '{}'", run.p.output_names[index]);
  return t;
}

// Outputs that are inputs as well, in an order in which none is written to memory that another is still to be read
// from. Where there is no such order (two that swap places), copying through third memory would cost what nobody asked
// for.
std::vector<std::size_t> Executor::Run::Outputs::inputs_in_order(Run& run) {
  struct Copy {
    std::size_t output;
    std::uintptr_t from, to, bytes;
    bool writes(std::uintptr_t at, std::uintptr_t size) const { return to < at + size && at < to + bytes; }
  };
  std::vector<Copy> left;
  for (std::size_t k = 0; k < targets.size(); ++k) {
    const int buffer = run.p.main.outputs[k].buffer;
    if (run.info(buffer).kind != BufferInfo::Kind::kInput || targets[k].written) continue;
    const Target& t = ask(run, k);
    if (t.bytes == 0) continue;
    const Copy c{k, reinterpret_cast<std::uintptr_t>(run.at(buffer)), reinterpret_cast<std::uintptr_t>(t.memory.data),
                 t.bytes};
    if (c.from != c.to && c.writes(c.from, c.bytes))
      fail(ErrorKind::kInvalidArgument, "output '{}' is an input, and its memory overlaps that input's in part",
           run.p.output_names[k]);
    if (c.from != c.to) left.push_back(c);
  }
  std::vector<std::size_t> order;
  while (!left.empty()) {
    const auto next = std::find_if(left.begin(), left.end(), [&](const Copy& c) {
      return std::none_of(left.begin(), left.end(), [&](const Copy& other) {
        return other.output != c.output && c.writes(other.from, other.bytes);
      });
    });
    if (next == left.end())
      fail(ErrorKind::kInvalidArgument,
           "outputs '{}' and '{}' are inputs and swap places with others; give them memory that no input has",
           run.p.output_names[left.front().output], run.p.output_names[left.back().output]);
    order.push_back(next->output);
    left.erase(next);
  }
  return order;
}

// What steps did not write to its place.
void Executor::Run::Outputs::deliver(Run& run) {
  std::vector<bool> taken(run.p.buffers.size());
  // Inputs that are outputs as well come first: other outputs may lie in their memory.
  std::vector<std::size_t> order = inputs_in_order(run);
  for (std::size_t k = 0; k < targets.size(); ++k)
    if (run.info(run.p.main.outputs[k].buffer).kind != BufferInfo::Kind::kInput) order.push_back(k);
  for (const std::size_t k : order) {
    if (targets[k].written) continue;
    const TensorRef& o = run.p.main.outputs[k];
    const auto b = static_cast<std::size_t>(o.buffer);
    const auto own = run.owned.find(o.buffer);
    if (sink.take && !run.e.gpu_ && !targets[k].asked && own != run.owned.end() && !taken[b]) {
      Tensor t;
      t.dtype = run.info(o.buffer).dtype;
      t.dims = run.dims(o.shape);
      t.owner = own->second;
      t.data = t.owner.get();
      if (sink.take(k, std::move(t))) {
        taken[b] = true;
        continue;
      }
    }
    const Target& t = ask(run, k);
    if (t.bytes == 0) continue;
    if (run.e.gpu_ && !t.memory.on_device)
      run.context.transfers->download(t.memory.data, run.at(o.buffer), t.bytes, run.stream);
    else
      run.copy(t.memory.data, run.at(o.buffer), t.bytes);
  }
}

// Inputs: symbols, addresses, and where the arena must have room for a copy.
void Executor::Run::take_inputs(const std::vector<TensorView>& inputs, std::vector<std::int64_t>& key,
                                std::vector<bool>& staged) {
  if (inputs.size() != p.main.inputs.size())
    fail(ErrorKind::kInvalidArgument, "{} inputs given; the model has {}", inputs.size(), p.main.inputs.size());
  std::vector<std::vector<std::int64_t>> input_dims;
  for (std::size_t k = 0; k < inputs.size(); ++k) {
    const BufferInfo& b = info(p.main.inputs[k].buffer);
    if (inputs[k].dtype != b.dtype)
      fail(ErrorKind::kInvalidArgument, "input '{}' has dtype {}; the model wants {}", b.name, name(inputs[k].dtype),
           name(b.dtype));
    input_dims.push_back(inputs[k].dims);
    key.insert(key.end(), inputs[k].dims.begin(), inputs[k].dims.end());
    staged.push_back(e.gpu_ && !(inputs[k].on_device && aligned(inputs[k].data)));
    void* data = const_cast<void*>(inputs[k].data);
    if (e.gpu_ && !inputs[k].on_device) {
      host_inputs.resize(p.buffers.size());
      host_inputs[static_cast<std::size_t>(p.main.inputs[k].buffer)] = data;
    }
    address[static_cast<std::size_t>(p.main.inputs[k].buffer)] = data ? data : nowhere();
  }
  symbols = e.bind(input_dims);
}

// The plan for these dims, made when they are first seen.
void Executor::Run::choose_plan(const std::vector<std::int64_t>& key, const Staged& staged) {
  auto it = context.plans.find(key);
  if (it == context.plans.end()) {
    Plan made{e.plan(symbols, staged), std::vector<PreparedStep>(static_cast<std::size_t>(e.step_count_))};
    if (context.plans.size() >= kMaxPlans) context.plans.clear();
    it = context.plans.emplace(key, std::move(made)).first;
  }
  plan = &it->second;
  if (plan->arena.total > context.arena_size) {
    context.arena.reset();
    context.arena_size = 0;
    context.arena = e.memory_ ? e.memory_->allocate(plan->arena.total) : allocate_lasting(plan->arena.total);
    context.arena_size = plan->arena.total;
  }
  for (const auto& [buffer, offset] : plan->arena.offsets)
    address[static_cast<std::size_t>(buffer)] = static_cast<char*>(context.arena.get()) + offset;
}

// Checks of what inputs' dims alone decide come first: their failing must not cost anything.
void Executor::Run::check_dims() const {
  const Lives& lives = *e.lives_.at(&p.main);
  for (std::size_t k = 0; k < p.main.steps.size(); ++k)
    if (lives.known_at_start[k]) {
      if (const auto* c = std::get_if<CheckStep>(&p.main.steps[k].op); c && c->assumption) check_condition(*c);
      if (const auto* l = std::get_if<LaunchStep>(&p.main.steps[k].op); l && l->limit && eval(l->points) > 0)
        check_limit(l->limit);
      if (const auto* a = std::get_if<AttentionLaunchStep>(&p.main.steps[k].op); a && is_needed(*a))
        check_limit(a->limit);
    }
}

void Executor::run(const std::vector<TensorView>& inputs, const OutputSink& sink, const RunOptions& options) {
  const Program& p = *program_;
  if (!options.synchronize && !options.stream && gpu_)
    fail(ErrorKind::kInvalidArgument, "a run that is not waited for needs a stream (RunOptions::stream)");
  std::optional<Gpu::Scope> scope;
  if (gpu_) scope.emplace(*gpu_);
  auto context = acquire();
  Run run{*this, p, *context, options, options.threads > 0 ? options.threads : threads_};
  run.scope = scope ? &*scope : nullptr;
  run.stream = gpu_ && options.stream ? options.stream : context->stream.get();
  // Whatever happens, work that was given to the stream is waited for, or remembered.
  struct Release {
    Executor& e;
    Run& run;
    std::unique_ptr<Context>& c;
    bool finished = false;
    ~Release() {
      if (e.gpu_ && !finished) c->leave(run.stream);
      run.owned.clear();
      e.release(std::move(c));
    }
  } release{*this, run, context};
  if (context->pending) {
    context->done->wait_in(run.stream);
    context->pending = false;
  }

  run.address.resize(p.buffers.size());
  for (std::size_t k = 0; k < constants_.size(); ++k) run.address[k] = const_cast<void*>(constants_[k]);
  std::vector<std::int64_t> key = {run.threads};
  Staged staged;
  run.take_inputs(inputs, key, staged.inputs);
  for (const TensorView& t : inputs) {
    const auto from = reinterpret_cast<std::uintptr_t>(t.data);
    std::uintptr_t bytes = size_of(t.dtype);
    for (const std::int64_t d : t.dims) bytes *= static_cast<std::uintptr_t>(d);
    run.input_memory.emplace_back(from, from + bytes);
  }
  if (context->checked != key) run.check_dims();
  context->checked = key;

  Run::Outputs outputs{sink, early_outputs_, std::vector<Run::Outputs::Target>(p.main.outputs.size())};
  run.outputs = &outputs;
  for (std::size_t k = 0; k < p.main.outputs.size(); ++k) {
    const TensorRef& o = p.main.outputs[k];
    const bool direct = direct_output_[static_cast<std::size_t>(o.buffer)] == static_cast<int>(k);
    staged.outputs.push_back(!(direct && outputs.place(run, o.buffer)));
  }
  for (const auto* list : {&staged.inputs, &staged.outputs}) key.insert(key.end(), list->begin(), list->end());
  run.choose_plan(key, staged);
  for (std::size_t k = 0; k < inputs.size(); ++k) {
    if (!staged.inputs[k]) continue;
    const int buffer = p.main.inputs[k].buffer;
    if (inputs[k].on_device)
      run.copy(run.at(buffer), inputs[k].data, run.bytes(buffer));
    else
      context->transfers->upload(run.at(buffer), inputs[k].data, run.bytes(buffer), run.stream);
  }

  if (lazy_ && !run.plan->complete) run.make_kernels(p.main);
  run.all_steps();
  run.plan->complete = true;
  outputs.deliver(run);
  if (gpu_ && options.synchronize) {
    gpu_->synchronize(run.stream);
    release.finished = true;
    if (collective_) communicator_->check();  // work of a broken group ends without a result
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
