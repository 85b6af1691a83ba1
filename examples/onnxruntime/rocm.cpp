// A program written for AMD's ROCm provider: inputs and outputs bound to device memory.
//   rocm MODEL    with one float input [batch, ...] and one float output
// Compared with the ROCm provider's own samples, only the line that adds the provider differs: append_amdgpu(). Device
// memory is called "Hip" in both.
#include <cmath>
#include <cstdio>
#include <numeric>

#include "amdgpu.h"

int main(int argc, char** argv) {
  if (argc < 2) return std::fprintf(stderr, "usage: rocm MODEL\n"), 2;
  try {
    Ort::Env env(ORT_LOGGING_LEVEL_ERROR, "rocm");
    Ort::SessionOptions options;
    options.AddConfigEntry("session.disable_cpu_ep_fallback", "1");
    // OrtROCMProviderOptions o; o.device_id = 0; o.gpu_mem_limit = ...; options.AppendExecutionProvider_ROCM(o);
    append_amdgpu(env, options,
                  {{"device_id", "0"},
                   {"gpu_mem_limit", "2147483648"},
                   {"arena_extend_strategy", "kSameAsRequested"},
                   {"do_copy_in_default_stream", "1"},
                   {"tunable_op_enable", "1"},
                   {"tunable_op_tuning_enable", "0"}});
    Ort::Session session(env, argv[1], options);

    Ort::AllocatorWithDefaultOptions host;
    const auto input = session.GetInputNameAllocated(0, host), output = session.GetOutputNameAllocated(0, host);
    std::vector<std::int64_t> dims = session.GetInputTypeInfo(0).GetTensorTypeAndShapeInfo().GetShape();
    for (std::size_t k = 0; k < dims.size(); ++k)
      if (dims[k] < 0) dims[k] = k == 0 ? 3 : 8;
    std::vector<float> x(
        static_cast<std::size_t>(std::accumulate(dims.begin(), dims.end(), std::int64_t{1}, std::multiplies<>())));
    for (std::size_t k = 0; k < x.size(); ++k) x[k] = std::cos(static_cast<float>(k));

    const Ort::MemoryInfo on_device("Hip", OrtMemoryInfoDeviceType_GPU, 0x1002, 0, OrtDeviceMemoryType_DEFAULT, 0,
                                    OrtDeviceAllocator);
    const auto on_host = Ort::MemoryInfo::CreateCpu(OrtArenaAllocator, OrtMemTypeDefault);
    Ort::Allocator device(session, on_device);
    // A device tensor, filled from the host; the provider allocates the output.
    Ort::Value bound = Ort::Value::CreateTensor<float>(device, dims.data(), dims.size());
    const Ort::Value value = Ort::Value::CreateTensor<float>(on_host, x.data(), x.size(), dims.data(), dims.size());
    const std::vector<const OrtValue*> from = {value};
    const std::vector<OrtValue*> to = {bound};
    Ort::ThrowOnError(Ort::GetApi().CopyTensors(env, from.data(), to.data(), nullptr, 1));

    Ort::IoBinding binding(session);
    binding.BindInput(input.get(), bound);
    binding.BindOutput(output.get(), on_device);
    for (int k = 0; k < 3; ++k) session.Run(Ort::RunOptions(), binding);
    binding.SynchronizeOutputs();
    const std::vector<Ort::Value> results = binding.GetOutputValues();
    if (results[0].GetTensorMemoryInfo().GetDeviceType() != OrtMemoryInfoDeviceType_GPU)
      throw std::runtime_error("the output is not in the device's memory");
    const auto shape = results[0].GetTensorTypeAndShapeInfo();
    std::vector<float> y(shape.GetElementCount());
    const std::vector<std::int64_t> out = shape.GetShape();
    const Ort::Value copy = Ort::Value::CreateTensor<float>(on_host, y.data(), y.size(), out.data(), out.size());
    const std::vector<const OrtValue*> result = {results[0]};
    const std::vector<OrtValue*> target = {copy};
    Ort::ThrowOnError(Ort::GetApi().CopyTensors(env, result.data(), const_cast<OrtValue**>(target.data()), nullptr, 1));
    std::printf("%zu results, sum %.4f\n", y.size(), std::accumulate(y.begin(), y.end(), 0.0));
    return 0;
  } catch (const std::exception& e) {
    std::fprintf(stderr, "rocm: %s\n", e.what());
    return 1;
  }
}
