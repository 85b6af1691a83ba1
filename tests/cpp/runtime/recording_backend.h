// A backend that computes nothing and records what the executor asks of it, in memory of its own. It shows all that a
// new device has to implement.
#pragma once
#include <cstdlib>
#include <cstring>
#include <memory>
#include <string>
#include <vector>

#include "runtime/backend.h"

namespace sardonyx {

using Log = std::vector<std::string>;

inline std::shared_ptr<void> recording_memory(std::size_t bytes) {
  return std::shared_ptr<void>(std::calloc(std::max<std::size_t>(bytes, 1), 1), std::free);
}

class RecordingStep : public PreparedStep {
 public:
  RecordingStep(const ProgramStep& step, Log& log) : step_(step), log_(log) {}
  void enqueue(RunState& run) override {
    for (const int b : step_.reads) run.at(b);  // throws for a buffer that is not in memory
    for (const int b : step_.writes) run.at(b);
    log_.push_back("enqueue " + step_.origin);
  }
  std::string name() const override { return step_.origin; }

 private:
  const ProgramStep& step_;
  Log& log_;
};

class RecordingQueue : public Queue {
 public:
  RecordingQueue(Log& log, bool captures) : log_(log), captures_(captures) {}
  void begin(const RunOptions&) override { log_.push_back("begin"); }
  void end(bool finished) noexcept override { log_.push_back(finished ? "end" : "end, unfinished"); }
  void synchronize() override { log_.push_back("synchronize"); }
  std::shared_ptr<void> allocate(std::size_t bytes) override {
    log_.push_back("allocate " + std::to_string(bytes));
    return recording_memory(bytes);
  }
  void copy(void* to, const void* from, std::size_t bytes) override { move("copy ", to, from, bytes); }
  void upload(void* to, const void* from, std::size_t bytes) override { move("upload ", to, from, bytes); }
  void download(void* to, const void* from, std::size_t bytes) override { move("download ", to, from, bytes); }
  std::unique_ptr<PreparedStep> prepare(const ProgramStep& step, RunState& run) override {
    const auto* l = std::get_if<LaunchStep>(&step.op);
    log_.push_back("prepare " + step.origin + (l ? " of " + std::to_string(run.eval(l->work_items)) : ""));
    return std::make_unique<RecordingStep>(step, log_);
  }
  bool replay(PreparedSteps steps, std::unique_ptr<CapturedRun>& captured, RunState&) override {
    if (!captures_) return false;
    if (!captured) {
      captured = std::make_unique<CapturedRun>();
      log_.push_back("capture " + std::to_string(steps.size()));
    }
    log_.push_back("replay");
    return true;
  }

 private:
  void move(const char* what, void* to, const void* from, std::size_t bytes) {
    log_.push_back(what + std::to_string(bytes));
    if (bytes > 0) std::memcpy(to, from, bytes);
  }

  Log& log_;
  bool captures_;
};

class RecordingBackend : public Backend {
 public:
  explicit RecordingBackend(Log& log, bool captures = true) : log_(log), captures_(captures) {}
  std::size_t alignment() const override { return 128; }
  bool separate_memory() const override { return true; }
  const void* device() const override { return this; }
  void load(const Program& program, int) override { log_.push_back("load " + std::to_string(program.kernels.size())); }
  void make_kernels(const Block& block, const RunState&) override {
    log_.push_back("make kernels for " + std::to_string(block.steps.size()));
  }
  std::unique_ptr<Queue> create_queue() override { return std::make_unique<RecordingQueue>(log_, captures_); }
  std::shared_ptr<void> allocate_lasting(std::size_t bytes) override {
    log_.push_back("allocate lasting " + std::to_string(bytes));
    return recording_memory(bytes);
  }
  std::shared_ptr<void> allocate_on_host(std::size_t bytes) override {
    log_.push_back("allocate on host " + std::to_string(bytes));
    return recording_memory(bytes);
  }

 private:
  Log& log_;
  bool captures_;
};

}  // namespace sardonyx
