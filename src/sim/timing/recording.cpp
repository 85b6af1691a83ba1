// See recording.h.
#include "sim/timing/recording.h"

#include <algorithm>

#include "sim/exec/launch.h"

namespace sardonyx::sim::timing {
namespace {

constexpr std::uint64_t kMaxExecuted = 80'000'000;  // wave-instructions: about half a minute on two cores
constexpr std::uint64_t kMaxLines = 100'000'000;    // of 12 bytes
constexpr std::uint64_t kMaxSamples = 64, kMaxSampled = kMaxExecuted / 4;

Placement placementOn(const Chip& chip) {
  Placement p;
  p.dies = std::max(chip.xccCount, 1);
  p.unitsPerDie = std::max(chip.computeUnits / p.dies, 1);
  return p;
}

/// Workgroups that are spread over the launch. Steps of the golden section do not follow the period of a grid, and the
/// first few of them are spread too.
std::vector<std::uint64_t> spread(std::uint64_t groups, std::uint64_t count) {
  constexpr double kStep = 0.6180339887498949;
  std::vector<std::uint64_t> all;
  double at = 0.5;
  for (std::uint64_t i = 0; i < count; ++i) {
    const auto index = std::min(groups - 1, static_cast<std::uint64_t>(at * static_cast<double>(groups)));
    if (std::find(all.begin(), all.end(), index) == all.end()) all.push_back(index);
    at += kStep;
    if (at >= 1) at -= 1;
  }
  return all;
}

}  // namespace

Recording::Recording(const Launch& launch, const TimingFacts& facts, bool executeAll)
    : facts_(facts),
      gen_(launch.chip->gen),
      executeAll_(executeAll),
      groups_(launch.groups()),
      occupancy_(timing::occupancy(*launch.kernel, *launch.chip, launch.block[0] * launch.block[1] * launch.block[2],
                                   launch.ldsBytes)),
      place_(placementOn(*launch.chip)),
      units_(place_.unitsPerDie) {
  rounds_ = std::clamp<std::uint64_t>((groups_ + round() - 1) / round(), 1, 2);
  recordedCount_ = rounds_ * round();
  if (!complete()) samples_ = spread(groups_, std::min(kMaxSamples, round() / 2));
}

std::uint64_t Recording::at(std::uint64_t n) const {
  if (executeAll_) return n;
  if (n < samples_.size()) {  // those of recorded pools are executed below
    const bool spent = sampledExecuted_.load(std::memory_order_relaxed) > kMaxSampled;
    return spent || wanted(samples_[n]) ? kSkip : samples_[n];
  }
  n -= samples_.size();
  // Unit by unit, so that those recorded before the budget is spent are whole ones.
  const auto dies = static_cast<unsigned>(place_.dies);
  const std::uint64_t perUnit = rounds_ * static_cast<unsigned>(occupancy_.groups) * dies;
  const std::uint64_t unit = static_cast<std::uint64_t>(unitAt(static_cast<int>(n / perUnit))),
                      slot = n % perUnit / dies, die = n % dies;
  const std::uint64_t index = slot * place_.pools() + unit * dies + die;
  return index < groups_ && wanted(index) ? index : kSkip;
}

// Units that are replayed come last: if workgroups count which of them ends last, and that one does more work, it is
// one of theirs.
int Recording::unitAt(int number) const {
  const int second = secondDetailedUnit(), others = place_.unitsPerDie - (second != 0 ? 2 : 1);
  if (number >= others) return number == others ? second : 0;
  return number + 1 + (second != 0 && number + 1 >= second ? 1 : 0);
}

bool Recording::wanted(std::uint64_t index) const {
  return index < rounds_ * round() && (place_.unit(index) < units_.load(std::memory_order_relaxed) || detailed(index));
}

bool Recording::detailed(std::uint64_t index) const {
  if (index >= rounds_ * round() || place_.die(index) != 0) return false;
  const int unit = place_.unit(index);
  if (unit != 0 && unit != secondDetailedUnit()) return false;
  return complete() || index >= round();
}

bool Recording::sampled(std::uint64_t index) const {
  return std::find(samples_.begin(), samples_.end(), index) != samples_.end();
}

void Recording::attach(Workgroup& group) {
  if (!wanted(group.flat) && !sampled(group.flat)) return;
  const bool all = detailed(group.flat);
  for (auto& w : group.waves) {
    w->recorder = std::make_unique<WaveRecorder>(facts_, gen_, all, !executeAll_);
    w->watchGlobal = true;
  }
}

void Recording::collect(Workgroup& group) {
  if (!group.waves.front()->recorder) return;
  if (sampled(group.flat)) collectSample(group);
  if (!wanted(group.flat)) return;
  auto trace = std::make_unique<GroupTrace>();
  trace->index = group.flat;
  trace->detailed = detailed(group.flat);
  std::uint64_t lines = 0;
  for (auto& w : group.waves) {
    trace->executed += w->recorder->executed;
    lines += w->recorder->trace.lines.size();
    trace->waves.push_back(std::move(w->recorder->trace));
    trace->positions.push_back(std::move(w->recorder->positions));
  }
  std::lock_guard lock(mutex_);
  executed_ += trace->executed;
  lines_ += lines;
  traces_.push_back(std::move(trace));
  // By the average so far, how many units' workgroups the budget is for.
  const double part = std::max(static_cast<double>(executed_) / static_cast<double>(kMaxExecuted),
                               static_cast<double>(lines_) / static_cast<double>(kMaxLines)) /
                      static_cast<double>(traces_.size());
  const double perUnit = part * static_cast<double>(std::min(recordedCount_, groups_)) / place_.unitsPerDie;
  const int allowed = std::max(1, static_cast<int>(std::min(1 / perUnit, 1e9)));
  if (allowed < units_.load()) units_.store(allowed);
}

void Recording::collectSample(const Workgroup& group) {
  std::uint64_t executed = 0;
  bool atomics = false;
  for (const auto& w : group.waves) {
    executed += w->recorder->executed;
    const std::vector<Line>& lines = w->recorder->trace.lines;
    atomics = atomics || std::any_of(lines.begin(), lines.end(), [](const Line& l) { return l.atomic(); });
  }
  std::lock_guard lock(mutex_);
  sampledExecuted_ += executed;
  ++sampledCount_;
  sampledAtomics_ = sampledAtomics_ || atomics;
}

double Recording::averageExecuted() const {
  if (sampledCount_ == 0 || sampledAtomics_) return 0;
  return static_cast<double>(sampledExecuted_.load()) / static_cast<double>(sampledCount_);
}

std::vector<GroupTrace*> Recording::traces() {
  std::vector<GroupTrace*> out;
  for (auto& t : traces_)
    if (place_.unit(t->index) < units() || t->detailed) out.push_back(t.get());
  std::sort(out.begin(), out.end(), [](const GroupTrace* a, const GroupTrace* b) { return a->index < b->index; });
  return out;
}

}  // namespace sardonyx::sim::timing
