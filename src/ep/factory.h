// The factory that ONNX Runtime gets when it loads the library: it offers devices, and creates a provider per session.
#pragma once
#include <memory>
#include <string>
#include <vector>

#include "ep/memory.h"
#include "ep/ort.h"
#include "ep/provider_device.h"

namespace sardonyx::ep {

class Factory : public OrtEpFactory {
 public:
  /// `names`: which devices to offer, as find_devices() takes them.
  Factory(const OrtApiBase* base, const OrtLogger* logger, const std::string& names);
  ~Factory();

 private:
  void supported(const OrtHardwareDevice* const* hardware, std::size_t count, OrtEpDevice** out, std::size_t capacity,
                 std::size_t* n);
  const OrtHardwareDevice* hardware_of(const ProviderDevice& device, const OrtHardwareDevice* const* hardware,
                                       std::size_t count);
  OrtEp* create(const OrtKeyValuePairs* const* metadata, std::size_t count, const OrtSessionOptions* options,
                const OrtLogger* logger);
  OrtAllocator* allocator(const OrtMemoryInfo* info);
  std::shared_ptr<ProviderDevice> device_of(const OrtMemoryInfo* info) const;

  Ort ort_;
  Log log_;
  std::vector<std::shared_ptr<ProviderDevice>> devices_;
  std::vector<OrtMemoryInfo*> infos_;
  std::vector<OrtHardwareDevice*> virtual_;
};

}  // namespace sardonyx::ep
