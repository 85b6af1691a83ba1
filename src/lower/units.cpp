#include "lower/units.h"

#include <algorithm>
#include <map>
#include <set>
#include <string>

#include "program/visit.h"

namespace sardonyx {
namespace {

constexpr int kAlways = 0;

/// For each kernel, what needs it: kAlways, or the numbers of candidates, branches and conditions.
class Users {
 public:
  explicit Users(const Program& p) : of_(p.kernels.size()) {
    for_steps(p.init, [&](const ProgramStep& s) { add_launches(s, kAlways); });
    add_block(p.main, kAlways);
  }
  const std::set<int>& of(std::size_t kernel) const { return of_[kernel]; }

 private:
  // Steps of a block under equal conditions run together. `user`: of those without a condition.
  void add_block(const Block& b, int user) {
    std::map<std::string, int> conditions;
    for (const ProgramStep& s : b.steps) {
      int here = user;
      if (s.when) {
        const auto [it, is_new] = conditions.try_emplace(to_string(s.when));
        if (is_new) it->second = ++last_;
        here = it->second;
      }
      const auto* c = std::get_if<ChoiceStep>(&s.op);
      if (c && c->launches.size() > 1)
        for (const std::vector<LaunchStep>& candidate : c->launches) {
          ++last_;
          for (const LaunchStep& l : candidate) add(l, last_);
        }
      else
        add_launches(s, here);
      for (const Block* inside : blocks_of(s)) add_block(*inside, ++last_);
    }
  }
  void add_launches(const ProgramStep& s, int user) {
    for_launches(s, [&](const LaunchStep& l) { add(l, user); });
  }
  void add(const LaunchStep& l, int user) { of_[static_cast<std::size_t>(l.kernel)].insert(user); }

  std::vector<std::set<int>> of_;
  int last_ = kAlways;
};

}  // namespace

std::vector<Unit> units_of(const Program& program, std::size_t most, Grouping grouping) {
  const Users users(program);
  std::vector<Unit> units;
  std::map<std::set<int>, std::size_t> open;  // by users: the unit with room for more kernels
  for (std::size_t k = 0; k < program.kernels.size(); ++k) {
    const bool alone = program.kernels[k].spec.family == KernelFamily::kCustom;
    const bool always = alone || grouping == Grouping::kAnyKernel || users.of(k).count(kAlways) > 0;
    const std::set<int> key = always ? std::set<int>{kAlways} : users.of(k);
    const auto at = alone ? open.end() : open.find(key);
    if (at != open.end() && units[at->second].kernels.size() < most) {
      units[at->second].kernels.push_back(k);
      continue;
    }
    if (!alone) open[key] = units.size();
    units.push_back({{k}, always});
  }
  std::stable_partition(units.begin(), units.end(), [](const Unit& u) { return u.always; });
  return units;
}

}  // namespace sardonyx
