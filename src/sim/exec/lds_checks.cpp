// Races and never-written reads in LDS. Logical time of a workgroup grows at every barrier and every atomic. Two
// accesses of different waves conflict when one writes and no barrier lies between them; an atomic executed by both
// waves after the first access counts as an order between them, since handing over through a flag is correct code.
#include <fmt/format.h>

#include "sim/exec/access.h"
#include "sim/exec/checks.h"
#include "sim/exec/fault.h"
#include "sim/object/code_object.h"

namespace sardonyx::sim {
namespace {

constexpr int kTimeShift = 12;

bool ordered(const Wave& w, std::uint64_t cell) {
  std::uint64_t time = cell >> kTimeShift;
  if (time < w.checks->lastBarrier) return true;
  const Wave& other = *w.group->waves[cell >> 4 & 0xff];
  return w.checks->lastAtomic > time && other.checks && other.checks->lastAtomic > time;
}

[[noreturn]] void race(const Wave& w, int lane, std::uint32_t offset, std::uint64_t cell, const char* now,
                       const char* before, const Inst* by) {
  std::string where = fmt::format("\"{}\"", w.code->text(by->pc));
  std::string line = w.code->object()->sourceLine(by->pc);
  if (!line.empty()) where += " (" + line + ")";
  throw Fault(
      fmt::format("LDS data race: {} of wave {} conflicts with a {} of wave {} by {} with no barrier between them", now,
                  w.id, before, cell >> 4 & 0xff, where),
      lane, offset);
}

}  // namespace

void checkLds(Wave& w, int lane, std::uint32_t offset, unsigned size, AccessKind kind) {
  LdsShadow* shadow = w.group->shadow.get();
  if (!shadow) return;
  const Config& config = *w.checks->config;
  if (config.checkRaces) {
    std::uint64_t self = static_cast<std::uint64_t>(w.id) << 4;
    for (std::uint32_t at = offset & ~3u; at < offset + size; at += 4) {
      unsigned first = at < offset ? offset - at : 0, last = at + 4 > offset + size ? offset + size - at : 4;
      std::uint64_t bytes = ((1u << last) - 1) & ~((1u << first) - 1);
      LdsShadow::Cell& cell = shadow->cells[at >> 2];
      std::uint64_t now = shadow->time << kTimeShift | self | bytes;
      bool otherWriter =
          cell.writer && (cell.writer >> 4 & 0xff) != static_cast<unsigned>(w.id) && (cell.writer & 15 & bytes);
      if (kind == AccessKind::kAtomic) {
        // Atomics among themselves never conflict: they leave no mark.
        if (otherWriter && !ordered(w, cell.writer))
          race(w, lane, offset, cell.writer, "an atomic", "write", cell.writtenBy);
        continue;
      }
      if (otherWriter && !ordered(w, cell.writer))
        race(w, lane, offset, cell.writer, kind == AccessKind::kRead ? "a read" : "a write", "write", cell.writtenBy);
      if (kind == AccessKind::kWrite) {
        bool otherReader =
            cell.reader && (cell.reader >> 4 & 0xff) != static_cast<unsigned>(w.id) && (cell.reader & 15 & bytes);
        if (otherReader && !ordered(w, cell.reader)) race(w, lane, offset, cell.reader, "a write", "read", cell.readBy);
        bool same = cell.writer >> 4 == now >> 4;
        cell.writer = same ? cell.writer | bytes : now;
        cell.writtenBy = w.current;
      } else {
        bool same = cell.reader >> 4 == now >> 4;
        cell.reader = same ? cell.reader | bytes : now;
        cell.readBy = w.current;
      }
    }
  }
  if (config.checkUninitialized) {
    if (kind == AccessKind::kRead) {
      for (unsigned i = 0; i < size; ++i)
        if (!shadow->written[offset + i]) throw Fault("LDS is read but was never written", lane, offset + i);
    } else {
      for (unsigned i = 0; i < size; ++i) shadow->written[offset + i] = 1;
    }
  }
}

void noteBarrier(Workgroup& group) {
  LdsShadow* shadow = group.shadow.get();
  if (!shadow) return;
  ++shadow->time;
  for (auto& wave : group.waves)
    if (wave->checks) wave->checks->lastBarrier = shadow->time;
}

void noteAtomic(Wave& w) {
  if (!w.checks) return;
  LdsShadow* shadow = w.group->shadow.get();
  if (shadow) w.checks->lastAtomic = ++shadow->time;
}

}  // namespace sardonyx::sim
