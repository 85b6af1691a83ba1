#include "api/roofline.h"

#include <algorithm>

#include "api/report.h"
#include "api/traffic.h"
#include "program/visit.h"
#include "runtime/run_state.h"
#include "support/error.h"
#include "target/chip.h"

namespace sardonyx {
namespace {

SymbolValues values_of(const Program& p, const std::map<std::string, std::int64_t>& dims) {
  SymbolValues symbols;
  const std::vector<std::string> wanted = input_symbols(p);
  for (const auto& [dim, size] : dims)
    if (std::find(wanted.begin(), wanted.end(), dim) == wanted.end())
      fail(ErrorKind::kInvalidArgument, "the inputs have no dim '{}'", dim);
  for (const std::string& name : wanted) {
    const auto size = dims.find(name);
    if (size == dims.end()) fail(ErrorKind::kInvalidArgument, "dim '{}' has no size", name);
    if (size->second < 0) fail(ErrorKind::kInvalidArgument, "dim '{}' can't be {}", name, size->second);
    const auto at = std::find(p.symbol_names.begin(), p.symbol_names.end(), name);
    symbols.set(static_cast<int>(at - p.symbol_names.begin()), size->second);
  }
  return symbols;
}

// Operations per second on elements of this type, by its size: float8 and int8 have one rate, and wider types without
// matrix instructions count as float32.
double peak_for(const Chip& c, DType type) {
  return peak(c, c.product(),
              size_of(type) == 1   ? DType::kInt8
              : size_of(type) == 2 ? DType::kFloat16
                                   : DType::kFloat32);
}

// The type of the operands that a step multiplies.
DType operand_type(const Program& p, const ProgramStep& s) {
  if (const auto* c = std::get_if<ChoiceStep>(&s.op)) return c->type;
  DType type = DType::kFloat32;
  for (const int b : s.writes)
    if (is_float(p.buffers[static_cast<std::size_t>(b)].dtype)) type = p.buffers[static_cast<std::size_t>(b)].dtype;
  return type;
}

/// What a step launches for given sizes.
struct Launched {
  int kernel = -1;      ///< of the first launch; -1: nothing, or sizes are unknown
  std::string library;  ///< computes it instead, where it is installed
  std::int64_t workgroups = 0;
  double cost = 0;  ///< of the tiling; 0: there is none, or its cost is a rank
};

Launched launched(const ChoiceStep& s, const SymbolValues& symbols, int units) {
  Launched l;
  const Choice& c = s.choice;
  if (!decidable(c, symbols) || is_empty(s, symbols)) return l;
  const ProblemSizes z = sizes_of(c, symbols);
  const std::size_t chosen = chosen_candidate(c, symbols, units);
  l.kernel = s.launches[chosen].front().kernel;
  for (const TunedSize& x : c.tuned) {
    if (x.sizes != z) continue;
    if (x.library) l.library = x.candidate;
    break;
  }
  if (const std::vector<GpuTiling>& tiling = c.candidates[chosen].tiling; !tiling.empty()) {
    l.workgroups =
        static_cast<std::int64_t>(launched_workgroups(tiling[0], z.batches, z.m, z.n, units) / tiling[0].splits);
    l.cost = std::max(0.0, tiling_cost(tiling[0], z.batches, z.m, z.n, z.k, units));
  }
  return l;
}

}  // namespace

std::vector<LaunchEstimate> estimate(const Program& p, const std::vector<KernelReport>& code,
                                     const std::map<std::string, std::int64_t>& dims) {
  const SymbolValues symbols = values_of(p, dims);
  const Chip* chip = find_chip(p.target);
  std::vector<LaunchEstimate> out;
  if (!chip) return out;
  const int units = driver_units(*chip);
  const double bytes_per_second = chip->product().gb_per_second * 1e9;
  const Traffic traffic = traffic_of(p, symbols);
  std::size_t at = 0;
  for (const StepReport& r : report(p).steps) {
    if (r.depth > 0) continue;
    const ProgramStep& s = p.main.steps.at(at);
    const StepTraffic& t = traffic.steps.at(at++);
    LaunchEstimate e;
    if (!may_run(s, symbols)) continue;
    Launched l;
    if (const auto* c = std::get_if<ChoiceStep>(&s.op))
      l = launched(*c, symbols, units);
    else if (const auto* loop = std::get_if<LaunchStep>(&s.op);
             loop && !(evaluable(loop->work_items, symbols) && evaluate(loop->work_items, symbols) <= 0))
      l.kernel = loop->kernel;
    if (l.kernel < 0) continue;
    e.workgroups = l.workgroups;
    e.code = &code.at(static_cast<std::size_t>(l.kernel));
    e.kernel = l.library.empty() ? e.code->code.symbol : fmt::format("{}, else {}", l.library, e.code->code.symbol);
    e.nodes = r.nodes;
    e.bytes = t.bytes_read + t.bytes_written;
    e.operations = t.operations;
    const double memory = e.bytes / bytes_per_second;
    const double compute = e.operations / peak_for(*chip, operand_type(p, s));
    e.by_memory = memory >= compute;
    e.seconds = std::max(memory, compute);
    if (chip->family == ChipFamily::kHopper) e.tiling_seconds = l.cost * 1e-9;  // elsewhere only ratios matter
    if (e.code->code.instructions > 0)
      e.matrix_share =
          static_cast<double>(e.code->code.matrix_instructions) / static_cast<double>(e.code->code.instructions);
    out.push_back(std::move(e));
  }
  return out;
}

}  // namespace sardonyx
