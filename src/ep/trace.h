// Times of kernels for ONNX Runtime's profile (1.25 and later), and for a separate file that Perfetto opens.
#pragma once
#include <atomic>
#include <cstdint>
#include <filesystem>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "ep/ort.h"
#include "sardonyx/options.h"

namespace sardonyx::ep {

/// Events of the kernels that a session ran while a profile was active. Thread-safe.
class Trace {
 public:
  struct Event {
    std::string name, nodes;
    std::int64_t start = 0, duration = 0;  ///< ns
    std::int32_t thread = 0;
  };
  /// The time of the clock that events use, in ns.
  static std::int64_t now();

  /// `file`: written when the trace is destroyed; empty: none.
  explicit Trace(std::filesystem::path file = {});
  ~Trace();
  bool active() const { return listeners_.load(std::memory_order_relaxed) > 0; }
  void listen(int change) { listeners_ += change; }
  /// Adds the consecutive steps of a run that began at `start`.
  void add(const std::vector<StepTime>& steps, std::int64_t start);
  /// Events that began at `from` or later.
  std::vector<Event> since(std::int64_t from) const;

 private:
  std::filesystem::path file_;
  std::atomic<int> listeners_ = 0;
  mutable std::mutex mutex_;
  std::vector<Event> events_;
};

/// Passes a trace to ONNX Runtime's profile. Only for runtimes 1.25 and later.
class Profiler : public OrtEpProfilerImpl {
 public:
  Profiler(const Ort& ort, std::shared_ptr<Trace> trace);

 private:
  void hand_over(OrtProfilingEventsContainer* events);
  const Ort& ort_;
  std::shared_ptr<Trace> trace_;
  std::int64_t began_ = 0, offset_ = 0;
  bool listening_ = false;
};

}  // namespace sardonyx::ep
