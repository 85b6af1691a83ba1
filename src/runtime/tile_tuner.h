// What a run asks when it comes to a tile kernel of a GPU whose sizes it sees for the first time: which of its tilings
// (of attention, its forms) is the fastest. Times them on the tensors of the run.
#pragma once
#include <cstddef>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "device/device.h"
#include "program/program.h"

namespace sardonyx {

/// Seconds of one launch of `launch`, whose kernel may run as often as it takes.
using TileTimer = std::function<double(Gpu& gpu, const GpuLaunch& launch, GpuStream stream)>;
/// Launches several times without waiting between them; the best of three.
double time_launch(Gpu& gpu, const GpuLaunch& launch, GpuStream stream);

struct TileSizes {
  std::int64_t batches = 0, m = 0, n = 0, k = 0;
};

/// All members are safe from many threads.
class TileTuner {
 public:
  virtual ~TileTuner() = default;
  /// The candidate for these sizes, an index into `names`, of which the first `own` are our own and the others those of
  /// a vendor's library. `problem`: see codegen::TileChoices. `order`: the own ones that can compute these sizes, the
  /// most promising first, which is what to return if nothing better is known. `time` gives the seconds of one launch;
  /// infinity for a candidate that failed.
  virtual std::size_t choose(const std::string& problem, const TileSizes& sizes, const std::vector<std::string>& names,
                             std::size_t own, const std::vector<std::size_t>& order,
                             const std::function<double(std::size_t candidate)>& time) = 0;
  /// Those of `order` that choose() would time now, or the one that it would take without; so that their kernels can be
  /// made together.
  virtual std::vector<std::size_t> wanted(const std::string& problem, const TileSizes& sizes,
                                          const std::vector<std::string>& names,
                                          const std::vector<std::size_t>& order) = 0;
  /// How many candidates of a library's it wants.
  virtual int library_candidates() const { return 0; }
  /// How launches are timed.
  TileTimer timer = time_launch;
};

/// The tilings of a step that can compute these sizes, the fastest by the model of cost first.
std::vector<std::size_t> tilings_by_cost(const TileLaunchStep& step, const TileSizes& sizes, int units);
/// The candidate of `names`, the tilings' names and perhaps those of a vendor's library behind them, that was measured
/// to be the fastest for these sizes, else the tiling of the model of cost.
std::size_t chosen_tiling(const TileLaunchStep& step, const TileSizes& sizes, const std::vector<std::string>& names,
                          int units);
/// The form of attention that was measured to be the fastest for these values of the symbols, else the rule's. Throws
/// Error(kInternal) if the rule names none.
std::size_t chosen_form(const AttentionLaunchStep& step, const SymbolValues& symbols);

}  // namespace sardonyx
