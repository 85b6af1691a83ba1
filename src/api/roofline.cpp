#include "api/roofline.h"

#include <algorithm>

#include "api/report.h"
#include "api/traffic.h"
#include "runtime/run_state.h"
#include "runtime/tile_tuner.h"
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

// Operations per second on elements of this type, by its size: float8 and int8 have one rate, and wider types that no
// matrix instruction takes count as float32.
double peak_for(const Chip& c, DType type) {
  return peak(c, c.product(),
              size_of(type) == 1   ? DType::kInt8
              : size_of(type) == 2 ? DType::kFloat16
                                   : DType::kFloat32);
}

// The type that a step multiplies in: for matrix products the narrower operand's, after 8-bit weights have become
// floats.
DType product_type(const Program& p, const ProgramStep& s) {
  if (const auto* t = std::get_if<TileLaunchStep>(&s.op)) {
    const std::size_t begin = t->problem.find(' ') + 1, end = t->problem.find(' ', begin);
    DType type;
    if (parse_dtype(t->problem.substr(begin, end - begin), type)) return type;
  }
  DType type = DType::kFloat32;
  for (const int b : s.writes)
    if (is_float(p.buffers[static_cast<std::size_t>(b)].dtype)) type = p.buffers[static_cast<std::size_t>(b)].dtype;
  return type;
}

// The launch that computes attention at these sizes; null if none of this step does, or the sizes are not known.
const LaunchStep* attention_launch(const AttentionLaunchStep& a, const SymbolValues& symbols) {
  for (const Expr& e : {a.needed, a.rule, a.batches, a.m, a.n, a.k})
    if (e && !evaluable(e, symbols)) return nullptr;
  if (a.needed && evaluate(a.needed, symbols) == 0) return nullptr;
  return &a.forms[chosen_form(a, symbols)].launches.front();
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
  const auto number = [&](const Expr& e) { return evaluable(e, symbols) ? evaluate(e, symbols) : std::int64_t{0}; };
  std::size_t at = 0;
  for (const StepReport& r : report(p).steps) {
    if (r.depth > 0) continue;
    const ProgramStep& s = p.main.steps.at(at);
    const StepTraffic& t = traffic.steps.at(at++);
    LaunchEstimate e;
    int kernel = -1;
    std::string library;
    // What puts parts of attention together reads and writes little.
    if (const auto* a = std::get_if<AttentionLaunchStep>(&s.op)) {
      const LaunchStep* l = attention_launch(*a, symbols);
      if (!l) continue;
      kernel = l->kernel;
    } else if (const auto* l = std::get_if<LaunchStep>(&s.op)) {
      if (evaluable(l->points, symbols) && evaluate(l->points, symbols) <= 0) continue;
      kernel = l->kernel;
    } else if (const auto* tile = std::get_if<TileLaunchStep>(&s.op)) {
      const TileSizes z{number(tile->batches), number(tile->m), number(tile->n), number(tile->k)};
      if (z.batches <= 0 || z.m <= 0 || z.n <= 0) continue;
      std::size_t tiling = tilings_by_cost(*tile, z, units).front();
      for (const TileLaunchStep::Tuned& x : tile->tuned) {
        if (x.batches != z.batches || x.m != z.m || x.n != z.n || x.k != z.k) continue;
        if (x.library.empty()) {
          tiling = static_cast<std::size_t>(x.tiling);
          break;
        }
        if (library.empty()) library = x.library;  // or this one, where that is not installed
      }
      kernel = tile->kernels[tiling];
      const GpuTiling& g = tile->tilings[tiling];
      e.workgroups = static_cast<std::int64_t>(launched_workgroups(g, z.batches, z.m, z.n, units) / g.shares);
    } else {
      continue;
    }
    e.code = &code.at(static_cast<std::size_t>(kernel));
    e.kernel = library.empty() ? e.code->code.symbol : fmt::format("{}, else {}", library, e.code->code.symbol);
    e.nodes = r.nodes;
    e.bytes = t.bytes_read + t.bytes_written;
    e.operations = t.operations;
    const double memory = e.bytes / bytes_per_second;
    const double compute = e.operations / peak_for(*chip, product_type(p, s));
    e.by_memory = memory >= compute;
    e.seconds = std::max(memory, compute);
    if (e.code->code.instructions > 0)
      e.matrix_share =
          static_cast<double>(e.code->code.matrix_instructions) / static_cast<double>(e.code->code.instructions);
    out.push_back(std::move(e));
  }
  return out;
}

}  // namespace sardonyx
