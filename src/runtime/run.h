// One run of a program: its symbols, where its buffers are, and what each kind of step does. Only for .cpp files of
// this component.
#pragma once
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <unordered_map>
#include <vector>

#include "routines/routine.h"
#include "runtime/executor.h"
#include "runtime/prepared.h"
#include "runtime/tile_tuner.h"
#include "runtime/weight_prefetch.h"

namespace sardonyx {

/// Uninitialised memory at a multiple of 64 bytes. Throws Error for absurd sizes and when there is none.
std::shared_ptr<void> allocate_bytes(std::size_t bytes);
/// The same for what is kept from run to run: on large pages.
std::shared_ptr<void> allocate_lasting(std::size_t bytes);
/// Whether every symbol of `e` is known.
bool evaluable(const Expr& e, const SymbolValues& symbols);
/// Throws Error(kInvalidArgument) for negative dims and for more elements than can be counted.
std::vector<std::int64_t> evaluate_dims(const Exprs& shape, const SymbolValues& symbols);
/// Whether several processes do this step together.
bool is_collective(const ProgramStep& s);
std::size_t buffer_bytes(const BufferInfo& b, const SymbolValues& symbols);

/// Where each temporary of a block is first written and last used.
struct Executor::Lives {
  int first_step = 0;  ///< steps of all blocks are numbered; those of this one begin here
  std::vector<int> temporaries;
  std::unordered_map<int, std::pair<int, int>> range;  ///< INT32_MAX: an output of the block
  std::vector<std::vector<int>> last_used;             ///< by step: temporaries that nobody needs after it
  std::vector<bool> known_at_start;                    ///< by step: its sizes depend on the inputs' dims only
};

/// What a program does for inputs of certain dims.
struct Executor::Plan {
  ArenaPlan arena;
  std::vector<PreparedStep> steps;  ///< by number; filled when a step is first run
  bool complete = false;            ///< it was run to the end
  WeightPrefetch prefetch{};        ///< of the steps that run on the host
  std::unique_ptr<CapturedRun> captured{};
};

/// What one run at a time uses, kept between runs: an arena, and where things lie in it for the shapes last seen.
struct Executor::Context {
  std::shared_ptr<void> arena;
  std::size_t arena_size = 0;
  std::shared_ptr<void> scratch;  // working memory of tile kernels
  std::size_t scratch_size = 0;
  std::vector<std::int64_t> checked;                // threads and dims for which check_dims() found nothing
  std::map<std::vector<std::int64_t>, Plan> plans;  // by threads, the inputs' dims, and what is staged
  // On a GPU:
  std::shared_ptr<void> stream;
  std::shared_ptr<MemoryPool> pool;  // what has no place in the arena
  std::unique_ptr<GpuTransfers> transfers;
  std::unique_ptr<GpuEvent> done;  // of a run that was not waited for
  bool pending = false;            // there is one

  void finish() noexcept;
  void leave(GpuStream given) noexcept;
};

struct Executor::Run {
  /// Where outputs go.
  struct Outputs {
    struct Target {
      bool asked = false, written = false;
      OutputMemory memory;
      std::size_t bytes = 0;
    };
    const OutputSink& sink;
    bool early;
    std::vector<Target> targets;
    bool place(Run& run, int buffer);
    bool in_place(const Run& run, int buffer, const Target& t) const;
    Target& ask(Run& run, std::size_t index);
    std::vector<std::size_t> inputs_in_order(Run& run);
    void deliver(Run& run);
  };

  Executor& e;
  const Program& p;
  Context& context;
  const RunOptions& options;
  int threads;
  GpuStream stream = nullptr;
  Gpu::Scope* scope = nullptr;
  Outputs* outputs = nullptr;                                             // none: the program's constants are computed
  Plan* plan = nullptr;                                                   // none: nothing is kept
  std::vector<std::pair<std::uintptr_t, std::uintptr_t>> input_memory{};  // begin and end, as the caller gave them
  SymbolValues symbols{};
  std::vector<void*> address{};
  std::vector<const void*> host_inputs{};  ///< by buffer, on a GPU: inputs that are in the host's memory
  std::unordered_map<int, std::shared_ptr<void>> owned{};  // buffers outside of the arena
  std::vector<const void*> operand_addresses{};

  // ---- run.cpp
  void take_inputs(const std::vector<TensorView>& inputs, std::vector<std::int64_t>& key, std::vector<bool>& staged);
  void check_dims() const;
  void choose_plan(const std::vector<std::int64_t>& key, const Staged& staged);

  // ---- collective.cpp
  void collective(const RoutineStep& s, const PreparedRoutine& r);
  std::shared_ptr<GpuCall> collective_call(const RoutineStep& s, const PreparedRoutine& r) const;
  void all_steps();

  // ---- executor.cpp
  void block(const Block& b, const Lives& lives);
  void step_of(const ProgramStep& s, PreparedStep* kept = nullptr);

  // ---- memory of the device that runs it
  std::shared_ptr<void> allocate(std::size_t bytes) const {
    return e.gpu_ ? context.pool->allocate(bytes) : allocate_bytes(bytes);
  }
  void copy(void* to, const void* from, std::size_t bytes) const;

  // ---- run_steps.cpp
  std::int64_t eval(const Expr& x) const { return evaluate(x, symbols); }
  std::vector<std::int64_t> dims(const Exprs& shape) const { return evaluate_dims(shape, symbols); }
  const BufferInfo& info(int buffer) const { return p.buffers[static_cast<std::size_t>(buffer)]; }
  std::size_t bytes(int buffer) const { return buffer_bytes(info(buffer), symbols); }
  void* at(int buffer) const {
    void* a = address[static_cast<std::size_t>(buffer)];
    check(a != nullptr || bytes(buffer) == 0, "buffer {} is not in memory", buffer);
    return a;
  }
  PreparedLaunch prepare(const LaunchStep& l) const;
  PreparedTileLaunch prepare(const TileLaunchStep& t) const;
  PreparedLaunch prepare(const AttentionLaunchStep& a) const;
  void check_limit(const Expr& limit) const;
  PreparedTile prepare(const GemmStep& g) const;
  PreparedTile prepare(const ConvStep& c) const;
  PreparedAttention prepare(const AttentionStep& a) const;
  PreparedRoutine prepare(const RoutineStep& r) const;
  void execute(const LaunchStep& l, const PreparedLaunch& r);
  void execute(const TileLaunchStep& t, const PreparedTileLaunch& r);
  void execute(const AttentionLaunchStep&, const PreparedLaunch& r);
  void execute(const GemmStep&, const PreparedTile& r) { tile(r); }
  void execute(const ConvStep&, const PreparedTile& r) { tile(r); }
  void execute(const AttentionStep& a, const PreparedAttention& r);
  void execute(const RoutineStep& s, const PreparedRoutine& r);
  void tile(const PreparedTile& r);
  void post_ops(const std::vector<PostInfo>& infos, std::vector<host::PostOp>& ops, std::vector<int>& operands) const;
  void finish_tile(PreparedTile& t, bool constant) const;
  void bind(const BindStep& b);
  void check_condition(const CheckStep& c) const;
  std::int64_t read_int(int buffer, std::size_t k) const;

  // ---- run_attention.cpp
  bool is_needed(const AttentionLaunchStep& a) const;
  std::size_t form_of(const AttentionLaunchStep& a) const;
  std::vector<std::size_t> possible_forms(const AttentionLaunchStep& a, std::vector<std::string>& names) const;
  std::vector<std::shared_ptr<GpuCall>> calls_of(const AttentionLaunchStep::Form& form) const;

  // ---- run_gpu.cpp
  std::vector<std::shared_ptr<GpuCall>> gpu_calls(const LaunchStep& l, const PreparedLaunch& r) const;
  void start(GpuCall& call);
  std::size_t candidate_for(const TileLaunchStep& t, const TileSizes& sizes, const std::vector<std::string>& names,
                            const std::function<double(std::size_t)>& time) const;
  std::vector<std::shared_ptr<GpuCall>> library_calls(const TileLaunchStep& t, std::vector<std::string>& names) const;
  void give_up(const PreparedTileLaunch& r, const std::string& why) const;
  bool can_be_captured() const;
  bool replay();
  bool replay_launches();

  // ---- make_kernels.cpp
  void make_kernels(const Block& b) const;
  void needed_kernels(const Block& b, std::set<int>& kernels) const;

  // ---- run_control.cpp
  std::vector<std::shared_ptr<void>> nested(const Block& b);
  std::shared_ptr<void> share(int buffer);
  std::shared_ptr<void> borrow(int buffer);
  void give(const TensorRef& r, std::shared_ptr<void> memory);
  void branch(const IfStep& s);
  void loop(const WhileStep& w);

 private:
  void step(const ProgramStep& s, PreparedStep* kept);
};

}  // namespace sardonyx
