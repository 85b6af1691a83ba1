// Graphs built in memory with GraphBuilder.
#include "models.h"

namespace sardonyx {
namespace {

TEST(Builder, AttributesAndDomains) {
  GraphBuilder g;
  const std::string x = g.input("x", DType::kFloat32, {2, 3});
  const std::string t = g.op("Transpose", {x}, {{"perm", std::vector<std::int64_t>{1, 0}}});
  g.output(g.op("Gemm", {t, g.constant(floats({2, 1}, {10, 1}))}, {{"alpha", 2.0f}}, "ai.onnx"), "y");
  EXPECT_EQ(values(g.compile().run({{"x", floats({2, 3}, {1, 2, 3, 4, 5, 6})}}).at("y")),
            (std::vector<float>{28, 50, 72}));
}

TEST(Builder, TensorAttribute) {
  GraphBuilder g;
  const std::string c = g.op("Constant", {}, {{"value", floats({2}, {5, 6})}});
  g.output(g.op("Add", {g.input("x", DType::kFloat32, {2}), c}), "y");
  EXPECT_EQ(values(g.compile().run({{"x", floats({2}, {1, 1})}}).at("y")), (std::vector<float>{6, 7}));
}

TEST(Builder, SeveralOutputs) {
  GraphBuilder g;
  const std::string x = g.input("x", DType::kFloat32, {"n", 4});
  const auto halves = g.op_with_outputs(2, "Split", {x}, {{"axis", std::int64_t{1}}, {"num_outputs", std::int64_t{2}}});
  g.output(halves[0], "left");
  g.output(halves[1], "right");
  const auto out = g.compile().run({{"x", floats({1, 4}, {1, 2, 3, 4})}});
  EXPECT_EQ(values(out.at("left")), (std::vector<float>{1, 2}));
  EXPECT_EQ(values(out.at("right")), (std::vector<float>{3, 4}));
}

TEST(Builder, OldOperatorSet) {
  GraphBuilder g(9);  // Slice has its bounds as attributes
  const std::string x = g.input("x", DType::kFloat32, {"n"});
  g.output(g.op("Slice", {x}, {{"starts", std::vector<std::int64_t>{1}}, {"ends", std::vector<std::int64_t>{3}}}), "y");
  EXPECT_EQ(values(g.compile().run({{"x", floats({4}, {1, 2, 3, 4})}}).at("y")), (std::vector<float>{2, 3}));
}

TEST(Builder, ConstantsAreCopied) {
  GraphBuilder g;
  Tensor c = floats({2}, {1, 2});
  g.output(g.op("Add", {g.input("x", DType::kFloat32, {2}), g.constant(c)}), "y");
  c.as<float>()[0] = 100;
  EXPECT_EQ(values(g.compile().run({{"x", floats({2}, {0, 0})}}).at("y")), (std::vector<float>{1, 2}));
}

TEST(Builder, CanGoOnAfterCompiling) {
  GraphBuilder g = dense();
  const CompiledModel first = g.compile();
  g.output(g.op("Neg", {"y"}), "negative");
  const auto [x, y] = dense_case(2);
  EXPECT_EQ(first.run({{"x", x}}).size(), 1u);
  const auto out = g.compile().run({{"x", x}});
  EXPECT_EQ(values(out.at("y")), y);
  EXPECT_EQ(values(out.at("negative"))[0], -y[0]);
}

TEST(Builder, Refusals) {
  expect_error(ErrorKind::kUnsupported, {"operator set 3", "7"}, [] { GraphBuilder g(3); });
  GraphBuilder g;
  g.input("x", DType::kFloat32, {2});
  expect_error(ErrorKind::kInvalidArgument, {"'x'", "in use"}, [&] { g.input("x", DType::kFloat32, {2}); });
  expect_error(ErrorKind::kInvalidArgument, {"'z'", "-3"}, [&] { g.input("z", DType::kFloat32, {-3}); });
  expect_error(ErrorKind::kInvalidArgument, {"no value 'q'"}, [&] { g.op("Relu", {"q"}); });
  expect_error(ErrorKind::kInvalidArgument, {"no value 'q'"}, [&] { g.output("q", "y"); });
  expect_error(ErrorKind::kInvalidArgument, {"no outputs"}, [&] { g.compile(); });
  Tensor bad;
  bad.dims = {-1};
  expect_error(ErrorKind::kInvalidArgument, {"negative"}, [&] { g.constant(bad); });
  bad.dims = {INT64_MAX, INT64_MAX};
  expect_error(ErrorKind::kInvalidArgument, {"memory"}, [&] { g.constant(bad); });
  g.output(g.op("Relu", {"x"}), "y");
  expect_error(ErrorKind::kInvalidArgument, {"'y'", "in use"}, [&] { g.output("x", "y"); });
  g.op("Frobnicate", {"x"});
  expect_error(ErrorKind::kUnsupported, {"Frobnicate"}, [&] { g.compile(); });
}

TEST(Builder, TypesAreChecked) {
  GraphBuilder g;
  const std::string x = g.input("x", DType::kFloat32, {2}), i = g.input("i", DType::kInt64, {2});
  g.output(g.op("Add", {x, i}), "y");
  expect_error(ErrorKind::kInvalidModel, {"Add"}, [&] { g.compile(); });
}

TEST(Files, Refusals) {
  expect_error(ErrorKind::kIo, {"/no/such/model.onnx"}, [] { CompiledModel::from_file("/no/such/model.onnx"); });
  const std::string junk(100, 'x');
  expect_error(ErrorKind::kInvalidModel, {"not an ONNX model"},
               [&] { CompiledModel::from_bytes(std::as_bytes(std::span(junk))); });
  expect_error(ErrorKind::kInvalidModel, {"empty"}, [&] { CompiledModel::from_bytes({}); });
}

TEST(Library, VersionAndCache) {
  EXPECT_THAT(std::string(version()), testing::MatchesRegex("[0-9]+\\.[0-9]+\\.[0-9]+"));
  EXPECT_TRUE(user_cache_directory().empty() || user_cache_directory().filename() == "sardonyx");
}

TEST(Tensors, TypedAccess) {
  Tensor t = Tensor::allocate(DType::kFloat16, {2, 2});
  EXPECT_EQ(t.bytes(), 8u);
  EXPECT_EQ(t.as<std::uint16_t>().size(), 4u);
  expect_error(ErrorKind::kInvalidArgument, {"float16", "2 bytes"}, [&] { t.as<float>(); });
  expect_error(ErrorKind::kInvalidArgument, {"int32"}, [] { Tensor::allocate(DType::kInt32, {1}).as<float>(); });
  EXPECT_EQ(Tensor::allocate(DType::kInt64, {}).elements(), 1);
  EXPECT_EQ(reinterpret_cast<std::uintptr_t>(t.data) % 64, 0u);
}

}  // namespace
}  // namespace sardonyx
