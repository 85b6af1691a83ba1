// The verifier finds each kind of fault, and accepts a graph without any.
#include "graph/verify.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "graph/text.h"
#include "graph_text/parse.h"

namespace sardonyx {
namespace {

using testing::HasSubstr;

constexpr const char* kGraph = R"(%0 "x" = input float32[n, 4]
%1 = constant float32[4] {1, 2, 3, 4}
%2 = loop float32[i < n, j < 4]: %0[i, j] * %1[j] @"scale"
%3 = loop float32[i < n]: sum{r < 4}(%2[i, r]) @"sum"
return %3 "y")";

// A valid graph, which each test breaks.
struct Verify : testing::Test {
  std::unique_ptr<Graph> g = parse_graph(kGraph);
  Node& scale() { return *g->nodes[1]; }
  Node& sum() { return *g->nodes[2]; }
};

TEST_F(Verify, AcceptsAValidGraph) { EXPECT_EQ(verify(*g), ""); }

TEST_F(Verify, NamesTheNode) {
  scale().outputs[0]->dtype = DType::kFloat16;
  EXPECT_THAT(verify(*g), HasSubstr("'scale'"));
}

TEST_F(Verify, Types) {
  scale().as<LoopOp>()->body = constant_float(1, DType::kFloat16);
  EXPECT_THAT(verify(*g), HasSubstr("the body is float16, but the output float32"));
}

TEST_F(Verify, TypesOfLoads) {
  g->inputs[0]->dtype = DType::kFloat16;
  EXPECT_THAT(verify(*g), HasSubstr("as float32, but it is float16"));
}

TEST_F(Verify, Shapes) {
  scale().outputs[0]->shape[1] = 5;
  EXPECT_THAT(verify(*g), HasSubstr("variable 1 runs to 4, but the dim is 5"));
}

TEST_F(Verify, Ranks) {
  g->inputs[0]->shape.push_back(1);
  EXPECT_THAT(verify(*g), HasSubstr("of rank 3 with 2 indices"));
}

TEST_F(Verify, Indices) {
  auto* l = scale().as<LoopOp>();
  l->body = load(g->inputs[0], DType::kFloat32, {l->vars[0], 4});
  scale().inputs = {g->inputs[0]};
  EXPECT_THAT(verify(*g), HasSubstr("at index 4 of dim 1"));
}

TEST_F(Verify, GuardedIndicesMayBeOutside) {
  auto* l = scale().as<LoopOp>();
  l->body = select(compare(Op::kLt, l->vars[0], 1), load(g->inputs[0], DType::kFloat32, {l->vars[0], -1}),
                   constant_float(0, DType::kFloat32));
  scale().inputs = {g->inputs[0]};
  EXPECT_EQ(verify(*g), "");
}

TEST_F(Verify, VariablesOfOtherLoops) {
  auto* l = scale().as<LoopOp>();
  l->body = load(g->inputs[0], DType::kFloat32, {l->vars[0], loop_var(4)});
  scale().inputs = {g->inputs[0]};
  EXPECT_THAT(verify(*g), HasSubstr("of another loop"));
}

TEST_F(Verify, VariablesOfAReductionOutsideOfIt) {
  auto* l = sum().as<LoopOp>();
  const Expr inside = l->body->args[0];
  l->body = binary(Op::kAdd, l->body, inside);
  EXPECT_THAT(verify(*g), HasSubstr("of another loop"));
}

TEST_F(Verify, InputsThatAreNotLoaded) {
  sum().inputs.push_back(g->inputs[0]);
  EXPECT_THAT(verify(*g), HasSubstr("is not loaded"));
  EXPECT_EQ(verify(*g, {&sum()}), "") << "a fused loop may list what its kernel loads";
}

TEST_F(Verify, LoadsThatAreNoInputs) {
  scale().inputs.pop_back();
  EXPECT_THAT(verify(*g), HasSubstr("loaded but not among the inputs"));
}

TEST_F(Verify, Order) {
  std::swap(g->nodes[1], g->nodes[2]);
  EXPECT_THAT(verify(*g), HasSubstr("is not defined here"));
}

TEST_F(Verify, DanglingValues) {
  std::unique_ptr<Node> removed = std::move(g->nodes[1]);
  g->nodes.erase(g->nodes.begin() + 1);
  EXPECT_THAT(verify(*g), HasSubstr("is not defined here"));
}

TEST_F(Verify, Producers) {
  sum().outputs[0]->producer = &scale();
  EXPECT_THAT(verify(*g), HasSubstr("another producer"));
}

TEST_F(Verify, Outputs) {
  std::unique_ptr<Node> removed = std::move(g->nodes.back());
  g->nodes.pop_back();
  EXPECT_THAT(verify(*g), HasSubstr("output %3"));
}

TEST_F(Verify, StorageOrders) {
  scale().outputs[0]->storage_order = {0, 0};
  EXPECT_THAT(verify(*g), HasSubstr("not a permutation"));
}

TEST_F(Verify, Symbols) {
  sum().outputs[0]->shape[0] = g->symbols().dim("unknown");
  EXPECT_THAT(verify(*g), HasSubstr("symbol 'unknown' is used before it is defined"));
}

TEST(VerifyBind, SymbolsOfBoolAndIntegerTensors) {
  EXPECT_EQ(verify(*parse_graph("%0 = input bool[1] bind data c: %0 return %0")), "");
  EXPECT_THROW(parse_graph("%0 = input float32[1] bind data c: %0 return %0"), Error);
}

TEST(VerifyNested, CapturedValuesAreInputs) {
  auto g = parse_graph(R"(%0 = input float32[n]
%1 = input int64[1]
bind data c: %1
%4 = if c != 0 reads %0 then {
  %2 = loop float32[i < n]: exp(%0[i])
  return %2
} else {
  return %0
} gives float32[n]
return %4)");
  EXPECT_EQ(verify(*g), "");
  g->nodes.back()->inputs.clear();
  EXPECT_THAT(verify(*g), HasSubstr("which is not among the inputs"));
}

}  // namespace
}  // namespace sardonyx
