// How Model compiles variants while other threads run.
#include <gtest/gtest.h>

#include <atomic>
#include <chrono>
#include <future>

#include "api/model.h"
#include "import/op_builder.h"

namespace sardonyx {
namespace {

/// scale(x, k) = x * k for float32 x [1] and int64 k [1], whose value must be known to compile.
class ScaleSource : public ModelSource {
 public:
  Signature signature(const std::map<std::string, std::int64_t>& dims) const override {
    return declared_signature({value("x", DType::kFloat32), value("k", DType::kInt64)}, {value("y", DType::kFloat32)},
                              dims);
  }
  std::unique_ptr<Graph> import(const ImportOptions& options) const override {
    const auto k = options.values.find("k");
    if (k == options.values.end()) throw NeedInput{"k", NeedInput::kValue, "it is the scale"};
    OpBuilder b(options);
    Tensor scale = Tensor::allocate(DType::kFloat32, {1});
    scale.as<float>()[0] = static_cast<float>(k->second.as<std::int64_t>()[0]);
    b.output("y", b.op("Mul", {b.input(value("x", DType::kFloat32)), b.constant(scale)}));
    return b.finish();
  }
  QuantizationReport quantize(const CalibrationTable&, DType) override { return {}; }
  void release_weights() override {}

 private:
  static model::ValueInfo value(const std::string& name, DType dtype) {
    model::ValueInfo v;
    v.name = name;
    v.dtype = dtype;
    v.shape = {{1, ""}};
    return v;
  }
};

float run(Model& m, std::int64_t k) {
  Tensor x = Tensor::allocate(DType::kFloat32, {1}), index = Tensor::allocate(DType::kInt64, {1});
  x.as<float>()[0] = 1;
  index.as<std::int64_t>()[0] = k;
  return m.run({{"x", x}, {"k", index}}).at(0).as<float>()[0];
}

TEST(Variants, OthersRunWhileOneIsCompiled) {
  std::atomic<bool> block = false;
  std::promise<void> compiling;
  std::promise<void> proceed;
  Options o;
  o.progress = [&](const Progress& p) {
    if (p.stage == "importing" && block.exchange(false)) {
      compiling.set_value();
      proceed.get_future().wait();
    }
  };
  Model m(std::make_unique<ScaleSource>(), o);
  EXPECT_EQ(run(m, 2), 2);
  block = true;
  auto slow = std::async(std::launch::async, [&] { return run(m, 3); });
  compiling.get_future().wait();
  auto compiled = std::async(std::launch::async, [&] { return run(m, 2); });
  EXPECT_EQ(compiled.wait_for(std::chrono::seconds(60)), std::future_status::ready);
  EXPECT_EQ(m.program_count(), 1u);
  proceed.set_value();
  EXPECT_EQ(compiled.get(), 2);
  EXPECT_EQ(slow.get(), 3);
  EXPECT_EQ(m.program_count(), 2u);
}

TEST(Variants, ThreadsShareThem) {
  std::atomic<int> compiled = 0;
  Options o;
  o.progress = [&](const Progress& p) { compiled += p.stage == "ready"; };
  Model m(std::make_unique<ScaleSource>(), o);
  std::vector<std::future<float>> results;
  for (int k = 0; k < 12; ++k) results.push_back(std::async(std::launch::async, [&m, k] { return run(m, k % 3 + 1); }));
  for (int k = 0; k < 12; ++k) EXPECT_EQ(results[static_cast<std::size_t>(k)].get(), static_cast<float>(k % 3 + 1));
  EXPECT_EQ(m.program_count(), 3u);
  EXPECT_EQ(compiled, 3);
}

}  // namespace
}  // namespace sardonyx
