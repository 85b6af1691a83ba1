// What a run asks when it meets a choice (program/choice.h) for sizes that it sees for the first time: which candidate
// is the fastest. Candidates are timed on the tensors of the run.
#pragma once
#include <cstddef>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "device/device.h"
#include "program/choice.h"

namespace sardonyx {

/// Seconds of one launch of `launch`, which may be launched as often as needed.
using TileTimer = std::function<double(Gpu& gpu, const GpuLaunch& launch, GpuStream stream)>;
/// Launches several times without waiting in between; the best of three.
double time_launch(Gpu& gpu, const GpuLaunch& launch, GpuStream stream);

/// All members are thread-safe.
class TileTuner {
 public:
  virtual ~TileTuner() = default;
  /// Those of a list of candidates that are calls of a vendor's library.
  struct LibraryCalls {
    std::size_t first = 0;  ///< the candidates before it are our own kernels
    LibraryEpilogue epilogue;
  };
  /// Returns the candidate for these sizes, an index into `names`: our own kernels and, from `library.first` on, calls
  /// of a vendor's library. `problem`: see Choice. `order`: our own candidates that support these sizes, the most
  /// promising first, which is what to return if nothing better is known. `time` gives the seconds of one launch;
  /// infinity for a candidate that failed.
  virtual std::size_t choose(const std::string& problem, const ProblemSizes& sizes,
                             const std::vector<std::string>& names, const LibraryCalls& library,
                             const std::vector<std::size_t>& order,
                             const std::function<double(std::size_t candidate)>& time) = 0;
  /// The candidates of `order` that choose() would time now, or the one it would return without timing; their kernels
  /// are then compiled together.
  virtual std::vector<std::size_t> wanted(const std::string& problem, const ProblemSizes& sizes,
                                          const std::vector<std::string>& names,
                                          const std::vector<std::size_t>& order) = 0;
  /// How many candidates of a vendor's library to time.
  virtual int library_candidates() const { return 0; }
  /// The timer of launches.
  TileTimer timer = time_launch;
};

}  // namespace sardonyx
