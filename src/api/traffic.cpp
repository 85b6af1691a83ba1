#include "api/traffic.h"

#include <algorithm>

#include "program/run.h"

namespace sardonyx {
namespace {

bool runs_others(const ProgramStep& s) {
  return std::holds_alternative<IfStep>(s.op) || std::holds_alternative<WhileStep>(s.op);
}

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

}  // namespace

Traffic traffic_of(const Program& program, const SymbolValues& symbols) {
  Traffic t;
  for (const ProgramStep& s : program.main.steps) {
    StepTraffic& step = t.steps.emplace_back();
    if (runs_others(s)) continue;
    step.bytes_read = sum_of(program, s.reads, symbols, t.unknown);
    step.bytes_written = sum_of(program, s.writes, symbols, t.unknown);
    t.bytes += step.bytes_read + step.bytes_written;
  }
  return t;
}

}  // namespace sardonyx
