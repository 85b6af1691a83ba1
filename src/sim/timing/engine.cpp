// See engine.h.
#include "sim/timing/engine.h"

#include <algorithm>
#include <climits>
#include <cmath>
#include <memory>
#include <utility>

#include "sim/timing/memory_path.h"

namespace sardonyx::sim::timing {
namespace {

using Cycle = std::int64_t;
constexpr Cycle kNever = INT64_MAX / 4;

/// Completion times of one counter's operations, newest last. Only the newest 64 can be waited for.
struct Completions {
  Cycle times[64] = {};
  std::uint32_t issued = 0;
  void add(Cycle t, bool inOrder) {
    if (inOrder && issued) t = std::max(t, times[(issued - 1) & 63]);
    times[issued++ & 63] = t;
  }
  /// When at most `limit` are outstanding. Out of order (scalar loads): the latest of those.
  Cycle until(unsigned limit) const {
    if (issued <= limit) return 0;
    Cycle t = 0;
    const std::uint32_t oldest = issued > 64 ? issued - 64 : 0;
    const std::uint32_t end = issued - limit, first = std::max(oldest, end > 8 ? end - 8 : 0);
    for (std::uint32_t i = first; i < end; ++i) t = std::max(t, times[i & 63]);
    return t;
  }
};

struct Group {
  std::uint32_t number = 0;
  int live = 0, arrived = 0;
  std::uint32_t phase = 0;
};

struct RunningWave {
  const WaveTrace* trace = nullptr;
  std::size_t next = 0;
  const Op* op = nullptr;
  std::uint32_t opIndex = 0;
  Cycle ready = 0, begin = 0;
  Group* group = nullptr;
  int simd = 0, priority = 0;
  std::uint32_t age = 0, number = 0, barrierTarget = 0;
  bool atBarrier = false;
  Completions counters[static_cast<int>(Counter::kCount)];
  Cycle at[kRegisters] = {};         ///< when the register can be read
  Cycle chainAt[kScalarBase] = {};   ///< ... as the addend of a matrix instruction
  std::uint8_t by[kRegisters] = {};  ///< Cause of the wait for it
};

class Engine {
 public:
  Engine(const Setup& s, const std::vector<const GroupTrace*>& groups, const std::vector<Op>& ops,
         const std::vector<std::uint32_t>& opOfSlot)
      : s_(s), f_(*s.facts), groups_(groups), ops_(ops), opOfSlot_(opOfSlot), memory_(s) {
    result_.ops.resize(ops.size());
    // The first wave that starts when the pool is full, for those before start together; wave 0 if all fit.
    const auto full = static_cast<std::size_t>(s.residentGroups);
    for (std::size_t g = 0; g < full && full < groups.size(); ++g)
      pictured_ += static_cast<std::uint32_t>(groups[g]->waves.size());
    simds_.resize(static_cast<std::size_t>(s.simds));
    ldsFree_.assign(static_cast<std::size_t>(f_.lds_ports), 0);
    pairFree_.assign(static_cast<std::size_t>((s.simds + 1) / 2), 0);
  }

  Result run() {
    while (resident_ < s_.residentGroups && nextGroup_ < groups_.size()) dispatch(0);
    while (!waves_.empty()) step();
    result_.cycles = std::max(result_.cycles, memory_.lastStore());
    memory_.report(result_);
    return std::move(result_);
  }

 private:
  struct Simd {
    Cycle port[kUnits] = {};
    Cycle matrix = 0, second = 0;  ///< the matrix pipe, and the second vector pipe, are free from then on
    int waves = 0;
  };

  Cycle align(Cycle t, int simd) const {
    if (f_.issue_slot == 1) return t;
    const Cycle phase = (t - simd) % f_.issue_slot;
    return phase == 0 ? t : t + f_.issue_slot - (phase < 0 ? phase + f_.issue_slot : phase);
  }
  int ldsPort(int simd) const { return simd * f_.lds_ports / s_.simds; }

  /// The SIMDs of the half of a workgroup processor that has fewer waves, or all.
  auto simdsOfGroup() {
    auto best = simds_.begin();
    int fewest = INT_MAX;
    for (auto first = simds_.begin(); first != simds_.end(); first += s_.simdsPerGroup) {
      int waves = 0;
      for (auto s = first; s != first + s_.simdsPerGroup; ++s) waves += s->waves;
      if (waves < fewest) fewest = waves, best = first;
    }
    return std::pair(best, best + s_.simdsPerGroup);
  }

  void dispatch(Cycle now) {
    const GroupTrace& g = *groups_[nextGroup_];
    Cycle start = std::max(now, nextDispatch_) + f_.wave_cycles;
    nextDispatch_ = std::max(now, nextDispatch_) + static_cast<Cycle>(s_.groupInterval);
    auto group = std::make_unique<Group>();
    group->number = static_cast<std::uint32_t>(nextGroup_++);
    group->live = static_cast<int>(g.waves.size());
    ++resident_;
    const auto [first, last] = simdsOfGroup();
    for (const WaveTrace& t : g.waves) {
      auto w = std::make_unique<RunningWave>();
      w->trace = &t;
      w->group = group.get();
      w->age = nextAge_++;
      w->number = w->age;
      const auto least = std::min_element(first, last, [](auto& a, auto& b) { return a.waves < b.waves; });
      w->simd = static_cast<int>(least - simds_.begin());
      ++least->waves;
      w->begin = w->ready = align(start, w->simd);
      start += 1;
      prepare(*w, w->ready, nullptr);
      waves_.push_back(std::move(w));
    }
    live_.push_back(std::move(group));
  }

  void lose(RunningWave& w, Cause c, Cycle from, Cycle to) {
    if (to <= from) return;
    const auto n = static_cast<std::uint64_t>(to - from);
    result_.lost[static_cast<int>(c)] += n;
    result_.ops[w.opIndex].lost[static_cast<int>(c)] += n;
    if (w.number == pictured_)
      result_.picture.push_back({from, to, static_cast<std::int32_t>(w.number), static_cast<std::int16_t>(w.simd),
                                 static_cast<std::int16_t>(c), w.trace->entries[w.next].slot});
    if (result_.timeline.size() < s_.timelineLimit)
      result_.timeline.push_back({from, to, static_cast<std::int32_t>(w.number), static_cast<std::int16_t>(w.simd),
                                  static_cast<std::int16_t>(c), w.trace->entries[w.next].slot});
  }

  /// The earliest time at which operands, waits and fetching allow the wave's next instruction. `t`: the end of the
  /// previous one's issue slot.
  void prepare(RunningWave& w, Cycle t, const Op* before) {
    const Entry& e = w.trace->entries[w.next];
    w.opIndex = opOfSlot_[e.slot];
    w.op = &ops_[w.opIndex];
    const Op& op = *w.op;
    if (before && before->unit == Unit::kBranch) {
      const Entry& last = w.trace->entries[w.next - 1];
      const bool taken = e.slot != last.slot + before->size / 4;
      const Cycle to = t - f_.issue_slot + (taken ? f_.branch_taken : f_.branch_fallen);
      lose(w, Cause::kBranch, t, to);
      t = std::max(t, to);
    }
    if (before && before->idle) {
      lose(w, Cause::kNop, t, t + before->idle);
      t += before->idle;
    }
    for (int i = 0; i < op.nreads; ++i) {
      const Span& r = op.reads[i];
      for (int k = r.first; k < r.first + r.count; ++k)
        await(w, r.chain && k < kScalarBase ? w.chainAt[k] : w.at[k], k, t);
    }
    for (int i = 0; i < op.nwrites; ++i)
      for (int k = op.writes[i].first; k < op.writes[i].first + op.writes[i].count; ++k)
        if (w.by[k] == static_cast<std::uint8_t>(Cause::kMatrixResult) && op.unit != Unit::kMatrix)
          await(w, w.at[k], k, t);
    if (op.anyWait)
      for (int c = 0; c < static_cast<int>(Counter::kCount); ++c)
        if (op.waits[c] != 255) {
          const Cycle until = w.counters[c].until(op.waits[c]);
          lose(w, waitCause(w, c), t, until);
          t = std::max(t, until);
        }
    w.ready = align(t, w.simd);
  }
  void await(RunningWave& w, Cycle at, int reg, Cycle& t) {
    if (at <= t) return;
    lose(w, static_cast<Cause>(w.by[reg]), t, at);
    t = at;
  }
  static Cause waitCause(const RunningWave&, int counter) {
    switch (static_cast<Counter>(counter)) {
      case Counter::kDs:
        return Cause::kLds;
      case Counter::kKm:
        return Cause::kScalarMemory;
      default:
        return Cause::kMemory;
    }
  }

  /// When the unit can take the wave's next instruction.
  Cycle candidate(const RunningWave& w, Cause& why) const {
    const Simd& s = simds_[static_cast<std::size_t>(w.simd)];
    const Unit u = w.op->unit;
    Cycle t = w.ready, unit = 0;
    switch (u) {
      case Unit::kMatrix:
        why = Cause::kMatrixBusy;
        unit = std::max(s.matrix, s.port[static_cast<int>(Unit::kValu)]);
        break;
      case Unit::kTrans:
        why = Cause::kVectorBusy;
        unit = std::max(s.port[static_cast<int>(Unit::kTrans)], s.port[static_cast<int>(Unit::kValu)]);
        break;
      case Unit::kValu:
        why = Cause::kVectorBusy;
        unit = s.port[static_cast<int>(Unit::kValu)];
        if (w.op->paired) unit = std::min(unit, s.second);
        break;
      case Unit::kLds:
        why = Cause::kLdsBusy;
        unit = std::max({s.port[static_cast<int>(u)], ldsFree_[static_cast<std::size_t>(ldsPort(w.simd))] - kLdsQueue,
                         pairFree_[static_cast<std::size_t>(w.simd / 2)] - kLdsQueue});
        break;
      case Unit::kVmem:
        why = Cause::kMemoryBusy;
        unit = std::max(s.port[static_cast<int>(u)], memory_.acceptsAt(w.simd));
        break;
      case Unit::kInternal:
      case Unit::kEnd:
        return t;
      default:
        why = Cause::kScalarBusy;
        unit = s.port[static_cast<int>(u)];
    }
    return unit > t ? align(unit, w.simd) : t;
  }

  void step() {
    RunningWave* best = nullptr;
    Cycle at = kNever;
    Cause why = Cause::kScalarBusy;
    for (auto& w : waves_) {
      if (w->atBarrier) continue;
      Cause c = Cause::kScalarBusy;
      const Cycle t = candidate(*w, c);
      const bool sooner =
          !best || t < at ||
          (t == at && (w->priority > best->priority || (w->priority == best->priority && w->age < best->age)));
      if (sooner) best = w.get(), at = t, why = c;
    }
    if (!best) {  // cannot happen with traces of complete workgroups
      waves_.clear();
      return;
    }
    lose(*best, why, best->ready, at);
    issue(*best, at);
  }

  void issue(RunningWave& w, Cycle t) {
    const Op& op = *w.op;
    const Entry& e = w.trace->entries[w.next];
    Simd& s = simds_[static_cast<std::size_t>(w.simd)];
    OpStats& stats = result_.ops[w.opIndex];
    ++stats.count;
    ++result_.instructions;
    result_.cycles = std::max(result_.cycles, t + f_.issue_slot);
    Cycle after = t + f_.issue_slot;
    Cycle& port = s.port[static_cast<int>(op.unit)];
    switch (op.unit) {
      case Unit::kValu:
        if (op.paired && port > t) {
          s.second = t + f_.issue_slot;
          result(w, op, t, Cause::kVectorResult);
          busy(op, f_.issue_slot, stats);
          break;
        }
        port = t + std::max<Cycle>(op.cycles, f_.issue_slot);
        after = f_.issue_slot == 1 ? port : after;  // RDNA issues a wave64 in two parts before its next instruction
        result(w, op, t, Cause::kVectorResult);
        busy(op, port - t, stats);
        break;
      case Unit::kTrans:
        port = t + std::max<Cycle>(op.cycles, f_.issue_slot);
        // CDNA's vector pipe does it itself; RDNA has a unit beside it that takes one issue.
        s.port[static_cast<int>(Unit::kValu)] = f_.matrix_separate ? port : t + s_.waveSize / 32;
        result(w, op, t, Cause::kVectorResult);
        busy(op, port - t, stats);
        break;
      case Unit::kMatrix:
        s.matrix = t + op.cycles;
        s.port[static_cast<int>(Unit::kValu)] = f_.matrix_separate ? t + f_.issue_slot : s.matrix;
        result(w, op, t, Cause::kMatrixResult);
        busy(op, op.cycles, stats);
        break;
      case Unit::kSalu:
        port = t + f_.issue_slot;
        result(w, op, t, Cause::kScalarResult);
        busy(op, f_.issue_slot, stats);
        break;
      case Unit::kLds:
        port = t + f_.issue_slot;
        lds(w, op, e, t, stats);
        break;
      case Unit::kVmem:
      case Unit::kSmem:
        port = t + f_.issue_slot;
        vmem(w, op, e, t, stats);
        break;
      case Unit::kBranch:
        port = t + f_.issue_slot;
        break;
      default:
        break;
    }
    finish(w, op, t, after);
  }

  void busy(const Op& op, Cycle cycles, OpStats& stats) {
    result_.busy[static_cast<int>(op.unit)] += static_cast<double>(cycles);
    stats.cycles += static_cast<std::uint64_t>(cycles);
  }
  void result(RunningWave& w, const Op& op, Cycle t, Cause cause) {
    for (int i = 0; i < op.nwrites; ++i)
      for (int k = op.writes[i].first; k < op.writes[i].first + op.writes[i].count; ++k) {
        w.at[k] = t + op.latency;
        w.by[k] = static_cast<std::uint8_t>(cause);
        if (k < kScalarBase) w.chainAt[k] = t + (op.unit == Unit::kMatrix ? op.chain : op.latency);
      }
  }

  /// Takes LDS for `banks` cycles and the port of the SIMD's pair for `port`: when both are done.
  Cycle takeLds(const RunningWave& w, Cycle t, Cycle banks, Cycle port) {
    Cycle& ldsFree = ldsFree_[static_cast<std::size_t>(ldsPort(w.simd))];
    Cycle& pairFree = pairFree_[static_cast<std::size_t>(w.simd / 2)];
    const Cycle start = std::max({t, ldsFree, pairFree});
    ldsFree = start + banks;
    pairFree = start + port;
    return start + std::max(banks, port);
  }

  void lds(RunningWave& w, const Op& op, const Entry& e, Cycle t, OpStats& stats) {
    Cycle banks = op.ldsCycles, port = banks;
    if (e.access != kNoAccess) {
      const Access& a = w.trace->accesses[e.access];
      banks = a.ldsCycles;
      port = a.pairCycles;
      stats.conflicts += static_cast<std::uint64_t>(a.ldsCycles - a.ldsIdeal);
      result_.ldsConflicts += static_cast<std::uint64_t>(a.ldsCycles - a.ldsIdeal);
    }
    const Cycle end = takeLds(w, t, banks, port);
    // Utilisation is that of all pairs' ports together.
    busy(op, std::max(banks, port * f_.lds_ports * 2 / s_.simds), stats);
    complete(w, op, end - 1 + f_.lds_latency, true);
  }

  void vmem(RunningWave& w, const Op& op, const Entry& e, Cycle t, OpStats& stats) {
    if (e.access == kNoAccess) return complete(w, op, t + f_.issue_slot, true);
    const Access& a = w.trace->accesses[e.access];
    if (op.unit == Unit::kSmem) return complete(w, op, memory_.scalar(*w.trace, a, t), false);
    Cycle done =
        memory_.vector(*w.trace, a, w.group->number / static_cast<std::uint32_t>(s_.distinctGroups), w.simd, t);
    busy(op, a.l1Cycles, stats);
    if (a.ldsCycles) {
      // A load straight to LDS takes its port when its data arrives. A flat instruction whose addresses are in LDS goes
      // there after the cache's unit has taken the addresses.
      const Cycle end = takeLds(w, t + (a.lines ? 0 : a.l1Cycles), a.ldsCycles, a.pairCycles);
      if (a.lines == 0) done = std::max(done, end - 1 + f_.lds_latency);
      stats.conflicts += static_cast<std::uint64_t>(a.ldsCycles - a.ldsIdeal);
      result_.ldsConflicts += static_cast<std::uint64_t>(a.ldsCycles - a.ldsIdeal);
      result_.busy[static_cast<int>(Unit::kLds)] += std::max(a.ldsCycles, a.pairCycles);
    }
    complete(w, op, done, true);
  }

  void complete(RunningWave& w, const Op& op, Cycle done, bool inOrder) {
    for (int c = 0; c < static_cast<int>(Counter::kCount); ++c)
      if (op.counters >> c & 1) w.counters[c].add(done, inOrder);
  }

  void finish(RunningWave& w, const Op& op, Cycle t, Cycle after) {
    if (op.priority >= 0) w.priority = static_cast<unsigned char>(op.priority);
    if (op.unit == Unit::kEnd) return end(w, t);
    ++w.next;
    if (w.next >= w.trace->entries.size()) return end(w, t);
    Group& g = *w.group;
    if (op.signals) {
      w.barrierTarget = g.phase + 1;
      ++g.arrived;
    }
    const bool waits = op.awaits && static_cast<std::int32_t>(g.phase - w.barrierTarget) < 0;
    if (waits) w.atBarrier = true, w.ready = after;
    if (op.signals) release(g, t);
    if (!w.atBarrier && !waits) prepare(w, after, &op);
  }

  void release(Group& g, Cycle t) {
    if (g.live == 0 || g.arrived < g.live) return;
    g.arrived = 0;
    ++g.phase;
    for (auto& w : waves_) {
      if (w->group != &g || !w->atBarrier) continue;
      w->atBarrier = false;
      const Cycle from = w->ready, to = std::max(from, t + f_.issue_slot);
      w->opIndex = opOfSlot_[w->trace->entries[w->next - 1].slot];
      lose(*w, Cause::kBarrier, from, to);
      prepare(*w, to, w->op);
    }
  }

  void end(RunningWave& w, Cycle t) {
    result_.waveCycles += static_cast<std::uint64_t>(t - w.begin);
    result_.lives.push_back({w.begin, t, w.simd, w.group->number, w.number});
    if (w.number == pictured_) result_.pictured = result_.lives.back();
    --simds_[static_cast<std::size_t>(w.simd)].waves;
    Group& g = *w.group;
    --g.live;
    const auto at = std::find_if(waves_.begin(), waves_.end(), [&](auto& x) { return x.get() == &w; });
    waves_.erase(at);
    release(g, t);
    if (g.live > 0) return;
    result_.groupEnds.push_back(t);
    --resident_;
    if (nextGroup_ < groups_.size()) dispatch(t);
  }

  static constexpr Cycle kLdsQueue = 64;
  const Setup& s_;
  const TimingFacts& f_;
  const std::vector<const GroupTrace*>& groups_;
  const std::vector<Op>& ops_;
  const std::vector<std::uint32_t>& opOfSlot_;
  MemoryPath memory_;
  std::vector<Simd> simds_;
  std::vector<Cycle> ldsFree_, pairFree_;  ///< LDS, and the port of each pair of SIMDs, are free from then on
  std::vector<std::unique_ptr<RunningWave>> waves_;
  std::vector<std::unique_ptr<Group>> live_;
  std::size_t nextGroup_ = 0;
  int resident_ = 0;
  std::uint32_t nextAge_ = 0, pictured_ = 0;
  Cycle nextDispatch_ = 0;
  Result result_;
};

}  // namespace

Result replay(const Setup& setup, const std::vector<const GroupTrace*>& groups, const std::vector<Op>& ops,
              const std::vector<std::uint32_t>& opOfSlot) {
  return Engine(setup, groups, ops, opOfSlot).run();
}

}  // namespace sardonyx::sim::timing
