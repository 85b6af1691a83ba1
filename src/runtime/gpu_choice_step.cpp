// Choices on a GPU: which candidate, or call of a vendor's library, computes given sizes.
#include <algorithm>
#include <limits>

#include "runtime/gpu_backend.h"
#include "support/warning.h"

namespace sardonyx {
namespace {

constexpr std::size_t kSumBytes = 4;  // of a partial sum

LibraryEpilogue epilogue_of(const LibraryCall& l) { return {l.bias >= 0, l.residual >= 0, l.activation}; }

/// Prepares a step for the sizes of a run.
class ChoiceBuilder {
 public:
  ChoiceBuilder(const ChoiceStep& step, GpuQueue& queue, const RunState& run)
      : step_(step),
        choice_(step.choice),
        queue_(queue),
        backend_(queue.backend()),
        run_(run),
        units_(backend_.gpu().info().units),
        sizes_(sizes_of(step.choice, run.symbols)) {}

  std::unique_ptr<GpuChoiceStep> build() const {
    if (is_empty(step_, run_.symbols)) return std::make_unique<GpuChoiceStep>(queue_, GpuCalls(), name_of(0));
    if (step_.limit) check_limit(step_.limit, run_.symbols);
    std::vector<std::string> names = names_of(choice_);
    const GpuCalls library = library_calls(names);
    const std::size_t chosen = choose(names, library), candidates = choice_.candidates.size();
    if (chosen < candidates) return std::make_unique<GpuChoiceStep>(queue_, calls_of(chosen), name_of(chosen));
    backend_.library_used() = true;
    const std::vector<std::size_t> own = by_cost(choice_, run_.symbols, units_);
    check(!own.empty(), "Sardonyx has no kernel in place of {}", names[chosen]);
    return std::make_unique<GpuChoiceStep>(queue_, GpuCalls{library[chosen - candidates]}, names[chosen],
                                           calls_of(own.front()), name_of(own.front()));
  }

 private:
  std::string name_of(std::size_t candidate) const {
    return run_.kernel(step_.launches[candidate].front().kernel).symbol;
  }

  GpuCalls calls_of(std::size_t candidate) const {
    const Candidate& c = choice_.candidates[candidate];
    GpuCalls calls;
    for (const LaunchStep& l : step_.launches[candidate])
      if (!l.work_items)
        calls.push_back(tile_call(l, c.tiling.front()));
      else
        for (auto& call : launch_calls(l, backend_, run_)) calls.push_back(std::move(call));
    return calls;
  }

  // A launch whose grid is given by the tiling.
  std::shared_ptr<GpuCall> tile_call(const LaunchStep& l, const GpuTiling& t) const {
    const ProblemSizes& s = sizes_;
    const double blocks = launched_workgroups(t, s.batches, s.m, s.n, units_),
                 tiles = workgroups(t, s.batches, s.m, s.n);
    if (std::max({s.m, s.n, s.k}) > INT32_MAX || std::max(blocks, tiles) > INT32_MAX)
      fail(ErrorKind::kUnsupported, "a GEMM with {} batches of {}x{}x{} exceeds the 32-bit sizes of kernels", s.batches,
           s.m, s.n, s.k);
    if (t.splits > 1) {
      const double sums = t.tree_acc > 0 ? tiles * t.tree_acc
                                         : static_cast<double>(s.batches * s.m * s.n) * static_cast<double>(t.splits);
      const double held = static_cast<double>(run_.bytes(step_.partial)) / kSumBytes;
      check(held >= sums && can_compute(t, s.batches, s.m, s.n), "no memory for {} partial sums", sums);
    }
    std::vector<std::int64_t> values;
    for (const Expr& x : l.symbols) values.push_back(run_.eval(x));
    if (t.tree_acc > 0) values.push_back(static_cast<std::int64_t>(reinterpret_cast<std::uintptr_t>(queue_.arrived())));
    auto call = backend_.call(l.kernel, static_cast<std::uint32_t>(blocks), static_cast<std::uint32_t>(t.threads),
                              l.buffers, std::move(values));
    if (t.tma) backend_.add_copies(*call, step_.copied.front(), t, s, run_.symbols, size_of(step_.type));
    return call;
  }

  // The GEMM as calls of a vendor's library: as many as the tuner wants, or those that were chosen for some size. Their
  // names follow the candidates'.
  GpuCalls library_calls(std::vector<std::string>& names) const {
    GpuCalls calls;
    if (step_.library.empty() || backend_.library_off()) return calls;
    constexpr int kMostPlans = 8;  // without a tuner: more than tuning times, to find the chosen one by its name
    const TileTuner* tuner = backend_.tuner();
    const int wanted = tuner ? tuner->library_candidates() : kMostPlans;
    const bool chosen = std::any_of(choice_.tuned.begin(), choice_.tuned.end(),
                                    [](const TunedSize& x) { return x.library.has_value(); });
    if (wanted == 0 || (!tuner && !chosen)) return calls;
    const auto library = backend_.gemm_library();
    if (!library) return calls;
    const LibraryCall& l = step_.library.front();
    const LibraryGemm p{run_.eval(l.batches),
                        run_.eval(l.m),
                        run_.eval(l.n),
                        run_.eval(l.k),
                        l.trans_a,
                        l.trans_b,
                        l.one_a,
                        l.one_b,
                        run_.info(l.a).dtype,
                        run_.info(l.out).dtype,
                        epilogue_of(l)};
    if (std::min({p.batches, p.m, p.n, p.k}) <= 0 || std::max({p.batches, p.m, p.n, p.k}) > INT32_MAX) return calls;
    const auto plans = library->plans(p, wanted);
    for (std::size_t k = 0; k < plans.size(); ++k) {
      calls.push_back(
          std::make_shared<GpuCall>(plans[k], std::vector<int>{l.a, l.b, l.bias, l.residual, l.out, l.workspace}));
      names.push_back(library_candidate(library->name(), k, p.epilogue));
    }
    return calls;
  }

  // Returns an index into `names`: the candidates, then the library's calls.
  std::size_t choose(const std::vector<std::string>& names, const GpuCalls& library) const {
    TileTuner* tuner = backend_.tuner();
    if (!tuner || names.size() <= 1) return chosen_candidate(choice_, run_.symbols, units_, names);
    const std::vector<std::size_t> order = by_cost(choice_, run_.symbols, units_);
    check(!order.empty(), "no candidate for '{}' computes these sizes", choice_.problem);
    const LibraryEpilogue epilogue = step_.library.empty() ? LibraryEpilogue() : epilogue_of(step_.library.front());
    return tuner->choose(choice_.problem, sizes_, names, {choice_.candidates.size(), epilogue}, order,
                         [&](std::size_t candidate) { return seconds_of(candidate, names, library); });
  }

  double seconds_of(std::size_t candidate, const std::vector<std::string>& names, const GpuCalls& library) const {
    const std::size_t own = choice_.candidates.size();
    if (candidate < own) {
      const std::vector<GpuTiling>& tiling = choice_.candidates[candidate].tiling;
      if (!tiling.empty() && workgroups(tiling.front(), sizes_.batches, sizes_.m, sizes_.n) > INT32_MAX) return 1e9;
      return queue_.time(calls_of(candidate), run_);
    }
    try {
      return queue_.time({library[candidate - own]}, run_);
    } catch (const Error& error) {
      warn(fmt::format("{} is not a candidate: {}", names[candidate], error.what()));
      return std::numeric_limits<double>::infinity();
    }
  }

  const ChoiceStep& step_;
  const Choice& choice_;
  GpuQueue& queue_;
  const GpuBackend& backend_;
  const RunState& run_;
  int units_;
  ProblemSizes sizes_;
};

}  // namespace

std::unique_ptr<PreparedStep> prepare_choice(const ChoiceStep& step, GpuQueue& queue, const RunState& run) {
  return ChoiceBuilder(step, queue, run).build();
}

void GpuChoiceStep::give_up(const std::string& why) {
  failed_ = true;
  warn(fmt::format("{} failed, our own kernel takes over: {}", library_, why));
}

void GpuChoiceStep::enqueue(RunState& run) {
  if (by_library()) {
    try {
      return GpuStep::enqueue(run);
    } catch (const Error& error) {
      give_up(error.what());
    }
  }
  GpuStep::enqueue(run);
}

}  // namespace sardonyx
