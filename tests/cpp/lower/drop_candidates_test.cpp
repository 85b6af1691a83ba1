#include "lower/drop_candidates.h"

#include <gtest/gtest.h>

#include <initializer_list>
#include <string>
#include <utility>
#include <vector>

#include "program/visit.h"

namespace sardonyx {
namespace {

const Chip& chip() { return chip_of("gfx942"); }

/// A tiling of any number of rows that takes `alone` nanoseconds if there are few tiles, else `busy` for each round of
/// tiles.
GpuTiling tiling(int size, float alone, float busy) {
  GpuTiling t;
  t.rows = t.cols = size;
  t.alone_start = alone, t.busy_start = busy;
  t.alone = t.busy = 0;
  return t;
}

/// A program of GEMMs whose candidates launch the kernels of the same numbers.
class DropCandidates : public testing::Test {
 protected:
  DropCandidates() { program_.symbol_names = {"rows", "others"}; }

  void add(const Expr& m, std::initializer_list<std::pair<int, GpuTiling>> candidates) {
    ChoiceStep c;
    c.choice = {"product float16", 1, m, 64, 64, {}, {}};
    c.type = DType::kFloat16;
    for (const auto& [kernel, t] : candidates) {
      c.choice.candidates.push_back({"k" + std::to_string(kernel), {}, {}, {t}});
      c.launches.push_back({LaunchStep{kernel, {}, {}, {}, {}}});
      while (program_.kernels.size() <= static_cast<std::size_t>(kernel))
        program_.kernels.push_back({"k" + std::to_string(program_.kernels.size()), {}, 0});
    }
    program_.main.steps.emplace_back().op = std::move(c);
  }

  /// Names of the kernels that each step may launch.
  std::vector<std::vector<std::string>> left(double loss) {
    drop_candidates(program_, chip(), loss);
    std::vector<std::vector<std::string>> all;
    for (const ProgramStep& s : program_.main.steps) {
      all.emplace_back();
      for_launches(s, [&](const LaunchStep& l) {
        all.back().push_back(program_.kernels.at(static_cast<std::size_t>(l.kernel)).symbol);
      });
      EXPECT_EQ(std::get<ChoiceStep>(s.op).choice.candidates.size(), all.back().size());
    }
    return all;
  }

  using Names = std::vector<std::vector<std::string>>;
  Program program_;
  Expr rows_ = symbol(0, "rows"), others_ = symbol(1, "others");
};

TEST_F(DropCandidates, OfCloseTilingsOneIsLeft) {
  // The first is the best for small sizes and the last for large ones; the second takes 2 % longer than either.
  const auto three = [&] {
    program_.main.steps.clear();
    program_.kernels.clear();
    add(rows_, {{0, tiling(16, 1000, 1000)}, {1, tiling(64, 1020, 1020)}, {2, tiling(64, 3000, 1000)}});
  };
  three();
  EXPECT_EQ(left(0), (Names{{"k0", "k1", "k2"}}));
  three();
  EXPECT_EQ(left(0.01), (Names{{"k0", "k1", "k2"}}));
  three();
  EXPECT_EQ(left(0.03), (Names{{"k1"}}));
  EXPECT_EQ(program_.kernels.size(), 1);  // those that nothing launches are gone
}

TEST_F(DropCandidates, LossesAddUp) {
  // Each of two choices may lose 2 % of its half; not both of them more than 1.5 % of the whole.
  for (const int first : {0, 2}) add(rows_, {{first, tiling(64, 1000, 1000)}, {first + 1, tiling(16, 1020, 1020)}});
  const Names names = left(0.015);
  EXPECT_EQ(names[0].size() + names[1].size(), 2);  // the slower ones: they lose nothing
  program_.main.steps.clear(), program_.kernels.clear();
  // Tilings that are each the best for some size.
  for (const int first : {0, 2}) add(rows_, {{first, tiling(16, 1000, 1000)}, {first + 1, tiling(64, 1020, 1020)}});
  const Names two = left(0.015);
  EXPECT_EQ(two[0].size() + two[1].size(), 3);
}

TEST_F(DropCandidates, SmallStepsOfALargeModelKeepFew) {
  add(rows_, {{0, tiling(16, 1000, 1000)}, {1, tiling(64, 1400, 1400)}});
  EXPECT_EQ(left(0.03), (Names{{"k0", "k1"}}));
  for (int k = 0; k < 40; ++k) add(rows_, {{2, tiling(64, 1400, 1400)}});
  EXPECT_EQ(left(0.03).front(), (std::vector<std::string>{"k1"}));
}

TEST_F(DropCandidates, NoStepTakesMoreThanTwice) {
  for (int k = 0; k < 100; ++k) add(rows_, {{2, tiling(64, 1400, 1400)}});
  add(rows_, {{0, tiling(16, 1000, 1000)}, {1, tiling(64, 2100, 2100)}});
  EXPECT_EQ(left(0.03).back(), (std::vector<std::string>{"k0", "k1"}));
}

TEST_F(DropCandidates, KernelsThatOthersNeedStay) {
  add(rows_, {{0, tiling(64, 1000, 1000)}, {1, tiling(64, 1000, 1000)}});
  add(64, {{0, tiling(64, 1000, 1000)}});  // has no other
  EXPECT_EQ(left(0.5), (Names{{"k0"}, {"k0"}}));
}

TEST_F(DropCandidates, AnyNumberOfRowsIsSupported) {
  GpuTiling few = tiling(16, 1, 1);
  few.few_rows = true;
  add(rows_, {{0, few}, {1, tiling(64, 1000, 1000)}});
  EXPECT_EQ(left(0.5).front().back(), "k1");
  program_.main.steps.clear(), program_.kernels.clear();
  add(rows_, {{0, tiling(64, 1000, 1000)}});
  EXPECT_EQ(left(0.5), (Names{{"k0"}}));
}

TEST_F(DropCandidates, OneSymbolIsTriedAloneToo) {
  // With equal symbols there are 1, 4, 16 ... rows; the kernel for up to two is the best for two only.
  const auto few = [](int rows) {
    GpuTiling t = tiling(8, 1, 1);
    t.rows = rows, t.few_rows = true;
    return t;
  };
  const auto all = {std::pair{0, few(1)}, {1, few(2)}, {2, few(4)}, {3, tiling(64, 9000, 9000)}};
  add(rows_ * others_, all);
  EXPECT_EQ(left(0.03), (Names{{"k0", "k1", "k2", "k3"}}));
  program_.main.steps.clear(), program_.kernels.clear();
  add(rows_ * rows_, all);
  EXPECT_EQ(left(0.03), (Names{{"k0", "k2", "k3"}}));
}

TEST_F(DropCandidates, MeasuredOnesStay) {
  add(rows_, {{0, tiling(64, 1000, 1000)}, {1, tiling(64, 1001, 1001)}});
  std::get<ChoiceStep>(program_.main.steps[0].op).choice.tuned = {{{1, 8, 64, 64}, "k1"}};
  EXPECT_EQ(left(0.5), (Names{{"k0", "k1"}}));
}

// Sizes that divide by 0: for one row, and for as many as are tried.
TEST_F(DropCandidates, WhatCannotBeEstimatedStays) {
  const auto two = {std::pair{0, tiling(64, 1000, 1000)}, {1, tiling(64, 1001, 1001)}};
  add(idx::floordiv(Expr(std::int64_t{64}), idx::floordiv(rows_, 2)), two);
  EXPECT_EQ(left(0.5), (Names{{"k0"}}));
  program_.main.steps.clear(), program_.kernels.clear();
  add(idx::floordiv(Expr(std::int64_t{64}), idx::floordiv(rows_, std::int64_t{1} << 30)), two);
  EXPECT_EQ(left(0.5), (Names{{"k0", "k1"}}));
}

TEST_F(DropCandidates, ConstantsKeepTheirKernels) {
  add(rows_, {{0, tiling(64, 1000, 1000)}, {1, tiling(64, 1001, 1001)}});
  program_.kernels.push_back({"init", {}, 0});
  program_.init.steps.emplace_back().op = LaunchStep{2, {}, {}, {}, {}};
  EXPECT_EQ(left(0.03), (Names{{"k0"}}));
  EXPECT_EQ(program_.kernels.size(), 2);
  EXPECT_EQ(std::get<LaunchStep>(program_.init.steps[0].op).kernel, 1);
}

}  // namespace
}  // namespace sardonyx
