// Saving and loading compiled programs.
#include <unistd.h>

#include <fstream>
#include <thread>

#include "models.h"

namespace sardonyx {
namespace {

namespace fs = std::filesystem;

class Save : public testing::Test {
 protected:
  Save() : folder_(fs::temp_directory_path() / ("sardonyx-save-test-" + std::to_string(::getpid()))) {
    fs::create_directories(folder_);
  }
  ~Save() override { fs::remove_all(folder_); }
  fs::path folder_;
};

TEST_F(Save, TheSameModelComesBack) {
  const fs::path path = folder_ / "dense.sdx";
  const CompiledModel m = dense().compile();
  m.save(path);
  const CompiledModel loaded = CompiledModel::load(path, 2);
  EXPECT_EQ(loaded.inputs()[0].name, "x");
  EXPECT_EQ(loaded.inputs()[0].shape, m.inputs()[0].shape);
  EXPECT_EQ(loaded.outputs()[0].shape, m.outputs()[0].shape);
  EXPECT_EQ(loaded.output_dims({{"x", {9, 3}}}).at("y"), (std::vector<std::int64_t>{9, 2}));
  for (const std::int64_t batch : {0, 1, 33}) {
    const auto [x, y] = dense_case(batch);
    EXPECT_EQ(values(loaded.run({{"x", x}}).at("y")), y);
  }
  loaded.save(folder_ / "again.sdx");
  const auto [x, y] = dense_case(3);
  EXPECT_EQ(values(CompiledModel::load(folder_ / "again.sdx").run({{"x", x}}).at("y")), y);
  expect_error(ErrorKind::kInvalidArgument, {"'x'", "missing"}, [&] { loaded.run({}); });
}

TEST_F(Save, OptionsThatApplyToCompiledPrograms) {
  const fs::path path = folder_ / "dense.sdx";
  dense().compile().save(path);
  Options o;
  o.threads = 2;
  o.graphs = false;
  const auto [x, y] = dense_case(3);
  EXPECT_EQ(values(CompiledModel::load(path, o).run({{"x", x}}).at("y")), y);
  o.precision = "fp16";
  expect_error(ErrorKind::kInvalidArgument, {"precision", "dense.sdx is compiled already"},
               [&] { CompiledModel::load(path, o); });
}

TEST_F(Save, ControlFlowAndDataDependentShapes) {
  GraphBuilder g;
  const std::string x = g.input("x", DType::kFloat32, {"n"});
  g.output(g.op("NonZero", {x}), "where");
  const CompiledModel m = g.compile();
  EXPECT_EQ(m.output_dims({{"x", {4}}}).at("where"), (std::vector<std::int64_t>{1, -1}));
  m.save(folder_ / "m.sdx");
  const Tensor out = CompiledModel::load(folder_ / "m.sdx").run({{"x", floats({4}, {0, 1, 0, 2})}}).at("where");
  EXPECT_EQ(out.dims, (std::vector<std::int64_t>{1, 2}));
  EXPECT_EQ(out.as<std::int64_t>()[1], 3);
}

TEST_F(Save, DamageIsFoundAndOthersAreNotPrograms) {
  const fs::path path = folder_ / "dense.sdx";
  dense().compile().save(path);
  std::fstream(path, std::ios::in | std::ios::out | std::ios::binary).seekp(200).put('\x55');
  expect_error(ErrorKind::kInvalidModel, {"dense.sdx", "damaged", "save it again"}, [&] { CompiledModel::load(path); });
  std::ofstream(path, std::ios::trunc) << "ir_version: 8";
  expect_error(ErrorKind::kInvalidModel, {"dense.sdx", "not a program"}, [&] { CompiledModel::load(path); });
  expect_error(ErrorKind::kIo, {"none.sdx"}, [&] { CompiledModel::load(folder_ / "none.sdx"); });
  expect_error(ErrorKind::kIo, {"/no/folder/m.sdx"}, [&] { dense().compile().save("/no/folder/m.sdx"); });
}

// The shape of the result is the input's value, so there is a program for each.
GraphBuilder needs_value() {
  GraphBuilder g;
  const std::string x = g.input("x", DType::kFloat32, {2, 3}), axes = g.input("axes", DType::kInt64, {1});
  g.output(g.op("ReduceSum", {x, axes}, {{"keepdims", std::int64_t{0}}}), "y");
  return g;
}

TEST_F(Save, AProgramForEachValueOfAnInput) {
  const CompiledModel m = needs_value().compile();
  const Tensor x = floats({2, 3}, {1, 2, 3, 4, 5, 6});
  const auto axis = [](std::int64_t k) { return tensor<std::int64_t>(DType::kInt64, {1}, {k}); };
  EXPECT_EQ(values(m.run({{"x", x}, {"axes", axis(0)}}).at("y")), (std::vector<float>{5, 7, 9}));
  EXPECT_EQ(values(m.run({{"x", x}, {"axes", axis(1)}}).at("y")), (std::vector<float>{6, 15}));
  expect_error(ErrorKind::kInvalidArgument, {"'axes'", "float32", "int64"},
               [&] { m.run({{"x", x}, {"axes", floats({1}, {0})}}); });
  expect_error(ErrorKind::kInvalidArgument, {"'axes'", "dim 0 is 2"},
               [&] { m.run({{"x", x}, {"axes", tensor<std::int64_t>(DType::kInt64, {2}, {0, 1})}}); });
  expect_error(ErrorKind::kUnsupported, {"can't be saved", "'axes'"}, [&] { m.save(folder_ / "m.sdx"); });
  expect_error(ErrorKind::kUnsupported, {"'axes'"}, [&] { m.output_dims({{"x", {2, 3}}, {"axes", {1}}}); });
  std::vector<std::jthread> threads;
  for (int t = 0; t < 8; ++t)
    threads.emplace_back([&, t] {
      for (int k = 0; k < 20; ++k)
        EXPECT_EQ(m.run({{"x", x}, {"axes", axis((t + k) % 2)}}).at("y").elements(), (t + k) % 2 ? 2 : 3);
    });
}

TEST_F(Save, ASavedProgramSaysWhichSizesItIsNotFor) {
  GraphBuilder g;
  g.output(g.op("Add", {g.input("a", DType::kFloat32, {"n"}), g.input("b", DType::kFloat32, {"m"})}), "y");
  g.compile().save(folder_ / "m.sdx");
  const CompiledModel m = CompiledModel::load(folder_ / "m.sdx");
  const Tensor one = floats({1}, {1}), two = floats({2}, {1, 2});
  EXPECT_EQ(values(m.run({{"a", two}, {"b", two}}).at("y")), (std::vector<float>{2, 4}));
  expect_error(ErrorKind::kUnsupported, {"saved program", "compile the model"},
               [&] { m.run({{"a", one}, {"b", two}}); });
}

// A damaged entry of the cache costs a compilation, nothing else.
TEST_F(Save, DamagedCache) {
  GraphBuilder g;
  g.output(g.op("Abs", {g.op("Neg", {g.input("x", DType::kFloat32, {"n"})})}), "y");
  Options o;
  o.cache_dir = folder_ / "cache";
  const auto works = [&] {
    return values(g.compile(o).run({{"x", floats({3}, {1, -2, 3})}}).at("y")) == std::vector<float>{1, 2, 3};
  };
  EXPECT_TRUE(works());
  int files = 0;
  for (const auto& f : fs::directory_iterator(o.cache_dir)) {
    std::fstream(f.path(), std::ios::in | std::ios::out | std::ios::binary)
        .seekp(static_cast<std::streamoff>(fs::file_size(f.path())) / 2)
        .put('\x55');
    ++files;
  }
  EXPECT_GE(files, 1);
  EXPECT_TRUE(works());
  for (const auto& f : fs::directory_iterator(o.cache_dir)) fs::resize_file(f.path(), 10);
  EXPECT_TRUE(works());
}

}  // namespace
}  // namespace sardonyx
