// See memory_checks.h. A race: two waves access a dword, at least one of them writes it, and nothing orders the
// accesses. They are ordered
//   - within a workgroup, by a barrier between the accesses, or by an atomic that both waves executed after the first;
//   - between workgroups, by synchronising accesses (atomics, and loads and stores at device scope) that both
//     workgroups executed after the first access;
//   - between workgroups, by a load at device scope of what a plain store wrote, if the first workgroup made this store
//     no earlier than the access. This is for chips whose release stores have no scope: gfx90a and gfx11.
// Synchronising accesses never race with one another, nor does a store of the value that is already there. So
// every report is a race; not every race is reported.
#include "sim/exec/memory_checks.h"

#include <fmt/format.h>

#include <cstring>

#include "sim/exec/checks.h"
#include "sim/exec/code_image.h"
#include "sim/exec/fault.h"
#include "sim/exec/launch.h"
#include "sim/object/code_object.h"

namespace sardonyx::sim {
namespace {

std::atomic<std::uint64_t> shadowIds{1};

struct Mark {
  std::uint64_t group;
  unsigned wave, bytes;
  std::uint32_t time;
};
Mark unpack(std::uint64_t m) {
  return {(m >> 36) - 1, static_cast<unsigned>(m >> 31 & 31), static_cast<unsigned>(m >> 27 & 15),
          static_cast<std::uint32_t>(m & GlobalShadow::kMaxTime)};
}
std::uint64_t pack(const Mark& m) {
  return (m.group + 1) << 36 | static_cast<std::uint64_t>(m.wave) << 31 | static_cast<std::uint64_t>(m.bytes) << 27 |
         m.time;
}

/// Does the chip's code say of every access whether it is at device scope?
bool storesCarryScope(const Chip& chip) {
  return chip.gen == Gen::kGfx12 || (chip.gen == Gen::kGfx9 && chip.architectedFlatScratch);
}
/// Cache policy of an access that other workgroups may rely on (LLVM's AMDGPU guide, "Memory Model").
bool deviceScope(const Wave& w, const Inst& in, bool store) {
  if (in.format != Format::kGlobal && in.format != Format::kFlat && in.format != Format::kBuffer) return false;
  if (w.chip->gen == Gen::kGfx12) return (in.cpol >> 3 & 3) >= 2;
  if (storesCarryScope(*w.chip)) return in.cpol & 16;  // sc1
  return !store && (in.cpol & 1);                      // glc
}

bool ordered(Wave& w, GlobalShadow& s, const Mark& m) {
  WaveChecks& c = *w.checks;
  if (m.group == w.group->flat) {
    if (m.wave == static_cast<unsigned>(w.id) || m.time < c.globalBarrier) return true;
    const Wave& other = *w.group->waves[m.wave];
    return c.globalSync > m.time && other.checks->globalSync > m.time;
  }
  if (s.lastSync(w.group->flat).load(std::memory_order_relaxed) > m.time &&
      s.lastSync(m.group).load(std::memory_order_acquire) > m.time)
    return true;
  auto seen = w.group->acquired.find(m.group);
  return seen != w.group->acquired.end() && seen->second >= m.time;
}

void advanceSync(Wave& w, GlobalShadow& s) {
  w.checks->globalSync = s.advance();
  if (w.current->format != Format::kDs)
    s.lastSync(w.group->flat).store(w.checks->globalSync, std::memory_order_release);
}

std::string conflict(const Wave& w, const char* now, const Mark& m, const char* before, std::uint32_t pc) {
  std::string where = fmt::format("\"{}\"", w.code->text(w.code->base() + pc));
  std::string line = w.code->object()->sourceLine(w.code->base() + pc);
  if (!line.empty()) where += " (" + line + ")";
  std::string who = m.group == w.group->flat ? fmt::format("wave {}", m.wave)
                                             : fmt::format("wave {} of workgroup {}", m.wave, m.group);
  return fmt::format("global data race: {} conflicts with a {} of {} by {} with no {}atomic between them", now, before,
                     who, where, m.group == w.group->flat ? "barrier or " : "");
}

void suspect(Wave& w, int lane, std::uint64_t address, unsigned size, std::string message) {
  Suspect s{lane, address, size, {}, std::move(message)};
  std::memcpy(s.before, reinterpret_cast<const void*>(address), std::min<std::size_t>(size, sizeof s.before));
  w.checks->suspects.push_back(std::move(s));
}

void checkRace(Wave& w, int lane, std::uint64_t address, unsigned size, AccessKind kind) {
  GlobalShadow& s = *w.launch->shadow;
  std::uint32_t time = s.time();
  if (time >= GlobalShadow::kMaxTime) return;
  const Inst& in = *w.current;
  bool store = kind == AccessKind::kWrite;
  bool syncs = kind == AccessKind::kAtomic || deviceScope(w, in, store);
  bool exempt = syncs && (kind != AccessKind::kAtomic || !storesCarryScope(*w.chip));
  if (syncs) noteGlobalSync(w);
  std::uint64_t end = address + size;
  for (std::uint64_t at = address & ~3ull; at < end; at += 4) {
    unsigned first = at < address ? static_cast<unsigned>(address - at) : 0;
    unsigned last = at + 4 > end ? static_cast<unsigned>(end - at) : 4;
    unsigned bytes = ((1u << last) - 1) & ~((1u << first) - 1);
    GlobalShadow::Cell& cell = s.cell(at);
    Mark now{w.group->flat, static_cast<unsigned>(w.id), bytes, time};
    auto pc = static_cast<std::uint32_t>(in.pc - w.code->base());
    auto others = [&](std::uint64_t packed, Mark& m) {
      if (!packed) return false;
      m = unpack(packed);
      return (m.group != now.group || m.wave != now.wave) && (m.bytes & bytes);
    };
    if (exempt) {
      if (!store) w.checks->acquiring.push_back(at);
      continue;
    }
    Mark m;
    bool foreignWriter = others(cell.writer.load(std::memory_order_acquire), m);
    if (foreignWriter && !ordered(w, s, m)) {
      const char* name = store ? "a write" : kind == AccessKind::kAtomic ? "an atomic" : "a read";
      std::string message = conflict(w, name, m, "write", cell.writerPc.load(std::memory_order_relaxed));
      if (!store) throw Fault(std::move(message), lane, address);
      suspect(w, lane, address, size, std::move(message));
    }
    if (kind == AccessKind::kAtomic) continue;
    auto mark = [&](std::atomic<std::uint64_t>& slot, std::atomic<std::uint32_t>& slotPc) {
      std::uint64_t old = slot.load(std::memory_order_relaxed);
      if (old) {
        Mark o = unpack(old);
        if (o.group == now.group && o.wave == now.wave && o.time == now.time) now.bytes |= o.bytes;
      }
      slot.store(pack(now), std::memory_order_release);
      slotPc.store(pc, std::memory_order_relaxed);
    };
    if (!store) {
      mark(cell.reader, cell.readerPc);
      continue;
    }
    if (others(cell.reader.load(std::memory_order_acquire), m) && !ordered(w, s, m))
      suspect(w, lane, address, size, conflict(w, "a write", m, "read", cell.readerPc.load(std::memory_order_relaxed)));
    mark(cell.writer, cell.writerPc);
  }
}

}  // namespace

GlobalShadow::GlobalShadow(std::uint64_t groups)
    : sync_(new std::atomic<std::uint32_t>[groups]()), id_(shadowIds.fetch_add(1)) {}

GlobalShadow::Cell& GlobalShadow::cell(std::uint64_t address) {
  struct Recent {
    std::uint64_t id = 0, page = 0;
    Page* at = nullptr;
  };
  thread_local Recent recent[4];
  std::uint64_t page = address / (kPageDwords * 4);
  Recent& r = recent[page & 3];
  if (r.id != id_ || r.page != page) {
    std::lock_guard lock(mutex_);
    auto& slot = pages_[page];
    if (!slot) slot = std::make_unique<Page>();
    r = {id_, page, slot.get()};
  }
  return r.at->cells[address / 4 % kPageDwords];
}

void checkGlobal(Wave& w, const Allocation& a, int lane, std::uint64_t address, unsigned size, AccessKind kind) {
  if (a.shadow) {
    if (kind == AccessKind::kWrite) {
      a.shadow->mark(address - a.base, size);
    } else {
      std::uint64_t bad = a.shadow->firstUnwritten(address - a.base, size);
      if (bad != MemoryShadow::kNone) throw Fault("memory is read but was never written", lane, a.base + bad);
    }
  }
  bool shared = a.kind != MemoryKind::kScratch && a.kind != MemoryKind::kKernarg;
  if (w.launch->shadow && shared) checkRace(w, lane, address, size, kind);
}

void judgeSuspects(Wave& w) {
  auto suspects = std::move(w.checks->suspects);
  w.checks->suspects.clear();
  for (Suspect& s : suspects)
    if (std::memcmp(s.before, reinterpret_cast<const void*>(s.address),
                    std::min<std::size_t>(s.size, sizeof s.before)) != 0)
      throw Fault(std::move(s.message), s.lane, s.address);
}

void noteGlobalBarrier(Workgroup& group) {
  GlobalShadow* s = group.waves.empty() ? nullptr : group.waves[0]->launch->shadow.get();
  if (!s) return;
  std::uint32_t t = s->advance();
  for (auto& wave : group.waves) wave->checks->globalBarrier = t;
}

void noteGlobalSync(Wave& w) {
  GlobalShadow* s = w.launch->shadow.get();
  if (!s) return;
  // Once an instruction is enough; its number on the load and store counters tells instructions apart.
  WaveChecks& c = *w.checks;
  std::uint32_t number = c.issued[static_cast<int>(Counter::kLoad)] + c.issued[static_cast<int>(Counter::kStore)] +
                         c.issued[static_cast<int>(Counter::kDs)] + 1;
  if (c.syncNumber == number) return;
  c.syncNumber = number;
  c.synced = w.current->format != Format::kDs;
  advanceSync(w, *s);
}

void noteGlobalSynced(Wave& w) {
  WaveChecks& c = *w.checks;
  GlobalShadow& s = *w.launch->shadow;
  for (std::uint64_t at : c.acquiring) {
    std::uint64_t packed = s.cell(at).writer.load(std::memory_order_acquire);
    if (!packed) continue;
    Mark m = unpack(packed);
    if (m.group == w.group->flat) continue;
    std::uint32_t& seen = w.group->acquired[m.group];
    seen = std::max(seen, m.time);
  }
  c.acquiring.clear();
  if (c.synced) advanceSync(w, s);
  c.synced = false;
}

}  // namespace sardonyx::sim
