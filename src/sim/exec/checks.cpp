// See checks.h.
#include "sim/exec/checks.h"

#include <fmt/format.h>

#include "sim/exec/access.h"
#include "sim/exec/code_image.h"
#include "sim/exec/fault.h"
#include "sim/exec/memory_checks.h"

namespace sardonyx::sim {
namespace {

std::string registerName(RegFile file, int index) {
  if (file == RegFile::kVgpr) return fmt::format("v{}", index);
  if (file == RegFile::kAgpr) return fmt::format("a{}", index);
  if (index == kVcc || index == kVcc + 1) return index == kVcc ? "vcc_lo" : "vcc_hi";
  if (index == kM0) return "m0";
  return fmt::format("s{}", index);
}

Pending* pendingOf(WaveChecks& c, RegFile file, int index) {
  if (file == RegFile::kVgpr) return &c.vectorPending[index];
  if (file == RegFile::kAgpr) return &c.accumPending[index];
  return &c.scalarPending[index];
}

bool covered(const WaveChecks& c, const Pending& p) {
  int i = 0;
  for (unsigned m = p.by->counters; m; m &= m - 1, ++i) {
    int counter = __builtin_ctz(m);
    const std::uint32_t* done = p.by->unordered ? c.doneUnordered : c.done;
    if (static_cast<std::int32_t>(done[counter] - p.sequence[i & 1]) < 0) return false;
  }
  return true;
}

/// The outstanding result for the upper half of a vector register alone; null if there never was one.
Pending* highPendingOf(WaveChecks& c, RegFile file, int index) {
  return file == RegFile::kVgpr && !c.highPending.empty() ? &c.highPending[static_cast<std::size_t>(index)] : nullptr;
}

void requireCovered(Wave& w, Pending& p, RegFile file, int index, bool write) {
  WaveChecks& c = *w.checks;
  if (!p.by) return;
  if (covered(c, p)) {
    p.by = nullptr;
    --c.outstanding;
    return;
  }
  bool known = w.code && w.code->contains(p.by->pc);
  throw Fault(fmt::format("{} is {} before a wait covers \"{}\" at 0x{:x}", registerName(file, index),
                          write ? "overwritten" : "read", known ? w.code->text(p.by->pc) : "an earlier instruction",
                          p.by->pc - (w.code ? w.code->base() : 0)));
}

void requireComplete(Wave& w, const RegRange& r, bool write) {
  WaveChecks& c = *w.checks;
  for (int i = 0; i < r.count; ++i) {
    Pending* p = pendingOf(c, r.file, r.index + i);
    if (!(p->lowOnly && r.halves == RegRange::kHigh)) requireCovered(w, *p, r.file, r.index + i, write);
    Pending* high = highPendingOf(c, r.file, r.index + i);
    if (high && r.halves & RegRange::kHigh) requireCovered(w, *high, r.file, r.index + i, write);
  }
}

void requireInRange(const Wave& w, const RegRange& r) {
  int limit = r.file == RegFile::kVgpr ? w.vgprs : r.file == RegFile::kAgpr ? w.agprs : kScalarFileSize;
  if (r.index + r.count > limit)
    throw Fault(fmt::format("{} is beyond the {} registers that the kernel descriptor allocates",
                            registerName(r.file, r.index + r.count - 1), limit));
}

}  // namespace

void checkBefore(Wave& w, const Inst& in) {
  WaveChecks& c = *w.checks;
  for (int i = 0; i < in.nreads; ++i) requireInRange(w, in.reads[i]);
  for (int i = 0; i < in.nwrites; ++i) requireInRange(w, in.writes[i]);
  if (c.config->checkWaits && c.outstanding) {
    for (int i = 0; i < in.nreads; ++i) requireComplete(w, in.reads[i], false);
    for (int i = 0; i < in.nwrites; ++i) {
      // A later load of the same kind into the same register arrives after the earlier one, in order.
      const RegRange& r = in.writes[i];
      bool sameKind = in.counters && !in.unordered;
      if (sameKind) {
        const auto mayOvertake = [&](const Pending* p) {
          return p && p->by && (p->by->counters != in.counters || p->by->unordered);
        };
        for (int k = 0; k < r.count; ++k) {
          int index = r.index + k;
          if (mayOvertake(pendingOf(c, r.file, index)) || mayOvertake(highPendingOf(c, r.file, index)))
            requireComplete(w, {r.file, 1, static_cast<std::uint16_t>(index), r.halves}, true);
        }
      } else {
        requireComplete(w, r, true);
      }
    }
  }
  if (c.config->checkUninitialized) requireDefined(w, in);
}

void checkAfter(Wave& w, const Inst& in) {
  WaveChecks& c = *w.checks;
  if (c.synced || !c.acquiring.empty()) [[unlikely]]
    noteGlobalSynced(w);
  if (!c.suspects.empty()) [[unlikely]]
    judgeSuspects(w);
  std::uint32_t sequence[2] = {};
  int n = 0;
  for (unsigned m = in.counters; m; m &= m - 1, ++n) {
    int counter = __builtin_ctz(m);
    sequence[n & 1] = ++c.issued[counter];
    if (in.unordered) c.lastUnordered[counter] = c.issued[counter];
  }
  if (c.config->checkUninitialized) noteDefined(w, in);
  if (!in.counters) return;
  for (int i = 0; i < in.nwrites; ++i) {
    const RegRange& r = in.writes[i];
    for (int k = 0; k < r.count; ++k) {
      bool highOnly = r.halves == RegRange::kHigh && r.file == RegFile::kVgpr;
      if (highOnly && c.highPending.empty()) c.highPending.resize(c.vectorPending.size());
      Pending* p = highOnly ? highPendingOf(c, r.file, r.index + k) : pendingOf(c, r.file, r.index + k);
      bool lowOnly = r.halves == RegRange::kLow && !(p->by && !p->lowOnly);
      if (!p->by) ++c.outstanding;
      *p = {&in, {sequence[0], sequence[1]}, lowOnly};
    }
  }
}

void noteWait(Wave& w, Counter counter, unsigned remaining) {
  if (!w.checks) return;
  WaveChecks& c = *w.checks;
  int i = static_cast<int>(counter);
  if (remaining == 0)
    c.doneUnordered[i] = c.issued[i];
  else if (static_cast<std::int32_t>(c.lastUnordered[i] - c.doneUnordered[i]) > 0)
    return;
  std::uint32_t reached = c.issued[i] - remaining;
  if (c.issued[i] >= remaining && static_cast<std::int32_t>(reached - c.done[i]) > 0) c.done[i] = reached;
}

}  // namespace sardonyx::sim
