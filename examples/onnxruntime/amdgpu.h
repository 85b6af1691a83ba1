// The one thing that differs from a program written for AMD's ROCm or MIGraphX provider: how the provider is added.
#pragma once
#include <onnxruntime_cxx_api.h>

#include <cstdlib>
#include <stdexcept>
#include <string>
#include <unordered_map>
#include <vector>

/// Adds the provider to a session's options, with its own options or those of the MIGraphX or ROCm provider. The
/// library is the one in AMDGPU_EP_PATH; if that is not set, libamdgpu-ep.so in the loader's path.
inline void append_amdgpu(Ort::Env& env, Ort::SessionOptions& session,
                          const std::unordered_map<std::string, std::string>& options = {}) {
  constexpr const char* kName = "AMDGPUExecutionProvider";
  static bool registered = false;
  if (!registered) {
    const char* path = std::getenv("AMDGPU_EP_PATH");
    env.RegisterExecutionProviderLibrary(kName, path ? path : "libamdgpu-ep.so");
    registered = true;
  }
  std::vector<Ort::ConstEpDevice> devices;
  for (const Ort::ConstEpDevice device : env.GetEpDevices())
    if (device.EpName() == std::string(kName)) devices.push_back(device);
  if (devices.empty()) throw std::runtime_error("no AMD GPU can be used; ONNX Runtime's log says why");
  session.AppendExecutionProvider_V2(env, {devices.front()}, options);
}
