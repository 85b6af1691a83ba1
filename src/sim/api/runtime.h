// The state behind HIP's handles: devices, streams, events, modules, and the current device and last error of each
// thread.
#pragma once
#include <atomic>
#include <chrono>
#include <condition_variable>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <set>
#include <string>
#include <string_view>
#include <vector>

#pragma GCC visibility push(default)
#include "sim/include/hip/hip_runtime_api.h"
#include "sim/include/sardonyx_sim.h"
#pragma GCC visibility pop
#include "sim/exec/config.h"
#include "sim/exec/launch.h"
#include "sim/object/code_object.h"
#include "sim/timing/report.h"

namespace sardonyx::sim {
struct Graph;
struct Waiting;
}  // namespace sardonyx::sim

struct ihipModuleSymbol_t {
  const sardonyx::sim::Kernel* kernel = nullptr;
  int device = 0;
};

struct ihipModule_t {
  std::unique_ptr<sardonyx::sim::CodeObject> object;
  int device = 0;
  std::map<std::string, std::unique_ptr<ihipModuleSymbol_t>> functions;
};

struct ihipStream_t {
  int device = 0;
  unsigned flags = 0;
  int priority = 0;
  hipError_t failure = hipSuccess;                  ///< of a launch, reported again by the next synchronisation
  bool held = false;                                ///< by sardonyxSimHoldStream()
  std::shared_ptr<sardonyx::sim::Waiting> waiting;  ///< operations that wait; null: none ever did
  // Capture: nodes that the next operation depends on, and the graph they belong to.
  hipStreamCaptureStatus capture = hipStreamCaptureStatusNone;
  bool origin = false;  ///< the stream on which capture began
  std::shared_ptr<sardonyx::sim::Graph> graph;
  std::vector<hipGraphNode_t> frontier;
  unsigned long long captureId = 0;
};

struct ihipEvent_t {
  unsigned flags = 0;
  bool recorded = false;
  unsigned long long issued = 0, reached = 0;  ///< records that were submitted, and the last that was executed
  std::chrono::steady_clock::time_point time;
  // Set when recorded in a capturing stream: what a waiting stream then depends on.
  std::shared_ptr<sardonyx::sim::Graph> graph;
  std::vector<hipGraphNode_t> frontier;
  unsigned long long captureId = 0;
};

struct ihipMemPoolHandle_t {
  int device = 0;
  std::uint64_t releaseThreshold = 0;
  int reuse[4] = {0, 1, 1, 1};
};

struct ihipCtx_t {
  int device = 0;
};

namespace sardonyx::sim {

struct Device {
  int ordinal = 0;
  const Chip* chip = nullptr;
  std::unique_ptr<ihipCtx_t> context;
  std::unique_ptr<ihipStream_t> nullStream, threadStream;
  std::unique_ptr<ihipMemPoolHandle_t> defaultPool;
  ihipMemPoolHandle_t* pool = nullptr;
  std::unique_ptr<timing::DeviceCaches> caches;  ///< as the clock knows them; null until it runs
  std::size_t stackLimit = 1024;
};

/// Instruction counts of one kernel.
struct KernelCounts {
  std::string shown;
  std::uint64_t launches = 0, byCategory[static_cast<int>(Category::kCount)] = {};
  Traffic traffic;
};

/// Launches that differ in addresses alone ("timing_repeats").
struct Repeated {
  std::size_t simulated = 0;
  std::shared_ptr<const timing::Estimate> last;
};

class Runtime {
 public:
  static Runtime& get();

  Config config() const;
  void configure(const Config& config);  ///< throws Error for an unknown chip
  std::vector<std::unique_ptr<Device>> devices;

  /// Handles that are alive, so that a stale one gives an error instead of a crash.
  template <class T>
  T* add(std::unique_ptr<T> object) {
    T* p = object.get();
    std::lock_guard lock(mutex);
    live<T>()[p] = std::move(object);
    return p;
  }
  template <class T>
  bool alive(T* p) {
    std::lock_guard lock(mutex);
    return live<T>().count(p) != 0;
  }
  template <class T>
  bool remove(T* p) {
    std::unique_ptr<T> last;
    std::lock_guard lock(mutex);
    auto it = live<T>().find(p);
    if (it == live<T>().end()) return false;
    last = std::move(it->second);
    live<T>().erase(it);
    return true;
  }

  /// The stream a handle means: 0 and hipStreamLegacy the device's null stream. Null for a dead handle.
  ihipStream_t* stream(hipStream_t handle);
  /// All that are alive, the devices' own too.
  std::vector<ihipStream_t*> streams();

  std::recursive_mutex execution;              ///< operations run one after another, which in-order streams allow
  std::condition_variable_any executed;        ///< after operations that waited; with `execution`
  std::atomic<long long> held{0}, waiting{0};  ///< streams that are held; operations that wait
  std::mutex mutex;
  std::map<std::string, KernelCounts> summary;
  std::vector<timing::TimedLaunch> timed;    ///< with their instructions: the first launch of each kernel and grid
  std::map<std::string, Repeated> repeated;  ///< by what launches that differ in addresses alone have in common
  double microseconds = 0;                   ///< that the clock counted for all launches
  std::string lastFailure;
  /// What sardonyxSimCount() counts.
  std::atomic<long long> allocations{0}, graphs{0}, graphLaunches{0}, kernelLaunches{0};

 private:
  Runtime();
  template <class T>
  std::map<T*, std::unique_ptr<T>>& live();
  Config config_;
};

/// `base` with what a JSON object changes (sardonyx_sim.h lists the keys). Throws for text that is not such an object.
Config parseConfig(std::string_view json, const Config& base);

/// Device that the calling thread works on, and its last error.
int& currentDevice();
hipError_t& lastError();
Device& device();

/// Runs `f` and turns what it throws into an error code; remembers the code as the thread's last error.
hipError_t guarded(const std::function<hipError_t()>& f);

/// Packs kernelParams or extra into the explicit part of the kernarg segment. False when neither is given but needed.
bool packArguments(const Kernel& kernel, void** params, void** extra, std::vector<std::uint8_t>& out);

/// The function for a host symbol that clang's host code registered, loaded for the current device; null when unknown.
hipFunction_t functionOfSymbol(const void* symbol);
/// Address and size of a registered device variable.
bool variableOfSymbol(const void* symbol, void** address, std::size_t* size);
/// Loads an ELF code object or a bundle for the current device.
std::unique_ptr<ihipModule_t> loadModule(std::string_view image);
hipFunction_t findFunction(ihipModule_t& module, const std::string& name);

}  // namespace sardonyx::sim
