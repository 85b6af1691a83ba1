// Compiling, binding by name, running, symbolic shapes, and errors of callers.
#include <atomic>
#include <thread>

#include "models.h"

namespace sardonyx {
namespace {

TEST(Run, OneProgramForEveryBatch) {
  const CompiledModel m = dense().compile();
  for (const std::int64_t batch : {1, 2, 7, 64, 1000}) {
    const auto [x, y] = dense_case(batch);
    const auto out = m.run({{"x", x}});
    ASSERT_EQ(out.size(), 1u);
    EXPECT_EQ(out.at("y").dims, (std::vector<std::int64_t>{batch, 2}));
    EXPECT_EQ(values(out.at("y")), y) << "batch " << batch;
  }
}

TEST(Run, EmptyBatch) {
  const CompiledModel m = dense().compile();
  const auto out = m.run({{"x", Tensor::allocate(DType::kFloat32, {0, 3})}});
  EXPECT_EQ(out.at("y").dims, (std::vector<std::int64_t>{0, 2}));
  Tensor nothing;
  nothing.dims = {0, 3};
  EXPECT_EQ(m.run({{"x", nothing}}).at("y").elements(), 0);
}

TEST(Run, OutputsOwnTheirMemory) {
  std::map<std::string, Tensor> out;
  {
    const auto [x, y] = dense_case(5);
    out = dense().compile().run({{"x", x}});
  }
  EXPECT_EQ(values(out.at("y")), dense_case(5).second);
}

TEST(Run, AnInputAsOutputIsACopy) {
  GraphBuilder g;
  g.output(g.input("x", DType::kFloat32, {"n"}), "x");
  Tensor x = floats({2}, {1, 2});
  const auto out = g.compile().run({{"x", x}});
  x.as<float>()[0] = 9;
  EXPECT_EQ(values(out.at("x")), (std::vector<float>{1, 2}));
}

TEST(Run, TensorInfos) {
  const CompiledModel m = dense().compile();
  ASSERT_EQ(m.inputs().size(), 1u);
  EXPECT_EQ(m.inputs()[0].name, "x");
  EXPECT_EQ(m.inputs()[0].shape, (std::vector<std::string>{"batch", "3"}));
  ASSERT_EQ(m.outputs().size(), 1u);
  EXPECT_EQ(m.outputs()[0].name, "y");
  EXPECT_EQ(m.outputs()[0].dtype, DType::kFloat32);
  EXPECT_EQ(m.outputs()[0].shape, (std::vector<std::string>{"batch", "2"}));
  EXPECT_EQ(m.symbols(), std::vector<std::string>{"batch"});
  EXPECT_TRUE(m.metadata().empty());
  EXPECT_EQ(m.output_dims({{"x", {17, 3}}}).at("y"), (std::vector<std::int64_t>{17, 2}));
}

TEST(Run, FixedDims) {
  Options o;
  o.dims["batch"] = 4;
  const CompiledModel m = dense().compile(o);
  EXPECT_EQ(m.inputs()[0].shape, (std::vector<std::string>{"4", "3"}));
  EXPECT_EQ(m.outputs()[0].shape, (std::vector<std::string>{"4", "2"}));
  expect_error(ErrorKind::kInvalidArgument, {"'x'", "dim 0 is 5", "must be 4"},
               [&] { m.run({{"x", dense_case(5).first}}); });
  o.dims = {{"bach", 4}};
  expect_error(ErrorKind::kInvalidArgument, {"'bach'", "batch"}, [&] { dense().compile(o); });
  o.dims = {{"batch", -1}};
  expect_error(ErrorKind::kInvalidArgument, {"'batch'", "-1"}, [&] { dense().compile(o); });
}

TEST(Run, WrongInputs) {
  const CompiledModel m = dense().compile();
  const Tensor x = dense_case(2).first;
  expect_error(ErrorKind::kInvalidArgument, {"'x'", "missing"}, [&] { m.run({}); });
  expect_error(ErrorKind::kInvalidArgument, {"no input 'z'", "x"}, [&] { m.run({{"x", x}, {"z", x}}); });
  expect_error(ErrorKind::kInvalidArgument, {"'x'", "int32", "float32"},
               [&] { m.run({{"x", Tensor::allocate(DType::kInt32, {2, 3})}}); });
  expect_error(ErrorKind::kInvalidArgument, {"'x'", "rank 1", "2", "batch, 3"},
               [&] { m.run({{"x", floats({3}, {1, 2, 3})}}); });
  expect_error(ErrorKind::kInvalidArgument, {"'x'", "dim 1 is 2", "must be 3"},
               [&] { m.run({{"x", floats({1, 2}, {1, 2})}}); });
  Tensor bad = x;
  bad.dims[0] = -2;
  expect_error(ErrorKind::kInvalidArgument, {"'x'", "negative"}, [&] { m.run({{"x", bad}}); });
  bad.dims[0] = 2;
  bad.data = nullptr;
  expect_error(ErrorKind::kInvalidArgument, {"'x'", "no data"}, [&] { m.run({{"x", bad}}); });
  bad.dims = {INT64_MAX, 3};
  expect_error(ErrorKind::kInvalidArgument, {"'x'", "too many"}, [&] { m.run({{"x", bad}}); });
  expect_error(ErrorKind::kInvalidArgument, {"'x'", "missing"}, [&] { m.output_dims({}); });
  expect_error(ErrorKind::kInvalidArgument, {"'x'", "rank"}, [&] { m.output_dims({{"x", {1}}}); });
}

TEST(Run, DimsOfOneNameAgree) {
  GraphBuilder g;
  const std::string a = g.input("a", DType::kFloat32, {"n"}), b = g.input("b", DType::kFloat32, {"n"});
  g.output(g.op("Add", {a, b}), "y");
  const CompiledModel m = g.compile();
  EXPECT_EQ(values(m.run({{"a", floats({2}, {1, 2})}, {"b", floats({2}, {3, 4})}}).at("y")),
            (std::vector<float>{4, 6}));
  expect_error(ErrorKind::kInvalidArgument, {"'b'", "dim 0 is 1", "n = 2"},
               [&] { m.run({{"a", floats({2}, {1, 2})}, {"b", floats({1}, {3})}}); });
}

TEST(Run, Devices) {
  const DeviceInfo host = devices().at(0);
  EXPECT_EQ(host.name, "host");
  EXPECT_GE(host.threads, 1);
  EXPECT_GT(host.memory, 1u << 20);
  EXPECT_FALSE(host.description.empty());
  EXPECT_FALSE(host.target.empty());
}

TEST(Run, Options) {
  Options o;
  o.device = "hip:63";
  expect_error(ErrorKind::kDevice, {"hip"}, [&] { dense().compile(o); });
  o.device = "toaster";
  expect_error(ErrorKind::kInvalidArgument, {"'toaster'", "'host'"}, [&] { dense().compile(o); });
  o = {};
  o.precision = "int8";
  expect_error(ErrorKind::kInvalidArgument, {"'int8'", "calibration table"}, [&] { dense().compile(o); });
  o.precision = "fp12";
  expect_error(ErrorKind::kInvalidArgument, {"'fp12'", "'fp32'"}, [&] { dense().compile(o); });
  o = {};
  o.threads = -1;
  expect_error(ErrorKind::kInvalidArgument, {"threads", "-1"}, [&] { dense().compile(o); });
  o = {};
  o.fuse = false;
  o.all_outputs = true;
  std::vector<std::string> stages;
  o.progress = [&](const Progress& p) { stages.emplace_back(p.stage); };
  const CompiledModel m = dense().compile(o);
  EXPECT_EQ(stages.back(), "ready");
  const auto [x, y] = dense_case(3);
  std::vector<StepTime> times;
  const auto out = m.run({{"x", x}}, {1, &times});
  EXPECT_EQ(values(out.at("y")), y);
  EXPECT_GT(out.size(), 3u);  // the product, the sum, the maximum
  EXPECT_GE(times.size(), 3u);
}

// Two symbols that meet in a broadcast are taken to be equal; where one is 1, that size gets a program of its own.
TEST(Run, DimsThatBroadcast) {
  GraphBuilder g;
  const std::string a = g.input("a", DType::kFloat32, {"n", "k"}), b = g.input("b", DType::kFloat32, {"m", "k"});
  const std::string w = g.constant(floats({1}, {10}));
  g.output(g.op("Add", {g.op("Mul", {a, w}), b}), "y");
  const CompiledModel m = g.compile();
  const Tensor one = floats({1, 2}, {1, 2}), two = floats({2, 2}, {1, 2, 3, 4});
  for (int k = 0; k < 3; ++k) {
    EXPECT_EQ(values(m.run({{"a", two}, {"b", two}}).at("y")), (std::vector<float>{11, 22, 33, 44}));
    EXPECT_EQ(values(m.run({{"a", one}, {"b", two}}).at("y")), (std::vector<float>{11, 22, 13, 24}));
    EXPECT_EQ(values(m.run({{"a", two}, {"b", one}}).at("y")), (std::vector<float>{11, 22, 31, 42}));
  }
  expect_error(ErrorKind::kInvalidModel, {"Add"},
               [&] { m.run({{"a", two}, {"b", floats({3, 2}, {1, 2, 3, 4, 5, 6})}}); });
  std::vector<std::jthread> threads;
  for (int t = 0; t < 8; ++t)
    threads.emplace_back([&, t] {
      for (int k = 0; k < 20; ++k) EXPECT_EQ(m.run({{"a", t % 2 ? one : two}, {"b", two}}).at("y").elements(), 4);
    });
}

// Many threads, each with its own sizes, on one model.
TEST(Run, ManyThreads) {
  const CompiledModel m = dense().compile();
  std::atomic<int> wrong = 0;
  {
    std::vector<std::jthread> threads;
    for (int t = 0; t < 16; ++t)
      threads.emplace_back([&, t] {
        for (int k = 0; k < 50; ++k) {
          const auto [x, y] = dense_case(1 + (t * 7 + k * 13) % 90);
          if (values(m.run({{"x", x}}, {1 + t % 2, nullptr}).at("y")) != y) ++wrong;
        }
      });
  }
  EXPECT_EQ(wrong, 0);
}

TEST(Run, ThreadsThatFailDisturbNobody) {
  const CompiledModel m = dense().compile();
  std::atomic<int> wrong = 0;
  {
    std::vector<std::jthread> threads;
    for (int t = 0; t < 8; ++t)
      threads.emplace_back([&, t] {
        for (int k = 0; k < 50; ++k) {
          const auto [x, y] = dense_case(1 + k);
          if (t % 2 == 0) {
            if (values(m.run({{"x", x}}).at("y")) != y) ++wrong;
            continue;
          }
          try {
            m.run({{"x", floats({1, 2}, {1, 2})}});
            ++wrong;
          } catch (const Error&) {
          }
        }
      });
  }
  EXPECT_EQ(wrong, 0);
}

}  // namespace
}  // namespace sardonyx
