#include "api/tuner.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <utility>

namespace sardonyx {

DatabaseTuner::DatabaseTuner(std::shared_ptr<TuningDatabase> database, const GpuInfo& info, std::size_t at_most)
    : database_(std::move(database)), arch_(info.target), units_(std::max(info.units, 1)), at_most_(at_most) {}

DatabaseTuner::Times& DatabaseTuner::known(const std::string& problem, const ProblemSizes& s) {
  Times& known = known_[{problem, s.batches, s.m, s.n, s.k}];
  if (known.empty()) known = database_->times({arch_, units_, problem, s.batches, s.m, s.n, s.k, "", 0});
  return known;
}

// Which of our own candidates to time: none if some of them were timed before.
std::vector<std::size_t> DatabaseTuner::to_time(const Times& known, const std::vector<std::string>& names,
                                                const std::vector<std::size_t>& order) const {
  if (std::any_of(order.begin(), order.end(), [&](std::size_t k) { return known.count(names[k]) > 0; })) return {};
  const std::size_t count = at_most_ ? std::min(at_most_, order.size()) : order.size();
  return {order.begin(), order.begin() + static_cast<std::ptrdiff_t>(count)};
}

std::vector<std::size_t> DatabaseTuner::wanted(const std::string& problem, const ProblemSizes& s,
                                               const std::vector<std::string>& names,
                                               const std::vector<std::size_t>& order) {
  if (order.empty()) return {};
  const std::lock_guard lock(mutex_);
  const Times& times = known(problem, s);
  std::vector<std::size_t> out = to_time(times, names, order);
  if (!out.empty()) return out;
  const auto seconds = [&](std::size_t k) {
    const auto at = times.find(names[k]);
    return at == times.end() ? std::numeric_limits<double>::infinity() : at->second;
  };
  return {*std::min_element(order.begin(), order.end(),
                            [&](std::size_t a, std::size_t b) { return seconds(a) < seconds(b); })};
}

std::size_t DatabaseTuner::choose(const std::string& problem, const ProblemSizes& s,
                                  const std::vector<std::string>& names, const LibraryCalls& library,
                                  const std::vector<std::size_t>& order,
                                  const std::function<double(std::size_t)>& time) {
  if (order.empty()) return 0;
  const std::lock_guard lock(mutex_);
  // The candidates that support these sizes; those of the vendor's library last.
  std::vector<std::size_t> possible = order;
  for (std::size_t k = library.first; k < names.size(); ++k) possible.push_back(k);
  TuningRow row{arch_, units_, problem, s.batches, s.m, s.n, s.k, "", 0};
  Times& known = this->known(problem, s);
  std::vector<std::size_t> wanted = to_time(known, names, order);
  for (std::size_t k = library.first; k < names.size(); ++k)
    if (known.count(names[k]) == 0) wanted.push_back(k);
  std::vector<TuningRow> rows;
  for (const std::size_t k : wanted) {
    row.candidate = names[k];
    row.seconds = time(k);
    row.library = k < library.first ? std::nullopt : std::optional(library.epilogue);
    known[row.candidate] = row.seconds;
    if (std::isfinite(row.seconds)) rows.push_back(row);  // a candidate that failed is tried again in a later run
  }
  database_->add(rows);
  std::size_t best = order[0];
  double least = std::numeric_limits<double>::infinity();
  for (const std::size_t k : possible)
    if (const auto at = known.find(names[k]); at != known.end() && at->second < least) {
      best = k;
      least = at->second;
    }
  if (wanted.empty()) return best;
  const auto rule = known.find(names[order[0]]);
  decisions_.push_back(
      {problem, s, names[order[0]], names[best], rule == known.end() ? least : rule->second, least, wanted.size()});
  return best;
}

std::vector<TuningDecision> DatabaseTuner::decisions() const {
  const std::lock_guard lock(mutex_);
  return decisions_;
}

}  // namespace sardonyx
