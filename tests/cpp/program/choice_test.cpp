// Which candidate of a choice is taken: by rule, by measurement, and where neither may be.
#include "program/choice.h"

#include <gtest/gtest.h>

#include <limits>

#include "example.h"
#include "program/visit.h"
#include "support/error.h"

namespace sardonyx {
namespace {

/// "vector" for one row; for others "tiles", and "split" from 1024 columns, which computes 64 and more.
Choice example() {
  const Expr m = symbol(0, "m"), n = symbol(1, "n");
  Choice c{"problem", 1, m, n, 8, {}, {}};
  c.candidates = {{"vector", compare(Op::kEq, m, 1), 0, {}},
                  {"tiles", {}, select(compare(Op::kGe, n, 1024), 1, 0), {}},
                  {"split", compare(Op::kGe, n, 64), select(compare(Op::kGe, n, 1024), 0, 1), {}}};
  return c;
}

SymbolValues sizes(std::int64_t m, std::int64_t n) {
  SymbolValues v;
  v.set(0, m), v.set(1, n);
  return v;
}

std::string chosen(const Choice& c, std::int64_t m, std::int64_t n, std::vector<std::string> library = {}) {
  std::vector<std::string> names = names_of(c);
  names.insert(names.end(), library.begin(), library.end());
  return names[chosen_candidate(c, sizes(m, n), 100, names)];
}

TEST(Choice, TheCheapestThatAppliesIsTakenByRule) {
  const Choice c = example();
  EXPECT_EQ(chosen(c, 1, 8), "vector");
  EXPECT_EQ(chosen(c, 2, 8), "tiles");
  EXPECT_EQ(chosen(c, 2, 64), "tiles");
  EXPECT_EQ(chosen(c, 2, 1024), "split");
  EXPECT_EQ(chosen(c, 1, 1024), "vector");  // of equal cost, the first
  EXPECT_EQ(by_cost(c, sizes(2, 64), 100), (std::vector<std::size_t>{1, 2}));
}

TEST(Choice, MeasurementsComeFirstWhereTheyApply) {
  Choice c = example();
  c.tuned = {{{1, 2, 64, 8}, "split"}, {{1, 2, 8, 8}, "split"}, {{1, 3, 8, 8}, "gone"}};
  EXPECT_EQ(chosen(c, 2, 64), "split");
  EXPECT_EQ(chosen(c, 2, 8), "tiles");  // a database does not make it apply
  EXPECT_EQ(chosen(c, 3, 8), "tiles");  // nor bring back a candidate
}

TEST(Choice, LibrariesAreChosenByMeasurementAlone) {
  Choice c = example();
  EXPECT_EQ(chosen(c, 2, 64, {"library 1 #0"}), "tiles");
  c.tuned = {{{1, 2, 64, 8}, "library 1 #0"}, {{1, 2, 64, 8}, "split"}};
  EXPECT_EQ(chosen(c, 2, 64, {"library 1 #0"}), "library 1 #0");
  EXPECT_EQ(chosen(c, 2, 64, {"library 2 #0"}), "split");  // another version
}

TEST(Choice, WithoutACandidateThereIsAnError) {
  Choice c = example();
  c.candidates.erase(c.candidates.begin() + 1);
  EXPECT_THROW(chosen(c, 2, 8), Error);
}

TEST(Choice, TheSameRuleSaysWhatToCompile) {
  Choice c = example();
  c.candidates.push_back({"tuned only", {}, 1, {}});
  EXPECT_EQ(taken_by_rule(c, 100), (std::vector<bool>{true, true, true, false}));
  GpuTiling small, large, thin;
  small.rows = small.cols = 32, small.alone_start = small.busy_start = 1;
  large.rows = large.cols = 128, large.busy_start = 1, large.busy = 2;
  thin.rows = 1, thin.few_rows = true;
  c.candidates = {{"small", {}, {}, {small}}, {"large", {}, {}, {large}}, {"thin", {}, {}, {thin}}};
  c.batches = c.k = 1;
  EXPECT_EQ(taken_by_rule(c, 1), (std::vector<bool>{true, true, true}));
  c.m = 64;  // never one row
  c.n = 64;
  EXPECT_EQ(taken_by_rule(c, 1), (std::vector<bool>{true, false, false}));
}

TEST(Choice, NumbersThatAreNoneCostTheMost) {
  Choice c = example();
  GpuTiling broken, good;
  broken.alone = broken.busy = std::numeric_limits<float>::quiet_NaN();
  c.candidates = {{"broken", {}, {}, {broken}}, {"good", {}, {}, {good}}};
  EXPECT_EQ(by_cost(c, sizes(64, 64), 100), (std::vector<std::size_t>{1, 0}));
}

TEST(Visit, FindsWhatStepsConsistOf) {
  const auto p = example_program();
  const auto count = [](const ProgramStep& s) {
    int launches = 0;
    for_launches(s, [&](const LaunchStep&) { ++launches; });
    return launches;
  };
  std::size_t steps = 0, control = 0;
  for_steps(p->main, [&](const ProgramStep& s) {
    ++steps;
    control += is_control(s) ? 1 : 0;
    const auto* choice = std::get_if<ChoiceStep>(&s.op);
    const int expected = choice ? (choice->partial >= 0 ? 4 : 3) : std::holds_alternative<LaunchStep>(s.op) ? 1 : 0;
    EXPECT_EQ(count(s), expected);
  });
  EXPECT_EQ(control, 2U);
  EXPECT_EQ(steps, p->main.steps.size() + 1);  // the branch of an If has one
}

TEST(Visit, FindsConditionsAndSizes) {
  const auto p = example_program();
  for (const ProgramStep& s : p->main.steps) {
    bool when = false, all = true;
    for_expressions(s, [&](const Expr& e) {
      all = all && e;
      when = when || (s.when && same(e, s.when));
    });
    EXPECT_TRUE(all);
    EXPECT_EQ(when, static_cast<bool>(s.when));
    if (const auto* g = std::get_if<GemmStep>(&s.op)) {
      int dims = 0;  // of the post operand, which lies two levels deep
      for_expressions(s, [&](const Expr& e) { dims += same(e, g->post[0].dims[1]) ? 1 : 0; });
      EXPECT_GE(dims, 1);
    }
  }
}

}  // namespace
}  // namespace sardonyx
