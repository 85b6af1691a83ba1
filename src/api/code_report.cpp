#include "api/code_report.h"

#include <unordered_map>

#include "api/report.h"
#include "program/launch.h"
#include "program/visit.h"
#include "support/error.h"
#include "target/chip.h"

namespace sardonyx {
namespace {

// With fewer waves, a SIMD is idle while each of them waits for memory.
constexpr int kFewWaves = 2;

std::string verdict_of(const KernelReport& r) {
  if (r.code.vgpr_spills.value_or(0) > 0) return "spills VGPRs";
  if (r.code.scratch.value_or(0) > 0) return "uses scratch";
  if (r.code.sgpr_spills.value_or(0) > 0) return "spills SGPRs";
  if (r.waves > 0 && r.waves < kFewWaves) return "few waves";
  return r.code.vgprs ? "good" : "not known: the driver compiles PTX further";
}

// A choice has several kernels; the report of steps names the first.
void name_others(const Block& b, std::vector<KernelReport>& kernels) {
  for_steps(b, [&](const ProgramStep& s) {
    for_launches(s, [&](const LaunchStep& l) {
      auto& nodes = kernels.at(static_cast<std::size_t>(l.kernel)).nodes;
      if (nodes.empty()) nodes = {s.origin};
    });
  });
}

}  // namespace

std::vector<KernelReport> code_report(const Program& program) {
  const Target target = parse_target(program.target);
  std::vector<std::unordered_map<std::string, KernelCode>> found;
  for (std::size_t n = 0; n < program.objects.size(); ++n) {
    auto& map = found.emplace_back();
    for (KernelCode& k : read_kernel_code(program.objects[n], target)) {
      std::string symbol = k.symbol;
      map.emplace(std::move(symbol), std::move(k));
    }
  }
  std::vector<KernelReport> out;
  for (const KernelInfo& k : program.kernels) {
    auto& map = found.at(static_cast<std::size_t>(k.object));
    const auto it = map.find(k.symbol);
    check(it != map.end(), "kernel {} is not in the compiled code", k.symbol);
    KernelReport r;
    r.code = it->second;
    r.code.lds += k.spec.shared_bytes;
    if (r.code.vgprs) r.waves = waves_per_simd(chip_of(target.arch), *r.code.vgprs, r.code.lds, kGpuThreads);
    r.verdict = verdict_of(r);
    out.push_back(std::move(r));
  }
  for (const StepReport& s : report(program).steps)
    if (s.kernel >= 0 && out.at(static_cast<std::size_t>(s.kernel)).nodes.empty())
      out[static_cast<std::size_t>(s.kernel)].nodes = s.nodes;
  name_others(program.init, out);
  name_others(program.main, out);
  return out;
}

}  // namespace sardonyx
