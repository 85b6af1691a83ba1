// Choices of tilings by measurement, kept in a database.
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

/// One decision: what the model of cost would have taken, and what was the fastest.
struct TuningDecision {
  std::string problem;
  ProblemSizes sizes;
  std::string by_rule, best;
  double rule_seconds = 0, seconds = 0;
  std::size_t timed = 0;  ///< candidates
};

class DatabaseTuner : public TileTuner {
 public:
  /// `at_most`: how many candidates are timed, the most promising first; 0: all. `info`: the card.
  DatabaseTuner(std::shared_ptr<TuningDatabase> database, const GpuInfo& info, std::size_t at_most);
  /// Times what the database has no times of: tilings if it has of none, and each of the library's candidates.
  std::size_t choose(const std::string& problem, const ProblemSizes& sizes, const std::vector<std::string>& names,
                     std::size_t own, const std::vector<std::size_t>& order,
                     const std::function<double(std::size_t candidate)>& time) override;
  std::vector<std::size_t> wanted(const std::string& problem, const ProblemSizes& sizes,
                                  const std::vector<std::string>& names,
                                  const std::vector<std::size_t>& order) override;
  int library_candidates() const override { return at_most_ ? 1 : kLibraryCandidates; }
  /// What was measured by this object.
  std::vector<TuningDecision> decisions() const;

 private:
  static constexpr int kLibraryCandidates = 4;  // of a library's own order, which is rarely further off
  using Times = std::map<std::string, double>;  ///< seconds by candidate
  Times& known(const std::string& problem, const ProblemSizes& s);
  std::vector<std::size_t> to_time(const Times& known, const std::vector<std::string>& names,
                                   const std::vector<std::size_t>& order) const;
  using Key = std::tuple<std::string, std::int64_t, std::int64_t, std::int64_t, std::int64_t>;
  std::shared_ptr<TuningDatabase> database_;
  std::string arch_;
  std::int64_t units_;
  std::size_t at_most_;
  mutable std::mutex mutex_;  ///< also held while launches are timed, so that none disturbs another
  std::map<Key, Times> known_;
  std::vector<TuningDecision> decisions_;
};

}  // namespace sardonyx
