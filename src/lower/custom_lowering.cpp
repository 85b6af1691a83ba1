#include "lower/custom_lowering.h"

#include <algorithm>

#include "codegen/custom_kernels.h"

namespace sardonyx {
namespace {

constexpr std::int64_t kWorkOfThread = 256;  // assumed number of operations, which decides how many CPU threads run

Exprs part(const Exprs& all, std::size_t first, std::size_t count) {
  const auto at = all.begin() + static_cast<std::ptrdiff_t>(first);
  return {at, at + static_cast<std::ptrdiff_t>(count)};
}

}  // namespace

bool lower_custom(const Step& step, ProgramBuilder& b, bool gpu, std::vector<ProgramStep>& out) {
  const auto* s = std::get_if<NodeStep>(&step.op);
  const auto* r = s ? s->node->as<RoutineOp>() : nullptr;
  if (!r || !r->launches) return false;
  std::vector<int> tensors = b.buffers(s->node->inputs);
  const std::size_t inputs = tensors.size();
  for (Value* v : s->node->outputs) tensors.push_back(b.buffer(v));
  for (const CustomLaunch& launch : *r->launches) {
    const codegen::CustomKernelSource source = codegen::custom_kernel(launch, r->params, gpu);
    ProgramStep p;
    p.origin = step.origin;
    LaunchStep l;
    l.kernel = b.kernel(source.kernel);
    for (const int t : source.tensors) {
      const int buffer = tensors[static_cast<std::size_t>(t)];
      l.buffers.push_back(buffer);
      const bool written = static_cast<std::size_t>(t) >= inputs;
      if (written && std::find(p.writes.begin(), p.writes.end(), buffer) == p.writes.end()) p.writes.push_back(buffer);
    }
    p.reads = l.buffers;  // includes what it writes: earlier launches may have written parts
    l.grid = part(r->params, launch.first, 3);
    l.block = part(r->params, launch.first + 3, 3);
    l.shared = r->params[launch.first + 6];
    l.symbols = part(r->params, launch.first + 7, launch.end - launch.first - 7);
    l.work_items = l.grid[0] * l.grid[1] * l.grid[2];
    l.work = l.block[0] * l.block[1] * l.block[2] * Expr(kWorkOfThread);
    p.op = std::move(l);
    out.push_back(std::move(p));
  }
  return true;
}

}  // namespace sardonyx
