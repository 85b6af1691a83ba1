// Outputs of a run: steps write them directly to the caller's memory where possible; otherwise they are copied at the
// end.
#include <algorithm>
#include <cstdint>

#include "program/routine_names.h"
#include "program/visit.h"
#include "runtime/run.h"

namespace sardonyx {

void* nowhere() {
  static std::max_align_t nothing;
  return &nothing;
}

// Requests memory for an output whose dims are known, and assigns it to the buffer if steps can write there.
bool Executor::Run::Outputs::place(Run& run, int buffer) {
  const int k = run.e.direct_output_[static_cast<std::size_t>(buffer)];
  if (k < 0 || !early) return false;
  for (const Expr& d : run.program.main.outputs[static_cast<std::size_t>(k)].shape)
    if (!evaluable(d, run.symbols)) return false;
  Target& t = ask(run, static_cast<std::size_t>(k));
  if (run.e.separate_memory_ && !(t.memory.on_device && aligned(t.memory.data))) return false;
  if (!in_place(run, buffer, t)) return false;
  run.address[static_cast<std::size_t>(buffer)] = t.memory.data;
  t.written = true;
  return true;
}

// Whether a step may write directly to memory from the caller. If an input overlaps it, only a step that appends to
// that input in place may; other results are copied there when everything is computed.
bool Executor::Run::Outputs::in_place(const Run& run, int buffer, const Target& t) const {
  const auto begin = reinterpret_cast<std::uintptr_t>(t.memory.data), end = begin + t.bytes;
  for (const auto& [from, to] : run.input_memory) {
    if (from >= end || begin >= to) continue;
    const auto appends = [&](const ProgramStep& s) {
      if (std::find(s.writes.begin(), s.writes.end(), buffer) == s.writes.end()) return false;
      if (const auto* r = std::get_if<RoutineStep>(&s.op)) return appends_in_place(r->name);
      bool in_place = false;
      for_launches(s, [&](const LaunchStep& l) { in_place = in_place || run.kernel(l.kernel).spec.appends_in_place; });
      return in_place;
    };
    if (from != begin || std::none_of(run.program.main.steps.begin(), run.program.main.steps.end(), appends))
      return false;
  }
  return true;
}

Executor::Run::Outputs::Target& Executor::Run::Outputs::ask(Run& run, std::size_t index) {
  Target& t = targets[index];
  if (t.asked) return t;
  const TensorRef& o = run.program.main.outputs[index];
  const std::vector<std::int64_t> dims = run.dims(o.shape);
  t.memory = sink.allocate(index, run.info(o.buffer).dtype, dims);
  run.queue.resume();
  t.asked = true;
  t.bytes = size_of(run.info(o.buffer).dtype);
  for (std::int64_t d : dims) t.bytes *= static_cast<std::size_t>(d);
  if (t.bytes == 0) t.memory.data = nowhere();
  if (!t.memory.data)
    fail(ErrorKind::kInvalidArgument, "no memory was given for output '{}'", run.program.output_names[index]);
  return t;
}

// Outputs that are also inputs, in an order in which none overwrites memory that a later one is read from. If there is
// no such order (two swap places), a copy in temporary memory breaks the cycle.
std::vector<std::size_t> Executor::Run::Outputs::inputs_in_order(Run& run) {
  struct Copy {
    std::size_t output;
    std::uintptr_t from, to, bytes;
    bool writes(std::uintptr_t at, std::uintptr_t size) const { return to < at + size && at < to + bytes; }
  };
  std::vector<Copy> left;
  for (std::size_t k = 0; k < targets.size(); ++k) {
    const int buffer = run.program.main.outputs[k].buffer;
    if (run.info(buffer).kind != BufferInfo::Kind::kInput || targets[k].written) continue;
    const Target& t = ask(run, k);
    if (t.bytes == 0) continue;
    const Copy c{k, reinterpret_cast<std::uintptr_t>(run.at(buffer)), reinterpret_cast<std::uintptr_t>(t.memory.data),
                 t.bytes};
    if (c.from != c.to && c.writes(c.from, c.bytes))
      fail(ErrorKind::kInvalidArgument, "output '{}' is an input, and its memory overlaps that input's in part",
           run.program.output_names[k]);
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
           run.program.output_names[left.front().output], run.program.output_names[left.back().output]);
    order.push_back(next->output);
    left.erase(next);
  }
  return order;
}

// Copies outputs that steps did not write directly.
void Executor::Run::Outputs::deliver(Run& run) {
  std::vector<bool> taken(run.program.buffers.size());
  // First those that are also inputs: other outputs may overwrite their memory.
  std::vector<std::size_t> order = inputs_in_order(run);
  for (std::size_t k = 0; k < targets.size(); ++k)
    if (run.info(run.program.main.outputs[k].buffer).kind != BufferInfo::Kind::kInput) order.push_back(k);
  for (const std::size_t k : order) {
    if (targets[k].written) continue;
    const TensorRef& o = run.program.main.outputs[k];
    const auto b = static_cast<std::size_t>(o.buffer);
    const auto own = run.owned.find(o.buffer);
    if (sink.take && !run.e.separate_memory_ && !targets[k].asked && own != run.owned.end() && !taken[b]) {
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
    if (run.e.separate_memory_ && !t.memory.on_device)
      run.queue.download(t.memory.data, run.at(o.buffer), t.bytes);
    else
      run.queue.copy(t.memory.data, run.at(o.buffer), t.bytes);
  }
}

}  // namespace sardonyx
