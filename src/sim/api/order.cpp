// The order of streams while one of them is held. Each stream has a queue of operations that wait. The first one of a
// queue is executed when its stream is not held, the event that it waits for is reached, and the null stream's order
// allows it: the null stream and the streams that are not hipStreamNonBlocking wait for each other's earlier work.
#include <deque>

#include "sim/api/graph.h"

namespace sardonyx::sim {

struct Waiting {
  struct Item {
    unsigned long long number;  ///< in the order of submission, over all streams
    Operation operation;
  };
  std::deque<Item> items;
};

namespace {

bool isEmpty(const ihipStream_t& s) { return !s.waiting || s.waiting->items.empty(); }

bool isNull(const ihipStream_t& s) {
  return Runtime::get().devices[static_cast<std::size_t>(s.device)]->nullStream.get() == &s;
}

/// Whether work of `s` with this number comes after work of another stream that waits.
bool isBehindOthers(const ihipStream_t& s, unsigned long long number) {
  if (s.flags & hipStreamNonBlocking) return false;
  const bool null = isNull(s);
  for (const ihipStream_t* other : Runtime::get().streams()) {
    if (other == &s || other->device != s.device || other->flags & hipStreamNonBlocking || isNull(*other) == null)
      continue;
    if (!isEmpty(*other) && other->waiting->items.front().number < number) return true;
  }
  return false;
}

bool isReached(const Operation& operation) {
  const auto* wait = std::get_if<WaitOp>(&operation);
  return !wait || !Runtime::get().alive(wait->event) || wait->event->reached >= wait->number;
}

void executeFirst(ihipStream_t& s) {
  const Waiting::Item item = std::move(s.waiting->items.front());
  s.waiting->items.pop_front();
  --Runtime::get().waiting;
  // Events that were destroyed while they waited are no error of the stream.
  if (const hipError_t e = execute(item.operation, s.device); e == hipErrorLaunchFailure) s.failure = e;
}

template <class Done>
void waitUntil(Done done) {
  Runtime& rt = Runtime::get();
  if (rt.held + rt.waiting == 0) return;
  std::unique_lock lock(rt.execution);
  rt.executed.wait(lock, done);
}

}  // namespace

bool isBusy(const ihipStream_t& s) {
  const std::lock_guard lock(Runtime::get().execution);
  return !isEmpty(s);
}

bool mustWait(const ihipStream_t& s, const Operation& operation) {
  return s.held || !isEmpty(s) || !isReached(operation) || isBehindOthers(s, ~0ull);
}

void defer(ihipStream_t& s, Operation operation) {
  static unsigned long long number = 0;  // guarded by Runtime::execution
  // A graph may be changed after its launch.
  if (auto* child = std::get_if<ChildOp>(&operation)) child->graph = child->graph->clone();
  if (!s.waiting) s.waiting = std::make_shared<Waiting>();
  s.waiting->items.push_back({++number, std::move(operation)});
  ++Runtime::get().waiting;
}

void proceed() {
  Runtime& rt = Runtime::get();
  const std::lock_guard lock(rt.execution);
  for (bool more = true; more;) {
    more = false;
    for (ihipStream_t* s : rt.streams())
      while (!s->held && !isEmpty(*s) && isReached(s->waiting->items.front().operation) &&
             !isBehindOthers(*s, s->waiting->items.front().number)) {
        executeFirst(*s);
        more = true;
      }
  }
  rt.executed.notify_all();
}

void finishStream(ihipStream_t& s) {
  waitUntil([&] { return isEmpty(s); });
}

void finishDevice() {
  waitUntil([device = currentDevice()] {
    for (const ihipStream_t* s : Runtime::get().streams())
      if (s->device == device && !isEmpty(*s)) return false;
    return true;
  });
}

void finishAll() {
  waitUntil([] { return Runtime::get().waiting == 0; });
}

}  // namespace sardonyx::sim

using namespace sardonyx::sim;

extern "C" {

int sardonyxSimHoldStream(void* stream) {
  Runtime& rt = Runtime::get();
  const std::lock_guard lock(rt.execution);
  ihipStream_t* s = rt.devices.empty() ? nullptr : rt.stream(static_cast<hipStream_t>(stream));
  if (!s || s->held || s->capture != hipStreamCaptureStatusNone) return -1;
  s->held = true;
  ++rt.held;
  return 0;
}

int sardonyxSimReleaseStream(void* stream) {
  Runtime& rt = Runtime::get();
  const std::lock_guard lock(rt.execution);
  ihipStream_t* s = rt.devices.empty() ? nullptr : rt.stream(static_cast<hipStream_t>(stream));
  if (!s || !s->held) return -1;
  s->held = false;
  --rt.held;
  proceed();
  return 0;
}

}  // extern "C"
