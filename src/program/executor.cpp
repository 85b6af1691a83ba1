// Making a program ready, and running it: symbols from input shapes, an arena laid out once per set of shapes, then the
// steps.
#include "program/executor.h"

#include <chrono>
#include <cstdlib>
#include <cstring>
#include <unordered_map>

#include "program/memory_plan.h"
#include "program/run.h"

namespace sardonyx {

namespace {

constexpr std::int64_t kMaxElements = std::int64_t{1} << 58;  // so that their bytes can be counted
constexpr std::size_t kMaxPlans = 64;                         // sets of shapes that are remembered

// Calls `f` with every expression of a step that says how large something is.
template <typename F>
void for_sizes(const Program& p, const ProgramStep& s, const F& f) {
  const auto all = [&](const Exprs& list) {
    for (const Expr& e : list)
      if (e) f(e);
  };
  const auto one = [&](const Expr& e) {
    if (e) f(e);
  };
  for (int b : s.writes) all(p.buffers[static_cast<std::size_t>(b)].shape);
  for (int b : s.reads) all(p.buffers[static_cast<std::size_t>(b)].shape);
  if (const auto* l = std::get_if<LaunchStep>(&s.op)) {
    all(l->symbols);
    one(l->points);
    one(l->work);
  } else if (const auto* t = std::get_if<TileLaunchStep>(&s.op)) {
    all(t->symbols);
    all({t->batches, t->m, t->n, t->k});
  } else if (const auto* g = std::get_if<GemmStep>(&s.op)) {
    all(g->batch_a);
    all(g->batch_b);
    all({g->m, g->n, g->k});
    for (const PostInfo& i : g->post) all(i.dims);
  } else if (const auto* c = std::get_if<ConvStep>(&s.op)) {
    for (const Exprs* list : {&c->pads_begin, &c->pads_end, &c->x_shape, &c->w_shape, &c->out_shape}) all(*list);
    for (const PostInfo& i : c->post) all(i.dims);
  } else if (const auto* a = std::get_if<AttentionStep>(&s.op)) {
    for (const HeadRef* r : {&a->q, &a->k, &a->v, &a->bias, &a->out}) {
      one(r->offset);
      all(r->strides);
    }
    all({a->batch, a->heads, a->queries, a->keys, a->head_dim, a->value_dim});
  } else if (const auto* r = std::get_if<RoutineStep>(&s.op)) {
    for (const TensorRef& t : r->inputs) all(t.shape);
    for (const TensorRef& t : r->outputs) all(t.shape);
    all(r->params);
  }
}

// Buffers that steps of a block, and of blocks inside, read, or that are its outputs.
void mark_used(const Block& b, std::vector<bool>& used) {
  for (const TensorRef& o : b.outputs) used[static_cast<std::size_t>(o.buffer)] = true;
  for (const ProgramStep& s : b.steps) {
    for (int r : s.reads) used[static_cast<std::size_t>(r)] = true;
    if (const auto* i = std::get_if<IfStep>(&s.op)) {
      mark_used(*i->then_block, used);
      mark_used(*i->else_block, used);
    }
    if (const auto* w = std::get_if<WhileStep>(&s.op)) mark_used(*w->body, used);
  }
}

}  // namespace

std::shared_ptr<void> allocate_bytes(std::size_t bytes) {
  if (bytes > (std::size_t{1} << 46))
    fail(ErrorKind::kInvalidArgument, "a tensor of {} bytes is needed for these input shapes; use smaller ones", bytes);
  void* p = std::aligned_alloc(64, (bytes + 127) / 64 * 64);
  if (!p) fail(ErrorKind::kDevice, "out of memory: {} bytes", bytes);
  return std::shared_ptr<void>(p, std::free);
}

bool evaluable(const Expr& e, const SymbolValues& s) {
  bool ok = true;
  if (e->has_sym) visit(e, [&](const Expr& x) { ok &= x->op != Op::kSym || s.has(static_cast<int>(x->i)); });
  return ok;
}

std::vector<std::int64_t> evaluate_dims(const Exprs& shape, const SymbolValues& symbols) {
  std::vector<std::int64_t> d;
  std::int64_t n = 1;
  for (const Expr& x : shape) {
    d.push_back(evaluate(x, symbols));
    if (d.back() < 0)
      fail(ErrorKind::kInvalidArgument, "these inputs give a tensor the negative dim {} ({})", d.back(),
           to_string(shape));
    if (d.back() && (__builtin_mul_overflow(n, d.back(), &n) || n > kMaxElements))
      fail(ErrorKind::kInvalidArgument, "these inputs give a tensor of too many elements ({})", to_string(shape));
  }
  return d;
}

std::size_t buffer_bytes(const BufferInfo& b, const SymbolValues& symbols) {
  std::size_t n = size_of(b.dtype);
  for (std::int64_t d : evaluate_dims(b.shape, symbols)) n *= static_cast<std::size_t>(d);
  return n;
}

void Executor::find_lives(const Block& b, const std::vector<bool>& inputs) {
  auto l = std::make_unique<Lives>();
  l->first_step = step_count_;
  step_count_ += static_cast<int>(b.steps.size());
  l->last_used.resize(b.steps.size());
  for (int k = 0; k < static_cast<int>(b.steps.size()); ++k) {
    const ProgramStep& s = b.steps[static_cast<std::size_t>(k)];
    bool known = true;
    for_sizes(*program_, s, [&](const Expr& e) {
      if (e->has_sym)
        visit(e, [&](const Expr& x) { known &= x->op != Op::kSym || inputs[static_cast<std::size_t>(x->i)]; });
    });
    l->known_at_start.push_back(known);
    for (int w : s.writes) {
      if (program_->buffers[static_cast<std::size_t>(w)].kind != BufferInfo::Kind::kTemporary) continue;
      if (l->range.emplace(w, std::make_pair(k, k)).second) l->temporaries.push_back(w);
    }
    for (int r : s.reads) {
      auto it = l->range.find(r);
      if (it != l->range.end()) it->second.second = std::max(it->second.second, k);
    }
    if (const auto* i = std::get_if<IfStep>(&s.op)) {
      find_lives(*i->then_block, inputs);
      find_lives(*i->else_block, inputs);
    }
    if (const auto* w = std::get_if<WhileStep>(&s.op)) find_lives(*w->body, inputs);
  }
  for (const TensorRef& o : b.outputs) {
    auto it = l->range.find(o.buffer);
    if (it != l->range.end()) it->second.second = INT32_MAX;
  }
  for (const auto& [buffer, range] : l->range)
    if (range.second != INT32_MAX) l->last_used[static_cast<std::size_t>(range.second)].push_back(buffer);
  lives_[&b] = std::move(l);
}

namespace {

const char* kind_of(const ProgramStep& s) {
  if (std::get_if<TileLaunchStep>(&s.op)) return "tile";
  if (std::get_if<GemmStep>(&s.op)) return "gemm";
  if (std::get_if<ConvStep>(&s.op)) return "conv";
  if (std::get_if<AttentionStep>(&s.op)) return "attention";
  return "control";
}

}  // namespace

void Executor::Run::step(const ProgramStep& s, PreparedStep* kept) {
  const auto run = [&](const auto& op) {
    using Prepared = decltype(prepare(op));
    if (!kept) return execute(op, prepare(op));
    if (std::holds_alternative<std::monostate>(*kept)) *kept = prepare(op);
    execute(op, std::get<Prepared>(*kept));
  };
  if (const auto* l = std::get_if<LaunchStep>(&s.op)) return run(*l);
  if (const auto* t = std::get_if<TileLaunchStep>(&s.op)) return run(*t);
  if (const auto* g = std::get_if<GemmStep>(&s.op)) return run(*g);
  if (const auto* c = std::get_if<ConvStep>(&s.op)) return run(*c);
  if (const auto* a = std::get_if<AttentionStep>(&s.op)) return run(*a);
  if (const auto* r = std::get_if<RoutineStep>(&s.op)) return run(*r);
  if (const auto* b = std::get_if<BindStep>(&s.op)) return bind(*b);
  if (const auto* c = std::get_if<CheckStep>(&s.op)) return check_condition(*c);
  if (const auto* i = std::get_if<IfStep>(&s.op)) return branch(*i);
  loop(std::get<WhileStep>(s.op));
}

void Executor::Run::block(const Block& b, const Lives& lives) {
  for (std::size_t k = 0; k < b.steps.size(); ++k) {
    const ProgramStep& s = b.steps[k];
    const bool control = std::holds_alternative<IfStep>(s.op) || std::holds_alternative<WhileStep>(s.op);
    for (int w : s.writes)
      if (!control && !address[static_cast<std::size_t>(w)]) {
        owned[w] = allocate(bytes(w));
        address[static_cast<std::size_t>(w)] = owned[w].get();
      }
    std::chrono::steady_clock::time_point start;
    if (options.profile) start = std::chrono::steady_clock::now();
    try {
      step(s, plan && lives.known_at_start[k] ? &plan->steps[static_cast<std::size_t>(lives.first_step) + k] : nullptr);
    } catch (const AssumptionFailed&) {
      throw;
    } catch (const Error& error) {
      const std::string text = error.what();
      if (s.origin.empty() || text.find(s.origin) != std::string::npos) throw;
      throw Error(error.kind(), s.origin + ": " + text);
    }
    if (options.profile) {
      if (e.gpu_) e.gpu_->synchronize();
      const double seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
      const auto* l = std::get_if<LaunchStep>(&s.op);
      const auto* r = std::get_if<RoutineStep>(&s.op);
      options.profile->push_back({l   ? p.kernels[static_cast<std::size_t>(l->kernel)].symbol
                                  : r ? r->name
                                      : kind_of(s),
                                  s.origin, seconds});
    }
    if (owned.empty()) continue;
    for (int buffer : lives.last_used[k]) {
      auto o = owned.find(buffer);
      if (o == owned.end()) continue;
      address[static_cast<std::size_t>(buffer)] = nullptr;
      owned.erase(o);
    }
  }
}

void Executor::load_code() {
  const Program& p = *program_;
  if (gpu_)
    for (const std::string& object : p.objects) gpu_modules_.push_back(gpu_->load(object));
  else
    module_ = std::make_unique<HostModule>(p.objects);
  for (const KernelInfo& k : p.kernels) {
    kernels_.push_back(gpu_ ? gpu_modules_[static_cast<std::size_t>(k.object)]->function(k.symbol.c_str())
                            : module_->find(k.symbol));
    check(kernels_.back() != nullptr, "kernel {} is not in the compiled code", k.symbol);
  }
}

void Executor::place_constants() {
  const Program& p = *program_;
  constants_.assign(p.buffers.size(), nullptr);
  for (std::size_t k = 0; k < p.buffers.size(); ++k) {
    if (p.buffers[k].kind != BufferInfo::Kind::kConstant) continue;
    const Data& d = p.constants[static_cast<std::size_t>(p.buffers[k].constant)];
    constants_[k] = d.bytes;
    constant_bytes_ += d.size;
    if (!gpu_) continue;
    const std::shared_ptr<void> there = gpu_->allocate(d.size);
    gpu_->upload(there.get(), d.bytes, d.size);
    constants_[k] = there.get();
    constant_owners_.push_back(there);
  }
}

Executor::Executor(std::shared_ptr<const Program> program, int threads, std::shared_ptr<Gpu> gpu)
    : program_(std::move(program)), threads_(std::max(1, threads)), gpu_(std::move(gpu)) {
  const Program& p = *program_;
  load_code();
  std::vector<bool> inputs(p.symbol_names.size());  // symbols that the inputs' dims give
  for (const TensorRef& t : p.main.inputs)
    for (const Expr& d : p.buffers[static_cast<std::size_t>(t.buffer)].shape)
      if (d->op == Op::kSym) inputs[static_cast<std::size_t>(d->i)] = true;
  find_lives(p.init, inputs);
  find_lives(p.main, inputs);
  place_constants();
  // Constants that the model computes from constants.
  if (!p.init.steps.empty()) {
    Context context;
    RunOptions options;
    Run run{*this, p, context, options, threads_, nullptr, {}, {}, {}, {}};
    run.address.resize(p.buffers.size());
    for (std::size_t k = 0; k < constants_.size(); ++k) run.address[k] = const_cast<void*>(constants_[k]);
    Lives keep = *lives_.at(&p.init);
    for (auto& l : keep.last_used) l.clear();  // nothing is freed on the way
    run.block(p.init, keep);
    std::vector<bool> used(p.buffers.size());
    mark_used(p.main, used);
    for (auto& [buffer, memory] : run.owned)
      if (used[static_cast<std::size_t>(buffer)]) {
        constants_[static_cast<std::size_t>(buffer)] = memory.get();
        constant_bytes_ += run.bytes(buffer);
        constant_owners_.push_back(memory);
      }
  }
}

Executor::~Executor() = default;

std::unique_ptr<Executor::Context> Executor::acquire() {
  std::lock_guard lock(mutex_);
  if (idle_.empty()) return std::make_unique<Context>();
  auto c = std::move(idle_.back());
  idle_.pop_back();
  return c;
}

void Executor::release(std::unique_ptr<Context> c) {
  std::lock_guard lock(mutex_);
  arena_bytes_ = std::max(arena_bytes_, c->arena_size);
  idle_.push_back(std::move(c));
}

ArenaPlan Executor::plan(const SymbolValues& symbols) const {
  const Program& p = *program_;
  const Lives& lives = *lives_.at(&p.main);
  std::vector<bool> is_output(p.buffers.size());
  for (const TensorRef& o : p.main.outputs) is_output[static_cast<std::size_t>(o.buffer)] = true;
  ArenaPlan plan;
  std::vector<Lifetime> list;
  for (int t : lives.temporaries) {
    if (is_output[static_cast<std::size_t>(t)] && !gpu_) continue;  // on the host, whoever runs it gets this memory
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
  plan.total = plan_memory(list, offsets);
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

std::vector<HostTensor> Executor::run(const std::vector<HostTensor>& inputs, const RunOptions& options) {
  const Program& p = *program_;
  if (inputs.size() != p.main.inputs.size())
    fail(ErrorKind::kInvalidArgument, "{} inputs given; the model has {}", inputs.size(), p.main.inputs.size());
  auto context = acquire();
  struct Release {
    Executor& e;
    std::unique_ptr<Context>& c;
    ~Release() { e.release(std::move(c)); }
  } release{*this, context};
  Run run{*this, p, *context, options, options.threads > 0 ? options.threads : threads_, nullptr, {}, {}, {}, {}};
  run.address.resize(p.buffers.size());
  for (std::size_t k = 0; k < constants_.size(); ++k) run.address[k] = const_cast<void*>(constants_[k]);

  std::vector<std::int64_t> key = {run.threads};
  std::vector<std::vector<std::int64_t>> input_dims;
  for (std::size_t k = 0; k < inputs.size(); ++k) {
    const BufferInfo& b = p.buffers[static_cast<std::size_t>(p.main.inputs[k].buffer)];
    if (inputs[k].dtype != b.dtype)
      fail(ErrorKind::kInvalidArgument, "input '{}' has dtype {}; the model wants {}", b.name, name(inputs[k].dtype),
           name(b.dtype));
    input_dims.push_back(inputs[k].dims);
    key.insert(key.end(), inputs[k].dims.begin(), inputs[k].dims.end());
    void*& address = run.address[static_cast<std::size_t>(p.main.inputs[k].buffer)];
    address = inputs[k].data;
    if (!gpu_) continue;
    auto& [memory, size] = context->inputs[k];
    if (!memory || size < inputs[k].bytes()) {
      memory = gpu_->allocate(inputs[k].bytes());
      size = inputs[k].bytes();
    }
    gpu_->upload(memory.get(), inputs[k].data, inputs[k].bytes());
    address = memory.get();
  }
  run.symbols = bind(input_dims);

  const Lives& lives = *lives_.at(&p.main);
  auto it = context->plans.find(key);
  if (it == context->plans.end()) {
    Plan plan{this->plan(run.symbols), std::vector<PreparedStep>(static_cast<std::size_t>(step_count_))};
    if (context->plans.size() >= kMaxPlans) context->plans.clear();
    it = context->plans.emplace(key, std::move(plan)).first;
  }
  run.plan = &it->second;
  if (it->second.arena.total > context->arena_size) {
    context->arena.reset();
    context->arena_size = 0;
    context->arena = run.allocate(it->second.arena.total);
    context->arena_size = it->second.arena.total;
  }
  for (const auto& [buffer, offset] : it->second.arena.offsets)
    run.address[static_cast<std::size_t>(buffer)] = static_cast<char*>(context->arena.get()) + offset;

  run.block(p.main, lives);

  std::vector<HostTensor> out;
  std::unordered_map<int, int> given;
  for (const TensorRef& o : p.main.outputs) {
    HostTensor t;
    t.dtype = p.buffers[static_cast<std::size_t>(o.buffer)].dtype;
    t.dims = run.dims(o.shape);
    auto own = run.owned.find(o.buffer);
    if (gpu_) {
      t = allocate_tensor(t.dtype, t.dims);
      gpu_->download(t.data, run.at(o.buffer), t.bytes());
    } else if (own != run.owned.end() && !given[o.buffer]++) {
      t.owner = own->second;
      t.data = t.owner.get();
    } else {  // an input, a constant, or an output given twice
      t = allocate_tensor(t.dtype, t.dims);
      std::memcpy(t.data, run.at(o.buffer), t.bytes());
    }
    out.push_back(std::move(t));
  }
  return out;
}

}  // namespace sardonyx
