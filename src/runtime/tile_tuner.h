// What a run asks when it comes to a choice (program/choice.h) whose sizes it sees for the first time: which candidate
// is the fastest. Times them on the tensors of the run.
#pragma once
#include <cstddef>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "device/device.h"
#include "program/choice.h"

namespace sardonyx {

/// Seconds of one launch of `launch`, whose kernel may run as often as it takes.
using TileTimer = std::function<double(Gpu& gpu, const GpuLaunch& launch, GpuStream stream)>;
/// Launches several times without waiting between them; the best of three.
double time_launch(Gpu& gpu, const GpuLaunch& launch, GpuStream stream);

/// All members are safe from many threads.
class TileTuner {
 public:
  virtual ~TileTuner() = default;
  /// The candidate for these sizes, an index into `names`, of which the first `own` are our own and the others those of
  /// a vendor's library. `problem`: see Choice. `order`: the own ones that can compute these sizes, the
  /// most promising first, which is what to return if nothing better is known. `time` gives the seconds of one launch;
  /// infinity for a candidate that failed.
  virtual std::size_t choose(const std::string& problem, const ProblemSizes& sizes,
                             const std::vector<std::string>& names, std::size_t own,
                             const std::vector<std::size_t>& order,
                             const std::function<double(std::size_t candidate)>& time) = 0;
  /// Those of `order` that choose() would time now, or the one that it would take without; so that their kernels can be
  /// made together.
  virtual std::vector<std::size_t> wanted(const std::string& problem, const ProblemSizes& sizes,
                                          const std::vector<std::string>& names,
                                          const std::vector<std::size_t>& order) = 0;
  /// How many candidates of a library's it wants.
  virtual int library_candidates() const { return 0; }
  /// How launches are timed.
  TileTimer timer = time_launch;
};

}  // namespace sardonyx
