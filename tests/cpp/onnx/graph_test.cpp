// Graphs, nodes, names, types and attributes of well-formed models.
#include "build_model.h"

namespace sardonyx::onnx {
namespace {

using testing::ElementsAre;
using AP = pb::AttributeProto;

TEST(Graph, ReadsWhatTheFileSays) {
  pb::ModelProto m = make_model({"x"}, {"y"});
  m.set_producer_version("1.2");
  m.set_model_version(7);
  auto* e = m.add_metadata_props();
  e->set_key("author"), e->set_value("me");
  auto* o = m.add_opset_import();
  o->set_domain("com.example"), o->set_version(3);
  add_node(m.mutable_graph(), "Conv", {"x", "", "b"}, {"t", ""}, "c", "ai.onnx");
  add_node(m.mutable_graph(), "Mine", {"t"}, {"y"}, "m", "com.example");
  add_initializer(m.mutable_graph(), "b", {1, 2});
  set_float(m.mutable_graph()->add_value_info(), "t", {2, 3});

  const Model model = parse(m);
  EXPECT_EQ(model.ir_version, 10);
  EXPECT_EQ(model.producer_name, "test");
  EXPECT_EQ(model.producer_version, "1.2");
  EXPECT_EQ(model.model_version, 7);
  EXPECT_EQ(model.metadata.at("author"), "me");
  EXPECT_EQ(model.opsets.at(""), 20);
  EXPECT_EQ(model.opsets.at("com.example"), 3);
  ASSERT_EQ(model.graph.nodes.size(), 2u);
  const Node& conv = model.graph.nodes[0];
  EXPECT_EQ(conv.name, "c");
  EXPECT_EQ(conv.domain, "");
  EXPECT_EQ(conv.opset, 20);
  EXPECT_THAT(conv.inputs, ElementsAre("x", "", "b"));
  EXPECT_THAT(conv.outputs, ElementsAre("t", ""));
  EXPECT_EQ(model.graph.nodes[1].opset, 3);
  EXPECT_EQ(model.graph.nodes[1].describe(), "node 1 'm' (com.example::Mine)");
  ASSERT_EQ(model.graph.value_info.size(), 1u);
  EXPECT_EQ(model.graph.value_info[0].shape->at(1).value, 3);
  EXPECT_THAT(model.graph.initializers.at(0).as<float>(), ElementsAre(1, 2));
}

TEST(Graph, TypesOfValues) {
  pb::ModelProto m = make_model({"x"}, {"y"});
  add_node(m.mutable_graph(), "Identity", {"x"}, {"y"});
  auto* shape = m.mutable_graph()->mutable_input(0)->mutable_type()->mutable_tensor_type()->mutable_shape();
  shape->add_dim()->set_dim_param("batch");
  shape->add_dim();
  shape->add_dim()->set_dim_value(-1);  // what some exporters write for unknown
  auto* unranked = m.mutable_graph()->add_input();
  unranked->set_name("unranked"),
      unranked->mutable_type()->mutable_tensor_type()->set_elem_type(pb::TensorProto::BFLOAT16);
  auto* sequence = m.mutable_graph()->add_input();
  sequence->set_name("sequence");
  sequence->mutable_type()->mutable_sequence_type()->mutable_elem_type()->mutable_tensor_type()->set_elem_type(
      pb::TensorProto::INT64);
  auto* strings = m.mutable_graph()->add_input();
  strings->set_name("strings"), strings->mutable_type()->mutable_tensor_type()->set_elem_type(pb::TensorProto::STRING);

  const Graph graph = parse(m).graph;
  const std::vector<Dim>& dims = *graph.inputs[0].shape;
  ASSERT_EQ(dims.size(), 4u);
  EXPECT_EQ(dims[0].value, 2);
  EXPECT_EQ(dims[1].param, "batch");
  EXPECT_FALSE(dims[1].value || dims[2].value || dims[3].value);
  EXPECT_EQ(graph.inputs[1].dtype, DType::kBFloat16);
  EXPECT_FALSE(graph.inputs[1].shape);
  EXPECT_EQ(graph.inputs[2].kind, ValueInfo::Kind::kSequence);
  EXPECT_EQ(graph.inputs[2].element->dtype, DType::kInt64);
  EXPECT_FALSE(graph.inputs[3].dtype);
  EXPECT_THAT(graph.inputs[3].unsupported, testing::HasSubstr("string"));
}

TEST(Graph, AttributesOfEveryType) {
  pb::ModelProto m = make_model();
  pb::NodeProto* n = add_node(m.mutable_graph(), "Op", {"x"}, {"y"});
  add_attribute(n, "i", AP::INT)->set_i(-5);
  add_attribute(n, "f", AP::FLOAT)->set_f(0.5f);
  add_attribute(n, "s", AP::STRING)->set_s(std::string("a\0\xff", 3));  // any bytes
  auto* ints = add_attribute(n, "ints", AP::INTS);
  ints->add_ints(1), ints->add_ints(2);
  add_attribute(n, "empty", AP::INTS);
  add_attribute(n, "floats", AP::FLOATS)->add_floats(2.5f);
  add_attribute(n, "strings", AP::STRINGS)->add_strings("z");
  auto* t = add_attribute(n, "t", AP::TENSOR)->mutable_t();
  t->set_data_type(pb::TensorProto::INT64), t->add_int64_data(9);
  add_attribute(n, "tp", AP::TYPE_PROTO)->mutable_tp()->mutable_tensor_type()->set_elem_type(pb::TensorProto::INT8);
  pb::AttributeProto* untyped = n->add_attribute();  // IR version 1 has no type field
  untyped->set_name("untyped"), untyped->add_floats(1.5f);

  const Graph graph = parse(m).graph;
  const Node& node = graph.nodes.at(0);
  EXPECT_EQ(node.get_int("i", 0), -5);
  EXPECT_EQ(node.get_int("absent", 3), 3);
  EXPECT_EQ(node.get_float("f", 0), 0.5f);
  EXPECT_EQ(node.get_string("s", ""), std::string("a\0\xff", 3));
  EXPECT_THAT(node.get_ints("ints"), ElementsAre(1, 2));
  EXPECT_TRUE(node.get_ints("empty", {7}).empty());
  EXPECT_THAT(node.get_floats("floats"), ElementsAre(2.5f));
  EXPECT_THAT(node.get_floats("untyped"), ElementsAre(1.5f));
  EXPECT_EQ(std::get<std::vector<std::string>>(*node.find("strings")).at(0), "z");
  EXPECT_THAT(node.get_tensor("t")->as<std::int64_t>(), ElementsAre(9));
  EXPECT_TRUE(node.get_tensor("t")->dims.empty());
  EXPECT_EQ(std::get<ValueInfo>(*node.find("tp")).dtype, DType::kInt8);
  expect_error(ErrorKind::kInvalidModel, {"node 0 (Op)", "'i'", "float"}, [&] { node.get_float("i", 0); });
}

TEST(Graph, SortsNodesAndKeepsAGivenOrder) {
  pb::ModelProto m = make_model({"x"}, {"y"});
  add_node(m.mutable_graph(), "D", {"c", "a"}, {"y"});
  add_node(m.mutable_graph(), "B", {"x"}, {"b"});
  add_node(m.mutable_graph(), "A", {"x"}, {"a"});
  add_node(m.mutable_graph(), "C", {"a", "b"}, {"c"});
  EXPECT_THAT(op_types(parse(m).graph), ElementsAre("B", "A", "C", "D"));
}

TEST(Graph, SortsByWhatNestedGraphsRead) {
  pb::ModelProto m = make_model({"x"}, {"y"});
  pb::NodeProto* branch = add_node(m.mutable_graph(), "If", {"x"}, {"y"});
  for (const char* name : {"then_branch", "else_branch"}) {
    pb::GraphProto* g = add_graph(branch, name);
    // Two levels down, and unsorted there too.
    add_node(g, "Neg", {"inner"}, {"out"});
    pb::NodeProto* nested = add_node(g, "If", {"x"}, {"inner"});
    pb::GraphProto* deep = add_graph(nested, "then_branch");
    add_node(deep, "Abs", {"late"}, {"deep_out"});
    set_float(deep->add_output(), "deep_out", {2});
    set_float(g->add_output(), "out", {2});
  }
  add_node(m.mutable_graph(), "Exp", {"x"}, {"late"});
  const Graph graph = parse(m).graph;
  EXPECT_THAT(op_types(graph), ElementsAre("Exp", "If"));
  EXPECT_THAT(op_types(*graph.nodes[1].get_graph("then_branch")), ElementsAre("If", "Neg"));
}

TEST(Graph, NestedGraphsMayRedefineOuterNames) {
  pb::ModelProto m = make_model({"x"}, {"y"});
  pb::NodeProto* branch = add_node(m.mutable_graph(), "If", {"x"}, {"y"});
  pb::GraphProto* g = add_graph(branch, "then_branch");
  add_node(g, "Abs", {"x"}, {"t"});
  add_node(g, "Neg", {"t"}, {"y"});  // the node's own output has this name too
  set_float(g->add_output(), "y", {2});
  set_float(g->add_value_info(), "t", {2});
  add_node(m.mutable_graph(), "Exp", {"x"}, {"t"});
  add_node(m.mutable_graph(), "Use", {"t"}, {"u"});

  const Graph graph = parse(m).graph;
  const GraphPtr inner = graph.nodes[0].get_graph("then_branch");
  const std::string t = inner->nodes[0].outputs[0], y = inner->nodes[1].outputs[0];
  EXPECT_NE(t, "t");
  EXPECT_NE(y, "y");
  EXPECT_EQ(inner->nodes[1].inputs[0], t);
  EXPECT_EQ(inner->outputs[0].name, y);
  EXPECT_EQ(inner->value_info[0].name, t);
  EXPECT_EQ(graph.nodes[2].inputs[0], "t");
}

TEST(Graph, InputsWithInitializersHaveDefaults) {
  for (const int ir : {3, 4, 10}) {
    pb::ModelProto m = make_model({"x", "w"}, {"y"});
    m.set_ir_version(ir);
    add_node(m.mutable_graph(), "Add", {"x", "w"}, {"y"});
    add_initializer(m.mutable_graph(), "w", {1, 2});
    const Model model = parse(m);
    EXPECT_EQ(model.ir_version, ir);
    EXPECT_FALSE(model.graph.inputs[0].has_default);
    EXPECT_TRUE(model.graph.inputs[1].has_default);
  }
}

TEST(Graph, OpsetsTakeTheHighestImport) {
  pb::ModelProto m = make_model();
  add_node(m.mutable_graph(), "Neg", {"x"}, {"y"});
  auto* o = m.add_opset_import();
  o->set_domain("ai.onnx"), o->set_version(21);
  EXPECT_EQ(parse(m).graph.nodes[0].opset, 21);
  for (const int version : {7, 28}) {
    pb::ModelProto at_bound = make_model();
    add_node(at_bound.mutable_graph(), "Neg", {"x"}, {"y"});
    at_bound.mutable_opset_import(0)->set_version(version);
    EXPECT_EQ(parse(at_bound).graph.nodes[0].opset, version);
  }
}

TEST(Graph, UnsupportedTensorsFailOnlyWhenUsed) {
  pb::ModelProto m = make_model();
  add_node(m.mutable_graph(), "Neg", {"x"}, {"y"});
  pb::TensorProto* t = m.mutable_graph()->add_initializer();
  t->set_name("words"), t->set_data_type(pb::TensorProto::STRING), t->add_dims(1), t->add_string_data("hello");
  pb::TensorProto* f = m.mutable_graph()->add_initializer();
  f->set_name("f6"), f->set_data_type(pb::TensorProto::FLOAT6E2M3), f->add_dims(4), f->set_raw_data("abc");
  const Graph graph = parse(m).graph;
  expect_error(ErrorKind::kUnsupported, {"'words'", "string"}, [&] { graph.initializers[0].require(); });
  expect_error(ErrorKind::kUnsupported, {"'f6'", "FLOAT6E2M3"}, [&] { graph.initializers[1].as<std::uint8_t>(); });
}

TEST(Graph, StrippedWeightsLoadOnRequestOnly) {
  pb::ModelProto m = make_model();
  add_node(m.mutable_graph(), "Add", {"x", "w"}, {"y"});
  pb::TensorProto* t = m.mutable_graph()->add_initializer();
  t->set_name("w"), t->set_data_type(pb::TensorProto::FLOAT16), t->add_dims(2);
  expect_invalid(m, {"'w'", "no data", "2 elements"});
  LoadOptions options;
  options.allow_missing_weights = true;
  const Tensor w = parse(m, {}, options).graph.initializers.at(0);
  EXPECT_EQ(w.dtype, DType::kFloat16);
  EXPECT_EQ(w.data, nullptr);
  expect_error(ErrorKind::kUnsupported, {"'w'", "without its weights"}, [&] { w.require(); });
}

}  // namespace
}  // namespace sardonyx::onnx
