#include "runtime/run_state.h"

#include "program/routine_names.h"
#include "runtime/assumption.h"

namespace sardonyx {
namespace {

constexpr std::int64_t kMaxElements = std::int64_t{1} << 58;  // so that their bytes can be counted

}  // namespace

bool evaluable(const Expr& e, const SymbolValues& s) {
  bool ok = true;
  if (e->has_sym) visit(e, [&](const Expr& x) { ok &= x->op != Op::kSym || s.has(static_cast<int>(x->i)); });
  return ok;
}

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

bool is_needed(const AttentionLaunchStep& a, const SymbolValues& symbols) {
  const auto eval = [&](const Expr& e) { return evaluate(e, symbols); };
  return (!a.needed || eval(a.needed) != 0) && eval(a.batches) > 0 && eval(a.m) > 0;
}

void* RunState::at(int buffer) const {
  void* a = address[static_cast<std::size_t>(buffer)];
  check(a != nullptr || bytes(buffer) == 0, "buffer {} is not in memory", buffer);
  return a;
}

}  // namespace sardonyx
