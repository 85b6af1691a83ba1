// Streams and events. Operations execute when they are submitted, unless they come after work of a stream that is held
// (order.cpp); what is left to do is the order in captured graphs, times, and repeating failures at the next
// synchronisation.
#include "sim/api/graph.h"

using namespace sardonyx::sim;

namespace {

hipError_t takeFailure(ihipStream_t& s) {
  hipError_t e = s.failure;
  s.failure = hipSuccess;
  return e;
}

bool isReached(const ihipEvent_t& event) {
  const std::lock_guard lock(Runtime::get().execution);
  return event.reached >= event.issued;
}

hipError_t create(hipStream_t* stream, unsigned flags, int priority) {
  return guarded([&] {
    if (!stream || flags > hipStreamNonBlocking) return hipErrorInvalidValue;
    auto s = std::make_unique<ihipStream_t>();
    s->device = device().ordinal;
    s->flags = flags;
    s->priority = std::max(-1, std::min(1, priority));
    *stream = Runtime::get().add(std::move(s));
    return hipSuccess;
  });
}

}  // namespace

extern "C" {

hipError_t hipStreamCreate(hipStream_t* s) { return create(s, hipStreamDefault, 0); }
hipError_t hipStreamCreateWithFlags(hipStream_t* s, unsigned int flags) { return create(s, flags, 0); }
hipError_t hipStreamCreateWithPriority(hipStream_t* s, unsigned int flags, int priority) {
  return create(s, flags, priority);
}
hipError_t hipStreamDestroy(hipStream_t s) {
  return guarded([&] {
    if (!s || !Runtime::get().alive(s)) return hipErrorInvalidHandle;
    finishStream(*s);
    return Runtime::get().remove(s) ? hipSuccess : hipErrorInvalidHandle;
  });
}
hipError_t hipStreamQuery(hipStream_t h) {
  return guarded([&] {
    ihipStream_t* s = Runtime::get().stream(h);
    if (!s) return hipErrorInvalidHandle;
    if (s->capture != hipStreamCaptureStatusNone) return hipErrorStreamCaptureUnsupported;
    return isBusy(*s) ? hipErrorNotReady : takeFailure(*s);
  });
}
hipError_t hipStreamSynchronize(hipStream_t h) {
  return guarded([&] {
    ihipStream_t* s = Runtime::get().stream(h);
    if (!s) return hipErrorInvalidHandle;
    if (s->capture != hipStreamCaptureStatusNone) {
      s->capture = hipStreamCaptureStatusInvalidated;
      return hipErrorStreamCaptureUnsupported;
    }
    finishStream(*s);
    std::lock_guard lock(Runtime::get().execution);
    return takeFailure(*s);
  });
}
hipError_t hipDeviceSynchronize() {
  return guarded([&] {
    finishDevice();
    std::lock_guard lock(Runtime::get().execution);
    hipError_t e = takeFailure(*device().nullStream);
    hipError_t t = takeFailure(*device().threadStream);
    return e != hipSuccess ? e : t;
  });
}
hipError_t hipCtxSynchronize() { return hipDeviceSynchronize(); }
hipError_t hipStreamGetFlags(hipStream_t h, unsigned int* flags) {
  return guarded([&] {
    ihipStream_t* s = Runtime::get().stream(h);
    if (!flags) return hipErrorInvalidValue;
    if (!s) return hipErrorInvalidHandle;
    *flags = s->flags;
    return hipSuccess;
  });
}
hipError_t hipStreamGetPriority(hipStream_t h, int* priority) {
  return guarded([&] {
    ihipStream_t* s = Runtime::get().stream(h);
    if (!priority) return hipErrorInvalidValue;
    if (!s) return hipErrorInvalidHandle;
    *priority = s->priority;
    return hipSuccess;
  });
}
hipError_t hipStreamGetDevice(hipStream_t h, hipDevice_t* d) {
  return guarded([&] {
    ihipStream_t* s = Runtime::get().stream(h);
    if (!d) return hipErrorInvalidValue;
    if (!s) return hipErrorInvalidHandle;
    *d = s->device;
    return hipSuccess;
  });
}
hipError_t hipStreamWaitEvent(hipStream_t h, hipEvent_t event, unsigned int) {
  return guarded([&] {
    ihipStream_t* s = Runtime::get().stream(h);
    if (!s || !Runtime::get().alive(event)) return hipErrorInvalidHandle;
    if (!event->graph && s->capture == hipStreamCaptureStatusActive)
      return event->recorded ? hipErrorStreamCaptureIsolation : hipSuccess;
    if (!event->graph) return submit(h, WaitOp{event, event->issued});
    // An event of a capture: this stream joins it, or gains its dependencies.
    if (s->capture == hipStreamCaptureStatusNone) {
      s->capture = hipStreamCaptureStatusActive;
      s->origin = false;
      s->graph = event->graph;
      s->captureId = event->captureId;
      s->frontier.clear();
    } else if (s->graph != event->graph) {
      return hipErrorStreamCaptureMerge;
    }
    for (hipGraphNode_t n : event->frontier) s->frontier.push_back(n);
    return hipSuccess;
  });
}
hipError_t hipLaunchHostFunc(hipStream_t h, hipHostFn_t function, void* data) {
  return guarded([&] { return function ? submit(h, HostOp{{}, function, data}) : hipErrorInvalidValue; });
}
hipError_t hipStreamAddCallback(hipStream_t h, hipStreamCallback_t callback, void* data, unsigned int flags) {
  return guarded([&] {
    if (!callback || flags) return hipErrorInvalidValue;
    ihipStream_t* s = Runtime::get().stream(h);
    if (!s) return hipErrorInvalidHandle;
    if (s->capture != hipStreamCaptureStatusNone) return hipErrorStreamCaptureUnsupported;
    hipError_t status = s->failure;
    return submit(h, HostOp{[=] { callback(h, status, data); }});
  });
}

hipError_t hipEventCreateWithFlags(hipEvent_t* event, unsigned flags) {
  return guarded([&] {
    if (!event) return hipErrorInvalidValue;
    auto e = std::make_unique<ihipEvent_t>();
    e->flags = flags;
    *event = Runtime::get().add(std::move(e));
    return hipSuccess;
  });
}
hipError_t hipEventCreate(hipEvent_t* event) { return hipEventCreateWithFlags(event, hipEventDefault); }
hipError_t hipEventDestroy(hipEvent_t event) {
  return guarded([&] { return event && Runtime::get().remove(event) ? hipSuccess : hipErrorInvalidHandle; });
}
hipError_t hipEventRecord(hipEvent_t event, hipStream_t h) {
  return guarded([&] {
    ihipStream_t* s = Runtime::get().stream(h);
    if (!s || !Runtime::get().alive(event)) return hipErrorInvalidHandle;
    if (s->capture == hipStreamCaptureStatusActive) {
      event->graph = s->graph;
      event->frontier = s->frontier;
      event->captureId = s->captureId;
      return hipSuccess;
    }
    event->graph.reset();
    event->frontier.clear();
    return submit(h, RecordOp{event});
  });
}
hipError_t hipEventQuery(hipEvent_t event) {
  return guarded([&] {
    if (!Runtime::get().alive(event)) return hipErrorInvalidHandle;
    if (event->graph) return hipErrorCapturedEvent;
    return isReached(*event) ? hipSuccess : hipErrorNotReady;
  });
}
hipError_t hipEventSynchronize(hipEvent_t event) {
  return guarded([&] {
    Runtime& rt = Runtime::get();
    if (!rt.alive(event)) return hipErrorInvalidHandle;
    if (event->graph) return hipErrorCapturedEvent;
    std::unique_lock lock(rt.execution);
    rt.executed.wait(lock, [&] { return !rt.alive(event) || isReached(*event); });
    return hipSuccess;
  });
}
hipError_t hipEventElapsedTime(float* ms, hipEvent_t start, hipEvent_t stop) {
  return guarded([&] {
    if (!ms) return hipErrorInvalidValue;
    if (!Runtime::get().alive(start) || !Runtime::get().alive(stop)) return hipErrorInvalidHandle;
    if (!start->recorded || !stop->recorded || (start->flags | stop->flags) & hipEventDisableTiming)
      return hipErrorInvalidHandle;
    if (!isReached(*start) || !isReached(*stop)) return hipErrorNotReady;
    *ms = std::chrono::duration<float, std::milli>(stop->time - start->time).count();
    return hipSuccess;
  });
}

}  // extern "C"
