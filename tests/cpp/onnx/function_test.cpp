// Model-local functions are inlined.
#include <set>

#include "build_model.h"

namespace sardonyx::onnx {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;
using AP = pb::AttributeProto;

/// One call of local::f on x, giving y.
pb::ModelProto model_calling_f() {
  pb::ModelProto m = make_model({"x"}, {"y"});
  add_node(m.mutable_graph(), "f", {"x"}, {"y"}, "call", "local");
  return m;
}

TEST(Function, BodyReplacesTheCall) {
  pb::ModelProto m = make_model({"x"}, {"y"});
  add_node(m.mutable_graph(), "f", {"x"}, {"t"}, "first", "local");
  add_node(m.mutable_graph(), "f", {"t"}, {"y"}, "", "local");
  pb::FunctionProto* f = add_function(m, "f", {"a"}, {"b"});
  f->mutable_opset_import(0)->set_version(18);
  add_node(f, "Abs", {"a"}, {"t"}, "abs");  // t is a name of the caller too
  add_node(f, "Neg", {"t"}, {"b"}, "neg");

  const std::vector<Node> nodes = parse(m).graph.nodes;
  ASSERT_EQ(nodes.size(), 4u);
  EXPECT_EQ(nodes[0].op_type, "Abs");
  EXPECT_EQ(nodes[0].name, "first/abs");
  EXPECT_EQ(nodes[0].opset, 18);
  EXPECT_THAT(nodes[0].inputs, ElementsAre("x"));
  EXPECT_EQ(nodes[1].inputs[0], nodes[0].outputs[0]);
  EXPECT_THAT(nodes[1].outputs, ElementsAre("t"));
  EXPECT_THAT(nodes[2].inputs, ElementsAre("t"));
  EXPECT_THAT(nodes[3].outputs, ElementsAre("y"));
  std::set<std::string> names;
  for (const Node& n : nodes) EXPECT_TRUE(names.insert(n.outputs[0]).second) << n.outputs[0];
}

TEST(Function, NamesNeverMeetThoseOfTheModel) {
  pb::ModelProto m = make_model({"x"}, {"y"});
  add_node(m.mutable_graph(), "f", {"x"}, {"u"}, "call", "local");
  add_node(m.mutable_graph(), "Exp", {"u"}, {"call/t"});
  add_node(m.mutable_graph(), "Add", {"call/t", "u"}, {"y"});
  pb::FunctionProto* f = add_function(m, "f", {"a"}, {"b"});
  add_node(f, "Abs", {"a"}, {"t"});
  add_node(f, "Neg", {"t"}, {"b"});
  const std::vector<Node> nodes = parse(m).graph.nodes;
  EXPECT_NE(nodes[0].outputs[0], "call/t");
  EXPECT_EQ(nodes[1].inputs[0], nodes[0].outputs[0]);
  EXPECT_EQ(nodes[2].outputs[0], "call/t");
}

TEST(Function, AttributesAndDefaults) {
  pb::ModelProto m = make_model({"x"}, {"y"});
  pb::NodeProto* call = add_node(m.mutable_graph(), "f", {"x"}, {"y"}, "call", "local");
  add_attribute(call, "given", AP::INT)->set_i(5);
  add_attribute(call, "overridden", AP::FLOAT)->set_f(2);
  pb::FunctionProto* f = add_function(m, "f", {"a"}, {"b"});
  for (const char* name : {"given", "absent"}) f->add_attribute(name);
  for (const char* name : {"overridden", "defaulted"}) {
    pb::AttributeProto* d = f->add_attribute_proto();
    d->set_name(name), d->set_type(AP::FLOAT), d->set_f(1);
  }
  pb::NodeProto* n = add_node(f, "Op", {"a"}, {"b"});
  add_attribute(n, "i", AP::INT)->set_ref_attr_name("given");
  add_attribute(n, "gone", AP::INT)->set_ref_attr_name("absent");
  add_attribute(n, "two", AP::FLOAT)->set_ref_attr_name("overridden");
  add_attribute(n, "one", AP::FLOAT)->set_ref_attr_name("defaulted");
  add_attribute(n, "own", AP::INT)->set_i(9);
  const Node node = parse(m).graph.nodes.at(0);
  EXPECT_EQ(node.get_int("i", 0), 5);
  EXPECT_EQ(node.find("gone"), nullptr);
  EXPECT_EQ(node.get_float("two", 0), 2);
  EXPECT_EQ(node.get_float("one", 0), 1);
  EXPECT_EQ(node.get_int("own", 0), 9);
}

TEST(Function, CallsThroughCallsPassAttributesOn) {
  pb::ModelProto m = model_calling_f();
  add_attribute(m.mutable_graph()->mutable_node(0), "k", AP::INT)->set_i(3);
  pb::FunctionProto* f = add_function(m, "f", {"a"}, {"b"});
  pb::NodeProto* inner = add_node(f, "g", {"a"}, {"b"}, "inner", "local");
  add_attribute(inner, "k2", AP::INT)->set_ref_attr_name("k");
  pb::FunctionProto* g = add_function(m, "g", {"p"}, {"q"});
  add_node(g, "Abs", {"p"}, {"t"});
  pb::NodeProto* n = add_node(g, "Op", {"t"}, {"q"}, "op");
  add_attribute(n, "axis", AP::INT)->set_ref_attr_name("k2");
  const std::vector<Node> nodes = parse(m).graph.nodes;
  ASSERT_EQ(nodes.size(), 2u);
  EXPECT_EQ(nodes[1].name, "call/inner/op");
  EXPECT_EQ(nodes[1].get_int("axis", 0), 3);
  EXPECT_THAT(nodes[1].outputs, ElementsAre("y"));
}

TEST(Function, NestedGraphsInsideAndAround) {
  // The call is in a branch; the body has a branch, which reads the function's own values, and gets another as
  // attribute, which reads the caller's.
  pb::ModelProto m = make_model({"x"}, {"y"});
  pb::NodeProto* branch = add_node(m.mutable_graph(), "If", {"x"}, {"y"}, "outer");
  pb::GraphProto* then = add_graph(branch, "then_branch");
  add_node(then, "Abs", {"x"}, {"local_value"});
  pb::NodeProto* call = add_node(then, "f", {"local_value"}, {"r"}, "call", "local");
  pb::GraphProto* passed = add_graph(call, "body");
  add_node(passed, "Sin", {"local_value"}, {"s"});
  set_float(passed->add_output(), "s", {2});
  set_float(then->add_output(), "r", {2});
  pb::FunctionProto* f = add_function(m, "f", {"a"}, {"b"});
  add_node(f, "Neg", {"a"}, {"t"});
  pb::NodeProto* inner = add_node(f, "If", {"t"}, {"b"});
  pb::GraphProto* own = add_graph(inner, "then_branch");
  add_initializer(own, "c", {1, 2});
  add_node(own, "Add", {"t", "c"}, {"sum"});
  set_float(own->add_output(), "sum", {2});
  add_attribute(inner, "else_branch", AP::GRAPH)->set_ref_attr_name("body");

  const Graph graph = parse(m).graph;
  const GraphPtr outer = graph.nodes.at(0).get_graph("then_branch");
  ASSERT_THAT(op_types(*outer), ElementsAre("Abs", "Neg", "If"));
  EXPECT_EQ(outer->nodes[1].inputs[0], "local_value");
  const GraphPtr own_branch = outer->nodes[2].get_graph("then_branch");
  EXPECT_THAT(own_branch->nodes[0].inputs, ElementsAre(outer->nodes[1].outputs[0], own_branch->initializers[0].name));
  EXPECT_THAT(outer->nodes[2].get_graph("else_branch")->nodes[0].inputs, ElementsAre("local_value"));
}

TEST(Function, OmittedInputsAndOutputs) {
  pb::ModelProto m = make_model({"x"}, {"y"});
  add_node(m.mutable_graph(), "f", {"x"}, {"", "y"}, "call", "local");
  pb::FunctionProto* f = add_function(m, "f", {"a", "min", "max"}, {"unused", "b", "last"});
  add_node(f, "Clip", {"a", "min", "max"}, {"b"});
  add_node(f, "Abs", {"b"}, {"unused"});
  add_node(f, "Neg", {"b"}, {"last"});
  const std::vector<Node> nodes = parse(m).graph.nodes;
  EXPECT_THAT(nodes.at(0).inputs, ElementsAre("x", "", ""));
  EXPECT_THAT(nodes.at(0).outputs, ElementsAre("y"));
  EXPECT_THAT(nodes.at(1).outputs.at(0), HasSubstr("unused"));
}

TEST(Function, InputsPassedThroughBecomeIdentity) {
  pb::ModelProto m = make_model({"x"}, {"y", "z", "w"});
  add_node(m.mutable_graph(), "f", {"x"}, {"y", "z", "w"}, "call", "local");
  pb::FunctionProto* f = add_function(m, "f", {"a"}, {"a", "b", "b"});
  add_node(f, "Neg", {"a"}, {"b"});
  const std::vector<Node> nodes = parse(m).graph.nodes;
  ASSERT_EQ(nodes.size(), 3u);
  EXPECT_THAT(nodes[0].outputs, ElementsAre("z"));
  EXPECT_EQ(nodes[1].op_type, "Identity");
  EXPECT_THAT(nodes[1].inputs, ElementsAre("x"));
  EXPECT_THAT(nodes[1].outputs, ElementsAre("y"));
  EXPECT_THAT(nodes[2].inputs, ElementsAre("z"));
  EXPECT_THAT(nodes[2].outputs, ElementsAre("w"));
}

TEST(Function, OverloadsAndDomainsTellFunctionsApart) {
  pb::ModelProto m = make_model({"x"}, {"y"});
  add_node(m.mutable_graph(), "f", {"x"}, {"s"}, "", "local");
  add_node(m.mutable_graph(), "f", {"s"}, {"t"}, "", "local")->set_overload("fast");
  add_node(m.mutable_graph(), "f", {"t"}, {"y"}, "", "other");
  add_node(add_function(m, "f", {"a"}, {"b"}), "Abs", {"a"}, {"b"});
  pb::FunctionProto* fast = add_function(m, "f", {"a"}, {"b"});
  fast->set_overload("fast");
  add_node(fast, "Neg", {"a"}, {"b"});
  add_node(add_function(m, "f", {"a"}, {"b"}, "other"), "Exp", {"a"}, {"b"});
  EXPECT_THAT(op_types(parse(m).graph), ElementsAre("Abs", "Neg", "Exp"));
  m.mutable_graph()->mutable_node(1)->set_overload("slow");
  expect_invalid(m, {"node 1", "overload 'slow'"});
}

TEST(Function, ConstantsAreSharedBetweenCalls) {
  pb::ModelProto m = make_model({"x"}, {"y"});
  add_node(m.mutable_graph(), "f", {"x"}, {"t"}, "", "local");
  add_node(m.mutable_graph(), "f", {"t"}, {"y"}, "", "local");
  pb::FunctionProto* f = add_function(m, "f", {"a"}, {"b"});
  pb::TensorProto* t = add_attribute(add_node(f, "Constant", {}, {"c"}), "value", AP::TENSOR)->mutable_t();
  t->set_data_type(pb::TensorProto::UINT8), t->add_dims(100000), t->set_raw_data(std::string(100000, 'x'));
  add_node(f, "Add", {"a", "c"}, {"b"});
  const std::vector<Node> nodes = parse(m).graph.nodes;
  EXPECT_EQ(nodes.at(0).get_tensor("value")->data, nodes.at(2).get_tensor("value")->data);
  EXPECT_EQ(nodes.at(0).get_tensor("value")->as<char>()[99999], 'x');
}

TEST(Function, Recursion) {
  pb::ModelProto m = model_calling_f();
  add_node(add_function(m, "f", {"a"}, {"b"}), "g", {"a"}, {"b"}, "", "local");
  add_node(add_function(m, "g", {"a"}, {"b"}), "f", {"a"}, {"b"}, "", "local");
  expect_invalid(m, {"'f'", "call itself"});
}

TEST(Function, ChainsOfCallsAreBounded) {
  pb::ModelProto m = model_calling_f();
  const int length = 5000;
  for (int i = 0; i < length; ++i) {
    const auto name = [](int k) { return k == 0 ? std::string("f") : "f" + std::to_string(k); };
    add_node(add_function(m, name(i), {"a"}, {"b"}), i + 1 == length ? "Abs" : name(i + 1), {"a"}, {"b"}, "",
             i + 1 == length ? "" : "local");
  }
  expect_unsupported(m, {"more than 64 deep"});
}

TEST(Function, ExponentialGrowthIsBounded) {
  // 40 functions, each calling the next twice: 2^40 nodes from a few kilobytes. The second kind has no nodes at the
  // end.
  for (const bool empty : {false, true}) {
    pb::ModelProto m = model_calling_f();
    for (int i = 0; i < 40; ++i) {
      pb::FunctionProto* f = add_function(m, i == 0 ? "f" : "f" + std::to_string(i), {"a"}, {"b"});
      const std::string next = "f" + std::to_string(i + 1);
      add_node(f, next, {"a"}, {"t"}, "", "local");
      add_node(f, next, {"t"}, {"b"}, "", "local");
    }
    pb::FunctionProto* last = add_function(m, "f40", {"a"}, {empty ? "a" : "b"});
    if (!empty) add_node(last, "Neg", {"a"}, {"b"});
    expect_unsupported(m, {"inlining", "MiB"});
  }
}

TEST(Function, Malformed) {
  {
    pb::ModelProto m = model_calling_f();
    add_node(add_function(m, "f", {"a"}, {"b"}), "Abs", {"x"}, {"b"}, "n");  // x is the caller's
    expect_invalid(m, {"'call/n'", "function 'f'", "reads 'x'"});
  }
  {
    pb::ModelProto m = model_calling_f();
    add_node(add_function(m, "f", {"a"}, {"b"}), "Abs", {"a"}, {"c"});
    expect_invalid(m, {"'f'", "does not define its output 'b'"});
  }
  {
    pb::ModelProto m = model_calling_f();
    add_node(add_function(m, "f", {}, {"b"}), "Op", {}, {"b"});
    expect_invalid(m, {"'call'", "1 inputs", "0 and 1"});
  }
  {
    pb::ModelProto m = model_calling_f();
    pb::FunctionProto* f = add_function(m, "f", {"a"}, {"b"});
    add_node(f, "Abs", {"a"}, {"b"});
    add_node(f, "Abs", {"a"}, {"b"});
    expect_invalid(m, {"'b'", "twice", "'f'"});
  }
  {
    pb::ModelProto m = model_calling_f();
    for (int i = 0; i < 2; ++i) add_node(add_function(m, "f", {"a"}, {"b"}), "Abs", {"a"}, {"b"});
    expect_invalid(m, {"'f'", "defined twice"});
  }
  {
    pb::ModelProto m = model_calling_f();
    add_attribute(m.mutable_graph()->mutable_node(0), "k", AP::INT)->set_i(1);
    pb::NodeProto* n = add_node(add_function(m, "f", {"a"}, {"b"}), "Op", {"a"}, {"b"});
    add_attribute(n, "k", AP::FLOAT)->set_ref_attr_name("k");
    expect_invalid(m, {"'k'", "another type"});
  }
  {
    pb::ModelProto m = make_model();
    pb::NodeProto* n = add_node(m.mutable_graph(), "Op", {"x"}, {"y"});
    add_attribute(n, "k", AP::INT)->set_ref_attr_name("z");
    expect_invalid(m, {"node 0 (Op)", "outside of any function"});
  }
  {
    pb::ModelProto m = model_calling_f();  // a cycle inside a function
    pb::FunctionProto* f = add_function(m, "f", {"a"}, {"b"});
    add_node(f, "Abs", {"b"}, {"t"}, "one");
    add_node(f, "Neg", {"t"}, {"b"}, "two");
    expect_invalid(m, {"cycle", "'call/one'", "'call/two'"});
  }
}

}  // namespace
}  // namespace sardonyx::onnx
