// Choices of tilings by measurement, kept in a database.
#pragma once
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <tuple>
#include <vector>

#include "program/tile_tuner.h"
#include "tune/database.h"

namespace sardonyx {

/// One decision: what the model of cost would have taken, and what was the fastest.
struct TuningDecision {
  std::string problem;
  TileSizes sizes;
  std::string by_rule, best;
  double rule_seconds = 0, seconds = 0;
  std::size_t timed = 0;  ///< candidates
};

class DatabaseTuner : public TileTuner {
 public:
  /// `at_most`: how many candidates are timed, the most promising first; 0: all. `info`: the card.
  DatabaseTuner(std::shared_ptr<TuningDatabase> database, const GpuInfo& info, std::size_t at_most);
  std::size_t choose(const TileLaunchStep& step, const TileSizes& sizes, const std::vector<std::size_t>& order,
                     const std::function<double(std::size_t tiling)>& time) override;
  /// What was measured by this object.
  std::vector<TuningDecision> decisions() const;

 private:
  using Key = std::tuple<std::string, std::int64_t, std::int64_t, std::int64_t, std::int64_t>;
  std::shared_ptr<TuningDatabase> database_;
  std::string arch_;
  std::int64_t units_;
  std::size_t at_most_;
  mutable std::mutex mutex_;  ///< also held while launches are timed, so that none disturbs another
  std::map<Key, std::string> best_;
  std::vector<TuningDecision> decisions_;
};

}  // namespace sardonyx
