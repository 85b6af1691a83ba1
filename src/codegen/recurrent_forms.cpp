#include "codegen/recurrent_forms.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "codegen/emit.h"
#include "codegen/loop_codegen.h"
#include "graph/analysis.h"
#include "kernels/recurrent_activations.h"

namespace sardonyx::codegen {
namespace {

constexpr std::int64_t kWorkgroup = kGpuThreads;

// 32-bit registers for a thread's weights, workgroups of a cluster, lanes of a unit, units (more would make much code),
// bytes of shared memory besides weights and states.
constexpr std::int64_t kMostWeights = 192, kMostClusterWeights = 128, kMostCluster = kPortableCluster,
                       kMostLargeCluster = 16, kMostSlices = 16, kMostHidden = 2048, kOtherShared = 1024;
constexpr int kUnitsOfGpc = 18;  // multiprocessors that can share a cluster: all of a large one are on one GPC

// Of tiles: 32-bit registers for a thread's weights; sequences of a multiprocessor that take less time one by one.
constexpr std::int64_t kMostTileWeights = 128, kFewSequences = 2;

// Of tiles of a step: elements of a load. Up to so many sequences, other forms are faster: those with all steps in one
// launch, and those with a launch for each step.
constexpr std::int64_t kTileVector = 8, kManyForScan = 256, kManyForSteps = 64;

// Of a unit, of a step.
constexpr std::int64_t kLeastThreads = 8;  // one for each of eight sequences

std::int64_t round_up(std::int64_t x, std::int64_t to) { return std::max<std::int64_t>(1, (x + to - 1) / to) * to; }

std::optional<RecurrentDivision> divide(const Chip& chip, std::int64_t gates, std::int64_t hidden, std::int64_t cluster,
                                        bool halves, bool shared) {
  std::int64_t slices = kMostSlices;
  while (slices > 1 && kWorkgroup / slices * cluster < hidden) slices /= 2;
  if (kWorkgroup / slices * cluster < hidden) return {};
  const std::int64_t words = gates * (halves ? 2 : 4), rows = round_up(hidden, 4 * slices), fours = rows / slices / 4;
  // float16 needs registers to convert to.
  const std::int64_t registers = chip.has(Feature::kClusters) ? kMostClusterWeights : kMostWeights,
                     most = halves && cluster <= kMostCluster ? registers * 3 / 4 : registers;
  const std::int64_t held = std::min(fours, most / words), bytes = (fours - held) * words * kWorkgroup * 4;
  const std::int64_t states = 2 * slices * rows * 4 + kOtherShared;
  if (shared ? bytes + states > chip.lds.per_workgroup : bytes > 0) return {};
  return RecurrentDivision{hidden, slices, cluster, held, bytes, halves};
}

// Whether results of all activations of a layer, and with them its state, are at most 1.
bool bounded(const RoutineOp& op, std::int64_t kind, std::int64_t directions) {
  std::size_t at = 2;
  for (std::int64_t k = 0; k < directions; ++k) {
    ++at;
    for (std::int64_t j = 0; j <= kind; ++j) {
      const auto code = sdx::RecurrentActivation(op.params[at++]->i);
      if (code != sdx::RecurrentActivation::kTanh && code != sdx::RecurrentActivation::kSigmoid &&
          code != sdx::RecurrentActivation::kHardSigmoid && code != sdx::RecurrentActivation::kSoftsign)
        return false;
    }
  }
  return true;
}

}  // namespace

// Fewer workgroups of a cluster if registers are enough, otherwise as many as there may be. float16 is the last resort
// of models whose weights have 16 bits anyway.
std::optional<RecurrentDivision> recurrent_division(const Chip& chip, std::int64_t gates, std::int64_t hidden,
                                                    bool narrow) {
  if (hidden < 1 || hidden > kMostHidden) return {};
  const std::int64_t most = chip.has(Feature::kClusters) ? kMostCluster : 1;
  for (std::int64_t c = 1; c <= most; c *= 2)
    if (auto n = divide(chip, gates, hidden, c, false, false)) return n;
  for (std::int64_t c = most; c >= 1; c /= 2)
    if (auto n = divide(chip, gates, hidden, c, false, true)) return n;
  for (std::int64_t c = most; narrow && c >= 1; c /= 2)
    if (auto n = divide(chip, gates, hidden, c, true, true)) return n;
  // Large clusters find no room beside others' work as easily.
  for (std::int64_t slices = kMostSlices; narrow && most > 1 && slices >= 1; slices /= 2)
    if (const std::int64_t c = (hidden * slices + kWorkgroup - 1) / kWorkgroup; c > most && c <= kMostLargeCluster)
      if (auto n = divide(chip, gates, hidden, c, true, true)) return n;
  return {};
}

std::int64_t workgroups_at_once(const Chip& chip, const RecurrentDivision& n) {
  const std::int64_t units = chip.product().units;
  return n.cluster == 1 ? units : n.cluster <= kMostCluster ? units * 3 / 4 : units / kUnitsOfGpc * n.cluster;
}

std::optional<std::int64_t> sequences_of_tiles(const Chip& chip, std::int64_t gates, std::int64_t hidden) {
  const MatrixInstruction* product = chip.matrix(DType::kFloat16);
  if (!product || hidden < 1 || hidden > kMostHidden) return {};
  const std::int64_t waves = kWorkgroup / chip.wave, tiles = (hidden + 15) / 16, per = (tiles + waves - 1) / waves;
  const std::int64_t step = step_bytes(product->layout) / 2, steps = (hidden + step - 1) / step;
  if (per * gates * steps * vectors_of_a(product->layout) * 4 > kMostTileWeights) return {};
  return 16 * std::max<std::int64_t>(1, waves / tiles);
}

std::int64_t few_sequences(const Chip& chip) { return kFewSequences * chip.product().units; }

// A wave has a unit, unless more waves are needed for most multiprocessors to have a workgroup, or it has less than
// two vectors for each thread: most instructions are then those around the sums, and fewer threads, of up to four
// vectors, share them.
RecurrentStepDivision step_division(const Chip& chip, DType weights, std::int64_t directions, std::int64_t hidden) {
  RecurrentStepDivision d;
  d.threads = chip.wave;
  if (hidden == 0) return d;
  const auto most = 16 / static_cast<std::int64_t>(size_of(weights));
  while (d.vector < most && hidden % (d.vector * 2) == 0) d.vector *= 2;
  const auto workgroups = [&] { return directions * ((hidden * d.threads + kWorkgroup - 1) / kWorkgroup); };
  while (d.threads < kWorkgroup && workgroups() * 4 < chip.product().units * 3 && d.threads * d.vector < hidden)
    d.threads *= 2;
  if (d.threads <= chip.wave && d.threads * d.vector * 2 > hidden)
    while (d.threads > kLeastThreads && d.threads * d.vector * 4 > hidden) d.threads /= 2;
  return d;
}

std::optional<RecurrentLayer> recurrent_layer(const Node& node, const Chip& chip, bool narrow) {
  const auto* op = node.as<RoutineOp>();
  if (!op || op->name != "recurrent") return {};
  for (const Expr& p : op->params)
    if (!is_const(p)) return {};
  RecurrentLayer l;
  const Exprs& xw = node.inputs[0]->shape;
  if (!is_const_int(xw[0], l.directions) || l.directions > 2) return {};
  l.kind = op->params[0]->i, l.variant = op->params[1]->i;
  l.gates = l.kind == 0 ? 1 : l.kind == 1 ? 3 : 4;
  l.two_phases = l.kind == 1 && l.variant == 0;
  const bool known = is_const_int(node.outputs[0]->shape[3], l.hidden);
  if (!known) l.hidden = 0;
  // A single step is faster with many workgroups, none of which keeps the weights.
  const bool scans = known && node.inputs[0]->dtype == DType::kFloat32 && (l.two_phases || !is_const(xw[1], 1));
  if (scans) l.scan = recurrent_division(chip, l.gates, l.hidden, narrow);
  if (scans && narrow && !l.two_phases && bounded(*op, l.kind, l.directions))
    l.tiles = sequences_of_tiles(chip, l.gates, l.hidden);
  l.steps = !l.scan;
  if (known && node.inputs[0]->dtype == DType::kFloat32 && narrow && !l.tiles && !l.two_phases &&
      l.hidden % kTileVector == 0 && l.hidden > 0 && bounded(*op, l.kind, l.directions) && chip.matrix(DType::kFloat16))
    l.many = l.scan ? kManyForScan : kManyForSteps;
  return l;
}

namespace {

std::string number(double x) {
  if (std::isinf(x)) return x > 0 ? "__builtin_inf()" : "-__builtin_inf()";
  return fmt::format("{:a}", x);
}

}  // namespace

std::string text_of_layer(const RoutineOp& op, const RecurrentLayer& l, DType t) {
  std::string reversed, functions;
  std::size_t at = 2, f = 1;
  for (std::int64_t k = 0; k < l.directions; ++k) {
    reversed += fmt::format("{}{}", k ? ", " : "", op.params[at++]->i != 0);
    for (std::int64_t j = 0; j <= l.kind; ++j, f += 2)
      functions += fmt::format("{}{{RecurrentActivation({}), {}, {}}}", functions.empty() ? "" : ", ",
                               op.params[at++]->i, number(op.floats[f]), number(op.floats[f + 1]));
  }
  if (l.directions == 1) functions += ", " + functions;  // the other's: alike, so that kernels need not ask
  return fmt::format("constexpr RecurrentLayer<{}> layer = {{{}, {}, {{{}}}, {{{}}}, {}}};\n  ", storage_name(t),
                     l.kind, l.variant, reversed, functions, number(op.floats[0]));
}

GpuRoutine::Rearranged untransposed_weights(const Value& w, const RecurrentLayer& l, DType t) {
  GpuRoutine::Rearranged made{std::make_shared<Value>(), {}};
  made.value->dtype = t;
  made.value->shape = {w.shape[0], l.gates, w.shape[1], w.shape[1]};
  const Exprs v = vars_of(made.value->shape);
  Stage& s = made.elements.stages.emplace_back();
  s.out = made.value.get();
  s.index = s.inner = v;
  s.body = cast(load(&w, w.dtype, {v[0], v[3], v[1] * w.shape[1] + v[2]}), t);
  return made;
}

}  // namespace sardonyx::codegen
