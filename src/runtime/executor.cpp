// Prepares a program to run; run.cpp runs it.
#include "runtime/executor.h"

#include <algorithm>

#include "program/visit.h"
#include "routines/routine.h"
#include "runtime/run.h"
#include "runtime/weights.h"

namespace sardonyx {
namespace {

// Marks buffers that steps of a block and its nested blocks read, or that are its outputs.
void mark_used(const Block& b, std::vector<bool>& used) {
  for (const TensorRef& o : b.outputs) used[static_cast<std::size_t>(o.buffer)] = true;
  for (const ProgramStep& s : b.steps) {
    for (int r : s.reads) used[static_cast<std::size_t>(r)] = true;
    for (const Block* inside : blocks_of(s)) mark_used(*inside, used);
  }
}

// Throws Error(kInvalidModel) for a routine that this library does not have.
void check_routines(const Block& b) {
  for_steps(b, [](const ProgramStep& s) {
    if (const auto* r = std::get_if<RoutineStep>(&s.op);
        r && !is_collective(r->name) && routines::find(r->name) == nullptr)
      fail(ErrorKind::kInvalidModel, "the program is damaged: {}: there is no routine '{}'", s.origin, r->name);
  });
}

}  // namespace

Executor::Executor(std::shared_ptr<const Program> program, int threads, std::unique_ptr<Backend> backend)
    : program_(std::move(program)),
      threads_(std::max(1, threads)),
      backend_(std::move(backend)),
      separate_memory_(backend_->separate_memory()) {
  const Program& p = *program_;
  check_routines(p.init);
  check_routines(p.main);
  check_group();
  backend_->load(p, threads_);
  std::vector<bool> inputs(p.symbol_names.size());  // symbols that are determined by the inputs' dims
  for (const TensorRef& t : p.main.inputs)
    for (const Expr& d : p.buffers[static_cast<std::size_t>(t.buffer)].shape)
      if (d->op == Op::kSym) inputs[static_cast<std::size_t>(d->i)] = true;
  find_lives(p.init, inputs);
  find_lives(p.main, inputs);
  find_outputs();
  place_constants();
}

Executor::~Executor() {
  for (const auto& c : idle_) c->queue->finish();
}

void Executor::place_constants() {
  const Program& p = *program_;
  std::vector<bool> used(p.buffers.size());
  mark_used(p.main, used);
  if (separate_memory_) return load_constants(used);
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

// Constants that the program computes from other constants, on devices that use the host's memory.
void Executor::compute_constants(const std::vector<bool>& used) {
  const Program& p = *program_;
  if (p.init.steps.empty()) return;
  const std::unique_ptr<Context> context = acquire();
  RunOptions options;
  Run run(*this, *context, options, threads_);
  run.address.resize(p.buffers.size());
  for (std::size_t k = 0; k < constants_.size(); ++k) run.address[k] = const_cast<void*>(constants_[k]);
  Lives keep = *lives_.at(&p.init);
  for (auto& l : keep.last_used) l.clear();  // never free constants while they are computed
  backend_->make_kernels(p.init, run);
  run.block(p.init, keep);
  for (auto& [buffer, memory] : run.owned)
    if (used[static_cast<std::size_t>(buffer)]) {
      constants_[static_cast<std::size_t>(buffer)] = memory.get();
      constant_bytes_ += run.bytes(buffer);
      constant_owners_[static_cast<std::size_t>(buffer)] = memory;
    }
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
  c->queue = backend_->create_queue();
  return c;
}

void Executor::release(std::unique_ptr<Context> c) {
  std::lock_guard lock(mutex_);
  arena_bytes_ = std::max(arena_bytes_, c->arena_size);
  idle_.push_back(std::move(c));
}

}  // namespace sardonyx
