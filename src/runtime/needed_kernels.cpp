#include "runtime/needed_kernels.h"

#include "program/visit.h"

namespace sardonyx {
namespace {

class NeededKernels {
 public:
  NeededKernels(const RunState& run, const TakenCandidates& taken) : run_(run), taken_(taken) {}

  void add(const Block& b) {
    for (const ProgramStep& s : b.steps) {
      if (!may_run(s, run_.symbols)) continue;
      if (const auto* l = std::get_if<LaunchStep>(&s.op)) add(*l);
      if (const auto* c = std::get_if<ChoiceStep>(&s.op)) add(*c);
      if (const auto* w = std::get_if<WhileStep>(&s.op)) add(*w->body);
      if (const auto* g = std::get_if<GemmStep>(&s.op)) add(g->epilogue);
      if (const auto* c = std::get_if<ConvStep>(&s.op)) add(c->epilogue);
    }
  }
  std::set<int> take() { return std::move(kernels_); }

 private:
  void add(const LaunchStep& l) {
    if (!evaluable(l.work_items, run_.symbols) || run_.eval(l.work_items) > 0) kernels_.insert(l.kernel);
  }
  void add(const AccumulatorEpilogue& e) {
    for (const LaunchStep& l : e.launch) kernels_.insert(l.kernel);
  }
  void add(const ChoiceStep& s) {
    if (!decidable(s.choice, run_.symbols) || is_empty(s, run_.symbols)) return;
    for (const std::size_t k : taken_(s.choice, run_.symbols))
      for (const LaunchStep& l : s.launches[k])
        if (!l.work_items)
          kernels_.insert(l.kernel);
        else
          add(l);
  }

  const RunState& run_;
  const TakenCandidates& taken_;
  std::set<int> kernels_;
};

}  // namespace

std::set<int> needed_kernels(const Block& block, const RunState& run, const TakenCandidates& taken) {
  NeededKernels needed(run, taken);
  needed.add(block);
  return needed.take();
}

}  // namespace sardonyx
