// One run of a program: its symbols, addresses of buffers, and the execution of steps. Private to this component.
#pragma once
#include <memory>
#include <set>
#include <string>
#include <unordered_map>
#include <utility>
#include <vector>

#include "host/solo.h"
#include "program/routine_names.h"
#include "runtime/executor.h"

namespace sardonyx {

/// When each temporary of a block is first written and last used.
struct Executor::Lives {
  int first_step = 0;  ///< steps of all blocks are numbered; this is the block's first one
  std::vector<int> temporaries;
  std::unordered_map<int, std::pair<int, int>> range;  ///< INT32_MAX: an output of the block
  std::vector<std::vector<int>> last_used;             ///< by step: temporaries that no later step reads
  std::vector<bool> known_at_start;                    ///< by step: its sizes depend on the inputs' dims only
};

/// What a program does for inputs with certain dims.
struct Executor::Plan {
  ArenaPlan arena;
  std::vector<std::unique_ptr<PreparedStep>> steps;  ///< by number; filled when a step first runs
  bool complete = false;                             ///< it has run to the end once
  host::SoloChoice solo{};                           ///< of runs on the host after the first
  WeightPrefetch prefetch{};
  std::unique_ptr<CapturedRun> captured{};  ///< of `steps`
};

/// State of one run at a time, kept between runs: a queue, an arena, and plans for the dims last seen.
struct Executor::Context {
  std::unique_ptr<Queue> queue;
  std::shared_ptr<void> arena;
  std::size_t arena_size = 0;
  std::set<std::vector<std::int64_t>> checked;      // threads and dims for which check_dims() succeeded
  std::map<std::vector<std::int64_t>, Plan> plans;  // by threads, the inputs' dims, and what is staged
};

struct Executor::Run : RunState {
  /// Delivery of outputs.
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

  /// Sets the addresses of constants.
  Run(Executor& executor, Context& c, const RunOptions& o, int host_threads);

  Executor& e;
  Context& context;
  Queue& queue;
  const RunOptions& options;
  Outputs* outputs = nullptr;                                             // null: the program's constants are computed
  Plan* plan = nullptr;                                                   // null: nothing is kept
  std::vector<std::pair<std::uintptr_t, std::uintptr_t>> input_memory{};  // begin and end, as passed by the caller
  std::unordered_map<int, std::shared_ptr<void>> owned{};                 // buffers outside of the arena

  // ---- run.cpp
  void take_inputs(const std::vector<TensorView>& inputs, std::vector<std::int64_t>& key, std::vector<bool>& staged);
  void check_dims() const;
  void choose_plan(const std::vector<std::int64_t>& key, const Staged& staged);
  void stage_inputs(const std::vector<TensorView>& inputs, const Staged& staged);

  // ---- run_steps.cpp
  void all_steps();
  bool can_be_captured() const;
  bool replay();
  void block(const Block& b, const Lives& lives);
  /// `prepared`: the step for these sizes, filled if empty. Stays empty for control flow.
  void run_step(const ProgramStep& s, std::unique_ptr<PreparedStep>& prepared);
  void profiled_step(const ProgramStep& s, std::unique_ptr<PreparedStep>& prepared);
  void bind(const BindStep& b);
  void check_condition(const CheckStep& c, const std::string& origin) const;
  std::int64_t read_int(int buffer, std::size_t k) const;

  // ---- run_control.cpp
  std::vector<std::shared_ptr<void>> nested(const Block& b);
  std::shared_ptr<void> share(int buffer);
  std::shared_ptr<void> borrow(int buffer);
  void give(const TensorRef& r, std::shared_ptr<void> memory);
  void branch(const IfStep& s);
  void loop(const WhileStep& w);

 private:
  void step(const ProgramStep& s, std::unique_ptr<PreparedStep>& prepared);
};

/// Whether the device's kernels can use the caller's memory: they access 16 bytes at a time.
inline bool aligned(const void* p) { return reinterpret_cast<std::uintptr_t>(p) % 16 == 0; }
/// The address of tensors without elements.
void* nowhere();

}  // namespace sardonyx
