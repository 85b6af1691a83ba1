// See drop_candidates.h.
#include "lower/drop_candidates.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <map>
#include <optional>
#include <set>
#include <string>

#include "program/visit.h"
#include "support/error.h"

namespace sardonyx {
namespace {

constexpr std::int64_t kMostAlike = 1 << 20;  // largest value that all symbols have
constexpr std::int64_t kMostAlone = 1 << 12;  // and that one symbol has while the others are 1
constexpr std::size_t kMostSymbols = 8;       // that are tried alone
constexpr double kMostTime = 1e9;             // nanoseconds of a model; nobody waits longer
constexpr double kMostSlower = 2;             // of a choice
constexpr double kNever = std::numeric_limits<double>::infinity();

using Times = std::vector<double>;

/// Milliseconds to compile a kernel, fitted to 59 kernels of a BERT for gfx950: 120 for few rows, 170 to 320 for tiles
/// of 32 x 32 and 64 x 64, 300 to 440 for 128 x 128, 410 to 620 for 256 x 128, and 1200 to 1700 for 256 x 256.
double compile_cost(const GpuTiling& t) {
  const double sums = static_cast<double>(t.rows) * t.cols;
  return t.few_rows ? 120 : 200 + 0.004 * sums + 1.9e-7 * sums * sums;
}

/// Nanoseconds of each candidate; infinity: it does not support these sizes. Kernels for few rows have ranks instead of
/// costs. The first one reads the right operand once; any other candidate is assumed to take at least twice as long.
/// With a quarter longer instead, kernels were dropped without which one token of a Llama of four layers took 17 %
/// longer on gfx942.
Times times_of(const ChoiceStep& c, const SymbolValues& symbols, const Chip& chip) {
  constexpr double kStart = 3000;
  const int units = driver_units(chip);
  const ProblemSizes s = sizes_of(c.choice, symbols);
  double read = static_cast<double>(size_of(c.type)) / chip.product().gb_per_second;
  for (const std::int64_t d : {s.batches, s.n, s.k}) read *= static_cast<double>(d);  // may exceed 64 bits
  read = std::max(kStart, read);
  Times times(c.choice.candidates.size(), kNever);
  double rank = 1;
  for (const std::size_t k : by_cost(c.choice, symbols, units)) {
    const GpuTiling& t = c.choice.candidates[k].tiling.front();
    times[k] = t.few_rows ? read * rank++ : tiling_cost(t, s.batches, s.m, s.n, s.k, units);
    if (!t.few_rows && rank > 1) times[k] = std::max(times[k], 2 * read);
  }
  return times;
}

/// Equal choices of a program: of the same kernels and sizes.
struct Entry {
  std::vector<ChoiceStep*> steps;
  const ProgramStep* first = nullptr;
  std::vector<bool> alive;   ///< by candidate
  bool fixed = false;        ///< keeps its candidates
  std::vector<Times> times;  ///< by size, then by candidate; empty where the steps do not run
  Times fastest;             ///< by size

  const ChoiceStep& step() const { return *steps.front(); }
  bool launches(std::size_t candidate, int kernel) const {
    const std::vector<LaunchStep>& list = step().launches[candidate];
    return std::any_of(list.begin(), list.end(), [&](const LaunchStep& l) { return l.kernel == kernel; });
  }
  /// Of the fastest candidate, without those that launch `kernel`.
  double time(std::size_t size, int kernel = -1) const {
    const Times& t = times[size];
    double least = t.empty() ? 0 : kNever;
    for (std::size_t k = 0; k < t.size(); ++k)
      if (alive[k] && t[k] < least && !(kernel >= 0 && launches(k, kernel))) least = t[k];
    return least;
  }
  /// Whether a candidate for any number of rows is left without those that launch `kernel`.
  bool general(int kernel = -1) const {
    for (std::size_t k = 0; k < alive.size(); ++k) {
      const GpuTiling& t = step().choice.candidates[k].tiling.front();
      if (alive[k] && !t.few_rows && t.splits == 1 && t.cluster == 1 && !(kernel >= 0 && launches(k, kernel)))
        return true;
    }
    return false;
  }
};

bool has_tilings(const ChoiceStep& c) {
  return std::all_of(c.choice.candidates.begin(), c.choice.candidates.end(),
                     [](const Candidate& x) { return !x.tiling.empty(); });
}

/// Equal for steps that take the same time: their condition, sizes and kernels.
std::string key_of(const ProgramStep& s, const ChoiceStep& c) {
  std::string key;
  for (const Expr& e : {s.when, c.choice.batches, c.choice.m, c.choice.n, c.choice.k})
    key += (e ? to_string(e) : "") + ";";
  for (const std::vector<LaunchStep>& candidate : c.launches)
    for (const LaunchStep& l : candidate) key += std::to_string(l.kernel) + " ";
  return key;
}

class Dropping {
 public:
  Dropping(Program& program, const Chip& chip, double loss) : chip_(chip) {
    std::map<std::string, std::size_t> known;
    for_steps(program.main, [&](ProgramStep& s) {
      auto* c = std::get_if<ChoiceStep>(&s.op);
      if (!c || !has_tilings(*c)) return;
      const auto [at, fresh] = known.emplace(key_of(s, *c), entries_.size());
      if (fresh) {
        entries_.emplace_back().first = &s;
        entries_.back().alive.assign(c->choice.candidates.size(), true);
      }
      Entry& e = entries_[at->second];
      e.steps.push_back(c);
      e.fixed = e.fixed || e.alive.size() == 1 || !c->choice.tuned.empty();
    });
    if (std::all_of(entries_.begin(), entries_.end(), [](const Entry& e) { return e.fixed; })) return;
    try_sizes(static_cast<int>(program.symbol_names.size()));
    if (total_.empty())  // no size can be estimated, so nothing is known to be of little use
      for (Entry& e : entries_) e.fixed = true;
    for (const double t : total_) left_.push_back(t * loss);
  }

  void run() {
    std::map<int, double> costs;  // of kernels
    for (Entry& e : entries_)
      for (std::size_t k = 0; k < e.alive.size(); ++k)
        for (const LaunchStep& l : e.step().launches[k]) {
          users_[l.kernel].insert(&e);
          costs.emplace(l.kernel, compile_cost(e.step().choice.candidates[k].tiling.front()));
        }
    std::vector<std::pair<double, int>> order;
    for (const auto& [kernel, cost] : costs) {
      const auto lost = loss_of(kernel);
      if (!lost) continue;
      double share = 0;
      for (std::size_t size = 0; size < lost->size(); ++size)
        if (total_[size] > 0) share = std::max(share, (*lost)[size] / total_[size]);
      order.emplace_back(share / cost, kernel);
    }
    std::sort(order.begin(), order.end());
    for (const auto& [worth, kernel] : order) drop(kernel);
    for (const Entry& e : entries_)
      for (ChoiceStep* c : e.steps) keep(*c, e.alive);
  }

 private:
  /// All symbols alike, and the first ones alone: rows are often a product of sizes of which all but one are 1.
  void try_sizes(int symbols) {
    SymbolValues values;
    std::set<int> used;
    for (const Entry& e : entries_)
      for (const Expr& x : {e.step().choice.batches, e.step().choice.m, e.step().choice.n, e.step().choice.k})
        visit(x, [&](const Expr& y) {
          if (y->op == Op::kSym && used.size() < kMostSymbols) used.insert(static_cast<int>(y->i));
        });
    const auto set_all = [&](std::int64_t size) {
      for (int k = 0; k < symbols; ++k) values.set(k, size);
    };
    for (std::int64_t size = 1; size <= kMostAlike; size *= 2) {
      set_all(size);
      if (!try_size(values) && !total_.empty()) break;  // the first ones may be too small for a model
    }
    for (const int one : used) {
      set_all(1);
      for (std::int64_t size = 2; used.size() > 1 && size <= kMostAlone; size *= 2) {
        values.set(one, size);
        if (!try_size(values)) break;
      }
    }
  }

  /// False if larger ones need not be tried.
  bool try_size(const SymbolValues& symbols) {
    std::vector<Times> all;
    try {
      for (const Entry& e : entries_)
        all.push_back(may_run(*e.first, symbols) ? times_of(e.step(), symbols, chip_) : Times());
    } catch (const Error&) {
      return false;  // sizes that overflow 64 bits, or divide by 0
    }
    double total = 0;
    for (std::size_t k = 0; k < entries_.size(); ++k) {
      Entry& e = entries_[k];
      e.fastest.push_back(all[k].empty() ? 0 : *std::min_element(all[k].begin(), all[k].end()));
      e.times.push_back(std::move(all[k]));
      if (!std::isinf(e.fastest.back())) total += e.fastest.back() * static_cast<double>(e.steps.size());
    }
    total_.push_back(total);
    return total < kMostTime;
  }

  /// Nanoseconds that all choices lose without the kernel, by size; empty: it is needed.
  std::optional<Times> loss_of(int kernel) const {
    Times lost(total_.size(), 0);
    for (const Entry* e : users_.at(kernel)) {
      if (e->fixed || (e->general() && !e->general(kernel))) return {};
      for (std::size_t size = 0; size < lost.size(); ++size) {
        const double before = e->time(size), after = e->time(size, kernel);
        if (std::isinf(before)) continue;
        if (after > e->fastest[size] * kMostSlower) return {};
        lost[size] += (after - before) * static_cast<double>(e->steps.size());
      }
    }
    return lost;
  }

  void drop(int kernel) {
    const auto lost = loss_of(kernel);
    if (!lost) return;
    for (std::size_t size = 0; size < left_.size(); ++size)
      if ((*lost)[size] > left_[size]) return;
    for (std::size_t size = 0; size < left_.size(); ++size) left_[size] -= (*lost)[size];
    for (Entry* e : users_.at(kernel))
      for (std::size_t k = 0; k < e->alive.size(); ++k)
        if (e->launches(k, kernel)) e->alive[k] = false;
  }

  static void keep(ChoiceStep& c, const std::vector<bool>& alive) {
    std::vector<Candidate> candidates;
    std::vector<std::vector<LaunchStep>> launches;
    for (std::size_t k = 0; k < alive.size(); ++k) {
      if (!alive[k]) continue;
      candidates.push_back(std::move(c.choice.candidates[k]));
      launches.push_back(std::move(c.launches[k]));
    }
    c.choice.candidates = std::move(candidates);
    c.launches = std::move(launches);
  }

  const Chip& chip_;
  std::vector<Entry> entries_;
  Times total_, left_;                     // by size; `left`: what may still be lost
  std::map<int, std::set<Entry*>> users_;  // of kernels
};

/// Without kernels that no step launches.
void remove_unused(Program& program) {
  std::vector<int> number(program.kernels.size(), -1);  // new ones; -1: unused
  const auto for_all = [&](const std::function<void(LaunchStep&)>& f) {
    for (Block* b : {&program.init, &program.main}) for_steps(*b, [&](ProgramStep& s) { for_launches(s, f); });
  };
  for_all([&](LaunchStep& l) { number[static_cast<std::size_t>(l.kernel)] = 0; });
  std::vector<KernelInfo> kept;
  for (std::size_t k = 0; k < number.size(); ++k) {
    if (number[k] < 0) continue;
    number[k] = static_cast<int>(kept.size());
    kept.push_back(std::move(program.kernels[k]));
  }
  for_all([&](LaunchStep& l) { l.kernel = number[static_cast<std::size_t>(l.kernel)]; });
  program.kernels = std::move(kept);
}

}  // namespace

void drop_candidates(Program& program, const Chip& chip, double loss) {
  if (loss <= 0) return;
  Dropping(program, chip, loss).run();
  remove_unused(program);
}

}  // namespace sardonyx
