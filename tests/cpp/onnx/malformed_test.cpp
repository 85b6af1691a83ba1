// Malformed and hostile models are refused with a message that names the place.
#include <gtest/gtest.h>

#include <random>

#include "build_model.h"

namespace sardonyx::onnx {
namespace {

using AP = pb::AttributeProto;

pb::ModelProto good() {
  pb::ModelProto m = make_model();
  add_node(m.mutable_graph(), "Neg", {"x"}, {"t"}, "neg");
  add_node(m.mutable_graph(), "Add", {"t", "w"}, {"y"}, "add");
  add_initializer(m.mutable_graph(), "w", {1, 2});
  return m;
}

TEST(Malformed, TheGoodOneLoads) { EXPECT_EQ(parse(good()).graph.nodes.size(), 2u); }

TEST(Malformed, Bytes) {
  expect_error(ErrorKind::kInvalidModel, {"empty"}, [] { parse(std::span<const std::byte>{}); });
  expect_error(ErrorKind::kInvalidModel, {}, [] { parse(bytes_of("<!DOCTYPE html><html></html>")); });
  expect_error(ErrorKind::kInvalidModel, {"protobuf"},
               [] { parse(bytes_of(std::string("\x3a\xff\xff\xff\xff\x0f", 6))); });  // graph of 4 GiB
  const std::string bytes = good().SerializeAsString();
  int parsed = 0;
  for (std::size_t n = 1; n < bytes.size(); ++n) {
    try {
      parse(bytes_of(bytes.substr(0, n)));
      ++parsed;  // cut between two fields after the graph: the operator sets are missing, or nothing that matters
    } catch (const Error& e) {
      EXPECT_NE(e.kind(), ErrorKind::kInternal) << e.what();
    }
  }
  EXPECT_EQ(parsed, 0);  // opset_import is the last field on the wire, and needed
}

TEST(Malformed, DamagedBytesNeverCrash) {
  const std::string bytes = good().SerializeAsString();
  std::mt19937 random(1);
  for (int i = 0; i < 20000; ++i) {
    std::string damaged = bytes;
    for (int k = 0; k < 1 + i % 4; ++k) damaged[random() % damaged.size()] = static_cast<char>(random());
    try {
      parse(bytes_of(damaged));
    } catch (const Error& e) {
      ASSERT_NE(e.kind(), ErrorKind::kInternal) << e.what();
    }
  }
}

TEST(Malformed, DeepNesting) {
  // Deeper than protobuf accepts (100 messages, 3 for each graph), then as deep as it does.
  for (const int depth : {1000, 30}) {
    pb::ModelProto m = make_model();
    pb::GraphProto* g = m.mutable_graph();
    for (int i = 0; i < depth; ++i) {
      const std::string out = i == 0 ? "y" : "y" + std::to_string(i);
      pb::NodeProto* n = add_node(g, "If", {"x"}, {out});
      if (i > 0) set_float(g->add_output(), out, {2});
      g = add_graph(n, "then_branch");
    }
    if (depth == 30)
      EXPECT_EQ(parse(m).graph.nodes.size(), 1u);
    else
      expect_invalid(m, {"protobuf"});
  }
}

TEST(Malformed, Header) {
  pb::ModelProto m = good();
  m.clear_ir_version();
  expect_invalid(m, {"not an ONNX model"});
  m.set_ir_version(99);
  expect_unsupported(m, {"IR version 99"});
  m = good();
  m.clear_graph();
  expect_invalid(m, {"no graph"});
  m = good();
  m.clear_opset_import();
  expect_invalid(m, {"node 0 'neg' (Neg)", "no operator set", "'ai.onnx'"});
  m = good();
  m.mutable_opset_import(0)->set_version(29);
  expect_unsupported(m, {"operator set 29", "1 to 28", "version_converter"});
  m = good();
  m.mutable_opset_import(0)->set_version(0);
  expect_invalid(m, {"version 0"});
  m = good();
  m.mutable_graph()->mutable_node(1)->set_domain("com.example");
  expect_invalid(m, {"'add'", "'com.example'", "opset_import"});
}

TEST(Malformed, Names) {
  pb::ModelProto m = good();
  m.mutable_graph()->mutable_node(1)->set_input(0, "nowhere");
  expect_invalid(m, {"node 1 'add' (Add)", "reads 'nowhere'"});
  m = good();
  m.mutable_graph()->mutable_node(1)->set_output(0, "t");
  expect_invalid(m, {"'t'", "twice"});
  m = good();
  m.mutable_graph()->mutable_node(1)->set_output(0, "x");
  expect_invalid(m, {"'x'", "twice"});
  m = good();
  m.mutable_graph()->mutable_node(1)->set_output(0, "w");
  expect_invalid(m, {"'w'", "twice"});
  m = good();
  set_float(m.mutable_graph()->add_input(), "x", {2});
  expect_invalid(m, {"'x'", "twice"});
  m = good();
  add_initializer(m.mutable_graph(), "w", {1});
  expect_invalid(m, {"initializer 'w'", "twice"});
  m = good();
  m.mutable_graph()->mutable_output(0)->set_name("nowhere");
  expect_invalid(m, {"graph output 'nowhere'"});
  m = good();
  set_float(m.mutable_graph()->add_output(), "y", {2});
  expect_invalid(m, {"graph output 'y'", "twice"});
  m = good();
  m.mutable_graph()->clear_output();
  expect_invalid(m, {"no outputs"});
  m = good();
  m.mutable_graph()->mutable_input(0)->clear_type();
  expect_invalid(m, {"graph input 'x'", "element type"});
  m = good();
  m.mutable_graph()->mutable_input(0)->clear_name();
  expect_invalid(m, {"no name"});
  m = good();
  m.mutable_graph()->mutable_node(0)->clear_op_type();
  expect_invalid(m, {"node 0 'neg'", "no operator"});
  for (const char* bad : {"\xff", "a\xc0\x80", "\xed\xa0\x80", "\xf4\x90\x80\x80", "\xe2\x82"}) {
    m = good();
    m.mutable_graph()->mutable_node(0)->set_name(bad);
    expect_invalid(m, {"UTF-8", "\\x"});
  }
  m = good();
  m.mutable_graph()->mutable_node(0)->set_name("\xe5\x90\x8d\xe5\x89\x8d \xf0\x9f\x98\x80");
  EXPECT_EQ(parse(m).graph.nodes[0].name, "\xe5\x90\x8d\xe5\x89\x8d \xf0\x9f\x98\x80");
}

TEST(Malformed, Cycles) {
  pb::ModelProto m = make_model();
  add_node(m.mutable_graph(), "A", {"c"}, {"a"}, "first");
  add_node(m.mutable_graph(), "B", {"a"}, {"b"}, "second");
  add_node(m.mutable_graph(), "C", {"b"}, {"c"}, "third");
  add_node(m.mutable_graph(), "D", {"c"}, {"y"}, "after");
  expect_invalid(m, {"cycle", "'first'", "'second'", "'third'"});
  try {
    parse(m);
  } catch (const Error& e) {
    EXPECT_THAT(e.what(), testing::Not(testing::HasSubstr("'after'")));
  }
  pb::ModelProto self = make_model();
  add_node(self.mutable_graph(), "A", {"y"}, {"y"}, "self");
  expect_invalid(self, {"cycle", "'self'"});
  // Through a nested graph: the branch reads what follows the If.
  pb::ModelProto nested = make_model();
  pb::NodeProto* branch = add_node(nested.mutable_graph(), "If", {"x"}, {"t"}, "branch");
  pb::GraphProto* g = add_graph(branch, "then_branch");
  add_node(g, "Neg", {"y"}, {"o"});
  set_float(g->add_output(), "o", {2});
  add_node(nested.mutable_graph(), "Abs", {"t"}, {"y"}, "after");
  expect_invalid(nested, {"cycle", "'branch'", "'after'"});
}

TEST(Malformed, NestedGraphs) {
  pb::ModelProto m = make_model();
  pb::NodeProto* branch = add_node(m.mutable_graph(), "If", {"x"}, {"y"}, "branch");
  pb::GraphProto* then = add_graph(branch, "then_branch");
  add_node(then, "Neg", {"x"}, {"private"});
  set_float(then->add_output(), "private", {2});
  pb::GraphProto* other = add_graph(branch, "else_branch");
  add_node(other, "Abs", {"private"}, {"o"}, "peek");  // a value of the sibling
  set_float(other->add_output(), "o", {2});
  expect_invalid(m, {"'peek'", "'private'"});
}

TEST(Malformed, Attributes) {
  pb::ModelProto m = good();
  pb::NodeProto* n = m.mutable_graph()->mutable_node(0);
  add_attribute(n, "k", AP::INT);
  add_attribute(n, "k", AP::INT);
  expect_invalid(m, {"'neg'", "'k' twice"});
  n->clear_attribute();
  add_attribute(n, "", AP::INT);
  expect_invalid(m, {"'neg'", "without a name"});
  for (const auto type : {AP::TENSOR, AP::GRAPH, AP::TYPE_PROTO, AP::SPARSE_TENSOR, AP::UNDEFINED}) {
    n->clear_attribute();
    add_attribute(n, "k", type);
    expect_invalid(m, {"'neg'", "'k'", "no value"});
  }
}

TEST(Malformed, DeclaredShapes) {
  pb::ModelProto m = good();
  m.mutable_graph()
      ->mutable_input(0)
      ->mutable_type()
      ->mutable_tensor_type()
      ->mutable_shape()
      ->mutable_dim(0)
      ->set_dim_value(-2);
  expect_invalid(m, {"graph input 'x'", "-2"});
  m = good();
  m.mutable_graph()->mutable_input(0)->mutable_type()->mutable_tensor_type()->set_elem_type(77);
  expect_invalid(m, {"graph input 'x'", "77"});
  m = good();
  for (int i = 0; i < 70; ++i)
    m.mutable_graph()->mutable_input(0)->mutable_type()->mutable_tensor_type()->mutable_shape()->add_dim();
  expect_invalid(m, {"graph input 'x'", "rank 71"});
}

}  // namespace
}  // namespace sardonyx::onnx
