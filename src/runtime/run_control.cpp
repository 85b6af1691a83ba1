// If and While steps: nested blocks, and the memory of their results.
#include "runtime/run.h"

namespace sardonyx {

// Runs a nested block. Returns the memory of its outputs; its other temporaries are freed.
std::vector<std::shared_ptr<void>> Executor::Run::nested(const Block& b) {
  const Lives& lives = *e.lives_.at(&b);
  block(b, lives);
  std::vector<std::shared_ptr<void>> out;
  for (const TensorRef& o : b.outputs) out.push_back(share(o.buffer));
  for (int t : lives.temporaries) {
    address[static_cast<std::size_t>(t)] = nullptr;
    owned.erase(t);
  }
  return out;
}

// Shared ownership of a buffer's memory, which must not be written again. Memory that the run does not own (an input, a
// constant, the arena) is copied.
std::shared_ptr<void> Executor::Run::share(int buffer) {
  auto it = owned.find(buffer);
  if (it != owned.end()) return it->second;
  const std::size_t n = bytes(buffer);
  std::shared_ptr<void> copy = queue.allocate(n);
  queue.copy(copy.get(), at(buffer), n);
  return copy;
}

// Makes `memory` the content of an output of a control-flow step; copied if the output is in the arena.
void Executor::Run::give(const TensorRef& r, std::shared_ptr<void> memory) {
  void*& a = address[static_cast<std::size_t>(r.buffer)];
  if (a) {
    queue.copy(a, memory.get(), bytes(r.buffer));
    return;
  }
  a = memory.get();
  owned[r.buffer] = std::move(memory);
}

void Executor::Run::branch(const IfStep& s) {
  const bool taken = eval(s.condition) != 0;
  const Block& block = taken ? *s.then_block : *s.else_block;
  if (!program.objects.done()) e.backend_->make_kernels(block, *this);
  auto out = nested(block);
  for (const SymbolStep& b : taken ? s.then_symbols : s.else_symbols) symbols.set(b.symbol, eval(b.value));
  for (std::size_t k = 0; k < s.outputs.size(); ++k) give(s.outputs[k], out[k]);
}

void Executor::Run::loop(const WhileStep& w) {
  for (const auto& d : w.carried_dims) symbols.set(d.symbol, eval(d.initial));
  const auto carried = static_cast<std::size_t>(w.carried);
  std::vector<std::shared_ptr<void>> values;
  for (std::size_t k = 0; k < carried; ++k) values.push_back(borrow(w.initial[k].buffer));
  std::vector<std::vector<std::shared_ptr<void>>> stacks(static_cast<std::size_t>(w.stacked));
  std::vector<std::size_t> piece(static_cast<std::size_t>(w.stacked));
  std::int64_t trips = 0;
  bool more = !w.condition || eval(w.condition) != 0;
  while (more && (!w.trip_count || trips < eval(w.trip_count))) {
    if (w.iteration >= 0) symbols.set(w.iteration, trips);
    for (std::size_t k = 0; k < carried; ++k) {
      const int b = w.body->inputs[k].buffer;
      address[static_cast<std::size_t>(b)] = values[k].get();
      owned[b] = values[k];
    }
    auto out = nested(*w.body);
    for (std::size_t k = 0; k < stacks.size(); ++k) {
      const TensorRef& r = w.body->outputs[carried + k];
      std::size_t n = size_of(program.buffers[static_cast<std::size_t>(r.buffer)].dtype);
      for (std::int64_t d : dims(r.shape)) n *= static_cast<std::size_t>(d);
      if (trips > 0 && n != piece[k])
        fail(ErrorKind::kInvalidArgument, "a scan output changes its shape from one iteration to the next");
      piece[k] = n;
      stacks[k].push_back(out[carried + k]);
    }
    if (w.next_condition) more = eval(w.next_condition) != 0;
    std::vector<std::int64_t> next, stacked;
    for (const auto& d : w.carried_dims) next.push_back(eval(d.next));
    for (const SymbolStep& d : w.stacked_dims) stacked.push_back(eval(d.value));
    for (std::size_t k = 0; k < next.size(); ++k) symbols.set(w.carried_dims[k].symbol, next[k]);
    for (std::size_t k = 0; k < stacked.size(); ++k) {
      if (trips > 0 && symbols.value[static_cast<std::size_t>(w.stacked_dims[k].symbol)] != stacked[k])
        fail(ErrorKind::kInvalidArgument, "a scan output changes its shape from one iteration to the next");
      symbols.set(w.stacked_dims[k].symbol, stacked[k]);
    }
    for (std::size_t k = 0; k < carried; ++k) values[k] = out[k];
    ++trips;
  }
  for (std::size_t k = 0; k < carried && trips > 0; ++k) {
    const int b = w.body->inputs[k].buffer;
    address[static_cast<std::size_t>(b)] = nullptr;
    owned.erase(b);
  }
  if (trips == 0)
    for (const SymbolStep& d : w.stacked_dims) symbols.set(d.symbol, 0);
  if (w.trips >= 0) symbols.set(w.trips, trips);
  for (std::size_t k = 0; k < carried; ++k) {
    if (trips == 0) values[k] = share(w.initial[k].buffer);
    give(w.outputs[k], values[k]);
  }
  for (std::size_t k = 0; k < stacks.size(); ++k) {
    std::shared_ptr<void> all = queue.allocate(piece[k] * stacks[k].size());
    for (std::size_t j = 0; j < stacks[k].size(); ++j)
      queue.copy(static_cast<char*>(all.get()) + j * piece[k], stacks[k][j].get(), piece[k]);
    give(w.outputs[carried + k], std::move(all));
  }
}

// A buffer's memory without a copy and without ownership.
std::shared_ptr<void> Executor::Run::borrow(int buffer) {
  auto it = owned.find(buffer);
  if (it != owned.end()) return it->second;
  return std::shared_ptr<void>(at(buffer), [](void*) {});
}

}  // namespace sardonyx
