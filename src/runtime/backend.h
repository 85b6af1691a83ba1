// The boundary between running a program and the device that runs it. The executor (executor.h) binds symbols, places
// buffers, orders steps and follows control flow; everything that touches a device goes through Backend, Queue and
// PreparedStep. Implementations: host_backend.h, hip_backend.h and cuda_backend.h.
//
// A step runs in two parts. Queue::prepare() works out everything that its sizes decide; the executor keeps the result
// for later runs of the same sizes. PreparedStep::enqueue() then starts the work on the buffers of the run.
#pragma once
#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>

#include "runtime/run_state.h"
#include "sardonyx/communicator.h"
#include "sardonyx/options.h"

namespace sardonyx {

/// A step for given sizes. It belongs to the queue that prepared it.
class PreparedStep {
 public:
  virtual ~PreparedStep() = default;
  /// Starts the step's work, in the queue's order. Host memory of `run` may be in use until Queue::synchronize().
  virtual void enqueue(RunState& run) = 0;
  /// For profiles: the kernel, or the kind of step.
  virtual std::string name() const = 0;
};
using PreparedSteps = std::span<const std::unique_ptr<PreparedStep>>;

/// All steps of a run recorded, so that they are started at once. What it holds is the backend's.
class CapturedRun {
 public:
  virtual ~CapturedRun() = default;
};

/// Order of work on a device, and the memory that this work uses. For one run at a time.
class Queue {
 public:
  virtual ~Queue() = default;

  /// A run begins: its work comes after that of the last one. begin() and end() are called by the same thread.
  virtual void begin(const RunOptions&) {}
  /// The caller's code ran in between, and may have changed what the device's API keeps for the thread.
  virtual void resume() {}
  /// The run is over. Unless its work is `finished`, later runs and finish() wait for it.
  virtual void end(bool /*finished*/) noexcept {}
  /// Waits for work that earlier runs left.
  virtual void finish() noexcept {}
  /// Waits for all work of this run.
  virtual void synchronize() {}

  /// Memory of the device for a temporary, uninitialised, at a multiple of Backend::alignment(). When it is freed,
  /// later work of this queue may get it at once.
  virtual std::shared_ptr<void> allocate(std::size_t bytes) = 0;
  /// Gives memory that is kept for later use back to the device.
  virtual void trim() {}

  /// Copies in the queue's order. copy() is within the device's memory; `from` may be reused when upload() returns, and
  /// the bytes are there when download() returns.
  virtual void copy(void* to, const void* from, std::size_t bytes) = 0;
  virtual void upload(void* to, const void* from, std::size_t bytes) = 0;
  virtual void download(void* to, const void* from, std::size_t bytes) = 0;

  /// A step other than control flow (BindStep, CheckStep, IfStep, WhileStep) for the sizes of `run`, which may outlive
  /// the run but not the program. Throws AssumptionFailed for sizes that the code was not compiled for.
  virtual std::unique_ptr<PreparedStep> prepare(const ProgramStep& step, RunState& run) = 0;

  /// Starts a whole run by a capture, which is made from `steps` (those of the main block, prepared; null: a check, or
  /// a step that does not run) if `captured` is empty. False if this device has no captures: enqueue the steps one by
  /// one.
  virtual bool replay(PreparedSteps, std::unique_ptr<CapturedRun>&, RunState&) { return false; }
};

/// A device with a program's code.
class Backend {
 public:
  explicit Backend(std::shared_ptr<Communicator> communicator = nullptr) : communicator_(std::move(communicator)) {}
  virtual ~Backend() = default;
  Backend(const Backend&) = delete;
  Backend& operator=(const Backend&) = delete;

  /// Of the group that runs the program together; null: this process runs it alone.
  Communicator* communicator() const { return communicator_.get(); }
  /// Of buffers in an arena, in bytes.
  virtual std::size_t alignment() const = 0;
  /// Whether the device has memory of its own: inputs, outputs and constants in the host's memory are copied, and a
  /// queue's work goes on while the host does something else.
  virtual bool separate_memory() const = 0;
  /// What tells devices with separate memory apart: constants of equal content are shared by programs on one device.
  virtual const void* device() const { return nullptr; }

  /// Before everything else, once. `threads` compile kernels. The program outlives the backend.
  virtual void load(const Program& program, int threads) = 0;
  /// Compiles kernels that a run of `block` needs, where that is left to the first run; at other times kernels would be
  /// compiled one by one. Sizes that are not known yet may be missing from `run`.
  virtual void make_kernels(const Block&, const RunState&) {}

  virtual std::unique_ptr<Queue> create_queue() = 0;
  /// Memory of the device that is kept from run to run.
  virtual std::shared_ptr<void> allocate_lasting(std::size_t bytes) = 0;
  /// Memory of the host that the device's kernels can use.
  virtual std::shared_ptr<void> allocate_on_host(std::size_t bytes) = 0;

 private:
  std::shared_ptr<Communicator> communicator_;
};

}  // namespace sardonyx
