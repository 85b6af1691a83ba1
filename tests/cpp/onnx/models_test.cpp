// Every model in the directory SARDONYX_MODELS can be loaded: files of real exporters, with or without their weights.
#include <gtest/gtest.h>

#include <filesystem>

#include "onnx/external_data.h"
#include "onnx/load.h"
#include "support/error.h"

namespace sardonyx::onnx {
namespace {

TEST(Models, AllOfTheFolderLoad) {
  const std::filesystem::path folder = SARDONYX_MODELS;
  if (folder.empty()) GTEST_SKIP() << "SARDONYX_MODELS is not set: there are no models to load";
  int loaded = 0;
  for (const auto& entry : std::filesystem::recursive_directory_iterator(folder)) {
    if (entry.path().extension() != ".onnx") continue;
    SCOPED_TRACE(entry.path().string());
    LoadOptions options;
    options.allow_missing_weights = true;
    const Model model = load(entry.path(), options);
    EXPECT_FALSE(model.graph.nodes.empty());
    EXPECT_FALSE(model.graph.inputs.empty());
    EXPECT_TRUE(model.opsets.contains(""));
    for (const Tensor& t : model.graph.initializers) {
      if (t.unsupported.empty()) {
        EXPECT_EQ(t.bytes, static_cast<std::size_t>(t.elements()) * size_of(t.dtype)) << t.name;
        EXPECT_TRUE(is_aligned(t.data, t.bytes)) << t.name;
      }
    }
    ++loaded;
  }
  EXPECT_GT(loaded, 0) << folder;
}

}  // namespace
}  // namespace sardonyx::onnx
