// A program written for AMD's MIGraphX provider: an fp16 session, tensors in host memory, several batch sizes.
//   migraphx MODEL    with one float input [batch, ...] and one float output
// Compared with the MIGraphX provider's own samples, only the line that adds the provider differs: append_amdgpu().
#include <cmath>
#include <cstdio>
#include <numeric>

#include "amdgpu.h"

int main(int argc, char** argv) {
  if (argc < 2) return std::fprintf(stderr, "usage: migraphx MODEL\n"), 2;
  try {
    Ort::Env env(ORT_LOGGING_LEVEL_ERROR, "migraphx");
    Ort::SessionOptions options;
    options.SetGraphOptimizationLevel(GraphOptimizationLevel::ORT_ENABLE_ALL);
    options.AddConfigEntry("session.disable_cpu_ep_fallback", "1");
    // OrtMIGraphXProviderOptions o{}; o.device_id = 0; o.migraphx_fp16_enable = 1; ...
    // options.AppendExecutionProvider_MIGraphX(o);
    append_amdgpu(env, options,
                  {{"device_id", "0"},
                   {"migraphx_fp16_enable", "1"},
                   {"migraphx_exhaustive_tune", "0"},
                   {"migraphx_mem_limit", "1073741824"},
                   {"migraphx_arena_extend_strategy", "0"}});
    Ort::Session session(env, argv[1], options);

    Ort::AllocatorWithDefaultOptions allocator;
    const auto input = session.GetInputNameAllocated(0, allocator),
               output = session.GetOutputNameAllocated(0, allocator);
    std::vector<std::int64_t> dims = session.GetInputTypeInfo(0).GetTensorTypeAndShapeInfo().GetShape();
    const auto memory = Ort::MemoryInfo::CreateCpu(OrtArenaAllocator, OrtMemTypeDefault);
    for (const std::int64_t batch :
         {1, 2, 5}) {  // the MIGraphX provider compiles for each; this provider has one program for all
      for (std::size_t k = 0; k < dims.size(); ++k)
        if (k == 0 || dims[k] < 0) dims[k] = k == 0 ? batch : 8;
      std::vector<float> x(
          static_cast<std::size_t>(std::accumulate(dims.begin(), dims.end(), std::int64_t{1}, std::multiplies<>())));
      for (std::size_t k = 0; k < x.size(); ++k) x[k] = std::sin(static_cast<float>(k));
      Ort::Value value = Ort::Value::CreateTensor<float>(memory, x.data(), x.size(), dims.data(), dims.size());
      const char* inputs[] = {input.get()};
      const char* outputs[] = {output.get()};
      const auto results = session.Run(Ort::RunOptions(), inputs, &value, 1, outputs, 1);
      const auto shape = results[0].GetTensorTypeAndShapeInfo();
      const float* y = results[0].GetTensorData<float>();
      double sum = 0;
      for (std::size_t k = 0; k < shape.GetElementCount(); ++k) sum += y[k];
      std::printf("batch %lld: %zu results, sum %.4f\n", static_cast<long long>(batch), shape.GetElementCount(), sum);
    }
    return 0;
  } catch (const std::exception& e) {
    std::fprintf(stderr, "migraphx: %s\n", e.what());
    return 1;
  }
}
