// What a backend sees of a run: the values of symbols, and where buffers are.
#pragma once
#include <cstdint>
#include <memory>
#include <vector>

#include "program/program.h"
#include "runtime/memory_plan.h"
#include "runtime/weight_prefetch.h"
#include "support/error.h"

namespace sardonyx {

/// Throws Error(kInvalidArgument) for negative dims and for more elements than can be counted.
std::vector<std::int64_t> evaluate_dims(const Exprs& shape, const SymbolValues& symbols);
std::size_t buffer_bytes(const BufferInfo& b, const SymbolValues& symbols);
/// Whether several processes do this step together.
bool is_collective(const ProgramStep& s);
/// Throws AssumptionFailed if these sizes need indices of 64 bits and the code has 32. `limit`: see LaunchStep.
void check_limit(const Expr& limit, const SymbolValues& symbols);
/// Whether a choice has no element to compute for these sizes.
bool is_empty(const ChoiceStep& step, const SymbolValues& symbols);
/// check_limit() for a step, if it runs and computes anything for these sizes.
void check_limit(const ProgramStep& step, const SymbolValues& symbols);

struct RunState {
  const Program& program;
  int threads;                                ///< of the host
  const std::vector<const void*>& constants;  ///< by buffer; null: not a constant
  SymbolValues symbols{};
  std::vector<void*> address{};            ///< by buffer; null: not in memory yet
  std::vector<const void*> host_inputs{};  ///< by buffer: inputs given in the host's memory; empty if there are none
  const ArenaPlan* arena_plan = nullptr;   ///< null: every temporary is allocated by itself
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
