// Files that the onnx package wrote (make_data.py, when the tests are built) are read with the same contents.
#include <cstring>
#include <fstream>
#include <sstream>

#include "build_model.h"

namespace sardonyx::onnx {
namespace {

namespace fs = std::filesystem;

std::string contents(const fs::path& path) {
  std::ifstream in(path, std::ios::binary);
  EXPECT_TRUE(in) << path;
  std::ostringstream out;
  out << in.rdbuf();
  return out.str();
}

std::string data_of(const Tensor& t) { return {reinterpret_cast<const char*>(t.data), t.bytes}; }

TEST(Interop, TensorsOfEveryType) {
  int read = 0;
  for (const auto& entry : fs::directory_iterator(fs::path(SARDONYX_ONNX_DATA) / "tensors")) {
    if (entry.path().extension() != ".pb") continue;
    SCOPED_TRACE(entry.path().filename().string());
    const Tensor t = parse_tensor(bytes_of(contents(entry.path())));
    EXPECT_EQ(data_of(t), contents(fs::path(entry.path()).replace_extension(".bin")));
    ++read;
  }
  EXPECT_EQ(read, 2 * kDTypeCount);
}

TEST(Interop, ExternalData) {
  const Graph graph = load(fs::path(SARDONYX_ONNX_DATA) / "external.onnx").graph;
  ASSERT_EQ(graph.initializers.size(), 3u);
  for (const Tensor& t : graph.initializers)
    EXPECT_EQ(data_of(t), contents(fs::path(SARDONYX_ONNX_DATA) / ("external_" + t.name + ".bin"))) << t.name;
}

TEST(Interop, FunctionsInlineAsOnnxInlinesThem) {
  const Graph graph = load(fs::path(SARDONYX_ONNX_DATA) / "functions.onnx").graph;
  std::string ops;
  for (const std::string& op : op_types(graph)) ops += op + "\n";
  EXPECT_EQ(ops, contents(fs::path(SARDONYX_ONNX_DATA) / "functions.txt"));
  EXPECT_EQ(graph.nodes.at(0).get_float("value_float", 0), 2);
  EXPECT_EQ(graph.nodes.at(3).get_float("value_float", 0), 3);
}

}  // namespace
}  // namespace sardonyx::onnx
