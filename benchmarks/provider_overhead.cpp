// Compares a warm run through ONNX Runtime with the provider to a run of the same model in the library itself. Inputs
// and outputs are bound to device memory on both sides, and the two alternate.
//
//   provider_overhead libonnxruntime.so libamdgpu-ep.so model.onnx DEVICE [dim=N...] [runs=N] [cache=DIR]
//
// Prints a line of JSON: medians in microseconds, and their difference. Build: see README.md.
#include <dlfcn.h>

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <map>
#include <stdexcept>
#include <string>
#include <vector>

#define ORT_API_MANUAL_INIT
#include "onnxruntime_cxx_api.h"
#include "sardonyx/sardonyx.h"

namespace {

using Clock = std::chrono::steady_clock;

struct Arguments {
  std::string runtime, plugin, model, device, cache;
  std::map<std::string, std::int64_t> dims;
  int runs = 300;
};

Arguments parse(int argc, char** argv) {
  if (argc < 5)
    throw std::runtime_error("usage: provider_overhead RUNTIME PLUGIN MODEL DEVICE [dim=N] [runs=N] [cache=DIR]");
  Arguments a{argv[1], argv[2], argv[3], argv[4], "", {}, 300};
  for (int k = 5; k < argc; ++k) {
    const std::string word = argv[k];
    const std::size_t at = word.find('=');
    if (at == std::string::npos) throw std::runtime_error("'" + word + "' is not name=value");
    const std::string name = word.substr(0, at), value = word.substr(at + 1);
    if (name == "runs")
      a.runs = std::stoi(value);
    else if (name == "cache")
      a.cache = value;
    else
      a.dims[name] = std::stoll(value);
  }
  return a;
}

/// A device tensor; integers are 1, a valid index into any table.
struct Input {
  std::string name;
  sardonyx::DType dtype;
  std::vector<std::int64_t> dims;
  std::shared_ptr<void> memory;
  std::size_t bytes = 0;
};

ONNXTensorElementDataType element(sardonyx::DType t) {
  switch (t) {
    case sardonyx::DType::kFloat32:
      return ONNX_TENSOR_ELEMENT_DATA_TYPE_FLOAT;
    case sardonyx::DType::kFloat16:
      return ONNX_TENSOR_ELEMENT_DATA_TYPE_FLOAT16;
    case sardonyx::DType::kInt64:
      return ONNX_TENSOR_ELEMENT_DATA_TYPE_INT64;
    case sardonyx::DType::kInt32:
      return ONNX_TENSOR_ELEMENT_DATA_TYPE_INT32;
    default:
      throw std::runtime_error("inputs of this type are not made here");
  }
}

std::vector<Input> make_inputs(const sardonyx::CompiledModel& model, const sardonyx::Device& device,
                               const Arguments& a) {
  std::vector<Input> out;
  for (const sardonyx::TensorInfo& t : model.inputs()) {
    Input i{t.name, t.dtype, {}, nullptr, sardonyx::size_of(t.dtype)};
    std::size_t count = 1;
    for (const std::string& d : t.shape) {
      const bool number = d.find_first_not_of("0123456789") == std::string::npos;
      const auto given = a.dims.find(d);
      i.dims.push_back(number ? std::stoll(d) : given == a.dims.end() ? 1 : given->second);
      count *= static_cast<std::size_t>(i.dims.back());
    }
    i.bytes *= count;
    std::vector<char> host(i.bytes);
    if (t.dtype == sardonyx::DType::kInt64)
      std::fill_n(reinterpret_cast<std::int64_t*>(host.data()), count, 1);
    else if (t.dtype == sardonyx::DType::kInt32)
      std::fill_n(reinterpret_cast<std::int32_t*>(host.data()), count, 1);
    i.memory = device.allocate(i.bytes);
    device.copy(i.memory.get(), host.data(), i.bytes, sardonyx::CopyKind::kToDevice);
    out.push_back(std::move(i));
  }
  return out;
}

template <typename F>
double microseconds(const F& f) {
  const auto start = Clock::now();
  f();
  return std::chrono::duration<double, std::micro>(Clock::now() - start).count();
}

double median(std::vector<double> v) {
  std::nth_element(v.begin(), v.begin() + static_cast<std::ptrdiff_t>(v.size() / 2), v.end());
  return v[v.size() / 2];
}

void run(const Arguments& a) {
  ::setenv("SARDONYX_DEVICE", a.device.c_str(), 1);  // before the provider is registered
  void* library = dlopen(a.runtime.c_str(), RTLD_NOW | RTLD_LOCAL);
  if (!library) throw std::runtime_error(dlerror());
  const auto base = reinterpret_cast<const OrtApiBase* (*)()>(dlsym(library, "OrtGetApiBase"));
  if (!base || !base()->GetApi(23)) throw std::runtime_error("ONNX Runtime 1.23 or later is needed");
  Ort::InitApi(base()->GetApi(23));

  sardonyx::Options options;
  options.device = a.device;
  options.cache_dir = a.cache;
  const auto model = sardonyx::CompiledModel::from_file(a.model, options);
  const sardonyx::Device device = sardonyx::Device::open(a.device);
  const std::vector<Input> inputs = make_inputs(model, device, a);
  std::vector<sardonyx::TensorView> views;
  for (const Input& i : inputs) views.push_back({i.dtype, i.dims, i.memory.get(), a.device != "host"});
  std::vector<std::pair<std::shared_ptr<void>, std::size_t>> results(model.outputs().size());
  const auto bare = [&] {
    model.run(views, [&](std::size_t k, sardonyx::DType t, const std::vector<std::int64_t>& dims) {
      std::size_t bytes = sardonyx::size_of(t);
      for (const std::int64_t d : dims) bytes *= static_cast<std::size_t>(d);
      if (results[k].second < bytes) results[k] = {device.allocate(bytes), bytes};
      return sardonyx::OutputMemory{results[k].first.get(), a.device != "host"};
    });
  };

  Ort::Env env(ORT_LOGGING_LEVEL_ERROR, "overhead");
  // Relative names would be looked for beside ONNX Runtime.
  env.RegisterExecutionProviderLibrary("AMDGPUExecutionProvider", std::filesystem::absolute(a.plugin).c_str());
  std::vector<Ort::ConstEpDevice> chosen;
  for (const Ort::ConstEpDevice d : env.GetEpDevices())
    if (std::string(d.EpName()) == "AMDGPUExecutionProvider") chosen.push_back(d);
  if (chosen.empty()) throw std::runtime_error("the provider offers no device");
  {
    Ort::SessionOptions so;
    so.AddConfigEntry("session.disable_cpu_ep_fallback", "1");
    std::unordered_map<std::string, std::string> provider;
    if (a.cache.empty())
      provider["disable_caching"] = "1";
    else
      provider["cache_dir"] = a.cache;
    so.AppendExecutionProvider_V2(env, {chosen[0]}, provider);
    std::unique_ptr<Ort::Session> session;
    const double made = microseconds([&] { session = std::make_unique<Ort::Session>(env, a.model.c_str(), so); });
    const Ort::MemoryInfo memory("Hip", OrtMemoryInfoDeviceType_GPU, 0x1002, 0, OrtDeviceMemoryType_DEFAULT, 0,
                                 OrtDeviceAllocator);
    Ort::IoBinding binding(*session);
    for (const Input& i : inputs)
      binding.BindInput(i.name.c_str(), Ort::Value::CreateTensor(memory, i.memory.get(), i.bytes, i.dims.data(),
                                                                 i.dims.size(), element(i.dtype)));
    for (const std::string& name : session->GetOutputNames()) binding.BindOutput(name.c_str(), memory);
    const auto through = [&] { session->Run(Ort::RunOptions(), binding); };

    for (int k = 0; k < 10; ++k) {
      bare();
      through();
    }
    std::vector<double> ours, theirs;
    for (int k = 0; k < a.runs; ++k) {
      ours.push_back(microseconds(bare));
      theirs.push_back(microseconds(through));
    }
    std::printf(
        "{\"model\": \"%s\", \"device\": \"%s\", \"runtime\": \"%s\", \"library_us\": %.1f, \"provider_us\": %.1f, "
        "\"overhead_us\": %.1f, \"session_s\": %.3f}\n",
        a.model.substr(a.model.rfind('/') + 1).c_str(), a.device.c_str(), base()->GetVersionString(), median(ours),
        median(theirs), median(theirs) - median(ours), made / 1e6);
  }
  env.UnregisterExecutionProviderLibrary("AMDGPUExecutionProvider");
}

}  // namespace

int main(int argc, char** argv) {
  try {
    run(parse(argc, argv));
    return 0;
  } catch (const std::exception& e) {
    std::fprintf(stderr, "provider_overhead: %s\n", e.what());
    return 1;
  }
}
