// Attention on a GPU: which of its forms runs, as sizes, measurements or the tuner say.
#include <algorithm>

#include "runtime/run.h"

namespace sardonyx {

bool Executor::Run::is_needed(const AttentionLaunchStep& a) const {
  return (!a.needed || eval(a.needed) != 0) && eval(a.batches) > 0 && eval(a.m) > 0;
}

std::size_t Executor::Run::form_of(const AttentionLaunchStep& a) const { return chosen_form(a, symbols); }

// Those that compute these sizes, that of the rule first.
std::vector<std::size_t> Executor::Run::possible_forms(const AttentionLaunchStep& a,
                                                       std::vector<std::string>& names) const {
  std::vector<std::size_t> order = {form_of(a)};
  for (std::size_t k = 0; k < a.forms.size(); ++k) {
    names.push_back(a.forms[k].name);
    if (k != order[0] && eval(a.forms[k].applies) != 0) order.push_back(k);
  }
  return order;
}

std::vector<std::shared_ptr<GpuCall>> Executor::Run::calls_of(const AttentionLaunchStep::Form& form) const {
  std::vector<std::shared_ptr<GpuCall>> calls;
  for (const LaunchStep& l : form.launches)
    for (auto& call : prepare(l).calls) calls.push_back(std::move(call));
  return calls;
}

PreparedLaunch Executor::Run::prepare(const AttentionLaunchStep& a) const {
  check(e.gpu_ != nullptr, "a launch of attention on the host");
  PreparedLaunch r;
  if (!is_needed(a)) return r;
  check_limit(a.limit);
  std::size_t chosen = form_of(a);
  if (e.tuner_ && a.forms.size() > 1) {
    std::vector<std::string> names;
    const std::vector<std::size_t> order = possible_forms(a, names);
    chosen = e.tuner_->choose(a.problem, {eval(a.batches), eval(a.m), eval(a.n), eval(a.k)}, names, names.size(), order,
                              [&](std::size_t form) {
                                double seconds = 0;
                                for (const auto& call : calls_of(a.forms[form])) {
                                  call->place(address);
                                  seconds += e.tuner_->timer(*e.gpu_, call->launch, stream);
                                }
                                return seconds;
                              });
  }
  r.points = 1;
  r.calls = calls_of(a.forms[chosen]);
  return r;
}

void Executor::Run::execute(const AttentionLaunchStep&, const PreparedLaunch& r) {
  for (const auto& call : r.calls) start(*call);
}

}  // namespace sardonyx
