// libFuzzer target: any bytes, as a model and as a tensor. They must be refused with an Error that is not an internal
// one, or give a Model that keeps every promise of model/model.h. Half of the mutations edit the parsed message instead
// of its bytes, which reaches deeper than broken protobuf does.
#include <stdlib.h>

#include <algorithm>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <random>
#include <set>
#include <string>

#include "model_promises.h"
#include "onnx/load.h"
#include "onnx/proto.h"
#include "support/error.h"

extern "C" std::size_t LLVMFuzzerMutate(std::uint8_t* data, std::size_t size, std::size_t max_size);

namespace sardonyx::onnx {
namespace {

using namespace fuzz;  // NOLINT: require, verify

/// A folder with one file of 64 bytes, "d", for external data.
const std::filesystem::path& data_folder() {
  static const std::filesystem::path folder = [] {
    std::string pattern = (std::filesystem::temp_directory_path() / "fuzz_onnx_XXXXXX").string();
    if (mkdtemp(pattern.data()) == nullptr) std::abort();
    std::ofstream(std::filesystem::path(pattern) / "d") << std::string(64, '\5');
    std::atexit([] { std::filesystem::remove_all(data_folder()); });
    return std::filesystem::path(pattern);
  }();
  return folder;
}

/// Runs `read`, whose only way to fail is an Error about its input, or about a file that the input names.
template <typename F>
void expect_refusal_or(F&& read) {
  try {
    read();
  } catch (const Error& e) {
    require(e.kind() == ErrorKind::kInvalidModel || e.kind() == ErrorKind::kUnsupported || e.kind() == ErrorKind::kIo,
            e.what());
  }
}

// ---- Mutation of messages ----

using Random = std::minstd_rand;

std::size_t pick(Random& random, std::size_t n) { return random() % n; }

/// Every string that names a value, an operator or an attribute, to be exchanged for another one.
void names_of(pb::GraphProto& g, std::vector<std::string*>& out);
void names_of(pb::NodeProto& n, std::vector<std::string*>& out) {
  for (std::string& s : *n.mutable_input()) out.push_back(&s);
  for (std::string& s : *n.mutable_output()) out.push_back(&s);
  out.push_back(n.mutable_op_type());
  if (n.has_domain()) out.push_back(n.mutable_domain());
  for (pb::AttributeProto& a : *n.mutable_attribute()) {
    out.push_back(a.mutable_name());
    if (a.has_ref_attr_name()) out.push_back(a.mutable_ref_attr_name());
    if (a.has_g()) names_of(*a.mutable_g(), out);
  }
}
void names_of(pb::GraphProto& g, std::vector<std::string*>& out) {
  for (pb::NodeProto& n : *g.mutable_node()) names_of(n, out);
  for (auto* list : {g.mutable_input(), g.mutable_output()})
    for (pb::ValueInfoProto& v : *list) out.push_back(v.mutable_name());
  for (pb::TensorProto& t : *g.mutable_initializer()) out.push_back(t.mutable_name());
}

void graphs_of(pb::GraphProto& g, std::vector<pb::GraphProto*>& out) {
  out.push_back(&g);
  for (pb::NodeProto& n : *g.mutable_node())
    for (pb::AttributeProto& a : *n.mutable_attribute())
      if (a.has_g()) graphs_of(*a.mutable_g(), out);
}

void edit_tensor(pb::TensorProto& t, Random& random) {
  constexpr std::int64_t kDims[] = {0, 1, 2, 3, -1, 1 << 20, std::int64_t{1} << 40, INT64_MAX, INT64_MIN};
  switch (pick(random, 6)) {
    case 0:
      t.set_data_type(static_cast<int>(pick(random, 32)));
      break;
    case 1:
      t.add_dims(kDims[pick(random, std::size(kDims))]);
      break;
    case 2:
      if (t.dims_size() > 0)
        t.set_dims(static_cast<int>(pick(random, static_cast<std::size_t>(t.dims_size()))),
                   kDims[pick(random, std::size(kDims))]);
      break;
    case 3:
      t.add_int32_data(static_cast<int>(random()));
      break;
    case 4:
      if (t.int64_data_size() > 0)
        t.set_int64_data(static_cast<int>(pick(random, static_cast<std::size_t>(t.int64_data_size()))),
                         kDims[pick(random, std::size(kDims))]);
      break;
    default:
      t.mutable_raw_data()->resize(pick(random, 32), 'r');
  }
}

void edit(pb::ModelProto& m, Random& random) {
  std::vector<pb::GraphProto*> graphs;
  graphs_of(*m.mutable_graph(), graphs);
  pb::GraphProto& g = *graphs[pick(random, graphs.size())];
  auto* nodes = g.mutable_node();
  if (m.functions_size() > 0 && pick(random, 3) == 0)
    nodes = m.mutable_functions(static_cast<int>(pick(random, static_cast<std::size_t>(m.functions_size()))))
                ->mutable_node();
  const auto any = [&](auto* list) { return static_cast<int>(pick(random, static_cast<std::size_t>(list->size()))); };
  switch (pick(random, 9)) {
    case 0:
    case 1:
    case 2: {  // a name becomes another one
      std::vector<std::string*> names;
      names_of(*m.mutable_graph(), names);
      for (pb::FunctionProto& f : *m.mutable_functions())
        for (pb::NodeProto& n : *f.mutable_node()) names_of(n, names);
      for (pb::FunctionProto& f : *m.mutable_functions()) names.push_back(f.mutable_name());
      if (names.size() > 1) *names[pick(random, names.size())] = std::string(*names[pick(random, names.size())]);
      break;
    }
    case 3:
      if (nodes->size() > 1) nodes->SwapElements(any(nodes), any(nodes));
      break;
    case 4:
      if (nodes->size() > 0) {
        const pb::NodeProto copy = nodes->Get(any(nodes));
        *nodes->Add() = copy;
      }
      break;
    case 5:
      if (nodes->size() > 0) nodes->DeleteSubrange(any(nodes), 1);
      break;
    case 6:
      if (g.initializer_size() > 0) edit_tensor(*g.mutable_initializer(any(g.mutable_initializer())), random);
      break;
    case 7: {  // a graph into an attribute of a node
      if (nodes->size() == 0) break;
      const pb::GraphProto copy = *graphs[pick(random, graphs.size())];
      pb::AttributeProto* a = nodes->Mutable(any(nodes))->add_attribute();
      a->set_name("body"), a->set_type(pb::AttributeProto::GRAPH);
      *a->mutable_g() = copy;
      break;
    }
    default:
      if (g.sparse_initializer_size() > 0) {
        pb::SparseTensorProto& s = *g.mutable_sparse_initializer(any(g.mutable_sparse_initializer()));
        edit_tensor(pick(random, 2) == 0 ? *s.mutable_values() : *s.mutable_indices(), random);
      } else if (m.functions_size() > 0) {
        const pb::FunctionProto copy = m.functions(any(m.mutable_functions()));
        *m.add_functions() = copy;
        m.mutable_functions(m.functions_size() - 1)->mutable_name()->append("2");
      }
  }
}

}  // namespace
}  // namespace sardonyx::onnx

extern "C" std::size_t LLVMFuzzerCustomMutator(std::uint8_t* data, std::size_t size, std::size_t max_size,
                                               unsigned seed) {
  using namespace sardonyx::onnx;
  Random random(seed);
  pb::ModelProto m;
  if (random() % 2 == 0 || !m.ParsePartialFromArray(data, static_cast<int>(size)))
    return LLVMFuzzerMutate(data, size, max_size);
  for (std::size_t i = 0, n = 1 + pick(random, 4); i < n; ++i) edit(m, random);
  const std::string out = m.SerializePartialAsString();
  if (out.size() > max_size) return LLVMFuzzerMutate(data, size, max_size);
  std::copy(out.begin(), out.end(), data);
  return out.size();
}

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  using namespace sardonyx::onnx;
  const std::span bytes = std::as_bytes(std::span(data, size));
  LoadOptions options;
  options.allow_missing_weights = size % 2 == 1;
  expect_refusal_or(
      [&] { verify(parse(bytes, size % 4 < 2 ? data_folder() : std::filesystem::path(), options).graph, {}); });
  expect_refusal_or([&] {
    const Tensor t = parse_tensor(bytes);
    verify(t);
    if (!t.unsupported.empty()) return;
    const std::string bytes_again = serialize_tensor(t.name, t.dtype, t.dims, {t.data, t.bytes});
    const Tensor again = parse_tensor(std::as_bytes(std::span(bytes_again)));
    require(again.bytes == t.bytes && std::equal(t.data, t.data + t.bytes, again.data),
            "serialize_tensor inverts parse_tensor");
  });
  return 0;
}
