#include "runtime/run_state.h"

#include "program/routine_names.h"
#include "program/visit.h"
#include "runtime/assumption.h"

namespace sardonyx {
namespace {

constexpr std::int64_t kMaxElements = std::int64_t{1} << 58;  // so that the number of bytes does not overflow

}  // namespace

std::vector<std::int64_t> evaluate_dims(const Exprs& shape, const SymbolValues& symbols) {
  std::vector<std::int64_t> d;
  std::int64_t n = 1;
  for (const Expr& x : shape) {
    d.push_back(evaluate(x, symbols));
    if (d.back() < 0)
      fail(ErrorKind::kInvalidArgument, "these inputs give a tensor the negative dim {} ({})", d.back(),
           to_string(shape));
    if (d.back() && (__builtin_mul_overflow(n, d.back(), &n) || n > kMaxElements))
      fail(ErrorKind::kInvalidArgument, "these inputs give a tensor of too many elements ({})", to_string(shape));
  }
  return d;
}

std::size_t buffer_bytes(const BufferInfo& b, const SymbolValues& symbols) {
  std::size_t n = size_of(b.dtype);
  for (std::int64_t d : evaluate_dims(b.shape, symbols)) n *= static_cast<std::size_t>(d);
  return n;
}

bool is_collective(const ProgramStep& s) {
  const auto* r = std::get_if<RoutineStep>(&s.op);
  return r && is_collective(r->name);
}

void check_limit(const Expr& limit, const SymbolValues& symbols) {
  std::int64_t largest = INT64_MAX;
  try {
    largest = evaluate(limit, symbols);
  } catch (const Error&) {
    largest = INT64_MAX;  // exceeds even 64 bits
  }
  if (largest > kLargestIndex)
    throw AssumptionFailed("a tensor is too large for indices of 32 bits, which the program was compiled for");
}

bool is_empty(const ChoiceStep& step, const SymbolValues& symbols) {
  const ProblemSizes s = sizes_of(step.choice, symbols);
  // n of an attention problem is the number of keys. Without keys, the output is still written.
  const bool attention = step.choice.candidates.front().tiling.empty();
  return s.batches <= 0 || s.m <= 0 || (s.n <= 0 && !attention);
}

void check_limit(const ProgramStep& step, const SymbolValues& symbols) {
  const Expr limit = limit_of(step);
  if (!limit || !may_run(step, symbols)) return;
  if (const auto* l = std::get_if<LaunchStep>(&step.op); l && evaluate(l->work_items, symbols) <= 0) return;
  if (const auto* c = std::get_if<ChoiceStep>(&step.op); c && is_empty(*c, symbols)) return;
  check_limit(limit, symbols);
}

void* RunState::at(int buffer) const {
  void* a = address[static_cast<std::size_t>(buffer)];
  check(a != nullptr || bytes(buffer) == 0, "buffer {} is not in memory", buffer);
  return a;
}

}  // namespace sardonyx
