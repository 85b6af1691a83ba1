// Internal to code generation of routines: what the launches of any routine have in common.
#pragma once
#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "codegen/gpu_routines.h"
#include "graph/graph.h"
#include "program/launch.h"
#include "target/chip.h"

namespace sardonyx::codegen {

/// What is known where a routine's launches are generated; see generate_gpu_routine().
struct RoutineContext {
  const NodeStep& step;
  const Chip& chip;
  DType precision;
  const IsLoaded& loaded;
  const std::function<bool(std::int64_t symbol)>& from_inputs;
};

/// Tensors are numbered: inputs, outputs, then workspace in the order of workspace(), then `r.rearranged`.
class RoutineWriter {
 public:
  explicit RoutineWriter(const RoutineContext& c);

  GpuRoutine r;

 protected:
  static constexpr std::int64_t kWorkgroup = kGpuThreads;

  const Value& in(int k) const { return *tensors_[static_cast<std::size_t>(k)]; }
  const Value& out(int k) const { return in(inputs_ + k); }
  int output(int k) const { return inputs_ + k; }
  int workspace(DType t, const Expr& elements) {
    r.workspace.push_back({t, elements});
    return static_cast<int>(tensors_.size() + r.workspace.size()) - 1;
  }
  std::int64_t param(std::size_t k) const { return op_.params[k]->i; }
  bool known(std::size_t k) const { return is_const(op_.params[k]); }
  const ComputedInput* computed(int tensor) const {
    for (const ComputedInput& c : computed_)
      if (static_cast<int>(c.input) == tensor) return &c;
    return nullptr;
  }

  /// Adds a launch of `call`, in which b0, b1, ... are `tensors` (as pointers to `types`; inputs may be computed) and
  /// s0, s1, ... are `values`.
  void launch(const std::string& call, const std::vector<int>& tensors, const std::vector<const char*>& types,
              const std::vector<int>& writes, const Exprs& values, const Expr& threads, const Expr& repeat = Expr());

  const Node& node_;
  const RoutineOp& op_;
  const Chip& chip_;
  const DType precision_;
  const bool narrow_;
  const IsLoaded& loaded_;
  const std::vector<ComputedInput>& computed_;
  const std::function<bool(std::int64_t)>& from_inputs_;
  std::vector<const Value*> tensors_;
  int inputs_ = 0;
  const char* header_ = "";
};

/// Adds the launches of the routine "recurrent"; false if GPUs do not run it.
bool generate_recurrent(const RoutineContext& c, GpuRoutine& out);

}  // namespace sardonyx::codegen
