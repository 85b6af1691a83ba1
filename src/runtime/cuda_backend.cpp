#include "runtime/cuda_backend.h"

#include <algorithm>

#include "compile/ptxas.h"
#include "runtime/operand_maps.h"
#include "support/tasks.h"

namespace sardonyx {
namespace {

bool known(const Expr& e, const RunState& run) { return evaluable(e, run.symbols); }

void needed_launch(const LaunchStep& l, const RunState& run, std::set<int>& kernels) {
  if (!known(l.points, run) || run.eval(l.points) > 0) kernels.insert(l.kernel);
}

}  // namespace

std::shared_ptr<GpuModule> CudaBackend::load_object(const std::string& object) {
  return gpu().load(object, [cache = options().cache](const std::string& ptx, const std::string& chip, int cuda) {
    return assemble_here(ptx, {chip, cuda}, cache.get());
  });
}

void CudaBackend::add_copies(GpuCall& call, const TileLaunchStep& step, const GpuTiling& tiling, const TileSizes& sizes,
                             const SymbolValues& symbols) const {
  call.add_maps(gpu(), operand_maps(step, tiling, sizes, symbols));
}

void CudaBackend::needed_kernels(const AttentionLaunchStep& a, const RunState& run, std::set<int>& kernels) const {
  bool all = (!a.needed || known(a.needed, run)) && known(a.rule, run);
  for (const Expr* x : {&a.batches, &a.m, &a.n, &a.k}) all = all && known(*x, run);
  for (const AttentionLaunchStep::Form& f : a.forms) all = all && known(f.applies, run);
  if (!all || !is_needed(a, run.symbols)) return;
  std::vector<std::size_t> forms = {chosen_form(a, run.symbols)};
  if (tuner() && a.forms.size() > 1) {
    std::vector<std::string> names;
    const std::vector<std::size_t> order = possible_forms(a, run.symbols, names);
    forms =
        tuner()->wanted(a.problem, {run.eval(a.batches), run.eval(a.m), run.eval(a.n), run.eval(a.k)}, names, order);
  }
  for (const std::size_t f : forms)
    for (const LaunchStep& l : a.forms[f].launches) needed_launch(l, run, kernels);
}

void CudaBackend::needed_kernels(const TileLaunchStep& t, const RunState& run, std::set<int>& kernels) const {
  for (const Expr* x : {&t.batches, &t.m, &t.n, &t.k})
    if (!known(*x, run)) return;
  const TileSizes sizes{run.eval(t.batches), run.eval(t.m), run.eval(t.n), run.eval(t.k)};
  if (sizes.batches <= 0 || sizes.m <= 0 || sizes.n <= 0) return;
  const int units = gpu().info().units;
  const std::vector<std::size_t> tilings =
      tuner() && t.names.size() > 1 ? tuner()->wanted(t.problem, sizes, t.names, tilings_by_cost(t, sizes, units))
                                    : std::vector<std::size_t>{chosen_tiling(t, sizes, t.names, units)};
  for (const std::size_t chosen : tilings) {
    kernels.insert(t.kernels[chosen]);
    if (t.tilings[chosen].shares > 1) kernels.insert(t.finish);
  }
}

void CudaBackend::needed_kernels(const Block& b, const RunState& run, std::set<int>& kernels) const {
  for (const ProgramStep& s : b.steps) {
    if (const auto* l = std::get_if<LaunchStep>(&s.op)) needed_launch(*l, run, kernels);
    if (const auto* w = std::get_if<WhileStep>(&s.op)) needed_kernels(*w->body, run, kernels);
    if (const auto* a = std::get_if<AttentionLaunchStep>(&s.op)) needed_kernels(*a, run, kernels);
    if (const auto* t = std::get_if<TileLaunchStep>(&s.op)) needed_kernels(*t, run, kernels);
  }
}

void CudaBackend::make_kernels(const Block& b, const RunState& run) {
  std::set<int> needed;
  needed_kernels(b, run, needed);
  std::vector<int> missing;
  for (const int k : needed)
    if (!has_kernel(k)) missing.push_back(k);
  run_tasks(missing.size(), threads(), [&](std::size_t k) { kernel(missing[k]); });
}

}  // namespace sardonyx
