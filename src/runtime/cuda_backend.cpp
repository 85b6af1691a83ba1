#include "runtime/cuda_backend.h"

#include <algorithm>

#include "compile/ptxas.h"
#include "program/visit.h"
#include "runtime/operand_maps.h"
#include "support/tasks.h"

namespace sardonyx {
namespace {

void needed_launch(const LaunchStep& l, const RunState& run, std::set<int>& kernels) {
  if (!evaluable(l.work_items, run.symbols) || run.eval(l.work_items) > 0) kernels.insert(l.kernel);
}

}  // namespace

std::shared_ptr<GpuModule> CudaBackend::load_object(const std::string& object) {
  return gpu().load(object, [cache = options().cache, search = options().ptxas](const std::string& ptx,
                                                                                const std::string& chip, int cuda) {
    return assemble_here(ptx, {chip, cuda}, cache.get(), search);
  });
}

void CudaBackend::add_copies(GpuCall& call, const CopiedOperands& operands, const GpuTiling& tiling,
                             const ProblemSizes& sizes, const SymbolValues& symbols, std::size_t bytes) const {
  call.add_maps(gpu(), operand_maps(operands, tiling, sizes, symbols, bytes));
}

void CudaBackend::needed_kernels(const ChoiceStep& s, const RunState& run, std::set<int>& kernels) const {
  const Choice& c = s.choice;
  if (!decidable(c, run.symbols) || is_empty(s, run.symbols)) return;
  const int units = gpu().info().units;
  const std::vector<std::size_t> candidates =
      tuner() && c.candidates.size() > 1
          ? tuner()->wanted(c.problem, sizes_of(c, run.symbols), names_of(c), by_cost(c, run.symbols, units))
          : std::vector<std::size_t>{chosen_candidate(c, run.symbols, units)};
  for (const std::size_t k : candidates)
    for (const LaunchStep& l : s.launches[k])
      if (!l.work_items)
        kernels.insert(l.kernel);
      else
        needed_launch(l, run, kernels);
}

void CudaBackend::needed_kernels(const ProgramStep& s, const RunState& run, std::set<int>& kernels) const {
  if (!may_run(s, run.symbols)) return;
  if (const auto* l = std::get_if<LaunchStep>(&s.op)) needed_launch(*l, run, kernels);
  if (const auto* c = std::get_if<ChoiceStep>(&s.op)) needed_kernels(*c, run, kernels);
  // Only one branch of an If runs; its kernels are compiled when it does.
  if (const auto* w = std::get_if<WhileStep>(&s.op))
    for (const ProgramStep& inside : w->body->steps) needed_kernels(inside, run, kernels);
}

void CudaBackend::make_kernels(const Block& b, const RunState& run) {
  std::set<int> needed;
  for (const ProgramStep& s : b.steps) needed_kernels(s, run, needed);
  std::vector<int> missing;
  for (const int k : needed)
    if (!has_kernel(k)) missing.push_back(k);
  run_tasks(missing.size(), threads(), [&](std::size_t k) { kernel(missing[k]); });
}

}  // namespace sardonyx
