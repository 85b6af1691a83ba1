// Traces of kernels; see trace.h.
#include "ep/trace.h"

#include <unistd.h>

#include <chrono>
#include <fstream>

namespace sardonyx::ep {
namespace {

std::string quoted(const std::string& text) {
  std::string out = "\"";
  for (const char c : text) {
    if (c == '"' || c == '\\') out += '\\';
    if (static_cast<unsigned char>(c) < 0x20)
      out += fmt::format("\\u{:04x}", static_cast<unsigned>(c));
    else
      out += c;
  }
  return out + "\"";
}

}  // namespace

std::int64_t Trace::now() {
  return std::chrono::duration_cast<std::chrono::nanoseconds>(std::chrono::steady_clock::now().time_since_epoch())
      .count();
}

Trace::Trace(std::filesystem::path file) : file_(std::move(file)) {
  if (!file_.empty()) listen(1);
}

Trace::~Trace() {
  if (file_.empty()) return;
  std::ofstream out(file_);
  out << "{\"displayTimeUnit\":\"ms\",\"traceEvents\":[\n";
  bool first = true;
  for (const Event& e : events_) {
    out << (first ? "" : ",\n")
        << fmt::format(
               R"({{"ph":"X","cat":"Kernel","name":{},"pid":{},"tid":{},"ts":{:.3f},"dur":{:.3f},"args":{{"nodes":{},"provider":"{}"}}}})",
               quoted(e.name), ::getpid(), e.thread, static_cast<double>(e.start) / 1e3,
               static_cast<double>(e.duration) / 1e3, quoted(e.nodes), kProvider);
    first = false;
  }
  out << "\n]}\n";
}

void Trace::add(const std::vector<StepTime>& steps, std::int64_t start) {
  const auto thread = static_cast<std::int32_t>(::gettid());
  const std::lock_guard lock(mutex_);
  for (const StepTime& s : steps) {
    const auto duration = static_cast<std::int64_t>(s.seconds * 1e9);
    events_.push_back({s.what, s.origin, start, duration, thread});
    start += duration;
  }
}

std::vector<Trace::Event> Trace::since(std::int64_t from) const {
  const std::lock_guard lock(mutex_);
  std::vector<Event> out;
  for (const Event& e : events_)
    if (e.start >= from) out.push_back(e);
  return out;
}

Profiler::Profiler(const Ort& ort, std::shared_ptr<Trace> trace)
    : OrtEpProfilerImpl{}, ort_(ort), trace_(std::move(trace)) {
  ort_version_supported = kNewestApi;
  Release = [](OrtEpProfilerImpl* p) noexcept {
    auto* self = static_cast<Profiler*>(p);
    if (self->listening_) self->trace_->listen(-1);
    delete self;
  };
  StartProfiling = [](OrtEpProfilerImpl* p, std::int64_t offset) noexcept -> OrtStatus* {
    auto* self = static_cast<Profiler*>(p);
    self->began_ = Trace::now();
    self->offset_ = offset;
    if (!self->listening_) self->trace_->listen(1);
    self->listening_ = true;
    return nullptr;
  };
  StartEvent = nullptr;
  StopEvent = nullptr;
  EndProfiling = [](OrtEpProfilerImpl* p, OrtProfilingEventsContainer* events) noexcept -> OrtStatus* {
    auto* self = static_cast<Profiler*>(p);
    return self->ort_.guarded([&] { self->hand_over(events); });
  };
}

void Profiler::hand_over(OrtProfilingEventsContainer* events) {
  if (listening_) trace_->listen(-1);
  listening_ = false;
  for (const Trace::Event& e : trace_->since(began_)) {
    const char* const keys[] = {"nodes", "provider"};
    const char* const values[] = {e.nodes.c_str(), kProvider};
    OrtProfilingEvent* event = nullptr;
    ort_.require(ort_.later()->CreateProfilingEvent(kProfilingEventKernel, ::getpid(), e.thread, e.name.c_str(),
                                                    (offset_ + e.start - began_) / 1000, e.duration / 1000, keys,
                                                    values, 2, &event));
    OrtStatus* s = ort_.later()->ProfilingEventsContainer_AddEvents(events, &event, 1);
    ort_.later()->ReleaseProfilingEvent(event);
    ort_.require(s);
  }
}

}  // namespace sardonyx::ep
