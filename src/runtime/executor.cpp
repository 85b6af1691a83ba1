// Making a program ready, and running its steps; run.cpp prepares and ends a run.
#include "runtime/executor.h"

#include <algorithm>
#include <chrono>
#include <cstdlib>
#include <cstring>
#include <unordered_map>

#include "compile/ptxas.h"
#include "runtime/memory_plan.h"
#include "runtime/run.h"
#include "runtime/weights.h"
#include "support/pages.h"
#include "support/warning.h"

namespace sardonyx {

namespace {

constexpr std::int64_t kMaxElements = std::int64_t{1} << 58;  // so that their bytes can be counted

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
    all(l->divisors);
    for (const Expr* e : {&l->points, &l->work, &l->limit, &l->repeat}) one(*e);
  } else if (const auto* t = std::get_if<TileLaunchStep>(&s.op)) {
    all(t->symbols);
    all({t->batches, t->m, t->n, t->k});
    for (const TileLaunchStep::Library& l : t->library) all({l.batches, l.m, l.n, l.k});
    for (const CopiedWindows& w : t->windows) {
      all({w.offset, w.images, w.pitch});
      for (std::size_t k : {0, 1}) all({w.sizes[k], w.out[k], w.pitches[k], w.pads[k]});
    }
  } else if (const auto* n = std::get_if<AttentionLaunchStep>(&s.op)) {
    all({n->needed, n->rule, n->batches, n->m, n->n, n->k, n->work, n->limit});
    for (const AttentionLaunchStep::Form& form : n->forms) {
      one(form.applies);
      for (const LaunchStep& x : form.launches) {
        all(x.symbols);
        one(x.points);
      }
    }
  } else if (const auto* g = std::get_if<GemmStep>(&s.op)) {
    all(g->batch_a);
    all(g->batch_b);
    all({g->m, g->n, g->k});
    for (const PostInfo& i : g->post) all(i.dims);
  } else if (const auto* c = std::get_if<ConvStep>(&s.op)) {
    for (const Exprs* list : {&c->pads_begin, &c->pads_end, &c->x_shape, &c->w_shape, &c->out_shape}) all(*list);
    for (const PostInfo& i : c->post) all(i.dims);
  } else if (const auto* a = std::get_if<AttentionStep>(&s.op)) {
    for (const HeadRef* r : {&a->q, &a->k, &a->v, &a->bias, &a->out, &a->begin, &a->end, &a->sink}) {
      one(r->offset);
      all(r->strides);
    }
    all({a->batch, a->heads, a->queries, a->keys, a->head_dim, a->value_dim});
  } else if (const auto* r = std::get_if<RoutineStep>(&s.op)) {
    for (const TensorRef& t : r->inputs) all(t.shape);
    for (const TensorRef& t : r->outputs) all(t.shape);
    all(r->params);
  } else if (const auto* k = std::get_if<CheckStep>(&s.op)) {
    one(k->condition);
  }
}

// What must not be too large for a launch.
Expr limit_of(const ProgramStep& s) {
  if (const auto* l = std::get_if<LaunchStep>(&s.op)) return l->limit;
  if (const auto* a = std::get_if<AttentionLaunchStep>(&s.op)) return a->limit;
  return {};
}

bool has_assumptions(const Block& b);
// Whether a nested block assumes something.
bool has_assumptions(const ProgramStep& s) {
  if (const auto* i = std::get_if<IfStep>(&s.op))
    return has_assumptions(*i->then_block) || has_assumptions(*i->else_block);
  if (const auto* w = std::get_if<WhileStep>(&s.op)) return has_assumptions(*w->body);
  if (limit_of(s)) return true;
  const auto* c = std::get_if<CheckStep>(&s.op);
  return c && c->assumption;
}
bool has_assumptions(const Block& b) {
  return std::any_of(b.steps.begin(), b.steps.end(), [](const ProgramStep& s) { return has_assumptions(s); });
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

namespace {
void check_size(std::size_t bytes) {
  if (bytes > (std::size_t{1} << 46))
    fail(ErrorKind::kInvalidArgument, "a tensor of {} bytes is needed for these input shapes; use smaller ones", bytes);
}
}  // namespace

std::shared_ptr<void> allocate_bytes(std::size_t bytes) {
  check_size(bytes);
  void* p = std::aligned_alloc(64, (bytes + 127) / 64 * 64);
  if (!p) fail(ErrorKind::kDevice, "out of memory: {} bytes", bytes);
  return std::shared_ptr<void>(p, std::free);
}

std::shared_ptr<void> allocate_lasting(std::size_t bytes) {
  check_size(bytes);
  auto p = allocate_on_large_pages(bytes + 64);
  if (!p) fail(ErrorKind::kDevice, "out of memory: {} bytes", bytes);
  return p;
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
  if (const auto* n = std::get_if<AttentionLaunchStep>(&s.op)) return run(*n);
  if (const auto* g = std::get_if<GemmStep>(&s.op)) return run(*g);
  if (const auto* c = std::get_if<ConvStep>(&s.op)) return run(*c);
  if (const auto* a = std::get_if<AttentionStep>(&s.op)) return run(*a);
  if (const auto* r = std::get_if<RoutineStep>(&s.op)) return run(*r);
  if (const auto* b = std::get_if<BindStep>(&s.op)) return bind(*b);
  if (const auto* c = std::get_if<CheckStep>(&s.op)) return check_condition(*c);
  if (const auto* i = std::get_if<IfStep>(&s.op)) return branch(*i);
  loop(std::get<WhileStep>(s.op));
}

// A step; its errors say where in the model it comes from.
void Executor::Run::step_of(const ProgramStep& s, PreparedStep* kept) {
  try {
    step(s, kept);
  } catch (const AssumptionFailed&) {
    throw;
  } catch (const Error& error) {
    const std::string text = error.what();
    if (s.origin.empty() || text.find(s.origin) != std::string::npos) throw;
    throw Error(error.kind(), s.origin + ": " + text);
  }
}

void Executor::Run::block(const Block& b, const Lives& lives) {
  for (std::size_t k = 0; k < b.steps.size(); ++k) {
    const ProgramStep& s = b.steps[k];
    const bool control = std::holds_alternative<IfStep>(s.op) || std::holds_alternative<WhileStep>(s.op);
    for (int w : s.writes)
      if (!control && !address[static_cast<std::size_t>(w)] && !(outputs && outputs->place(*this, w))) {
        owned[w] = allocate(bytes(w));
        address[static_cast<std::size_t>(w)] = owned[w].get();
      }
    std::chrono::steady_clock::time_point start;
    if (options.profile) start = std::chrono::steady_clock::now();
    step_of(s,
            plan && lives.known_at_start[k] ? &plan->steps[static_cast<std::size_t>(lives.first_step) + k] : nullptr);
    if (options.profile) {
      if (e.gpu_) e.gpu_->synchronize(stream);
      const double seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
      const auto* l = std::get_if<LaunchStep>(&s.op);
      const auto* r = std::get_if<RoutineStep>(&s.op);
      const PreparedStep* kept =
          plan && lives.known_at_start[k] ? &plan->steps[static_cast<std::size_t>(lives.first_step) + k] : nullptr;
      const auto* t = kept ? std::get_if<PreparedTileLaunch>(kept) : nullptr;
      const auto* n = std::get_if<AttentionLaunchStep>(&s.op);
      if (n) l = &n->forms[form_of(*n)].launches.front();
      options.profile->push_back({l   ? p.kernels[static_cast<std::size_t>(l->kernel)].symbol
                                  : r ? r->name
                                  : t && !t->library.empty() && !t->failed ? t->library
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

void Executor::load_code(std::shared_ptr<CodeCache> cache) {
  const Program& p = *program_;
  if (gpu_) {
    const PtxAssembler assembler = [cache](const std::string& ptx, const std::string& chip, int cuda) {
      return assemble_here(ptx, {chip, cuda}, cache.get());
    };
    for (const std::string& object : p.objects) gpu_modules_.push_back(gpu_->load(object, assembler));
  } else {
    module_ = std::make_unique<HostModule>(p.objects);
  }
  gpu_kernels_ = std::vector<std::atomic<void*>>(gpu_ ? p.kernels.size() : 0);
  for (std::size_t k = 0; k < p.kernels.size(); ++k) {
    const KernelInfo& kernel = p.kernels[k];
    const GpuModule* module = gpu_ ? gpu_modules_[static_cast<std::size_t>(kernel.object)].get() : nullptr;
    if (!gpu_) kernels_.push_back(module_->find(kernel.symbol));
    check(module ? module->has(kernel.symbol.c_str()) : kernels_.back() != nullptr,
          "kernel {} is not in the compiled code", kernel.symbol);
    start_early_.push_back(module && module->starts_early());
    lazy_ = lazy_ || (module && module->lazy());
    if (module && !module->lazy()) gpu_kernel(static_cast<int>(k));
  }
}

void* Executor::gpu_kernel(int kernel) const {
  const auto at = static_cast<std::size_t>(kernel);
  const KernelInfo& k = program_->kernels[at];
  if (void* known = gpu_kernels_[at]) return known;
  void* made = gpu_modules_[static_cast<std::size_t>(k.object)]->function(k.symbol.c_str());
  if (k.spec.shared_bytes > 0) gpu_->reserve_shared(made, k.spec.shared_bytes);
  gpu_kernels_[at] = made;
  return made;
}

void Executor::place_constants() {
  const Program& p = *program_;
  std::vector<bool> used(p.buffers.size());
  mark_used(p.main, used);
  if (gpu_) return load_constants(used);
  constants_.assign(p.buffers.size(), nullptr);
  constant_owners_.resize(p.buffers.size());
  for (std::size_t k = 0; k < p.buffers.size(); ++k) {
    if (p.buffers[k].kind != BufferInfo::Kind::kConstant) continue;
    const Data& d = p.constants[static_cast<std::size_t>(p.buffers[k].constant)];
    constants_[k] = d.bytes;
    constant_bytes_ += d.size;
  }
  compute_constants(used);
}

// Which outputs the steps of main write themselves, so that they can be written where the caller wants them.
void Executor::find_outputs() {
  const Program& p = *program_;
  const Lives& lives = *lives_.at(&p.main);
  direct_output_.assign(p.buffers.size(), -1);
  for (std::size_t k = p.main.outputs.size(); k-- > 0;) {
    const auto b = static_cast<std::size_t>(p.main.outputs[k].buffer);
    if (p.buffers[b].kind == BufferInfo::Kind::kTemporary && lives.range.count(static_cast<int>(b)))
      direct_output_[b] = static_cast<int>(k);
  }
  for (std::size_t k = 0; k < p.main.steps.size(); ++k) {
    const ProgramStep& s = p.main.steps[k];
    const auto* c = std::get_if<CheckStep>(&s.op);
    const bool control = std::holds_alternative<IfStep>(s.op) || std::holds_alternative<WhileStep>(s.op);
    // Results of control flow come in memory of their own.
    if (control && !gpu_)
      for (int w : s.writes) direct_output_[static_cast<std::size_t>(w)] = -1;
    const bool launch = std::holds_alternative<LaunchStep>(s.op) || std::holds_alternative<TileLaunchStep>(s.op) ||
                        std::holds_alternative<AttentionLaunchStep>(s.op) || c != nullptr || is_collective(s);
    launches_only_ = launches_only_ && launch && lives.known_at_start[k];
    const bool assumes = (c && c->assumption) || limit_of(s);
    if ((assumes && !lives.known_at_start[k]) || (control && has_assumptions(s))) early_outputs_ = false;
  }
  input_last_used_.assign(p.main.inputs.size(), -1);
  for (std::size_t k = 0; k < p.main.inputs.size(); ++k) {
    const int b = p.main.inputs[k].buffer;
    for (std::size_t j = 0; j < p.main.steps.size(); ++j) {
      const std::vector<int>& reads = p.main.steps[j].reads;
      if (std::find(reads.begin(), reads.end(), b) != reads.end()) input_last_used_[k] = static_cast<int>(j);
    }
    for (const TensorRef& o : p.main.outputs)
      if (o.buffer == b) input_last_used_[k] = INT32_MAX;
  }
}

// Constants that the model computes from constants, on the host.
void Executor::compute_constants(const std::vector<bool>& used) {
  const Program& p = *program_;
  if (p.init.steps.empty()) return;
  const std::unique_ptr<Context> context = acquire();
  RunOptions options;
  Run run{*this, p, *context, options, threads_};
  run.address.resize(p.buffers.size());
  for (std::size_t k = 0; k < constants_.size(); ++k) run.address[k] = const_cast<void*>(constants_[k]);
  Lives keep = *lives_.at(&p.init);
  for (auto& l : keep.last_used) l.clear();  // nothing is freed on the way
  run.block(p.init, keep);
  for (auto& [buffer, memory] : run.owned)
    if (used[static_cast<std::size_t>(buffer)]) {
      constants_[static_cast<std::size_t>(buffer)] = memory.get();
      constant_bytes_ += run.bytes(buffer);
      constant_owners_[static_cast<std::size_t>(buffer)] = memory;
    }
}

Executor::Executor(std::shared_ptr<const Program> program, int threads, std::shared_ptr<DeviceMemory> memory,
                   bool graphs, std::shared_ptr<Communicator> communicator, std::shared_ptr<CodeCache> cache)
    : program_(std::move(program)),
      threads_(std::max(1, threads)),
      memory_(std::move(memory)),
      graphs_(graphs),
      communicator_(std::move(communicator)) {
  const Program& p = *program_;
  check_group();
  if (memory_) gpu_ = &memory_->gpu();
  load_code(std::move(cache));
  std::vector<bool> inputs(p.symbol_names.size());  // symbols that the inputs' dims give
  for (const TensorRef& t : p.main.inputs)
    for (const Expr& d : p.buffers[static_cast<std::size_t>(t.buffer)].shape)
      if (d->op == Op::kSym) inputs[static_cast<std::size_t>(d->i)] = true;
  find_lives(p.init, inputs);
  find_lives(p.main, inputs);
  find_outputs();
  place_constants();
}

std::shared_ptr<const ProductLibrary> Executor::product_library() {
  std::string why;
  auto library = open_product_library(memory_->shared_gpu(), library_path_, why);
  if (!library && (!library_path_.empty() || !tuner_) && !library_warned_.exchange(true))
    warn(fmt::format("the vendor's library of products is not used, our own kernels are: {}", why));
  return library;
}

Executor::~Executor() {
  for (const auto& c : idle_) c->finish();
}

std::unique_ptr<Executor::Context> Executor::acquire() {
  {
    std::lock_guard lock(mutex_);
    if (!idle_.empty()) {
      auto c = std::move(idle_.back());
      idle_.pop_back();
      return c;
    }
  }
  auto c = std::make_unique<Context>();
  if (!memory_) return c;
  c->stream = gpu_->create_stream();
  c->done = gpu_->create_event();
  c->pool = std::make_shared<MemoryPool>(memory_);
  c->transfers = std::make_unique<GpuTransfers>(memory_->shared_gpu());
  return c;
}

void Executor::release(std::unique_ptr<Context> c) {
  std::lock_guard lock(mutex_);
  arena_bytes_ = std::max(arena_bytes_, c->arena_size);
  idle_.push_back(std::move(c));
}

}  // namespace sardonyx
