// A second front end: a text format whose models call operators by name, on the host and on a simulated card.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <functional>

#include "api/model.h"
#include "import/op_builder.h"
#include "toy_source.h"

namespace sardonyx {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;

std::unique_ptr<Model> toy(const std::string& text, const Options& options = {}) {
  return std::make_unique<Model>(parse_toy(text), options);
}

Tensor floats(std::vector<std::int64_t> dims, const std::vector<float>& elements) {
  Tensor t = Tensor::allocate(DType::kFloat32, std::move(dims));
  std::copy(elements.begin(), elements.end(), t.as<float>().begin());
  return t;
}

std::vector<float> values(const Tensor& t) {
  const auto s = t.as<float>();
  return {s.begin(), s.end()};
}

std::string message_of(const std::function<void()>& f) {
  try {
    f();
  } catch (const Error& e) {
    return e.what();
  }
  return "no error";
}

const char* const kLayers = R"(
input x float32 batch 2
weight w 2 3 = 1 2 3  4 5 6    # [in, out]
weight b 3 = 0.5 0.25 -100
h = MatMul x w
s = Add h b
y = LeakyRelu s alpha:0.5
output y)";

const char* const kImage = R"(
input x float32 1 1 3 3
weight w 1 1 2 2 = 1 1 1 1
c = Conv x w - strides:[1,1] kernel_shape:[2,2] auto_pad:VALID
t = Transpose c perm:[0,1,3,2]
output t)";

class Toy : public testing::TestWithParam<const char*> {
 protected:
  Toy() { options_.device = GetParam(); }
  Options options_;
};

TEST_P(Toy, OperatorsByName) {
  const auto m = toy(kLayers, options_);
  EXPECT_EQ(m->symbols(), std::vector<std::string>{"batch"});
  EXPECT_EQ(m->output_names(), std::vector<std::string>{"y"});
  EXPECT_THAT(values(m->run({{"x", floats({1, 2}, {1, 2})}}).at(0)), ElementsAre(9.5F, 12.25F, -42.5F));
  EXPECT_THAT(values(m->run({{"x", floats({2, 2}, {0, 0, 1, 0})}}).at(0)),
              ElementsAre(0.5F, 0.25F, -50, 1.5F, 2.25F, -48.5F));
}

TEST_P(Toy, AttributesOfAllKinds) {
  const Tensor x = floats({1, 1, 3, 3}, {1, 2, 3, 4, 5, 6, 7, 8, 9});
  EXPECT_THAT(values(toy(kImage, options_)->run({{"x", x}}).at(0)), ElementsAre(12, 24, 16, 28));
}

INSTANTIATE_TEST_SUITE_P(Devices, Toy, testing::Values("host", "sim:gfx942"),
                         [](const auto& p) { return p.param == std::string("host") ? "Host" : "Gfx942"; });

TEST(ToyImport, DimsAreFixedByName) {
  Options o;
  o.dims["batch"] = 2;
  EXPECT_THAT(toy(kLayers, o)->inputs()[0].shape, ElementsAre("2", "2"));
  o.dims["m"] = 2;
  EXPECT_THAT(message_of([&] { toy(kLayers, o); }), testing::AllOf(HasSubstr("'m'"), HasSubstr("its dims are: batch")));
}

TEST(ToyImport, AProgramForEachValue) {
  const auto m = toy("input x float32 n\ninput axes int64 1\ny = Unsqueeze x axes\noutput y");
  EXPECT_EQ(m->program_count(), 0U);
  for (const std::int64_t axis : {0, 1, 0}) {
    Tensor axes = Tensor::allocate(DType::kInt64, {1});
    axes.as<std::int64_t>()[0] = axis;
    const Tensor y = m->run({{"x", floats({2}, {1, 5})}, {"axes", axes}}).at(0);
    EXPECT_EQ(y.dims, axis == 0 ? (std::vector<std::int64_t>{1, 2}) : (std::vector<std::int64_t>{2, 1}));
  }
  EXPECT_EQ(m->program_count(), 2U);
}

TEST(ToyImport, AllValuesAreOutputs) {
  Options o;
  o.all_outputs = true;
  EXPECT_THAT(toy(kLayers, o)->output_names(), ElementsAre("y", "MatMul_0", "Add_1", "LeakyRelu_2"));
}

TEST(ToyImport, WhatItCannotDoIsRefused) {
  const auto m = toy(kLayers);
  EXPECT_THAT(message_of([&] { m->nodes(); }), HasSubstr("another format"));
  EXPECT_TRUE(m->metadata().empty());
}

TEST(ToyImport, MalformedModelsAreRefused) {
  const std::string x = "input x float32 2\n";
  const std::pair<std::string, const char*> cases[] = {
      {"", "no output"},
      {"input", "line 1: it is not a statement"},
      {x + "x", "line 2: it is not a statement"},
      {x + "input x float32 2", "line 2: x is defined twice"},
      {"input x float31 2", "line 1: an input needs a dtype"},
      {"input x float32 -1", "line 1: a dim is negative"},
      {x + "y = Relu z", "line 2: there is no value z"},
      {x + "x = Relu x", "line 2: x is defined twice"},
      {"weight w 2 = 1", "line 1: 1 elements do not fit"},
      {"weight w 0 = 1", "line 1: 1 elements do not fit"},
      {"weight w 4611686018427387904 4611686018427387904 = 1", "line 1: 1 elements do not fit"},
      {"weight w 1", "line 1: a weight needs its elements"},
      {"weight w 1 = one", "line 1: an element is not a number"},
      {x + "y = Transpose x perm:[0", "line 2: a list does not end"},
      {x + "y = Transpose x perm:[a]", "line 2: a is not an integer"},
      {x + "output y", "line 2: there is no value y"},
      // Refused by the operators.
      {x + "y = Frobnicate x\noutput y", "operator Frobnicate is not supported"},
      {x + "y = Transpose x perm:[1]\noutput y", "'Transpose_0' (Transpose)"},
      {x + "y = Transpose x perm:0\noutput y", "attribute 'perm' should be a list of integers"},
      {x + "y = Relu -\noutput y", "input 0 is missing"},
      {x + "input i int64 2\ny = Add x i\noutput y", "'x' and 'i' have dtypes float32 and int64"},
  };
  for (const auto& [text, message] : cases) EXPECT_THAT(message_of([&] { toy(text); }), HasSubstr(message)) << text;
}

TEST(OpBuilder, RefusesNestedGraphs) {
  const ImportOptions options;
  OpBuilder b(options);
  model::ValueInfo condition;
  condition.name = "c";
  condition.dtype = DType::kBool;
  condition.shape.emplace();
  const auto body = std::make_shared<model::Graph>();
  Value* c = b.input(condition);
  EXPECT_THAT(message_of([&] { b.op("If", {c}, {{"then_branch", body}, {"else_branch", body}}); }),
              HasSubstr("list of nodes"));
}

}  // namespace
}  // namespace sardonyx
