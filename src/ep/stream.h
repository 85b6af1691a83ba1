// ONNX Runtime's streams, implemented with streams of a device.
#pragma once
#include <memory>

#include "ep/ort.h"
#include "ep/provider_device.h"

namespace sardonyx::ep {

class Stream : public OrtSyncStreamImpl {
 public:
  /// `handle`: the application's stream; null: a new stream.
  Stream(const Ort& ort, std::shared_ptr<ProviderDevice> device, void* handle);

 private:
  class Notification;
  const Ort& ort_;
  std::shared_ptr<ProviderDevice> device_;
  std::shared_ptr<void> own_;
  void* handle_;
};

}  // namespace sardonyx::ep
