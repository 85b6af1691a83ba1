// Streams and notifications; see stream.h.
#include "ep/stream.h"

namespace sardonyx::ep {

class Stream::Notification : public OrtSyncNotificationImpl {
 public:
  explicit Notification(Stream& stream)
      : OrtSyncNotificationImpl{}, ort_(stream.ort_), handle_(stream.handle_), event_(stream.device_->create_event()) {
    ort_version_supported = 23;
    Release = [](OrtSyncNotificationImpl* n) noexcept { delete static_cast<Notification*>(n); };
    Activate = [](OrtSyncNotificationImpl* n) noexcept -> OrtStatus* {
      auto* self = static_cast<Notification*>(n);
      return self->ort_.guarded([&] {
        if (self->event_) self->event_->record(self->handle_);
      });
    };
    WaitOnDevice = [](OrtSyncNotificationImpl* n, OrtSyncStream* consumer) noexcept -> OrtStatus* {
      auto* self = static_cast<Notification*>(n);
      return self->ort_.guarded([&] {
        if (!self->event_) return;
        if (consumer)
          self->event_->wait_in(self->ort_->SyncStream_GetHandle(consumer));
        else  // a node without a stream, such as a copy to the host
          self->event_->synchronize();
      });
    };
    WaitOnHost = [](OrtSyncNotificationImpl* n) noexcept -> OrtStatus* {
      auto* self = static_cast<Notification*>(n);
      return self->ort_.guarded([&] {
        if (self->event_) self->event_->synchronize();
      });
    };
  }

 private:
  const Ort& ort_;
  void* handle_;
  std::unique_ptr<GpuEvent> event_;  // null on the host, which is synchronous
};

Stream::Stream(const Ort& ort, std::shared_ptr<ProviderDevice> device, void* handle)
    : OrtSyncStreamImpl{}, ort_(ort), device_(std::move(device)), handle_(handle) {
  if (!handle_) {
    own_ = device_->create_stream();
    handle_ = own_.get();
  }
  ort_version_supported = 23;
  Release = [](OrtSyncStreamImpl* s) noexcept { delete static_cast<Stream*>(s); };
  GetHandle = [](OrtSyncStreamImpl* s) noexcept { return static_cast<Stream*>(s)->handle_; };
  CreateNotification = [](OrtSyncStreamImpl* s, OrtSyncNotificationImpl** out) noexcept -> OrtStatus* {
    auto* self = static_cast<Stream*>(s);
    return self->ort_.guarded([&] { *out = new Notification(*self); });
  };
  Flush = [](OrtSyncStreamImpl* s) noexcept -> OrtStatus* {
    auto* self = static_cast<Stream*>(s);
    return self->ort_.guarded([&] { self->device_->synchronize(self->handle_); });
  };
  OnSessionRunEnd = [](OrtSyncStreamImpl*) noexcept -> OrtStatus* { return nullptr; };
}

}  // namespace sardonyx::ep
