#include "api/tuner.h"

#include <algorithm>
#include <utility>

namespace sardonyx {

DatabaseTuner::DatabaseTuner(std::shared_ptr<TuningDatabase> database, const GpuInfo& info, std::size_t at_most)
    : database_(std::move(database)), arch_(info.target), units_(std::max(info.units, 1)), at_most_(at_most) {}

std::size_t DatabaseTuner::choose(const TileLaunchStep& step, const TileSizes& s, const std::vector<std::size_t>& order,
                                  const std::function<double(std::size_t)>& time) {
  if (order.empty()) return 0;
  const std::lock_guard lock(mutex_);
  const auto index_of = [&](const std::string& name) {
    const auto at = std::find(step.names.begin(), step.names.end(), name);
    return at == step.names.end() ? order[0] : static_cast<std::size_t>(at - step.names.begin());
  };
  const Key key{step.problem, s.batches, s.m, s.n, s.k};
  if (const auto known = best_.find(key); known != best_.end()) return index_of(known->second);
  TuningRow row{arch_, units_, step.problem, s.batches, s.m, s.n, s.k, "", 0};
  if (database_->has(row))
    for (const codegen::TunedSize& t : database_->find(arch_, step.problem))
      if (t.batches == s.batches && t.m == s.m && t.n == s.n && t.k == s.k) {
        const std::size_t at = index_of(t.candidate);
        if (std::find(order.begin(), order.end(), at) == order.end()) break;  // a database of another version's kernels
        best_[key] = t.candidate;
        return at;
      }
  const std::size_t count = at_most_ ? std::min(at_most_, order.size()) : order.size();
  std::vector<TuningRow> rows;
  std::size_t best = order[0];
  TuningDecision d{step.problem, s, step.names[order[0]], step.names[order[0]], 0, 0, count};
  for (std::size_t k = 0; k < count; ++k) {
    row.candidate = step.names[order[k]];
    row.seconds = time(order[k]);
    if (k == 0) d.rule_seconds = d.seconds = row.seconds;
    if (row.seconds < d.seconds) {
      d.seconds = row.seconds;
      d.best = row.candidate;
      best = order[k];
    }
    rows.push_back(row);
  }
  database_->add(rows);
  best_[key] = d.best;
  decisions_.push_back(std::move(d));
  return best;
}

std::vector<TuningDecision> DatabaseTuner::decisions() const {
  const std::lock_guard lock(mutex_);
  return decisions_;
}

}  // namespace sardonyx
