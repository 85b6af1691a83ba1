// Tile kernels on a GPU: which tiling, or whose library, computes given sizes.
#include <algorithm>
#include <limits>

#include "runtime/gpu_backend.h"
#include "support/warning.h"

namespace sardonyx {
namespace {

constexpr std::size_t kMaxArguments = 64;
constexpr std::size_t kSumBytes = 4;  // of a partial sum

/// Prepares a step for the sizes of a run.
class TileBuilder {
 public:
  TileBuilder(const TileLaunchStep& t, GpuQueue& queue, const RunState& run)
      : t_(t), queue_(queue), backend_(queue.backend()), run_(run), units_(backend_.gpu().info().units) {
    check(t.buffers.size() <= kMaxArguments && t.symbols.size() <= kMaxArguments,
          "a tile kernel that can't be launched");
    for (const Expr& s : t.symbols) values_.push_back(run.eval(s));
    sizes_ = {run.eval(t.batches), run.eval(t.m), run.eval(t.n), run.eval(t.k)};
    values_.insert(values_.end(), {sizes_.batches, sizes_.m, sizes_.n, sizes_.k});
  }

  std::unique_ptr<GpuTileStep> build() const {
    if (sizes_.batches <= 0 || sizes_.m <= 0 || sizes_.n <= 0) return std::make_unique<GpuTileStep>(queue_, GpuCalls());
    std::vector<std::string> names = t_.names;
    const GpuCalls library = library_calls(names);
    const std::size_t chosen = choose(names, library), tilings = t_.tilings.size();
    if (chosen < tilings) return std::make_unique<GpuTileStep>(queue_, calls_of(chosen));
    backend_.library_used() = true;
    const std::size_t own = choose_tiling(t_.tilings, sizes_.batches, sizes_.m, sizes_.n, sizes_.k, units_);
    return std::make_unique<GpuTileStep>(queue_, GpuCalls{library[chosen - tilings]}, names[chosen], calls_of(own));
  }

 private:
  std::shared_ptr<GpuCall> call_of(int kernel, double blocks, double tiles, std::uint32_t threads,
                                   std::int32_t shares) const {
    if (std::max({sizes_.m, sizes_.n, sizes_.k}) > INT32_MAX || std::max(blocks, tiles) > INT32_MAX)
      fail(ErrorKind::kUnsupported, "a product of {} times {}x{}x{} is larger than kernels count", sizes_.batches,
           sizes_.m, sizes_.n, sizes_.k);
    std::vector<int> buffers = t_.buffers;
    std::vector<std::int64_t> all = values_;
    if (shares > 1) {
      const std::int64_t sums = sizes_.batches * sizes_.m * sizes_.n;
      check(run_.bytes(t_.partial) / kSumBytes / shares >= static_cast<std::size_t>(sums),
            "there is no room for {} shares of {} sums", shares, sums);
      buffers.push_back(t_.partial);
      all.push_back(shares);
    }
    return backend_.call(kernel, static_cast<std::uint32_t>(blocks), threads, std::move(buffers), std::move(all));
  }

  GpuCalls calls_of(std::size_t tiling) const {
    const GpuTiling& x = t_.tilings[tiling];
    const TileSizes& s = sizes_;
    GpuCalls calls = {call_of(t_.kernels[tiling], launched_workgroups(x, s.batches, s.m, s.n, units_),
                              workgroups(x, s.batches, s.m, s.n), static_cast<std::uint32_t>(x.threads), x.shares)};
    if (x.copies) backend_.add_copies(*calls[0], t_, x, s, run_.symbols);
    if (x.shares > 1) {
      const std::int64_t threads = s.batches * s.m * ((s.n - 1) / kGpuFinish + 1);
      const auto blocks = static_cast<double>((threads - 1) / kGpuThreads + 1);
      calls.push_back(call_of(t_.finish, blocks, blocks, kGpuThreads, x.shares));
    }
    return calls;
  }

  // The product as calls of a vendor's library: as many as the tuner wants, or those that were chosen for some size.
  // Their names follow the tilings'.
  GpuCalls library_calls(std::vector<std::string>& names) const {
    GpuCalls calls;
    if (t_.library.empty() || backend_.library_off()) return calls;
    constexpr int kMostPlans = 8;
    const TileTuner* tuner = backend_.tuner();
    const int wanted = tuner ? tuner->library_candidates() : kMostPlans;
    const bool chosen = std::any_of(t_.tuned.begin(), t_.tuned.end(), [](const auto& x) { return !x.library.empty(); });
    if (wanted == 0 || (!tuner && !chosen)) return calls;
    const auto library = backend_.product_library();
    if (!library) return calls;
    const TileLaunchStep::Library& l = t_.library.front();
    const LibraryProduct p{run_.eval(l.batches),
                           run_.eval(l.m),
                           run_.eval(l.n),
                           run_.eval(l.k),
                           l.trans_a,
                           l.trans_b,
                           l.one_a,
                           l.one_b,
                           run_.info(l.a).dtype,
                           run_.info(l.out).dtype,
                           l.bias >= 0,
                           l.residual >= 0,
                           l.activation};
    if (std::min({p.batches, p.m, p.n, p.k}) <= 0 || std::max({p.batches, p.m, p.n, p.k}) > INT32_MAX) return calls;
    const auto plans = library->plans(p, wanted);
    for (std::size_t k = 0; k < plans.size(); ++k) {
      calls.push_back(
          std::make_shared<GpuCall>(plans[k], std::vector<int>{l.a, l.b, l.bias, l.residual, l.out, l.workspace}));
      names.push_back(library_candidate(library->name(), k, p));
    }
    return calls;
  }

  // An index into `names`: the tilings, then the library's calls.
  std::size_t choose(const std::vector<std::string>& names, const GpuCalls& library) const {
    TileTuner* tuner = backend_.tuner();
    if (!tuner || names.size() <= 1) return chosen_tiling(t_, sizes_, names, units_);
    const std::size_t tilings = t_.tilings.size();
    return tuner->choose(t_.problem, sizes_, names, tilings, tilings_by_cost(t_, sizes_, units_),
                         [&](std::size_t candidate) {
                           if (candidate < tilings) {
                             const GpuTiling& x = t_.tilings[candidate];
                             if (workgroups(x, sizes_.batches, sizes_.m, sizes_.n) > INT32_MAX) return 1e9;
                             return queue_.time(calls_of(candidate), run_);
                           }
                           try {
                             return queue_.time({library[candidate - tilings]}, run_);
                           } catch (const Error& error) {
                             warn(fmt::format("{} is no candidate: {}", names[candidate], error.what()));
                             return std::numeric_limits<double>::infinity();
                           }
                         });
  }

  const TileLaunchStep& t_;
  GpuQueue& queue_;
  const GpuBackend& backend_;
  const RunState& run_;
  int units_;
  TileSizes sizes_;
  std::vector<std::int64_t> values_;  ///< what kernels take after the buffers
};

}  // namespace

std::unique_ptr<PreparedStep> prepare_gpu_tile(const TileLaunchStep& step, GpuQueue& queue, RunState& run) {
  return TileBuilder(step, queue, run).build();
}

void GpuTileStep::give_up(const std::string& why) {
  failed_ = true;
  warn(fmt::format("{} failed, our own kernel takes over: {}", library_, why));
}

void GpuTileStep::enqueue(RunState& run) {
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
