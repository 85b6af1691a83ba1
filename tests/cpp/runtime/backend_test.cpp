// What the executor asks of a backend, recorded by one (recording_backend.h).
#include "runtime/backend.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "recording_backend.h"
#include "runtime/executor.h"

namespace sardonyx {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::StartsWith;

/// Builds programs over int64 tensors of one dim.
struct ProgramBuilder {
  std::shared_ptr<Program> program = std::make_shared<Program>();

  int buffer(BufferInfo::Kind kind, const Expr& elements, const char* name = "") {
    BufferInfo b;
    b.kind = kind;
    b.dtype = DType::kInt64;
    b.shape = {elements};
    b.name = name;
    if (kind == BufferInfo::Kind::kConstant) {
      std::byte* elements_at = nullptr;
      b.constant = static_cast<int>(program->constants.size());
      program->constants.push_back(make_data(static_cast<std::size_t>(elements->i) * 8, &elements_at));
    }
    program->buffers.push_back(b);
    return static_cast<int>(program->buffers.size()) - 1;
  }
  int input(const Expr& elements) {
    const int b = buffer(BufferInfo::Kind::kInput, elements, "x");
    program->main.inputs.push_back({b, {elements}});
    program->input_names.push_back("x");
    return b;
  }
  void output(int b) {
    program->main.outputs.push_back({b, program->buffers[static_cast<std::size_t>(b)].shape});
    program->output_names.push_back("y");
  }
  int temporary(const Expr& elements) { return buffer(BufferInfo::Kind::kTemporary, elements); }
  static void launch(Block& block, const char* origin, int from, int to, const Expr& points) {
    LaunchStep l;
    l.buffers = {from, to};
    l.work_items = points;
    l.work = 1;
    block.steps.push_back({std::move(l), origin, {from}, {to}, {}});
  }
};

Tensor numbers(std::vector<std::int64_t> values) {
  Tensor t = Tensor::allocate(DType::kInt64, {static_cast<std::int64_t>(values.size())});
  std::copy(values.begin(), values.end(), static_cast<std::int64_t*>(t.data));
  return t;
}

// x [n] -> first -> t [n] -> second -> y [n]
std::shared_ptr<Program> chain() {
  ProgramBuilder b;
  b.program->symbol_names = {"n"};
  const Expr n = symbol(0, "n");
  const int x = b.input(n), t = b.temporary(n), y = b.temporary(n);
  ProgramBuilder::launch(b.program->main, "first", x, t, n);
  ProgramBuilder::launch(b.program->main, "second", t, y, n);
  b.output(y);
  return b.program;
}

TEST(Backend, StepsArePreparedOnceAndThenReplayed) {
  Log log;
  Executor e(chain(), 1, std::make_unique<RecordingBackend>(log));
  log.clear();
  e.run({numbers({1, 2, 3, 4})});
  EXPECT_THAT(
      log, ElementsAre("begin", "allocate lasting 256", "upload 32", "make kernels for 2", "prepare first of 4",
                       "enqueue first", "prepare second of 4", "enqueue second", "download 32", "synchronize", "end"));
  log.clear();
  e.run({numbers({5, 6, 7, 8})});
  EXPECT_THAT(log, ElementsAre("begin", "upload 32", "capture 2", "replay", "download 32", "synchronize", "end"));
  log.clear();
  e.run({numbers({5, 6, 7, 8})});
  EXPECT_THAT(log, ElementsAre("begin", "upload 32", "replay", "download 32", "synchronize", "end"));
  log.clear();
  e.run({numbers({1})});  // other sizes, which fit the arena
  EXPECT_THAT(log, ElementsAre("begin", "upload 8", "make kernels for 2", "prepare first of 1", "enqueue first",
                               "prepare second of 1", "enqueue second", "download 8", "synchronize", "end"));
}

TEST(Backend, WithoutCapturesStepsAreEnqueuedOneByOne) {
  Log log;
  Executor e(chain(), 1, std::make_unique<RecordingBackend>(log, false));
  e.run({numbers({1, 2})});
  log.clear();
  e.run({numbers({3, 4})});
  EXPECT_THAT(
      log, ElementsAre("begin", "upload 16", "enqueue first", "enqueue second", "download 16", "synchronize", "end"));
}

TEST(Backend, ProfilesWaitForEachStep) {
  Log log;
  Executor e(chain(), 1, std::make_unique<RecordingBackend>(log));
  e.run({numbers({1})});
  log.clear();
  std::vector<StepTime> profile;
  RunOptions options;
  options.profile = &profile;
  e.run({numbers({1})}, options);
  EXPECT_THAT(log, ElementsAre("begin", "upload 8", "enqueue first", "synchronize", "enqueue second", "synchronize",
                               "download 8", "synchronize", "end"));
  ASSERT_EQ(profile.size(), 2U);
  EXPECT_EQ(profile[1].what, "second");
}

TEST(Backend, ConstantsAreUploadedAndComputedOnce) {
  ProgramBuilder b;
  const int w = b.buffer(BufferInfo::Kind::kConstant, 4), made = b.temporary(4), x = b.input(4), y = b.temporary(4);
  ProgramBuilder::launch(b.program->init, "init", w, made, 4);
  ProgramBuilder::launch(b.program->main, "main", made, y, 4);
  b.program->main.steps.back().reads.push_back(x);
  b.output(y);
  Log log;
  Executor e(b.program, 1, std::make_unique<RecordingBackend>(log));
  // The result stays. What only init reads would be more than stays in the end, and is left in the host's memory.
  EXPECT_THAT(log, ElementsAre("load 0", "allocate lasting 256", "make kernels for 1", "synchronize",
                               StartsWith("allocate on host"), "synchronize", "prepare init of 4", "enqueue init",
                               "synchronize", "synchronize"));
  EXPECT_EQ(e.constant_bytes(), 32U);
  log.clear();
  e.run({numbers({1, 2, 3, 4})});
  EXPECT_THAT(log, testing::Not(testing::Contains(HasSubstr("init"))));
}

TEST(Backend, ControlFlowRunsTheBranchThatIsTaken) {
  ProgramBuilder b;
  b.program->symbol_names = {"value"};
  const Expr value = data_symbol(0, "value");
  const int x = b.input(1), t = b.temporary(2), f = b.temporary(2), y = b.temporary(2);
  b.program->main.steps.push_back({BindStep{x, {0}}, "bind", {x}, {}, {}});
  IfStep choice;
  choice.condition = compare(Op::kLt, value, 10);
  choice.then_block = std::make_unique<Block>();
  choice.else_block = std::make_unique<Block>();
  ProgramBuilder::launch(*choice.then_block, "then", x, t, 2);
  ProgramBuilder::launch(*choice.else_block, "else", x, f, 2);
  choice.then_block->outputs = {{t, {2}}};
  choice.else_block->outputs = {{f, {2}}};
  choice.outputs = {{y, {2}}};
  b.program->main.steps.push_back({std::move(choice), "if", {x}, {y}, {}});
  b.output(y);
  Log log;
  Executor e(b.program, 1, std::make_unique<RecordingBackend>(log));
  e.run({numbers({3})});
  EXPECT_THAT(log, testing::Contains("enqueue then"));
  EXPECT_THAT(log, testing::Not(testing::Contains("enqueue else")));
  log.clear();
  e.run({numbers({30})});
  EXPECT_THAT(log, testing::Contains("enqueue else"));
  EXPECT_THAT(log, testing::Not(testing::Contains("enqueue then")));
  EXPECT_THAT(log, testing::Not(testing::Contains("replay"))) << "a run with branches is not captured";
}

// Steps whose condition does not hold are neither prepared nor enqueued, and captures leave them out.
TEST(Backend, StepsRunWhereTheirConditionHolds) {
  ProgramBuilder b;
  b.program->symbol_names = {"n"};
  const Expr n = symbol(0, "n");
  const int x = b.input(n), y = b.temporary(n);
  ProgramBuilder::launch(b.program->main, "few", x, y, n);
  b.program->main.steps.back().when = compare(Op::kLe, n, 4);
  ProgramBuilder::launch(b.program->main, "many", x, y, n);
  b.program->main.steps.back().when = compare(Op::kGt, n, 4);
  b.output(y);
  Log log;
  Executor e(b.program, 1, std::make_unique<RecordingBackend>(log));
  for (const bool few : {true, false}) {
    const std::string runs = few ? "few" : "many", skipped = few ? "many" : "few";
    const auto input = numbers(std::vector<std::int64_t>(few ? 4 : 5));
    log.clear();
    e.run({input});
    EXPECT_THAT(log, testing::Contains("enqueue " + runs));
    EXPECT_THAT(log, testing::Not(testing::Contains(HasSubstr(skipped))));
    log.clear();
    e.run({input});
    EXPECT_THAT(log, testing::Contains("replay"));
  }
}

TEST(Backend, RunsThatAreNotWaitedForNeedAStream) {
  Log log;
  Executor e(chain(), 1, std::make_unique<RecordingBackend>(log));
  RunOptions options;
  options.synchronize = false;
  EXPECT_THROW(e.run({numbers({1})}, options), Error);
  int stream = 0;
  options.stream = &stream;
  log.clear();
  e.run({numbers({1})}, options);
  EXPECT_EQ(log.back(), "end, unfinished");
}

}  // namespace
}  // namespace sardonyx
