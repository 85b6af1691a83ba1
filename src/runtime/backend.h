// The boundary between running a program and the device that runs it. The executor (executor.h) binds symbols, places
// buffers, orders steps and follows control flow; everything that touches a device goes through Backend, Queue and
// PreparedStep. Implementations: host_backend.h, hip_backend.h and cuda_backend.h.
//
// A step runs in two parts. Queue::prepare() computes everything that depends on its sizes; the executor keeps the
// result for later runs with the same sizes. PreparedStep::enqueue() then starts the work on the buffers of the run.
#pragma once
#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>

#include "runtime/run_state.h"
#include "sardonyx/communicator.h"
#include "sardonyx/options.h"

namespace sardonyx {

/// A step prepared for given sizes. It belongs to the queue that prepared it.
class PreparedStep {
 public:
  virtual ~PreparedStep() = default;
  /// Starts the step's work, in the queue's order. Host memory of `run` may be in use until Queue::synchronize().
  virtual void enqueue(RunState& run) = 0;
  /// For profiles: the name of the kernel, or the kind of step.
  virtual std::string name() const = 0;
};
using PreparedSteps = std::span<const std::unique_ptr<PreparedStep>>;

/// A recording of all steps of a run, which are then started at once. The backend defines its contents.
class CapturedRun {
 public:
  virtual ~CapturedRun() = default;
};

/// An ordered queue of work on a device, with the memory that this work uses. Serves one run at a time.
class Queue {
 public:
  virtual ~Queue() = default;

  /// Begins a run, whose work is ordered after that of the previous one. begin() and end() are called by the same
  /// thread.
  virtual void begin(const RunOptions&) {}
  /// Called after code of the caller, which may have changed the thread's state in the device's API.
  virtual void resume() {}
  /// Ends the run. Unless its work is `finished`, later runs and finish() wait for it.
  virtual void end(bool /*finished*/) noexcept {}
  /// Waits for unfinished work of earlier runs.
  virtual void finish() noexcept {}
  /// Waits for all work of this run.
  virtual void synchronize() {}
  /// Seconds that all work so far is estimated to take on a card, where a simulated GPU's clock runs.
  virtual std::optional<double> estimated_seconds() { return {}; }

  /// Uninitialised device memory for a temporary, aligned to Backend::alignment(). After it is freed, later work of
  /// this queue may get it at once.
  virtual std::shared_ptr<void> allocate(std::size_t bytes) = 0;
  /// Returns cached free memory to the device.
  virtual void trim() {}

  /// Copies in the queue's order. copy() is within the device's memory. When upload() returns, `from` may be reused;
  /// when download() returns, the bytes have arrived.
  virtual void copy(void* to, const void* from, std::size_t bytes) = 0;
  virtual void upload(void* to, const void* from, std::size_t bytes) = 0;
  virtual void download(void* to, const void* from, std::size_t bytes) = 0;

  /// Prepares a step, other than control flow (BindStep, CheckStep, IfStep, WhileStep), for the sizes of `run`. The
  /// result may outlive the run but not the program. Throws AssumptionFailed for sizes that the code was not compiled
  /// for.
  virtual std::unique_ptr<PreparedStep> prepare(const ProgramStep& step, RunState& run) = 0;

  /// Starts a whole run as a captured one. If `captured` is empty it is first recorded from `steps`: the prepared steps
  /// of the main block, null for checks and steps that do not run. Returns false if the device has no captures; the
  /// steps must then be enqueued one by one.
  virtual bool replay(PreparedSteps, std::unique_ptr<CapturedRun>&, RunState&) { return false; }
};

/// A device with the code of a program.
class Backend {
 public:
  explicit Backend(std::shared_ptr<Communicator> communicator = nullptr) : communicator_(std::move(communicator)) {}
  virtual ~Backend() = default;
  Backend(const Backend&) = delete;
  Backend& operator=(const Backend&) = delete;

  /// The group of processes that run the program together; null if this process runs it alone.
  Communicator* communicator() const { return communicator_.get(); }
  /// Alignment of buffers in an arena, in bytes.
  virtual std::size_t alignment() const = 0;
  /// Whether the device has memory of its own. Then inputs, outputs and constants in host memory are copied, and a
  /// queue's work is asynchronous to the host.
  virtual bool separate_memory() const = 0;
  /// Identifies the device, if it has separate memory: programs on one device share constants of equal content.
  virtual const void* device() const { return nullptr; }

  /// Called once, before anything else. `threads` compile kernels. The program outlives the backend.
  virtual void load(const Program& program, int threads) = 0;
  /// Compiles and loads together, on several threads, the kernels that a run of `block` needs and that do not exist
  /// yet: steps would otherwise wait for one after another. Sizes that are not known yet may be missing from `run`.
  virtual void make_kernels(const Block&, const RunState&) {}

  virtual std::unique_ptr<Queue> create_queue() = 0;
  /// Device memory for data that outlives a run.
  virtual std::shared_ptr<void> allocate_lasting(std::size_t bytes) = 0;
  /// Host memory that the device's kernels can access.
  virtual std::shared_ptr<void> allocate_on_host(std::size_t bytes) = 0;

 private:
  std::shared_ptr<Communicator> communicator_;
};

}  // namespace sardonyx
