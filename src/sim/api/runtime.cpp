// See runtime.h. The one environment variable of the simulator is read here, once: SARDONYX_SIM, a comma-separated list
// of chips or an object as sardonyxSimConfigure takes it.
#include "sim/api/runtime.h"

#include <cstdio>
#include <cstdlib>

#include "sim/api/graph.h"
#include "sim/exec/device_memory.h"
#include "support/error.h"

namespace sardonyx::sim {

namespace {
struct Handles {
  std::map<ihipModule_t*, std::unique_ptr<ihipModule_t>> modules;
  std::map<ihipStream_t*, std::unique_ptr<ihipStream_t>> streams;
  std::map<ihipEvent_t*, std::unique_ptr<ihipEvent_t>> events;
  std::map<ihipMemPoolHandle_t*, std::unique_ptr<ihipMemPoolHandle_t>> pools;
  std::map<ihipGraph*, std::unique_ptr<ihipGraph>> graphs;
  std::map<hipGraphExec*, std::unique_ptr<hipGraphExec>> executables;
};
Handles& handles() {
  static Handles* h = new Handles;
  return *h;
}
}  // namespace

template <>
std::map<ihipModule_t*, std::unique_ptr<ihipModule_t>>& Runtime::live() {
  return handles().modules;
}
template <>
std::map<ihipStream_t*, std::unique_ptr<ihipStream_t>>& Runtime::live() {
  return handles().streams;
}
template <>
std::map<ihipEvent_t*, std::unique_ptr<ihipEvent_t>>& Runtime::live() {
  return handles().events;
}
template <>
std::map<ihipMemPoolHandle_t*, std::unique_ptr<ihipMemPoolHandle_t>>& Runtime::live() {
  return handles().pools;
}
template <>
std::map<ihipGraph*, std::unique_ptr<ihipGraph>>& Runtime::live() {
  return handles().graphs;
}
template <>
std::map<hipGraphExec*, std::unique_ptr<hipGraphExec>>& Runtime::live() {
  return handles().executables;
}

Runtime& Runtime::get() {
  static Runtime* runtime = new Runtime;  // host code that clang emits unregisters its modules after static destruction
  return *runtime;
}

Runtime::Runtime() {
  Config c;
  std::string_view rest;
  if (const char* text = std::getenv("SARDONYX_SIM")) rest = text;
  bool object = !rest.empty() && rest.front() == '{';
  if (!rest.empty() && !object) {
    c.chips.clear();
    while (!rest.empty()) {
      std::size_t comma = rest.find(',');
      c.chips.emplace_back(rest.substr(0, comma));
      rest = comma == std::string_view::npos ? std::string_view() : rest.substr(comma + 1);
    }
  }
  try {
    configure(object ? parseConfig(rest, c) : c);
  } catch (const std::exception& e) {
    lastFailure = std::string("SARDONYX_SIM: ") + e.what();  // no devices: every call says hipErrorNoDevice
    std::fprintf(stderr, "simulated GPU: %s\n", lastFailure.c_str());
  }
}

Config Runtime::config() const { return config_; }

void Runtime::configure(const Config& config) {
  std::vector<const Chip*> chips;
  for (const std::string& name : config.chips) {
    const Chip* chip = findChip(name);
    if (!chip) {
      std::string known;
      for (const Chip& c : allChips()) known += (known.empty() ? "" : ", ") + std::string(c.name);
      fail(ErrorKind::kInvalidArgument, "no chip {} to simulate; there are {}", name, known);
    }
    chips.push_back(chip);
  }
  if (chips.empty() || chips.size() > 64)
    fail(ErrorKind::kInvalidArgument, "1 to 64 devices can be simulated, not {}", chips.size());
  bool same = devices.size() == chips.size();
  for (std::size_t i = 0; same && i < chips.size(); ++i) same = devices[i]->chip == chips[i];
  config_ = config;
  DeviceMemory::instance().trackWrites(config.checkUninitialized);
  if (same) return;
  {
    std::lock_guard lock(mutex);
    live<ihipModule_t>().clear();
    repeated.clear();
  }
  devices.clear();
  for (const Chip* chip : chips) {
    auto d = std::make_unique<Device>();
    d->ordinal = static_cast<int>(devices.size());
    d->chip = chip;
    d->context = std::make_unique<ihipCtx_t>(ihipCtx_t{d->ordinal});
    for (auto* s : {&d->nullStream, &d->threadStream}) {
      *s = std::make_unique<ihipStream_t>();
      (*s)->device = d->ordinal;
    }
    d->defaultPool = std::make_unique<ihipMemPoolHandle_t>();
    d->defaultPool->device = d->ordinal;
    d->pool = d->defaultPool.get();
    DeviceMemory::instance().setLimit(d->ordinal, chip->memoryBytes);
    devices.push_back(std::move(d));
  }
}

ihipStream_t* Runtime::stream(hipStream_t handle) {
  if (handle == nullptr || handle == hipStreamLegacy) return device().nullStream.get();
  if (handle == hipStreamPerThread) return device().threadStream.get();
  return alive(handle) ? handle : nullptr;
}

std::vector<ihipStream_t*> Runtime::streams() {
  std::vector<ihipStream_t*> all;
  for (const auto& d : devices) all.insert(all.end(), {d->nullStream.get(), d->threadStream.get()});
  const std::lock_guard lock(mutex);
  for (const auto& [p, s] : handles().streams) all.push_back(p);
  return all;
}

void releaseCapture(const Graph* graph) {
  std::lock_guard lock(Runtime::get().mutex);
  for (auto& [p, s] : handles().streams)
    if (s->graph.get() == graph) {
      s->capture = hipStreamCaptureStatusNone;
      s->graph.reset();
      s->frontier.clear();
    }
  for (auto& [p, e] : handles().events)
    if (e->graph.get() == graph) {
      e->graph.reset();
      e->frontier.clear();
    }
}

int& currentDevice() {
  thread_local int d = 0;
  return d;
}
hipError_t& lastError() {
  thread_local hipError_t e = hipSuccess;
  return e;
}
Device& device() {
  auto& all = Runtime::get().devices;
  if (all.empty()) fail(ErrorKind::kDevice, "no simulated device");
  auto d = static_cast<std::size_t>(currentDevice());
  return *all[d < all.size() ? d : 0];
}

hipError_t guarded(const std::function<hipError_t()>& f) {
  hipError_t e;
  try {
    e = Runtime::get().devices.empty() ? hipErrorNoDevice : f();
  } catch (const Error& error) {
    Runtime::get().lastFailure = error.what();
    e = error.kind() == ErrorKind::kInvalidArgument ? hipErrorInvalidValue : hipErrorUnknown;
  } catch (const std::bad_alloc&) {
    e = hipErrorOutOfMemory;
  } catch (const std::exception& error) {
    Runtime::get().lastFailure = error.what();
    e = hipErrorUnknown;
  }
  // A query that is not ready is not an error.
  if (e != hipSuccess && e != hipErrorNotReady) lastError() = e;
  return e;
}

}  // namespace sardonyx::sim
