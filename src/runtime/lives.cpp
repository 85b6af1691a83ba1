// What an executor computes about a program before the first run: lifetimes of temporaries, which steps have sizes that
// are known at the start of a run, and which outputs steps can write directly.
#include <algorithm>

#include "program/visit.h"
#include "runtime/run.h"

namespace sardonyx {
namespace {

// Whether a block inside a step has an assumption.
bool has_assumptions(const ProgramStep& s) {
  bool any = false;
  for (const Block* b : blocks_of(s))
    for_steps(*b, [&](const ProgramStep& inside) {
      const auto* c = std::get_if<CheckStep>(&inside.op);
      any = any || limit_of(inside) || (c && c->assumption);
    });
  return any;
}

}  // namespace

// Whether all sizes of a step depend only on symbols of the inputs' dims. Control flow has no sizes itself; the steps
// of its blocks do.
bool Executor::has_known_sizes(const ProgramStep& s, const std::vector<bool>& inputs) const {
  bool known = true;
  const auto look = [&](const Expr& e) {
    if (e->has_sym)
      visit(e, [&](const Expr& x) { known &= x->op != Op::kSym || inputs[static_cast<std::size_t>(x->i)]; });
  };
  for (const auto* list : {&s.writes, &s.reads})
    for (const int b : *list)
      for (const Expr& d : program_->buffers[static_cast<std::size_t>(b)].shape) look(d);
  if (!is_control(s)) for_expressions(s, look);
  return known;
}

void Executor::find_lives(const Block& b, const std::vector<bool>& inputs) {
  auto l = std::make_unique<Lives>();
  l->first_step = step_count_;
  step_count_ += static_cast<int>(b.steps.size());
  l->last_used.resize(b.steps.size());
  for (int k = 0; k < static_cast<int>(b.steps.size()); ++k) {
    const ProgramStep& s = b.steps[static_cast<std::size_t>(k)];
    l->known_at_start.push_back(has_known_sizes(s, inputs));
    for (int w : s.writes) {
      if (program_->buffers[static_cast<std::size_t>(w)].kind != BufferInfo::Kind::kTemporary) continue;
      if (l->range.emplace(w, std::make_pair(k, k)).second) l->temporaries.push_back(w);
    }
    for (int r : s.reads) {
      auto it = l->range.find(r);
      if (it != l->range.end()) it->second.second = std::max(it->second.second, k);
    }
    for (const Block* inside : blocks_of(s)) find_lives(*inside, inputs);
  }
  for (const TensorRef& o : b.outputs) {
    auto it = l->range.find(o.buffer);
    if (it != l->range.end()) it->second.second = INT32_MAX;
  }
  for (const auto& [buffer, range] : l->range)
    if (range.second != INT32_MAX) l->last_used[static_cast<std::size_t>(range.second)].push_back(buffer);
  lives_[&b] = std::move(l);
}

// Finds the outputs that steps of main may write directly to the caller's memory.
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
    const bool control = is_control(s);
    // Results of control flow have memory of their own.
    if (control && !separate_memory_)
      for (int w : s.writes) direct_output_[static_cast<std::size_t>(w)] = -1;
    const bool launch = std::holds_alternative<LaunchStep>(s.op) || std::holds_alternative<ChoiceStep>(s.op) ||
                        c != nullptr || is_collective(s);
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

}  // namespace sardonyx
