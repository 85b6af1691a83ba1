// Recurrent layers on a GPU: see codegen/recurrent_forms.h for how they are divided, and src/routines/recurrent.cpp for
// inputs, outputs, params and floats.
#include <fmt/format.h>

#include "codegen/emit.h"
#include "codegen/gpu_routine_writer.h"
#include "codegen/loop_codegen.h"
#include "codegen/recurrent_forms.h"
#include "kernels/layout_routines.h"

namespace sardonyx::codegen {
namespace {

constexpr std::int64_t kManySequences = 1024;                           // of all directions
constexpr std::int64_t kMostWorkgroups = 1 << 20;                       // of a launch
constexpr std::int64_t kUnits = 16 * sdx::layout::kRecurrentUnitTiles;  // of a workgroup of a step

class Recurrent : public RoutineWriter {
 public:
  using RoutineWriter::RoutineWriter;

  bool generate() {
    const auto l = recurrent_layer(node_, chip_, narrow_);
    if (!l) return false;
    header_ = "routines_recurrent.h";
    const char* t = storage_name(in(0).dtype);
    const auto& d = in(0).shape;
    const Expr steps = d[1], batch = d[2];
    const bool lstm = l->kind == 2;
    const std::string layer = text_of_layer(op_, *l, in(0).dtype);
    // Layers without a cell state get h in its place, which the kernel does not access.
    const int c_last = lstm ? output(2) : output(1);
    const std::vector<int> tensors = {0, 1, 2, 3, lstm ? 4 : 3, lstm ? 5 : 2, 6, output(0), output(1), c_last};
    Expr many;  // sequences
    if (l->tiles) {
      many = compare(Op::kGt, d[0] * batch, few_sequences(chip_));
      launch(layer + fmt::format("routine_recurrent_tiles<RecurrentTiles<{}, {}>, {}>(layer, b0, b1, b2, b3, b4, b5, "
                                 "b6, b7, b8, b9, s0, s1, s2);",
                                 l->hidden, l->gates, l->kind),
             tensors, {t, t, t, t, t, t, "i32", t, t, t}, {output(0), output(1), c_last}, {d[0], steps, batch},
             d[0] * idx::ceildiv(batch, *l->tiles) * Expr(kWorkgroup));
      GpuRoutineLaunch& tiles = r.launches.back();
      tiles.kernel.headers = {"routines_recurrent_tiles.h"};
      tiles.kernel.bounds = {.threads = static_cast<std::uint32_t>(kWorkgroup), .min_blocks = 1, .min_waves = 1};
      tiles.when = many;
    }
    if (!l->tiles && steps_by_tiles(*l, layer, tensors)) many = many_of_steps(*l, d[0] * batch);
    if (const auto& n = l->scan) {
      const Expr together = idx::min(
          Expr(n->slices), idx::max(idx::ceildiv(d[0] * batch * Expr(n->cluster), workgroups_at_once(chip_, *n)), 1));
      launch(layer + fmt::format(
                         "routine_recurrent_scan<RecurrentDivision<{}, {}, {}, {}, {}>, {}, {}>(layer, b0, b1, b2, b3, "
                         "b4, b5, b6, b7, b8, b9, s0, s1, s2, s3);",
                         n->hidden, n->slices, n->cluster, n->held, n->halves ? "f16" : "f32", l->kind, l->two_phases),
             tensors, {t, t, t, t, t, t, "i32", t, t, t}, {output(0), output(1), c_last},
             {d[0], steps, batch, together}, d[0] * idx::ceildiv(batch, together) * Expr(n->cluster * kWorkgroup));
      KernelSpec& kernel = r.launches.back().kernel;
      kernel.headers = {"routines_recurrent_scan.h"};
      kernel.bounds = {.threads = static_cast<std::uint32_t>(kWorkgroup), .min_blocks = 1, .min_waves = 1};
      kernel.shared_bytes = static_cast<std::uint32_t>(n->shared);
      if (n->cluster > 1) kernel.bounds.cluster = static_cast<std::uint32_t>(n->cluster);
      if (many) r.launches.back().when = logical_not(many);
      return true;
    }
    return recurrent_steps(*l, layer, tensors, many);
  }

 private:
  // Whether each step is a launch of matrix instructions: for so many sequences, as far as a launch has workgroups.
  static Expr many_of_steps(const RecurrentLayer& l, const Expr& sequences) {
    const std::int64_t across = (l.hidden + kUnits - 1) / kUnits;
    const Expr most = kMostWorkgroups / across * (16 * sdx::layout::kMoreRecurrentSequenceTiles) / 2;
    return logical_and(compare(Op::kGt, sequences, l.many), compare(Op::kLe, sequences, most));
  }

  // A launch for each step for many sequences, by matrix instructions. False if the layer has no such form.
  bool steps_by_tiles(const RecurrentLayer& l, const std::string& layer, std::vector<int> tensors) {
    if (l.many == 0 || (!l.scan && precision_ != DType::kFloat16)) return false;
    const Expr directions = in(0).shape[0], steps = in(0).shape[1], batch = in(0).shape[2], hidden(l.hidden);
    const int states = workspace(DType::kFloat16, directions * batch * hidden * Expr(2));
    r.rearranged = untransposed_weights(in(1), l, DType::kFloat16);
    tensors[1] = states + (l.scan ? 1 : 2);  // recurrent_steps() has another workspace, and the same weights
    tensors.push_back(states);
    // Few sequences are divided among more workgroups.
    const Expr all = directions * batch;
    const auto add = [&](int sequence_tiles, const Expr& when) {
      const Expr workgroups =
          directions * idx::ceildiv(batch, 16 * sequence_tiles) * Expr((l.hidden + kUnits - 1) / kUnits);
      launch(layer + fmt::format("routine_recurrent_step_tiles<RecurrentStepTiles<{}, {}, {}>, {}>(layer, b0, b1, b2, "
                                 "b3, b4, b5, b6, b7, b8, b9, b10, s0, s1, s2, number);",
                                 l.hidden, l.gates, sequence_tiles, l.kind),
             tensors, {"f32", "f16", "f32", "f32", "f32", "f32", "i32", "f32", "f32", "f32", "f16"},
             {output(0), output(1), tensors[9], states}, {directions, steps, batch}, workgroups * Expr(kWorkgroup),
             idx::max(steps, 1));
      GpuRoutineLaunch& made = r.launches.back();
      made.kernel.headers = {"routines_recurrent_step_tiles.h"};
      made.kernel.bounds = {.threads = static_cast<std::uint32_t>(kWorkgroup), .min_blocks = 1, .min_waves = 1};
      made.when = when;
    };
    const Expr few = compare(Op::kLe, all, kManySequences);
    const Expr many = many_of_steps(l, all);
    add(sdx::layout::kRecurrentSequenceTiles, logical_and(many, few));
    add(sdx::layout::kMoreRecurrentSequenceTiles, logical_and(many, logical_not(few)));
    return true;
  }

  // A launch for each step, of kernels for one sequence, up to four and more.
  bool recurrent_steps(const RecurrentLayer& l, const std::string& layer, std::vector<int> tensors, const Expr& many) {
    const DType type = in(0).dtype == DType::kFloat32 ? precision_ : in(0).dtype;
    const char *t = storage_name(in(0).dtype), *weights = storage_name(type);
    const Expr directions = in(0).shape[0], steps = in(0).shape[1], batch = in(0).shape[2], hidden = out(0).shape[3];
    const RecurrentStepDivision n = step_division(chip_, type, l.directions, l.hidden);
    const int gated = workspace(in(0).dtype, l.two_phases ? directions * batch * hidden * Expr(2) : Expr(1));
    tensors[1] = gated + 1;
    r.rearranged = untransposed_weights(in(1), l, type);
    tensors.push_back(gated);
    const std::int64_t units = kWorkgroup / n.threads;
    const auto add = [&](std::int64_t sequences, const Expr& when) {
      const Expr together = idx::ceildiv(batch, idx::max(idx::ceildiv(batch, sequences), 1));
      launch(
          layer + fmt::format("routine_recurrent<RecurrentStep<{}, {}, {}, {}, {}, {}>, {}, {}>(layer, b0, b1, b2, b3, "
                              "b4, b5, b6, b7, b8, b9, b10, s0, s1, s2, s3, s4, number);",
                              weights, l.hidden, n.threads, n.vector, sequences, loaded_(&in(1)), l.kind, l.two_phases),
          tensors, {t, weights, t, t, t, t, "i32", t, t, t, t}, {output(0), output(1), tensors[9], gated},
          {directions, steps, batch, hidden, idx::max(together, 1)},
          directions * idx::ceildiv(batch, sequences) * idx::ceildiv(hidden, units) * Expr(kWorkgroup),
          idx::max(steps, 1) * Expr(l.two_phases ? 2 : 1));
      // Two workgroups of one sequence's kernel are on a multiprocessor: the next step's loads weights meanwhile.
      r.launches.back().kernel.bounds = {
          .threads = static_cast<std::uint32_t>(kWorkgroup), .min_blocks = sequences == 1 ? 2u : 1u, .min_waves = 1};
      r.launches.back().when = many ? logical_and(logical_not(many), when) : when;
    };
    add(1, compare(Op::kLe, batch, 1));
    add(4, logical_and(compare(Op::kGt, batch, 1), compare(Op::kLe, batch, 4)));
    add(8, compare(Op::kGt, batch, 4));
    return true;
  }
};

}  // namespace

bool generate_recurrent(const RoutineContext& c, GpuRoutine& out) {
  Recurrent routine(c);
  if (!routine.generate()) return false;
  out = std::move(routine.r);
  return true;
}

}  // namespace sardonyx::codegen
