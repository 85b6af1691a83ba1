// Kernels that are made when they are first asked for (PTX): those that a run needs, together. Which of a step's
// kernels run is known from the sizes, as far as they are known when the run begins; the others are made one by one.
#include <set>

#include "runtime/run.h"
#include "support/tasks.h"

namespace sardonyx {

void Executor::Run::needed_kernels(const Block& b, std::set<int>& kernels) const {
  const auto known = [&](const Expr& x) { return evaluable(x, symbols); };
  const auto launch = [&](const LaunchStep& l) {
    if (!known(l.points) || eval(l.points) > 0) kernels.insert(l.kernel);
  };
  for (const ProgramStep& s : b.steps) {
    if (const auto* l = std::get_if<LaunchStep>(&s.op)) launch(*l);
    if (const auto* w = std::get_if<WhileStep>(&s.op)) needed_kernels(*w->body, kernels);
    if (const auto* a = std::get_if<AttentionLaunchStep>(&s.op)) {
      bool all = (!a->needed || known(a->needed)) && known(a->rule);
      for (const Expr* x : {&a->batches, &a->m, &a->n, &a->k}) all = all && known(*x);
      for (const AttentionLaunchStep::Form& f : a->forms) all = all && known(f.applies);
      if (!all || !is_needed(*a)) continue;
      std::vector<std::size_t> forms = {form_of(*a)};
      if (e.tuner_ && a->forms.size() > 1) {
        std::vector<std::string> names;
        const std::vector<std::size_t> order = possible_forms(*a, names);
        forms = e.tuner_->wanted(a->problem, {eval(a->batches), eval(a->m), eval(a->n), eval(a->k)}, names, order);
      }
      for (const std::size_t f : forms)
        for (const LaunchStep& l : a->forms[f].launches) launch(l);
    }
    if (const auto* t = std::get_if<TileLaunchStep>(&s.op)) {
      bool all = true;
      for (const Expr* x : {&t->batches, &t->m, &t->n, &t->k}) all = all && known(*x);
      if (!all) continue;
      const TileSizes sizes{eval(t->batches), eval(t->m), eval(t->n), eval(t->k)};
      if (sizes.batches <= 0 || sizes.m <= 0 || sizes.n <= 0) continue;
      const int units = e.gpu_->info().units;
      const std::vector<std::size_t> tilings =
          e.tuner_ && t->names.size() > 1
              ? e.tuner_->wanted(t->problem, sizes, t->names, tilings_by_cost(*t, sizes, units))
              : std::vector<std::size_t>{chosen_tiling(*t, sizes, t->names, units)};
      for (const std::size_t chosen : tilings) {
        kernels.insert(t->kernels[chosen]);
        if (t->tilings[chosen].shares > 1) kernels.insert(t->finish);
      }
    }
  }
}

void Executor::Run::make_kernels(const Block& b) const {
  std::set<int> needed;
  needed_kernels(b, needed);
  std::vector<int> missing;
  for (const int k : needed)
    if (!e.gpu_kernels_[static_cast<std::size_t>(k)].load()) missing.push_back(k);
  run_tasks(missing.size(), e.threads_, [&](std::size_t k) { e.gpu_kernel(missing[k]); });
}

}  // namespace sardonyx
