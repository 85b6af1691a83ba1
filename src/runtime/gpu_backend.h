// What the HIP and CUDA backends have in common: streams, memory pools, launches, captured graphs, and the choice among
// candidates.
#pragma once
#include <atomic>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "device/memory.h"
#include "runtime/backends.h"
#include "runtime/gpu_call.h"
#include "runtime/grid_sizes.h"
#include "runtime/tile_tuner.h"
#include "vendor/gemm_library.h"

namespace sardonyx {

class GpuBackend : public Backend {
 public:
  explicit GpuBackend(BackendOptions options);
  std::size_t alignment() const override { return 256; }
  bool separate_memory() const override { return true; }
  const void* device() const override { return &gpu_; }
  void load(const Program& program, int threads) override;
  void make_kernels(const Block& block, const RunState& run) override;
  std::unique_ptr<Queue> create_queue() override;
  std::shared_ptr<void> allocate_lasting(std::size_t bytes) override { return memory_->allocate(bytes); }
  std::shared_ptr<void> allocate_on_host(std::size_t bytes) override { return gpu_.allocate_pinned(bytes); }

  Gpu& gpu() const { return gpu_; }
  const std::shared_ptr<DeviceMemory>& memory() const { return memory_; }
  bool graphs() const { return options_.graphs; }
  TileTuner* tuner() const { return options_.tuner.get(); }
  const Program& program() const { return *program_; }

  /// The handle of a kernel, which was loaded with the program or is compiled (to PTX, and from it) on first use.
  void* kernel(int number) const;
  bool has_kernel(int number) const { return kernels_[static_cast<std::size_t>(number)].load() != nullptr; }
  /// A launch of a kernel with the shared memory and other attributes of its spec.
  std::shared_ptr<GpuCall> call(int kernel, std::uint32_t blocks, std::uint32_t threads, std::vector<int> buffers,
                                std::vector<std::int64_t> values) const;
  /// A launch of a kernel of family kCustom.
  std::shared_ptr<GpuCall> grid_call(int kernel, const GridSizes& sizes, std::vector<int> buffers,
                                     std::vector<std::int64_t> values) const;
  /// The vendor's GEMM library; null if none is usable or it is switched off.
  std::shared_ptr<const GemmLibrary> gemm_library() const;
  bool library_off() const { return options_.library_path == "off"; }
  /// Set when a step first chooses the vendor's library.
  std::atomic<bool>& library_used() const { return library_used_; }

  /// Adds the descriptors (tensor maps) with which hardware loads a kernel's tiles (GpuTiling::tma).
  virtual void add_copies(GpuCall& call, const CopiedOperands& operands, const GpuTiling& tiling,
                          const ProblemSizes& sizes, const SymbolValues& symbols, std::size_t bytes) const = 0;

 protected:
  virtual std::shared_ptr<GpuModule> load_object(const std::string& object) const = 0;
  const BackendOptions& options() const { return options_; }

 private:
  BackendOptions options_;
  std::shared_ptr<DeviceMemory> memory_;
  Gpu& gpu_;
  const Program* program_ = nullptr;
  int threads_ = 1;
  struct Module {
    std::once_flag once;
    std::shared_ptr<GpuModule> code;  ///< null: not used yet
  };
  const GpuModule& module(int object) const;
  std::vector<std::size_t> taken(const Choice& choice, const SymbolValues& symbols) const;
  mutable std::vector<Module> modules_;              ///< by object
  mutable std::vector<std::atomic<void*>> kernels_;  ///< null: not used yet
  mutable std::mutex reserve_mutex_;
  mutable std::map<int, std::uint32_t> reserved_;  ///< by kernel: dynamic shared memory of custom kernels
  mutable std::atomic<bool> library_warned_ = false, library_used_ = false;
};

class GpuQueue : public Queue {
 public:
  explicit GpuQueue(GpuBackend& backend);
  void begin(const RunOptions& options) override;
  void resume() override;
  void end(bool finished) noexcept override;
  void finish() noexcept override;
  void synchronize() override { gpu_.synchronize(stream_); }
  std::optional<double> estimated_seconds() override { return gpu_.estimated_seconds(); }
  std::shared_ptr<void> allocate(std::size_t bytes) override { return pool_->allocate(bytes); }
  void trim() override { pool_->trim(); }
  void copy(void* to, const void* from, std::size_t bytes) override { gpu_.copy(to, from, bytes, stream_); }
  void upload(void* to, const void* from, std::size_t bytes) override { transfers_->upload(to, from, bytes, stream_); }
  void download(void* to, const void* from, std::size_t bytes) override {
    transfers_->download(to, from, bytes, stream_);
  }
  std::unique_ptr<PreparedStep> prepare(const ProgramStep& step, RunState& run) override;
  bool replay(PreparedSteps steps, std::unique_ptr<CapturedRun>& captured, RunState& run) override;

  GpuBackend& backend() const { return backend_; }
  GpuStream stream() const { return stream_; }
  void start(GpuCall& call, const RunState& run);
  /// kMostTreeGroups zeros of 32 bits, which each kernel that counts in them (kernels/gemm_split_k_tree.h) leaves zero.
  /// Kernels of a queue run one after another.
  void* arrived();
  /// Seconds of one launch of each of these calls, by the tuner's timer.
  double time(const std::vector<std::shared_ptr<GpuCall>>& calls, const RunState& run);

 private:
  bool replay_launches(PreparedSteps steps, std::unique_ptr<CapturedRun>& captured, RunState& run);

  GpuBackend& backend_;
  Gpu& gpu_;
  std::shared_ptr<void> own_stream_;
  GpuStream stream_;                  ///< of the run: the caller's, or our own
  std::shared_ptr<MemoryPool> pool_;  ///< for buffers outside of the arena
  std::unique_ptr<GpuTransfers> transfers_;
  std::shared_ptr<void> arrived_;    ///< null: not needed yet
  std::unique_ptr<GpuEvent> done_;   ///< the end of a run that was not waited for
  bool pending_ = false;             ///< such a run exists
  std::optional<Gpu::Scope> scope_;  ///< during a run
};

using GpuCalls = std::vector<std::shared_ptr<GpuCall>>;

/// A step that consists of launches.
class GpuStep : public PreparedStep {
 public:
  explicit GpuStep(GpuQueue& queue) : queue_(queue) {}
  void enqueue(RunState& run) override {
    for (const auto& call : calls()) queue_.start(*call, run);
  }
  /// Empty if there is nothing to compute.
  virtual const GpuCalls& calls() const { return calls_; }

 protected:
  GpuQueue& queue_;
  GpuCalls calls_;
};

/// A collective. Without launches it is a call of the communicator, which cannot be captured.
class GpuCollective : public GpuStep {
 public:
  using GpuStep::GpuStep;
};

/// A candidate of a choice, or the call of a vendor's library that computes the same.
class GpuChoiceStep : public GpuStep {
 public:
  /// `name`: of the candidate's kernel.
  GpuChoiceStep(GpuQueue& queue, GpuCalls calls, std::string name) : GpuStep(queue), name_(std::move(name)) {
    calls_ = std::move(calls);
  }
  /// `library`: the library's candidate, which `calls` run. `own`: launched instead if that fails; `name` is of its
  /// kernel.
  GpuChoiceStep(GpuQueue& queue, GpuCalls calls, std::string library, GpuCalls own, std::string name)
      : GpuChoiceStep(queue, std::move(calls), std::move(name)) {
    library_ = std::move(library);
    own_ = std::move(own);
  }
  bool by_library() const { return !library_.empty() && !failed_; }
  /// Switches to our own kernel for good. `why`: the library's error.
  void give_up(const std::string& why);
  const GpuCalls& calls() const override { return failed_ ? own_ : calls_; }
  void enqueue(RunState& run) override;
  std::string name() const override { return by_library() ? library_ : name_; }

 private:
  std::string library_, name_;
  GpuCalls own_;
  bool failed_ = false;
};

GpuCalls launch_calls(const LaunchStep& step, const GpuBackend& backend, const RunState& run);
std::unique_ptr<PreparedStep> prepare_choice(const ChoiceStep& step, GpuQueue& queue, const RunState& run);

}  // namespace sardonyx
