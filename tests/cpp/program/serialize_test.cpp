// Serialisation of programs, and bytes that are not a program.
#include "program/serialize.h"

#include <gtest/gtest.h>

#include <random>

#include "example.h"
#include "expr/table.h"
#include "program/validate.h"
#include "support/error.h"

namespace sardonyx {
namespace {

std::span<const std::byte> bytes_of(const std::string& s) { return std::as_bytes(std::span(s)); }

std::shared_ptr<Program> round_trip(const Program& p) { return deserialize(bytes_of(serialize(p)), p.constants); }

TEST(Serialize, EveryKindOfStepComesBack) {
  const auto p = example_program();
  const auto q = round_trip(*p);
  EXPECT_EQ(serialize(*q), serialize(*p));
  EXPECT_EQ(q->objects, p->objects);
  EXPECT_EQ(q->input_names, p->input_names);
  EXPECT_EQ(q->main.steps.size(), p->main.steps.size());
  for (std::size_t k = 0; k < p->main.steps.size(); ++k)
    EXPECT_EQ(q->main.steps[k].op.index(), p->main.steps[k].op.index());
  ASSERT_EQ(q->buffers.size(), p->buffers.size());
  SymbolValues symbols;
  symbols.set(0, 5), symbols.set(1, 11), symbols.set(2, 2), symbols.set(3, 3);
  for (std::size_t k = 0; k < p->buffers.size(); ++k) {
    EXPECT_EQ(q->buffers[k].name, p->buffers[k].name);
    EXPECT_EQ(q->buffers[k].storage_order, p->buffers[k].storage_order);
    ASSERT_EQ(q->buffers[k].shape.size(), p->buffers[k].shape.size());
    for (std::size_t d = 0; d < p->buffers[k].shape.size(); ++d) {
      EXPECT_TRUE(same(q->buffers[k].shape[d], p->buffers[k].shape[d]));
      EXPECT_EQ(to_string(q->buffers[k].shape[d]), to_string(p->buffers[k].shape[d]));
      EXPECT_EQ(evaluate(q->buffers[k].shape[d], symbols), evaluate(p->buffers[k].shape[d], symbols));
    }
  }
  const auto& loop = std::get<WhileStep>(q->main.steps.back().op);
  EXPECT_EQ(loop.iteration, 2);
  EXPECT_TRUE(loop.next_condition && !loop.condition);
}

TEST(Serialize, EqualExpressionsAreWrittenOnce) {
  auto p = example_program();
  const std::size_t before = serialize(*p).size();
  for (int k = 0; k < 100; ++k) p->buffers.push_back(p->buffers[5]);
  EXPECT_LT(serialize(*p).size(), before + 100 * 20);
}

// Every byte changed in three ways, and every length cut to: refused, or a program that validate() took.
TEST(Serialize, DamagedBytesAreRefused) {
  const auto p = example_program();
  const std::string whole = serialize(*p);
  int refused = 0, taken = 0;
  const auto attempt = [&](const std::string& bytes) {
    try {
      serialize(*deserialize(bytes_of(bytes), p->constants));
      ++taken;
    } catch (const Error& e) {
      EXPECT_EQ(e.kind(), ErrorKind::kInvalidModel) << e.what();
      ++refused;
    }
  };
  for (std::size_t k = 0; k < whole.size(); ++k) {
    attempt(whole.substr(0, k));
    for (const int change : {1, 0x80, 0xff}) {
      std::string bytes = whole;
      bytes[k] = static_cast<char>(bytes[k] ^ change);
      attempt(bytes);
    }
  }
  attempt(whole + '\0');
  EXPECT_GT(refused, taken);
}

TEST(Serialize, RandomBytesAreRefused) {
  std::mt19937 random(7);
  for (int k = 0; k < 20000; ++k) {
    std::string bytes(random() % 64, '\0');
    for (char& c : bytes) c = static_cast<char>(random() % 4 ? random() % 8 : random());
    EXPECT_THROW(deserialize(bytes_of(bytes), {}), Error);
  }
}

template <typename F>
void expect_invalid(const char* what, F&& change) {
  auto p = example_program();
  change(*p);
  try {
    validate(*p);
    ADD_FAILURE() << "accepted: " << what;
  } catch (const Error& e) {
    EXPECT_EQ(e.kind(), ErrorKind::kInvalidModel);
    EXPECT_NE(std::string(e.what()).find(what), std::string::npos) << e.what();
  }
}

template <typename T>
T& first(Program& p) {
  for (ProgramStep& s : p.main.steps)
    if (auto* op = std::get_if<T>(&s.op)) return *op;
  throw std::logic_error("the example has no such step");
}

TEST(Validate, AcceptsTheExample) { EXPECT_NO_THROW(validate(*example_program())); }

// kernels/gemm_packed.h divides K among a cluster's workgroups, and its rows are not loaded by TMA.
TEST(Validate, AcceptsClustersWithoutTma) {
  auto p = example_program();
  for (ProgramStep& s : p->main.steps)
    if (auto* c = std::get_if<ChoiceStep>(&s.op); c && c->partial >= 0) {
      GpuTiling& t = c->choice.candidates[0].tiling.at(0);
      ASSERT_FALSE(t.tma);
      t.cluster = 4;
    }
  EXPECT_NO_THROW(validate(*p));
}

TEST(Validate, RefusesWhatIsWrong) {
  expect_invalid("buffer does not exist", [](Program& p) { p.main.outputs[0].buffer = 99; });
  expect_invalid("buffer does not exist", [](Program& p) { p.main.steps[0].reads = {-1}; });
  expect_invalid("writes to an input or a constant", [](Program& p) { p.main.steps[0].writes = {1}; });
  expect_invalid("constant does not exist", [](Program& p) { p.buffers[1].constant = 2; });
  expect_invalid("constant has another size", [](Program& p) { p.buffers[1].shape = {4, 3}; });
  expect_invalid("constant has another size", [](Program& p) { p.buffers[1].shape = {symbol(0, "batch")}; });
  expect_invalid("constant has another size", [](Program& p) { p.buffers[1].shape = {INT64_MAX, 8}; });
  expect_invalid("not a permutation", [](Program& p) { p.buffers[3].storage_order = {1, 1}; });
  expect_invalid("does not match the rank", [](Program& p) { p.buffers[3].storage_order = {0}; });
  expect_invalid("size is missing", [](Program& p) { p.buffers[3].shape[0] = Expr(); });
  expect_invalid("size is missing", [](Program& p) { p.buffers[3].shape[0] = constant_float(1, DType::kFloat32); });
  expect_invalid("inputs and their names", [](Program& p) { p.input_names.clear(); });
  expect_invalid("outputs and their names", [](Program& p) { p.output_names.push_back("more"); });
  expect_invalid("another kind of buffer", [](Program& p) { p.main.inputs[0].buffer = 3; });
  expect_invalid("no name, or that of another", [](Program& p) { p.kernels[1].symbol = "k0"; });
  expect_invalid("kernel does not exist", [](Program& p) { first<LaunchStep>(p).kernel = 2; });
  expect_invalid("too many arguments", [](Program& p) { first<LaunchStep>(p).buffers.assign(65, 0); });
  expect_invalid("does not name what it writes", [](Program& p) { first<GemmStep>(p).out = 6; });
  expect_invalid("epilogue of unknown kind",
                 [](Program& p) { first<GemmStep>(p).post[1].kind = static_cast<PostKind>(200); });
  expect_invalid("epilogue's operand", [](Program& p) { first<GemmStep>(p).post[0].operand = -1; });
  expect_invalid("different lengths", [](Program& p) { first<ConvStep>(p).dilations.pop_back(); });
  expect_invalid("not positive", [](Program& p) { first<ConvStep>(p).strides[0] = 0; });
  expect_invalid("wrong rank", [](Program& p) { first<ConvStep>(p).w_shape.pop_back(); });
  expect_invalid("wrong rank", [](Program& p) { first<AttentionStep>(p).k.strides.pop_back(); });
  expect_invalid("buffer does not exist", [](Program& p) { first<AttentionStep>(p).v.buffer = 99; });
  expect_invalid("condition is missing", [](Program& p) { p.main.steps[0].when = constant_float(1, DType::kFloat32); });
  expect_invalid("without a candidate", [](Program& p) { first<ChoiceStep>(p).choice.candidates.clear(); });
  expect_invalid("without a candidate", [](Program& p) { first<ChoiceStep>(p).launches.pop_back(); });
  expect_invalid("size is missing", [](Program& p) { first<ChoiceStep>(p).choice.candidates[1].cost = Expr(); });
  expect_invalid("without a kernel", [](Program& p) { first<ChoiceStep>(p).launches[1].clear(); });
  expect_invalid("fields that only loops have", [](Program& p) { first<ChoiceStep>(p).launches[0][0].repeat = 2; });
  expect_invalid("kernel does not exist", [](Program& p) { first<ChoiceStep>(p).launches[0][0].kernel = 7; });
  expect_invalid("for all sizes", [](Program& p) {
    first<ChoiceStep>(p).choice.candidates[0].applies = compare(Op::kLt, symbol(0, "n"), 4);
  });
  expect_invalid("does not name what it writes", [](Program& p) { first<ChoiceStep>(p).partial = 3; });
  const auto tiles = [](Program& p) -> ChoiceStep& {
    for (ProgramStep& s : p.main.steps)
      if (auto* c = std::get_if<ChoiceStep>(&s.op); c && c->partial >= 0) return *c;
    throw std::logic_error("the example has no such step");
  };
  const auto tiling = [&](Program& p, std::size_t k) -> GpuTiling& { return tiles(p).choice.candidates[k].tiling[0]; };
  expect_invalid("two grids", [&](Program& p) { tiles(p).launches[0][0].work_items = 1; });
  expect_invalid("size is missing", [&](Program& p) { tiles(p).launches[1][1].work_items = Expr(); });
  expect_invalid("impossible size", [&](Program& p) { tiling(p, 0).rows = 0; });
  expect_invalid("number of threads", [&](Program& p) { tiling(p, 0).threads = 4096; });
  for (const int cluster : {0, 9})
    expect_invalid("impossible cluster", [&](Program& p) { tiling(p, 0).cluster = cluster; });
  expect_invalid("impossible cluster", [&](Program& p) { tiling(p, 1).cluster = 2; });  // whose K is divided already
  expect_invalid("tiling of groups", [&](Program& p) { tiling(p, 1).groups = true; });
  expect_invalid("tiling of groups", [&](Program& p) {
    tiling(p, 0).groups = true;
    tiling(p, 0).cluster = 2;
  });
  expect_invalid("several tilings", [&](Program& p) { tiles(p).choice.candidates[0].tiling.resize(2); });
  expect_invalid("memory for its partial sums", [&](Program& p) { tiles(p).partial = -1; });
  expect_invalid("memory for its partial sums", [&](Program& p) {
    ChoiceStep& c = tiles(p);
    c.choice.candidates[1].tiling[0].splits = 1;
    c.choice.candidates[1].tiling[0].tree_acc = 1024;
    c.partial = -1;
  });
  expect_invalid("for all sizes", [&](Program& p) {
    tiling(p, 0).few_rows = true;
    tiles(p).choice.candidates.pop_back();
    tiles(p).launches.pop_back();
  });
  expect_invalid("does not have", [&](Program& p) { tiles(p).copied.clear(); });
  expect_invalid("does not have", [&](Program& p) { tiles(p).copied[0].b.buffer = 3; });
  expect_invalid("impossible types", [&](Program& p) { tiles(p).library[0].a = 2; });
  expect_invalid("small a workspace", [&](Program& p) { p.buffers[8].shape = {1024}; });
  expect_invalid("does not name what it writes", [](Program& p) { first<RoutineStep>(p).outputs[0].buffer = 5; });
  expect_invalid("more sizes", [](Program& p) { first<BindStep>(p).symbols = {1, 2}; });
  expect_invalid("symbol does not exist", [](Program& p) { first<BindStep>(p).symbols = {4}; });
  expect_invalid("condition is missing", [](Program& p) { first<CheckStep>(p).condition = Expr(); });
  expect_invalid("differ in outputs", [](Program& p) { first<IfStep>(p).then_block->outputs.clear(); });
  expect_invalid("different lengths", [](Program& p) { first<WhileStep>(p).body->outputs.pop_back(); });
  expect_invalid("negative number", [](Program& p) { first<WhileStep>(p).stacked = -1; });
  expect_invalid("symbol does not exist", [](Program& p) { first<WhileStep>(p).trips = 7; });
}

TEST(ExprTable, BoundsExpressions) {
  // Each node uses the one before twice: few nodes, but a tree of 2^40.
  Expr e = symbol(0, "n");
  TableReader reader({"n"});
  reader.add({Op::kSym, DType::kInt64, 0, 0, {}});
  EXPECT_THROW(
      {
        for (std::uint32_t k = 0; k < 40; ++k) reader.add({Op::kAdd, DType::kInt64, 0, 0, {k, k}});
      },
      Error);
  EXPECT_LT(reader.size(), 25u);
  TableReader deep({"n"});
  deep.add({Op::kSym, DType::kInt64, 0, 0, {}});
  EXPECT_THROW(
      {
        for (std::uint32_t k = 0; k < 5000; ++k) deep.add({Op::kNeg, DType::kInt64, 0, 0, {k}});
      },
      Error);
  EXPECT_EQ(deep.size(), TableReader::kMaxDepth);

  Expr big = symbol(0, "n");
  for (int k = 0; k < 30; ++k) big = binary(Op::kBitXor, big, big);
  ExprTable table;
  try {
    table.add(big);
    ADD_FAILURE() << "an expression that can't be read again was written";
  } catch (const Error& error) {
    EXPECT_EQ(error.kind(), ErrorKind::kUnsupported);
  }
}

TEST(ExprTable, RefusesWhatDoesNotFit) {
  const auto refuses = [](std::vector<TableNode> nodes) {
    TableReader reader({"n"});
    try {
      for (const TableNode& n : nodes) reader.add(n);
      return false;
    } catch (const Error& e) {
      return e.kind() == ErrorKind::kInvalidModel;
    }
  };
  const TableNode n{Op::kSym, DType::kInt64, 0, 0, {}}, half{Op::kConst, DType::kFloat32, 0, 0.5, {}};
  EXPECT_FALSE(refuses({n, half}));
  EXPECT_TRUE(refuses({{Op::kSym, DType::kInt64, 1, 0, {}}}));
  EXPECT_TRUE(refuses({{Op::kSym, DType::kInt64, -1, 0, {}}}));
  EXPECT_TRUE(refuses({{Op::kSym, DType::kFloat32, 0, 0, {}}}));
  EXPECT_TRUE(refuses({{static_cast<Op>(200), DType::kInt64, 0, 0, {}}}));
  EXPECT_TRUE(refuses({{Op::kConst, static_cast<DType>(77), 0, 0, {}}}));
  EXPECT_TRUE(refuses({n, {Op::kAdd, DType::kInt64, 0, 0, {0}}}));
  EXPECT_TRUE(refuses({n, {Op::kAdd, DType::kInt64, 0, 0, {0, 1}}}));
  EXPECT_TRUE(refuses({n, half, {Op::kAdd, DType::kInt64, 0, 0, {0, 1}}}));
  EXPECT_TRUE(refuses({n, half, {Op::kLt, DType::kBool, 0, 0, {0, 1}}}));
  EXPECT_TRUE(refuses({n, {Op::kLt, DType::kInt64, 0, 0, {0, 0}}}));
  EXPECT_TRUE(refuses({n, {Op::kSelect, DType::kInt64, 0, 0, {0, 0, 0}}}));
  for (const Op op : {Op::kVar, Op::kLoad, Op::kReduce, Op::kRandom, Op::kBitCast})
    EXPECT_TRUE(refuses({n, {op, DType::kInt64, 0, 0, {0}}}));
}

}  // namespace
}  // namespace sardonyx
