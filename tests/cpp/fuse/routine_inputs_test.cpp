// Loops that a routine's kernels compute instead of reading their result.
#include <gmock/gmock.h>

#include "fuse/schedule.h"
#include "pass_test.h"

namespace sardonyx {
namespace {

using testing::ElementsAre;

// A device whose scatter computes its updates, and whose scan computes its input.
FuseOptions computing() {
  FuseOptions o = any_device();
  o.computes_input = [](const Node& routine, std::size_t input, const Node& loop, std::string& why) {
    const auto* r = routine.as<RoutineOp>();
    if (loop.as<LoopOp>()->body->has_reduce) why = "it reduces";
    return why.empty() && ((r->name == "scatter" && input == 2) || (r->name == "scan" && input == 0));
  };
  return o;
}

constexpr const char* kMessages = R"(%0 = input float32[8, 64]
%1 = input int64[n]
%2 = input int64[n]
%3 = input float32[n]
%4 = loop float32[e < n, j < 64]: %0[%2[e], j] * %3[e] @"messages"
%5 = view float32[n * 64]: %4
%6 = routine "scatter" float32[8, 64]: %0, %1, %5 {params = [1, 64]} @"sum"
)";

TEST(RoutineInputs, ALoopThatOnlyFeedsARoutineIsComputedByIt) {
  const std::string text = std::string(kMessages) + "return %6";
  EXPECT_THAT(kernels_of(text, computing()), ElementsAre("node messages + sum"));
  EXPECT_THAT(kernels_of(text), ElementsAre("loop messages", "node sum"));
  FuseOptions none = computing();
  none.disabled = true;
  EXPECT_THAT(kernels_of(text, none), ElementsAre("loop messages", "node sum"));

  const auto g = parse_graph(text);
  const Schedule s = fuse(*g, computing());
  const auto& step = std::get<NodeStep>(s.steps[0].op);
  ASSERT_EQ(step.computed.size(), 1U);
  EXPECT_EQ(step.computed[0].input, 2U);
  // The messages are in no memory, so nothing reads or writes them.
  EXPECT_EQ(s.steps[0].reads.size(), 4U);
  EXPECT_THAT(s.steps[0].writes, ElementsAre(g->outputs[0]));
}

TEST(RoutineInputs, ALoopThatOthersReadIsAKernel) {
  EXPECT_THAT(kernels_of(std::string(kMessages) + "return %6, %4", computing()),
              ElementsAre("loop messages", "node sum"));
  EXPECT_THAT(
      kernels_of(std::string(kMessages) + R"(%7 = routine "scatter" float32[8, 64]: %0, %2, %5 {params = [4, 64]} @"max"
return %6, %7)",
                 computing()),
      ElementsAre("loop messages", "node sum", "node max"));
}

TEST(RoutineInputs, OtherInputsAndLoopsThatTheDeviceRefusesAreKernels) {
  EXPECT_THAT(kernels_of(R"(%0 = input float32[n, 64]
%1 = input int64[m]
%2 = input float32[m, 64]
%3 = loop float32[i < n, j < 64]: exp(%0[i, j]) @"data"
%4 = loop int64[k < m]: %1[k] + 1 @"rows"
%5 = loop float32[k < m, j < 64]: sum{r < 8}(%2[k, r] * %2[r, j]) @"updates"
%6 = routine "scatter" float32[n, 64]: %3, %4, %5 {params = [1, 64]} @"sum"
return %6)",
                         computing()),
              testing::UnorderedElementsAre("loop data", "loop rows", "loop updates", "node sum"));
}

// What fills a tensor is computed wherever it is read, and no kernel if all that read it do so.
TEST(RoutineInputs, FillsHaveAnyNumberOfReaders) {
  const std::string text = R"(%0 = input float32[n, 64]
%1 = input int64[n]
%2 = loop float32[i < n, j < 64]: 1.0 @"ones"
%3 = routine "scatter" float32[n, 64]: %0, %1, %2 {params = [1, 64]} @"sum"
%4 = routine "scatter" float32[n, 64]: %3, %1, %2 {params = [4, 64]} @"max"
)";
  EXPECT_THAT(kernels_of(text + "return %4", computing()), ElementsAre("node ones + sum", "node ones + max"));
  EXPECT_THAT(kernels_of(text + "return %4, %2", computing()),
              testing::UnorderedElementsAre("node ones + sum", "node ones + max", "loop ones"));
}

// Computed once, when the program is loaded; the routine runs each time.
TEST(RoutineInputs, ConstantsAreKernelsOfTheirOwn) {
  EXPECT_THAT(kernels_of(R"(%0 = input float32[8, 64]
%1 = constant int64[2] {...}
%2 = constant float32[2, 64] {...}
%3 = loop float32[k < 2, j < 64]: exp(%2[k, j]) @"updates"
%4 = routine "scatter" float32[8, 64]: %0, %1, %3 {params = [1, 64]} @"sum"
return %4)",
                         computing()),
              ElementsAre("init loop updates", "node sum"));
}

TEST(RoutineInputs, NestedGraphsComputeTheirOwnOnly) {
  const auto g = parse_graph(R"(%0 = input float32[1, n, 1]
%1 = input int64[1]
bind data c: %1
%2 = loop float32[a < 1, i < n, b < 1]: log(%0[0, i, 0]) @"outside"
%6 = if c != 0 reads %0, %2 then {
  %3 = loop float32[a < 1, i < n, b < 1]: exp(%0[0, i, 0]) @"exp"
  %4 = routine "scan" float32[1, n, 1]: %3 {params = [0, 0, 0]} @"scan"
  return %4
} else {
  %5 = routine "scan" float32[1, n, 1]: %2 {params = [0, 0, 0]} @"scan"
  return %5
} gives float32[1, n, 1]
return %6)");
  const Schedule s = fuse(*g, computing());
  const auto& step = std::get<NodeStep>(s.steps.back().op);
  ASSERT_EQ(step.bodies.size(), 2U);
  ASSERT_EQ(step.bodies[0]->steps.size(), 1U);
  EXPECT_EQ(step.bodies[0]->steps[0].origin, "exp + scan");
  ASSERT_EQ(step.bodies[1]->steps.size(), 1U);
  EXPECT_EQ(step.bodies[1]->steps[0].origin, "scan");
}

constexpr const char* kTransmittance = R"(%0 = input float16[n, 400]
%1 = loop float32[i < n, j < 400]: log(1.0 - float32(%0[i, j])) @"log"
%2 = view float32[n, 400, 1]: %1
%3 = routine "scan" float32[n, 400, 1]: %2 {params = [0, 0, 0]} @"sum"
)";

// Loops that read the input too compute it from a tensor that is no larger.
TEST(RecomputeInputs, LoopsComputeACheapInputAgain) {
  const std::string before =
      std::string(kTransmittance) + R"(%4 = loop float32[i < n, j < 400]: exp(%3[i, j, 0] - %1[i, j]) @"exp"
return %4)";
  EXPECT_THAT(kernels_of(before, computing()), ElementsAre("node log + sum", "loop exp"));
  expect_pass("recompute_inputs", before,
              std::string(kTransmittance) +
                  R"(%4 = loop float32[i < n, j < 400]: exp(%3[i, j, 0] - log(1.0 - float32(%0[i, j]))) @"exp"
return %4)",
              computing());
}

// Each of several routines has a loop of its own.
TEST(RecomputeInputs, RoutinesThatShareACheapInputComputeItEach) {
  EXPECT_THAT(kernels_of(R"(%0 = input float32[n, 8]
%1 = input int64[m]
%2 = input float16[m, 8]
%3 = loop float32[k < m, j < 8]: float32(%2[k, j]) @"cast"
%4 = routine "scatter" float32[n, 8]: %0, %1, %3 {params = [1, 8]} @"sum"
%5 = routine "scatter" float32[n, 8]: %0, %1, %3 {params = [4, 8]} @"max"
return %4, %5)",
                         computing()),
              ElementsAre("node cast + sum", "node cast + max"));
}

TEST(RecomputeInputs, OutputsAndCostlyInputsAreStored) {
  expect_unchanged(
      "recompute_inputs",
      std::string(kTransmittance) + R"(%4 = loop float32[i < n, j < 400]: exp(%3[i, j, 0] - %1[i, j]) @"exp"
return %4, %1)",
      computing());
  expect_unchanged("recompute_inputs", R"(%0 = input float32[n, 400]
%1 = input float32[n, 400]
%2 = loop float32[i < n, j < 400]: %0[i, j] * %1[i, j]
%3 = routine "scan" float32[1, n, 400]: %2 {params = [0, 0, 0]}
%4 = loop float32[i < n, j < 400]: %3[0, i, j] - %2[i, j]
return %4)",
                   computing());
}

TEST(RoutineInputs, RemarksSayWhyALoopIsAKernel) {
  std::vector<std::string> reasons;
  FuseOptions o = computing();
  o.remarks = [&](const Remark& r) { reasons.push_back(r.node + ": " + r.reason); };
  kernels_of(std::string(kMessages) + "return %6, %4", o);
  EXPECT_THAT(reasons, testing::Contains("messages: not computed by 'sum', which reads it: others read it too"));
}

}  // namespace
}  // namespace sardonyx
