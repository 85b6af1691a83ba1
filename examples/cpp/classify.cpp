// Builds a small classifier in memory, compiles it once and runs it at several batch sizes; then saves the program,
// loads it and runs it again. With a file as argument, `classify model.onnx`, it prints the inputs and outputs of that
// model.
#include <sardonyx/sardonyx.h>

#include <cstdio>
#include <filesystem>

namespace {

using sardonyx::CompiledModel;
using sardonyx::DType;
using sardonyx::Tensor;

Tensor floats(std::vector<std::int64_t> dims, const std::vector<float>& values) {
  Tensor t = Tensor::allocate(DType::kFloat32, std::move(dims));
  std::copy(values.begin(), values.end(), t.as<float>().begin());
  return t;
}

// probabilities[batch, 2] = softmax(x[batch, 3] * weights + bias)
CompiledModel make_classifier() {
  sardonyx::GraphBuilder g;
  const std::string x = g.input("x", DType::kFloat32, {"batch", 3});
  const std::string weights = g.constant(floats({3, 2}, {1, -1, 0, 2, -1, 1}));
  const std::string bias = g.constant(floats({2}, {0.5f, 0}));
  const std::string scores = g.op("Gemm", {x, weights, bias});
  g.output(g.op("Softmax", {scores}, {{"axis", std::int64_t{1}}}), "probabilities");
  sardonyx::Options options;
  options.cache_dir = sardonyx::user_cache_directory();  // the second run reads the compiled code from the cache
  return g.compile(options);
}

void classify(const CompiledModel& model, std::int64_t batch) {
  Tensor x = Tensor::allocate(DType::kFloat32, {batch, 3});
  float next = 0;
  for (float& v : x.as<float>()) v = next, next += 0.25f;
  const Tensor y = model.run({{"x", x}}).at("probabilities");
  std::printf("batch %lld:", static_cast<long long>(batch));
  for (const float p : y.as<float>()) std::printf(" %.4f", static_cast<double>(p));
  std::printf("\n");
}

void describe(const char* head, const std::vector<sardonyx::TensorInfo>& tensors) {
  for (const sardonyx::TensorInfo& t : tensors) {
    std::printf("%s %s: %s [", head, t.name.c_str(), std::string(sardonyx::name(t.dtype)).c_str());
    for (std::size_t k = 0; k < t.shape.size(); ++k) std::printf("%s%s", k ? ", " : "", t.shape[k].c_str());
    std::printf("]\n");
  }
}

}  // namespace

int main(int argc, char** argv) try {
  if (argc > 1) {
    const CompiledModel model = CompiledModel::from_file(argv[1]);
    describe("input", model.inputs());
    describe("output", model.outputs());
    return 0;
  }
  std::printf("Sardonyx %s on %s\n", std::string(sardonyx::version()).c_str(),
              sardonyx::devices().front().description.c_str());
  const CompiledModel model = make_classifier();
  describe("output", model.outputs());
  for (const std::int64_t batch : {1, 3}) classify(model, batch);

  const auto file = std::filesystem::temp_directory_path() / "classifier.sardonyx";
  model.save(file);
  classify(CompiledModel::load(file), 2);
  std::filesystem::remove(file);
  return 0;
} catch (const sardonyx::Error& e) {
  std::fprintf(stderr, "classify: %s\n", e.what());
  return static_cast<int>(e.kind());
}
