#include "api/traffic.h"

#include <algorithm>

#include "program/visit.h"
#include "runtime/run_state.h"

namespace sardonyx {
namespace {

double sum_of(const Program& p, std::vector<int> buffers, const SymbolValues& symbols, int& unknown) {
  std::sort(buffers.begin(), buffers.end());
  buffers.erase(std::unique(buffers.begin(), buffers.end()), buffers.end());
  double bytes = 0;
  for (const int b : buffers) {
    const BufferInfo& info = p.buffers[static_cast<std::size_t>(b)];
    if (std::all_of(info.shape.begin(), info.shape.end(), [&](const Expr& d) { return evaluable(d, symbols); }))
      bytes += static_cast<double>(buffer_bytes(info, symbols));
    else
      ++unknown;
  }
  return bytes;
}

double number(const Expr& e, const SymbolValues& symbols) {
  return evaluable(e, symbols) ? static_cast<double>(std::max<std::int64_t>(0, evaluate(e, symbols))) : 0;
}

double product(const Exprs& list, const SymbolValues& symbols, std::size_t from = 0) {
  double p = 1;
  for (std::size_t k = from; k < list.size(); ++k) p *= number(list[k], symbols);
  return p;
}

double operations_of(const Program& p, const ProgramStep& s, const SymbolValues& symbols) {
  const auto n = [&](const Expr& e) { return number(e, symbols); };
  if (!may_run(s, symbols)) return 0;
  if (const auto* c = std::get_if<ChoiceStep>(&s.op)) return n(c->work);
  if (const auto* g = std::get_if<GemmStep>(&s.op))
    return 2 * product(p.buffers[static_cast<std::size_t>(g->out)].shape, symbols) * n(g->k);
  if (const auto* c = std::get_if<ConvStep>(&s.op))  // each element of one side is multiplied by one filter
    return 2 * product(c->transposed ? c->x_shape : c->out_shape, symbols) * product(c->w_shape, symbols, 1);
  if (const auto* a = std::get_if<AttentionStep>(&s.op))
    return 2 * n(a->batch) * n(a->heads) * n(a->queries) * n(a->keys) * (n(a->head_dim) + n(a->value_dim));
  if (const auto* l = std::get_if<LaunchStep>(&s.op))
    if (p.kernels[static_cast<std::size_t>(l->kernel)].spec.work_unit == WorkUnit::kLaunch)
      return n(l->work_items) > 0 ? n(l->work) : 0;
  return 0;
}

}  // namespace

Traffic traffic_of(const Program& program, const SymbolValues& symbols) {
  Traffic t;
  for (const ProgramStep& s : program.main.steps) {
    StepTraffic& step = t.steps.emplace_back();
    if (is_control(s)) continue;
    step.bytes_read = sum_of(program, s.reads, symbols, t.unknown);
    std::vector<int> written = s.writes;
    for (const int b : working_memory(s)) std::erase(written, b);
    step.bytes_written = sum_of(program, written, symbols, t.unknown);
    step.operations = operations_of(program, s, symbols);
    t.bytes += step.bytes_read + step.bytes_written;
    t.operations += step.operations;
  }
  return t;
}

}  // namespace sardonyx
