// Decisions of the tuner with given times: which candidates are timed, stored, and timed again.
#include "api/tuner.h"

#include <gtest/gtest.h>
#include <unistd.h>

#include <array>
#include <filesystem>
#include <limits>

#include "runtime/tile_tuner.h"
#include "support/error.h"

namespace sardonyx {
namespace {

namespace fs = std::filesystem;

struct File {
  fs::path path = fs::temp_directory_path() / ("sardonyx-tuner-test-" + std::to_string(::getpid()));
  File() { fs::remove(path); }
  ~File() { fs::remove(path); }
};

GpuInfo card(int units) { return {"sim:gfx942", "a card", "gfx942", 1 << 30, units}; }

// By the model of cost, large products like large tiles best and small ones small tiles.
Choice step() {
  Choice c;
  c.problem = "product float16";
  c.batches = symbol(0, "b"), c.m = symbol(1, "m"), c.n = symbol(2, "n"), c.k = symbol(3, "k");
  GpuTiling small, large, thin;
  small.rows = small.cols = 32;
  large.rows = large.cols = 256;
  thin.rows = 1;
  thin.few_rows = true;
  c.candidates = {{"small", {}, {}, {small}}, {"large", {}, {}, {large}}, {"thin", {}, {}, {thin}}};
  return c;
}

SymbolValues values(const ProblemSizes& s) {
  SymbolValues v;
  v.set(0, s.batches), v.set(1, s.m), v.set(2, s.n), v.set(3, s.k);
  return v;
}

TEST(Tuner, OrderIsByCostAndLeavesOutWhatDoesNotFit) {
  EXPECT_EQ(by_cost(step(), values({1, 4096, 4096, 64}), 100), (std::vector<std::size_t>{1, 0}));
  EXPECT_EQ(by_cost(step(), values({1, 1, 4096, 64}), 100).front(), 2u);  // gemv
  EXPECT_EQ(by_cost(step(), values({1, 1, 4096, 64}), 100).size(), 3u);
}

TEST(Tuner, TakesTheFastestOfThoseItTimesAndKeepsTheTimes) {
  File f;
  const Choice s = step();
  const std::vector<std::string> names = names_of(s);
  std::vector<std::size_t> timed;
  const auto time = [&](std::size_t k) {
    timed.push_back(k);
    return std::array{3e-6, 2e-6, 1e-6}[k];
  };
  auto database = std::make_shared<TuningDatabase>(f.path, true);
  DatabaseTuner tuner(database, card(304), 2);
  const auto wanted = [&](DatabaseTuner& t, std::vector<std::size_t> order) {
    return t.wanted(s.problem, {1, 64, 64, 64}, names, order);
  };
  EXPECT_EQ(wanted(tuner, {0, 1, 2}), (std::vector<std::size_t>{0, 1}));
  EXPECT_EQ(tuner.choose(s.problem, {1, 64, 64, 64}, names, {names.size(), {}}, {0, 1, 2}, time), 1u);
  EXPECT_EQ(timed, (std::vector<std::size_t>{0, 1}));                // two at most
  EXPECT_EQ(wanted(tuner, {0, 1, 2}), std::vector<std::size_t>{1});  // nothing is timed, and this is taken
  EXPECT_EQ(tuner.choose(s.problem, {1, 64, 64, 64}, names, {names.size(), {}}, {0, 1, 2}, time), 1u);
  EXPECT_EQ(timed.size(), 2u);  // it is known
  EXPECT_EQ(tuner.choose(s.problem, {1, 65, 64, 64}, names, {names.size(), {}}, {1, 0}, time), 1u);
  EXPECT_EQ(timed.size(), 4u);
  const std::vector<TuningDecision> decisions = tuner.decisions();
  ASSERT_EQ(decisions.size(), 2u);
  EXPECT_EQ(decisions[0].by_rule, "small");
  EXPECT_EQ(decisions[0].best, "large");
  EXPECT_EQ(decisions[0].rule_seconds, 3e-6);
  EXPECT_EQ(decisions[0].seconds, 2e-6);
  EXPECT_EQ(decisions[1].best, decisions[1].by_rule);

  // Another process with the same file times nothing; a GPU with other units does.
  timed.clear();
  const auto again = std::make_shared<TuningDatabase>(f.path, true);
  EXPECT_EQ(again->rows().size(), 4u);
  DatabaseTuner same(again, card(304), 0), other(again, card(100), 0);
  EXPECT_EQ(wanted(same, {0, 1, 2}), std::vector<std::size_t>{1});
  EXPECT_EQ(wanted(same, {0, 2}), std::vector<std::size_t>{0});  // the one of known time
  EXPECT_EQ(wanted(other, {2, 0, 1}), (std::vector<std::size_t>{2, 0, 1}));
  EXPECT_TRUE(wanted(other, {}).empty());
  EXPECT_EQ(same.choose(s.problem, {1, 64, 64, 64}, names, {names.size(), {}}, {0, 1, 2}, time), 1u);
  EXPECT_TRUE(timed.empty() && same.decisions().empty());
  EXPECT_EQ(other.choose(s.problem, {1, 64, 64, 64}, names, {names.size(), {}}, {0, 1, 2}, time), 2u);
  EXPECT_EQ(timed.size(), 3u);  // all

  // What can't compute these sizes is not taken, whatever a database says.
  DatabaseTuner third(again, card(100), 0);
  EXPECT_EQ(third.choose(s.problem, {1, 64, 64, 64}, names, {names.size(), {}}, {0, 1}, time), 1u);
}

// Candidates of a library's follow the tilings: they are timed whenever they are new, and chosen while they are here.
TEST(Tuner, LibrariesAreCandidatesByNameAndVersion) {
  File f;
  const Choice s = step();
  const std::vector<std::string> names = names_of(s);
  std::vector<std::size_t> timed;
  const auto time = [&](std::size_t k) {
    timed.push_back(k);
    return std::array{3e-6, 2e-6, 9e-6, 1e-6, 5e-6}[k];
  };
  const auto named = [&](std::vector<std::string> more) {
    std::vector<std::string> all = names;
    all.insert(all.end(), more.begin(), more.end());
    return all;
  };
  const auto database = std::make_shared<TuningDatabase>(f.path, true);
  DatabaseTuner tuner(database, card(304), 2);
  EXPECT_EQ(tuner.library_candidates(), 1);
  const ProblemSizes sizes{1, 64, 64, 64};
  EXPECT_EQ(tuner.choose(s.problem, sizes, names, {names.size(), {}}, {0, 1, 2}, time), 1u);
  timed.clear();
  EXPECT_EQ(tuner.choose(s.problem, sizes, named({"cuBLASLt 1.0.0 #0"}), {names.size(), {}}, {0, 1, 2}, time), 3u);
  EXPECT_EQ(timed, std::vector<std::size_t>{3});  // what was known is not timed again
  EXPECT_EQ(tuner.decisions().back().best, "cuBLASLt 1.0.0 #0");
  EXPECT_EQ(tuner.decisions().back().rule_seconds, 3e-6);
  // Without it, or with another version, it is ours; that version is timed.
  EXPECT_EQ(tuner.choose(s.problem, sizes, names, {names.size(), {}}, {0, 1, 2}, time), 1u);
  DatabaseTuner later(std::make_shared<TuningDatabase>(f.path, true), card(304), 0);
  timed.clear();
  EXPECT_EQ(later.choose(s.problem, sizes, named({"cuBLASLt 1.0.0 #0"}), {names.size(), {}}, {0, 1, 2}, time), 3u);
  EXPECT_TRUE(timed.empty());
  const auto slow = [&](std::size_t k) { return timed.push_back(k), 4e-6; };
  EXPECT_EQ(later.choose(s.problem, sizes, named({"cuBLASLt 2.0.0 #0"}), {names.size(), {}}, {0, 1, 2}, slow), 1u);
  EXPECT_EQ(timed, std::vector<std::size_t>{3});
  // What failed has no row.
  const auto fails = [](std::size_t k) { return k < 3 ? 1e-6 : std::numeric_limits<double>::infinity(); };
  EXPECT_LT(later.choose(s.problem, {1, 9, 9, 9}, named({"cuBLASLt 2.0.0 #0"}), {names.size(), {}}, {0, 1}, fails), 2u);
  for (const TuningRow& r : TuningDatabase(f.path, false).rows())
    EXPECT_TRUE(r.m != 9 || r.candidate.find(' ') == std::string::npos);
}

TEST(Tuner, ChoicesAreOfTheWholestChip) {
  File f;
  TuningDatabase d(f.path, true);
  TuningRow r{"gfx942", 100, "p", 1, 2, 3, 4, "a", 1e-6};
  d.add({r});
  r.candidate = "b", r.units = 304, r.seconds = 5e-6;
  d.add({r});
  r.candidate = "c", r.seconds = 4e-6;
  d.add({r});
  ASSERT_EQ(d.find("gfx942", "p").size(), 2u);  // the fastest first, of the most units
  EXPECT_EQ(d.find("gfx942", "p")[1].candidate, "b");
  EXPECT_EQ(d.find("gfx942", "p")[0].candidate, "c");
  EXPECT_TRUE(d.find("gfx90a", "p").empty() && d.find("gfx942", "q").empty());
  EXPECT_THROW(TuningDatabase(f.path, false).add({r}), Error);
}

}  // namespace
}  // namespace sardonyx
