// The part of a run that backends see: values of symbols, and addresses of buffers.
#pragma once
#include <cstdint>
#include <memory>
#include <vector>

#include "program/program.h"
#include "runtime/memory_plan.h"
#include "runtime/weight_prefetch.h"
#include "support/error.h"

namespace sardonyx {

/// Throws Error(kInvalidArgument) for negative dims and if the number of elements overflows.
std::vector<std::int64_t> evaluate_dims(const Exprs& shape, const SymbolValues& symbols);
std::size_t buffer_bytes(const BufferInfo& b, const SymbolValues& symbols);
/// Whether the step is a collective of several processes.
bool is_collective(const ProgramStep& s);
/// Throws AssumptionFailed if these sizes need 64-bit indices and the code has 32-bit ones. `limit`: see LaunchStep.
void check_limit(const Expr& limit, const SymbolValues& symbols);
/// Whether the result of a choice has no elements for these sizes.
bool is_empty(const ChoiceStep& step, const SymbolValues& symbols);
/// check_limit() for a step that runs and computes something for these sizes.
void check_limit(const ProgramStep& step, const SymbolValues& symbols);

struct RunState {
  const Program& program;
  int threads;                                ///< of the host
  const std::vector<const void*>& constants;  ///< by buffer; null: not a constant
  SymbolValues symbols{};
  std::vector<void*> address{};            ///< by buffer; null: not in memory yet
  std::vector<const void*> host_inputs{};  ///< by buffer: inputs in host memory; empty if there are none
  const ArenaPlan* arena_plan = nullptr;   ///< null: every temporary has its own allocation
  const void* arena = nullptr;
  WeightPrefetch* prefetch = nullptr;  ///< of the plan; null: prepared steps are not kept

  std::int64_t eval(const Expr& x) const { return evaluate(x, symbols); }
  std::vector<std::int64_t> dims(const Exprs& shape) const { return evaluate_dims(shape, symbols); }
  const BufferInfo& info(int buffer) const { return program.buffers[static_cast<std::size_t>(buffer)]; }
  const KernelInfo& kernel(int number) const { return program.kernels[static_cast<std::size_t>(number)]; }
  std::size_t bytes(int buffer) const { return buffer_bytes(info(buffer), symbols); }
  bool is_constant(int buffer) const { return constants[static_cast<std::size_t>(buffer)] != nullptr; }
  /// The buffer's address. Throws Error(kInternal) if it is not in memory, unless it has no elements.
  void* at(int buffer) const;
};

}  // namespace sardonyx
