#include "api/roofline.h"

#include <algorithm>
#include <array>

#include "api/report.h"
#include "api/traffic.h"
#include "runtime/run.h"
#include "runtime/tile_tuner.h"
#include "support/error.h"

namespace sardonyx {
namespace {

// By the makers' documents, dense. For AMD they are units * operations of a unit in a clock * the highest clock:
// gfx90a: "AMD Instinct MI250X" product page (both dies: 220 units, 95.7 T float32 matrix, 383 T half, 383 T int8, 3.2
// TB/s)
//     and "AMD matrix cores" (GPUOpen): 256, 1024, 1024 at 1.7 GHz; half of the memory for each die.
// gfx942: "AMD Instinct MI300X Accelerator" data sheet and "AMD CDNA 3 Architecture": 256, 2048, 4096 at 2.1 GHz; 5.3
// TB/s. gfx950: "AMD Instinct MI355X GPU" data sheet and "Introducing AMD CDNA 4 Architecture": 256, 4096, 8192 at 2.4
// GHz; 8 TB/s. gfx1100: "AMD Radeon RX 7900 XTX" product page and "RDNA 3 Instruction Set Architecture" (WMMA): 256,
// 512, 512 at 2.5 GHz;
//     384 bits of GDDR6 at 20 Gbit/s.
// gfx1201: "AMD Radeon RX 9070 XT" product page: 256, 1024, 2048 at 2.97 GHz; 256 bits of GDDR6 at 20 Gbit/s. The
// page's 779 T
//     for int8 are sparse.
// NVIDIA: "A100 Tensor Core GPU" (SXM, 80 GB) and "H200 Tensor Core GPU" (SXM) data sheets.
constexpr std::array<ChipPeaks, 8> kPeaks = {{
    {"gfx90a", "MI250X, one die", 110, 1.6e12, 47.9e12, 191.5e12, 191.5e12},
    {"gfx942", "MI300X", 304, 5.3e12, 163.4e12, 1307.4e12, 2614.9e12},
    {"gfx950", "MI355X", 256, 8e12, 157.3e12, 2516.6e12, 5033.2e12},
    {"gfx1100", "RX 7900 XTX", 96, 0.96e12, 61.4e12, 122.8e12, 122.8e12},
    {"gfx1201", "RX 9070 XT", 64, 0.64e12, 48.7e12, 194.6e12, 389.3e12},
    {"sm_80", "A100", 108, 2.039e12, 19.5e12, 312e12, 624e12},
    {"sm_90", "H200", 132, 4.8e12, 67e12, 989e12, 1979e12},
    {"sm_90a", "H200", 132, 4.8e12, 67e12, 989e12, 1979e12},
}};

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

double peak_for(const ChipPeaks& c, DType type) {
  return size_of(type) == 1 ? c.byte : type == DType::kFloat16 || type == DType::kBFloat16 ? c.half : c.float32;
}

// Of products: the narrower of what is multiplied. Weights of 8 bits that become floats count as those.
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

const ChipPeaks* peaks_of(std::string_view arch) {
  const auto at = std::find_if(kPeaks.begin(), kPeaks.end(), [&](const ChipPeaks& c) { return c.arch == arch; });
  return at == kPeaks.end() ? nullptr : &*at;
}

std::vector<LaunchEstimate> estimate(const Program& p, const std::vector<KernelReport>& code,
                                     const std::map<std::string, std::int64_t>& dims) {
  const SymbolValues symbols = values_of(p, dims);
  const ChipPeaks* chip = peaks_of(p.target);
  std::vector<LaunchEstimate> out;
  if (!chip) return out;
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
      std::size_t tiling = tilings_by_cost(*tile, z, chip->units).front();
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
      e.workgroups = static_cast<std::int64_t>(launched_workgroups(g, z.batches, z.m, z.n, chip->units) / g.shares);
    } else {
      continue;
    }
    e.code = &code.at(static_cast<std::size_t>(kernel));
    e.kernel = library.empty() ? e.code->code.symbol : fmt::format("{}, else {}", library, e.code->code.symbol);
    e.nodes = r.nodes;
    e.bytes = t.bytes_read + t.bytes_written;
    e.operations = t.operations;
    const double memory = e.bytes / chip->bytes_per_second;
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
