// Chooses tilings and other candidates by measurement, and stores the times in a database.
#pragma once
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <tuple>
#include <vector>

#include "runtime/tile_tuner.h"
#include "tune/database.h"

namespace sardonyx {

/// A decision: what the cost model would have taken, and what was fastest.
struct TuningDecision {
  std::string problem;
  ProblemSizes sizes;
  std::string by_rule, best;
  double rule_seconds = 0, seconds = 0;
  std::size_t timed = 0;  ///< number of candidates
};

class DatabaseTuner : public TileTuner {
 public:
  /// `at_most`: maximum number of candidates that are timed, the most promising first; 0: all. `info`: the GPU.
  DatabaseTuner(std::shared_ptr<TuningDatabase> database, const GpuInfo& info, std::size_t at_most);
  /// Times candidates that have no times in the database: our own only if none of them has, and each of the library's.
  std::size_t choose(const std::string& problem, const ProblemSizes& sizes, const std::vector<std::string>& names,
                     const LibraryCalls& library, const std::vector<std::size_t>& order,
                     const std::function<double(std::size_t candidate)>& time) override;
  std::vector<std::size_t> wanted(const std::string& problem, const ProblemSizes& sizes,
                                  const std::vector<std::string>& names,
                                  const std::vector<std::size_t>& order) override;
  int library_candidates() const override { return at_most_ ? 1 : kLibraryCandidates; }
  /// What this object has measured.
  std::vector<TuningDecision> decisions() const;

 private:
  static constexpr int kLibraryCandidates =
      4;  // first ones in the library's own order; the best is rarely further down
  using Times = std::map<std::string, double>;  ///< seconds by candidate
  Times& known(const std::string& problem, const ProblemSizes& s);
  std::vector<std::size_t> to_time(const Times& known, const std::vector<std::string>& names,
                                   const std::vector<std::size_t>& order) const;
  using Key = std::tuple<std::string, std::int64_t, std::int64_t, std::int64_t, std::int64_t>;
  std::shared_ptr<TuningDatabase> database_;
  std::string arch_;
  std::int64_t units_;
  std::size_t at_most_;
  mutable std::mutex mutex_;  ///< also held while launches are timed, so that they do not disturb each other
  std::map<Key, Times> known_;
  std::vector<TuningDecision> decisions_;
};

}  // namespace sardonyx
