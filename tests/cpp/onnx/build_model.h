// Builds valid ONNX models through the generated protobuf classes, for tests to modify.
#pragma once
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <initializer_list>
#include <span>
#include <string>
#include <vector>

#include "onnx/load.h"
#include "onnx/proto.h"
#include "support/error.h"

namespace sardonyx::onnx {

inline std::span<const std::byte> bytes_of(const std::string& s) {
  return std::as_bytes(std::span(s.data(), s.size()));
}

inline void set_float(pb::ValueInfoProto* v, const std::string& name, const std::vector<std::int64_t>& dims) {
  v->set_name(name);
  auto* t = v->mutable_type()->mutable_tensor_type();
  t->set_elem_type(pb::TensorProto::FLOAT);
  for (const std::int64_t d : dims) t->mutable_shape()->add_dim()->set_dim_value(d);
}

/// IR 10, opset 20; inputs and outputs are float[2].
inline pb::ModelProto make_model(const std::vector<std::string>& inputs = {"x"},
                                 const std::vector<std::string>& outputs = {"y"}) {
  pb::ModelProto m;
  m.set_ir_version(10);
  m.set_producer_name("test");
  m.add_opset_import()->set_version(20);
  m.mutable_graph()->set_name("main");
  for (const std::string& n : inputs) set_float(m.mutable_graph()->add_input(), n, {2});
  for (const std::string& n : outputs) set_float(m.mutable_graph()->add_output(), n, {2});
  return m;
}

inline void set_node(pb::NodeProto* n, const std::string& op, const std::vector<std::string>& inputs,
                     const std::vector<std::string>& outputs, const std::string& name = "",
                     const std::string& domain = "") {
  n->set_op_type(op);
  if (!name.empty()) n->set_name(name);
  if (!domain.empty()) n->set_domain(domain);
  for (const std::string& i : inputs) n->add_input(i);
  for (const std::string& o : outputs) n->add_output(o);
}

/// Adds a node to a graph or function.
template <typename Body>
pb::NodeProto* add_node(Body* body, const std::string& op, const std::vector<std::string>& inputs,
                        const std::vector<std::string>& outputs, const std::string& name = "",
                        const std::string& domain = "") {
  pb::NodeProto* n = body->add_node();
  set_node(n, op, inputs, outputs, name, domain);
  return n;
}

inline pb::AttributeProto* add_attribute(pb::NodeProto* n, const std::string& name,
                                         pb::AttributeProto::AttributeType type) {
  pb::AttributeProto* a = n->add_attribute();
  a->set_name(name);
  a->set_type(type);
  return a;
}

inline pb::GraphProto* add_graph(pb::NodeProto* n, const std::string& name) {
  return add_attribute(n, name, pb::AttributeProto::GRAPH)->mutable_g();
}

inline pb::FunctionProto* add_function(pb::ModelProto& m, const std::string& name,
                                       const std::vector<std::string>& inputs, const std::vector<std::string>& outputs,
                                       const std::string& domain = "local") {
  pb::FunctionProto* f = m.add_functions();
  f->set_name(name);
  f->set_domain(domain);
  f->add_opset_import()->set_version(20);
  for (const std::string& i : inputs) f->add_input(i);
  for (const std::string& o : outputs) f->add_output(o);
  return f;
}

inline pb::TensorProto* add_initializer(pb::GraphProto* g, const std::string& name, const std::vector<float>& values) {
  pb::TensorProto* t = g->add_initializer();
  t->set_name(name);
  t->set_data_type(pb::TensorProto::FLOAT);
  t->add_dims(static_cast<std::int64_t>(values.size()));
  for (const float v : values) t->add_float_data(v);
  return t;
}

inline Model parse(const pb::ModelProto& m, const std::filesystem::path& base = {}, const LoadOptions& options = {}) {
  return parse(bytes_of(m.SerializeAsString()), base, options);
}

/// Expects that `what` throws an Error of `kind` whose message contains each of `parts`.
template <typename F>
void expect_error(ErrorKind kind, const std::vector<std::string>& parts, F&& what) {
  try {
    what();
    ADD_FAILURE() << "nothing was thrown";
  } catch (const Error& e) {
    EXPECT_EQ(static_cast<int>(e.kind()), static_cast<int>(kind)) << e.what();
    for (const std::string& p : parts) EXPECT_THAT(e.what(), testing::HasSubstr(p));
  }
}

inline void expect_invalid(const pb::ModelProto& m, const std::vector<std::string>& parts) {
  expect_error(ErrorKind::kInvalidModel, parts, [&] { parse(m); });
}

inline void expect_unsupported(const pb::ModelProto& m, const std::vector<std::string>& parts) {
  expect_error(ErrorKind::kUnsupported, parts, [&] { parse(m); });
}

inline std::vector<std::string> op_types(const Graph& g) {
  std::vector<std::string> out;
  for (const Node& n : g.nodes) out.push_back(n.op_type);
  return out;
}

/// A folder that is deleted with its contents at the end.
class TemporaryFolder {
 public:
  TemporaryFolder();
  ~TemporaryFolder();
  const std::filesystem::path& path() const { return path_; }
  void write(const std::string& file, const std::string& bytes) const;

 private:
  std::filesystem::path path_;
};

}  // namespace sardonyx::onnx
