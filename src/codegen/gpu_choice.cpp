// See gpu_choice.h.
#include "codegen/gpu_choice.h"

#include <algorithm>

#include "target/chip.h"

namespace sardonyx::codegen {
namespace {

/// Whether a candidate supports these sizes, as far as is known while compiling.
enum class Applies : std::uint8_t { kNo, kPerhaps, kYes };

Applies applies(const Candidate& c, const ProblemSizes& s) {
  if (!c.tiling.empty() && !can_compute(c.tiling.front(), s.batches, s.m, s.n)) return Applies::kNo;
  if (!c.applies) return Applies::kYes;
  if (!is_const(c.applies)) return Applies::kPerhaps;
  return is_const(c.applies, 0) ? Applies::kNo : Applies::kYes;
}

bool sizes_known(const Choice& c) { return is_const(c.batches) && is_const(c.m) && is_const(c.n) && is_const(c.k); }

}  // namespace

std::vector<bool> select_candidates(Choice& choice, const TileSelection& selection, std::string_view arch) {
  const Chip& chip = chip_of(arch);
  std::vector<bool> wanted = taken_by_rule(choice, driver_units(chip));
  if (selection.choices)
    for (TunedSize& t : selection.choices->find(arch, choice.problem)) {
      if (!may_be(choice, t.sizes)) continue;
      const bool known =
          std::any_of(choice.tuned.begin(), choice.tuned.end(), [&](const TunedSize& x) { return x.sizes == t.sizes; });
      const std::size_t at = index_of(choice, t.candidate);
      if (known || at == choice.candidates.size()) continue;
      const Applies can = applies(choice.candidates[at], t.sizes);
      if (can == Applies::kNo) continue;
      if (can == Applies::kYes && sizes_known(choice)) wanted.assign(wanted.size(), false);
      wanted[at] = true;
      choice.tuned.push_back(std::move(t));
    }
  for (std::size_t k = 0; k < wanted.size(); ++k) {
    const Expr& applies = choice.candidates[k].applies;
    wanted[k] = (wanted[k] || selection.all) && !(applies && is_const(applies, 0));
  }
  return wanted;
}

}  // namespace sardonyx::codegen
