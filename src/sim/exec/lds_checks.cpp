// Races and uninitialised reads in LDS. The logical time of a workgroup advances at every barrier and every atomic. Two
// accesses of different waves conflict if one is a write and no barrier lies between them. An atomic executed by both
// waves after the first access counts as synchronisation, because handing data over through a flag is correct. A
// barrier orders a write only if the writing wave has waited for it before: the barrier itself does not wait for
// memory.
#include <fmt/format.h>

#include <algorithm>

#include "sim/exec/access.h"
#include "sim/exec/checks.h"
#include "sim/exec/fault.h"
#include "sim/exec/memory_checks.h"
#include "sim/object/code_object.h"

namespace sardonyx::sim {
namespace {

constexpr int kTimeShift = 12;

enum class Order { kOrdered, kNoBarrier, kNoWait };

const Wave& waveOf(const Wave& w, std::uint64_t mark) { return *w.group->waves[mark >> 4 & 0xff]; }

/// Atomics of both waves after the access.
bool handedOver(const Wave& w, const Wave& other, std::uint64_t time) {
  return w.checks->lastAtomic > time && other.checks->lastAtomic > time;
}
Order readOrder(const Wave& w, const LdsShadow::Cell& cell) {
  std::uint64_t time = cell.reader >> kTimeShift;
  if (time < w.checks->lastBarrier || handedOver(w, waveOf(w, cell.reader), time)) return Order::kOrdered;
  return Order::kNoBarrier;
}
Order writeOrder(const Wave& w, const LdsShadow::Cell& cell) {
  std::uint64_t time = cell.writer >> kTimeShift;
  const Wave& other = waveOf(w, cell.writer);
  if (handedOver(w, other, time)) return Order::kOrdered;
  if (time >= w.checks->lastBarrier) return Order::kNoBarrier;
  if (!w.checks->config->checkWaits || other.state == WaveState::kEnded) return Order::kOrdered;
  int c = static_cast<int>(cell.writeCounter);
  bool waited = static_cast<std::int32_t>(other.checks->doneAtBarrier[c] - cell.writeSequence) >= 0;
  return waited ? Order::kOrdered : Order::kNoWait;
}

[[noreturn]] void race(const Wave& w, int lane, std::uint32_t offset, Order order, std::uint64_t mark, const char* now,
                       const char* before, const Inst* by) {
  std::string where = fmt::format("\"{}\"", w.code->text(by->pc));
  std::string line = w.code->object()->sourceLine(by->pc);
  if (!line.empty()) where += " (" + line + ")";
  throw Fault(fmt::format("LDS data race: {} of wave {} conflicts with a {} of wave {} by {} {}", now, w.id, before,
                          mark >> 4 & 0xff, where,
                          order == Order::kNoBarrier ? "with no barrier between them"
                                                     : "that no wait covered before the barrier"),
              lane, offset);
}

void checkDword(Wave& w, int lane, std::uint32_t offset, AccessKind kind, LdsShadow::Cell& cell, std::uint64_t bytes) {
  std::uint64_t now = w.group->shadow->time << kTimeShift | static_cast<std::uint64_t>(w.id) << 4 | bytes;
  auto others = [&](std::uint64_t mark) {
    return mark && (mark >> 4 & 0xff) != static_cast<unsigned>(w.id) && (mark & 15 & bytes);
  };
  const char* name = kind == AccessKind::kAtomic ? "an atomic" : kind == AccessKind::kRead ? "a read" : "a write";
  if (others(cell.writer))
    if (Order o = writeOrder(w, cell); o != Order::kOrdered)
      race(w, lane, offset, o, cell.writer, name, "write", cell.writtenBy);
  if (kind == AccessKind::kAtomic) return;  // atomics among themselves never conflict: they leave no mark
  if (kind == AccessKind::kRead) {
    cell.reader = cell.reader >> 4 == now >> 4 ? cell.reader | bytes : now;
    cell.readBy = w.current;
    return;
  }
  if (others(cell.reader))
    if (Order o = readOrder(w, cell); o != Order::kOrdered)
      race(w, lane, offset, o, cell.reader, name, "read", cell.readBy);
  cell.writer = cell.writer >> 4 == now >> 4 ? cell.writer | bytes : now;
  cell.writtenBy = w.current;
  cell.writeCounter = kind == AccessKind::kTransfer ? Counter::kLoad : Counter::kDs;
  cell.writeSequence = w.checks->issued[static_cast<int>(cell.writeCounter)] + 1;
}

}  // namespace

void checkLds(Wave& w, int lane, std::uint32_t offset, unsigned size, AccessKind kind) {
  LdsShadow* shadow = w.group->shadow.get();
  const Config& config = *w.checks->config;
  if (config.checkRaces) {
    for (std::uint32_t at = offset & ~3u; at < offset + size; at += 4) {
      unsigned first = at < offset ? offset - at : 0, last = at + 4 > offset + size ? offset + size - at : 4;
      checkDword(w, lane, offset, kind, shadow->cells[at >> 2], ((1u << last) - 1) & ~((1u << first) - 1));
    }
  }
  if (config.checkUninitialized) {
    if (kind == AccessKind::kRead || kind == AccessKind::kAtomic) {
      for (unsigned i = 0; i < size; ++i)
        if (!shadow->written[offset + i]) throw Fault("LDS is read but was never written", lane, offset + i);
    } else {
      std::fill_n(shadow->written.begin() + offset, size, std::uint8_t{1});
    }
  }
}

void checkLdsTransfers(Wave& w, int lane, std::uint32_t offset, unsigned size, AccessKind kind) {
  auto& transfers = w.group->transfers;
  auto complete = [](const LdsTransfer& t) {
    return t.wave->state == WaveState::kEnded ||
           static_cast<std::int32_t>(t.wave->checks->done[static_cast<int>(Counter::kLoad)] - t.sequence) >= 0;
  };
  std::erase_if(transfers, complete);
  for (const LdsTransfer& t : transfers) {
    if (t.begin >= offset + size || t.end <= offset) continue;
    if (kind == AccessKind::kTransfer && t.wave == &w) continue;  // arrives after the earlier one, in order
    throw Fault(fmt::format("LDS is {} before a wait covers \"{}\" of wave {}, which loads into it",
                            kind == AccessKind::kRead ? "read" : "changed", w.code->text(t.by->pc), t.wave->id),
                lane, offset);
  }
}

void noteLdsTransfer(Wave& w, std::uint32_t offset, unsigned size) {
  if (!w.checks->config->checkWaits) return;
  std::uint32_t sequence = w.checks->issued[static_cast<int>(Counter::kLoad)] + 1;
  auto& transfers = w.group->transfers;
  // Lanes write one after the other: mostly one range.
  if (!transfers.empty()) {
    LdsTransfer& t = transfers.back();
    if (t.wave == &w && t.sequence == sequence && t.end == offset) {
      t.end += size;
      return;
    }
  }
  transfers.push_back({&w, w.current, sequence, offset, offset + size});
}

void noteBarrierSignal(Wave& w) {
  std::copy(std::begin(w.checks->done), std::end(w.checks->done), w.checks->doneAtBarrier);
}

void noteBarrier(Workgroup& group) {
  noteGlobalBarrier(group);
  LdsShadow* shadow = group.shadow.get();
  if (!shadow) return;
  ++shadow->time;
  for (auto& wave : group.waves)
    if (wave->checks) wave->checks->lastBarrier = shadow->time;
}

void noteAtomic(Wave& w) {
  if (!w.checks) return;
  noteGlobalSync(w);
  LdsShadow* shadow = w.group->shadow.get();
  if (shadow) w.checks->lastAtomic = ++shadow->time;
}

}  // namespace sardonyx::sim
