// See estimate.h.
#include "sim/timing/estimate.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <unordered_map>

#include "sim/exec/launch.h"
#include "sim/timing/recording.h"
#include "sim/timing/residency.h"
#include "target/chip.h"

namespace sardonyx::sim::timing {
namespace {

constexpr int kRoundsReplayed =
    6;  // of resident workgroups; the rate of all but the first and the last holds for the rest
constexpr double kEqualWork = 0.01;       // differences of workgroups' instructions that do not count
constexpr double kFullLdsLoad = 0.25;     // busy share of LDS in a GEMM that has its operands there
constexpr double kFullMatrixLoad = 0.75;  // busy share of the matrix pipes at which the card's power limit is reached

/// Static instructions of the traces.
struct Code {
  std::vector<Op> ops;
  std::vector<std::uint32_t> opOfSlot;
  std::vector<std::uint32_t> slotOfOp;
};

Code codeOf(const Launch& launch, const std::vector<GroupTrace*>& groups, const TimingFacts& facts) {
  Code code;
  CodeImage& image = *launch.kernel->image;
  constexpr std::uint32_t kNone = ~0u;
  code.opOfSlot.assign(image.size() / 4 + 1, kNone);
  for (const GroupTrace* g : groups)
    for (const WaveTrace& w : g->waves)
      for (const Entry& e : w.entries) {
        if (code.opOfSlot[e.slot] != kNone) continue;
        code.opOfSlot[e.slot] = static_cast<std::uint32_t>(code.ops.size());
        code.slotOfOp.push_back(e.slot);
        code.ops.push_back(classify(*image.at(image.base() + std::uint64_t{e.slot} * 4), *launch.chip, facts,
                                    launch.kernel->waveSize));
      }
  return code;
}

/// What one pool can take of the shared levels when `active` pools of the device run.
Shares sharesOf(const TimingFacts& f, const Placement& place, std::uint64_t active, double bytesPerSecond, double mhz,
                const HitCounts& hits) {
  Shares s;
  const double perDie = std::max(1.0, static_cast<double>(active) / place.dies);
  // A pool's own port to the fabric is as wide as its L1's.
  const double port = static_cast<double>(f.l1_ports * f.l1_bytes_per_cycle);
  const double cyclesPerNs = mhz / 1000;
  s.l2 = std::min(port, f.l2_bytes_per_cycle / perDie);
  if (f.mall_gb_per_second > 0)
    s.mall = std::min(port, f.mall_gb_per_second / cyclesPerNs / static_cast<double>(active));
  else
    s.mall = 0;
  s.memory = std::min(port, bytesPerSecond * 1e-9 * f.memory_efficiency / cyclesPerNs / static_cast<double>(active));
  if (f.array.kib > 0) s.array = std::min(2 * port, static_cast<double>(f.array.bytes_per_cycle) / f.array.pools);
  s.arrayLatency = f.array.latency;
  s.l2Latency = f.l2_latency;
  s.mallLatency = static_cast<int>(f.mall_ns * cyclesPerNs);
  s.memoryLatency = static_cast<int>(f.memory_ns * cyclesPerNs);
  s.fabricShare = hits.fabricShare();
  s.memoryShare = hits.memoryShare();
  return s;
}

/// Which level serves each line of the recorded workgroups; counts are of the measured round alone where the launch was
/// sampled.
HitCounts serveAll(Recording& rec, const std::vector<GroupTrace*>& traces, const Chip& chip, std::uint64_t mallBytes,
                   DeviceCaches& device) {
  const double part = static_cast<double>(rec.units()) / rec.placement().unitsPerDie;
  const int dies = rec.placement().dies;
  // If a part of the pools was recorded, it has a cache of its own with its share of the size; otherwise the device's
  // caches hold what earlier launches left.
  DeviceCaches own(dies, 0, 0);
  if (part < 1)
    own = DeviceCaches(dies, static_cast<std::uint64_t>(static_cast<double>(chip.l2Bytes) * part),
                       static_cast<std::uint64_t>(static_cast<double>(mallBytes) * part));
  DeviceCaches& caches = part < 1 ? own : device;
  const sardonyx::Chip& c = sardonyx::chip_of(chip.name);
  LaunchCaches launch;
  for (std::uint64_t i = 0; i < rec.placement().pools(); ++i)
    launch.l1.emplace_back(static_cast<std::uint64_t>(c.l1_kib) * static_cast<unsigned>(c.units_per_pool) << 10);
  if (const ArrayCache& array = rec.facts().array; array.kib > 0)
    for (int i = 0; i < std::max(1, rec.placement().unitsPerDie / array.pools); ++i)
      launch.arrays.emplace_back(static_cast<std::uint64_t>(static_cast<double>(array.kib << 10) * part));
  HitCounts counts;
  const std::uint64_t perRound = std::max<std::uint64_t>(rec.round(), 1);
  for (std::uint64_t r = 0; r < rec.rounds(); ++r) {
    std::vector<GroupTrace*> round;
    for (GroupTrace* t : traces)
      if (t->index / perRound == r && rec.placement().unit(t->index) < rec.units()) round.push_back(t);
    if (!rec.complete()) {  // the measured round alone, but for atomics
      HitCounts next;
      next.atomics = std::move(counts.atomics);
      next.groups = counts.groups;
      counts = std::move(next);
    }
    serve(round, rec.placement(), launch, caches, counts);
  }
  if (!rec.complete() || part < 1) {
    if (part < 1)
      for (Cache& c2 : device.l2) c2.clear();
    leaveBehind(device, traces,
                static_cast<double>(rec.groups()) / static_cast<double>(std::max<std::size_t>(traces.size(), 1)));
  }
  return counts;
}

struct Replayed {
  Result result;
  double cycles = 0;
  std::uint64_t groups = 0;
  bool extrapolated = false;
};

/// Work of an average workgroup of the launch, of which a part was recorded, as a share of those that are replayed.
double averageWork(const Recording& rec, const std::vector<const GroupTrace*>& replayed) {
  double executed = 0;
  for (const GroupTrace* t : replayed) executed += static_cast<double>(t->executed);
  const double average = rec.averageExecuted() * static_cast<double>(replayed.size());
  if (average <= 0 || executed <= 0 || std::abs(average / executed - 1) < kEqualWork) return 1;
  return average / executed;
}

/// Replays one pool, and extrapolates to all of its workgroups.
Replayed replayPool(const Recording& rec, const std::vector<GroupTrace*>& traces, int unit, Setup setup,
                    const Code& code) {
  std::vector<const GroupTrace*> own;
  for (const GroupTrace* t : traces)
    if (t->detailed && rec.placement().unit(t->index) == unit) own.push_back(t);
  Replayed r;
  if (own.empty()) return r;
  setup.distinctGroups = own.size();
  const double work = rec.complete() ? 1 : averageWork(rec, own);
  // In workgroups like those that are replayed.
  const double share = static_cast<double>(rec.groups()) / static_cast<double>(rec.placement().pools()) * work;
  if (rec.complete()) {
    // Levels that all pools share serve them by what they ask for: a pool with more workgroups than others gets more.
    const double average = std::max(share, 1.0);
    const double port = static_cast<double>(setup.facts->l1_ports * setup.facts->l1_bytes_per_cycle);
    for (double* level : {&setup.shares.l2, &setup.shares.mall, &setup.shares.memory})
      *level = std::max(*level, std::min(port, *level * static_cast<double>(own.size()) / average));
  }
  std::vector<const GroupTrace*> order = own;
  const auto resident = static_cast<std::size_t>(setup.residentGroups);
  if (!rec.complete()) {
    constexpr auto kMost = static_cast<std::size_t>(kRoundsReplayed);
    std::size_t wanted = std::min(static_cast<std::size_t>(std::ceil(share)), resident * kMost);
    // Shorter workgroups fill the last round of unequal ones: whole rounds are replayed, and what is too much of them
    // is taken off below.
    if (work != 1) wanted = resident * std::clamp<std::size_t>((wanted + resident - 1) / resident, 3, kMost);
    while (order.size() < wanted) order.push_back(own[order.size() % own.size()]);
    order.resize(std::min(order.size(), wanted));
  }
  r.groups = order.size();
  r.result = replay(setup, order, code.ops, code.opOfSlot);
  r.cycles = static_cast<double>(r.result.cycles);
  const double left = share - static_cast<double>(order.size());
  if (!rec.complete() && (left > 0 || work != 1)) {
    const auto& ends = r.result.groupEnds;
    const std::size_t from = std::min(resident, ends.size() / 2);
    // While the last workgroups drain, the pool is not full: the rate is taken before that.
    const std::size_t to = ends.size() - resident;
    r.cycles +=
        left * static_cast<double>(ends[to] - ends[from]) / static_cast<double>(std::max<std::size_t>(to - from, 1));
    r.extrapolated = left > 0;
  }
  return r;
}

void describe(Estimate& e, const Launch& launch, const Replayed& r, const Code& code, const Setup& setup) {
  const Result& x = r.result;
  const auto pool = static_cast<double>(std::max<std::int64_t>(x.cycles, 1));
  for (int u = 0; u < kUnits; ++u) {
    const bool perPool = u == static_cast<int>(Unit::kLds) || u == static_cast<int>(Unit::kVmem);
    const int ports = u == static_cast<int>(Unit::kLds) ? setup.facts->lds_ports
                      : perPool                         ? setup.facts->l1_ports
                                                        : setup.simds;
    e.busy[u] = x.busy[u] / pool / ports;
  }
  e.l2 = x.l2Bytes / pool / setup.shares.l2;
  e.mall = setup.shares.mall > 0 ? x.mallBytes / pool / setup.shares.mall : 0;
  e.memory = x.memoryBytes / pool / setup.shares.memory;
  e.memoryBytesPerSecond = x.memoryBytes / pool * e.activePools * e.mhz * 1e6;
  const auto lives = static_cast<double>(std::max<std::uint64_t>(x.waveCycles, 1));
  double lost = 0;
  for (int c = 0; c < kCauses; ++c) lost += e.lost[c] = static_cast<double>(x.lost[c]) / lives;
  e.issued = std::max(0.0, 1 - lost);
  e.bankConflicts = x.ldsConflicts;
  e.replayedGroups = r.groups;
  const CodeImage& image = *launch.kernel->image;
  for (std::size_t i = 0; i < code.ops.size(); ++i) {
    Instruction one;
    one.offset = std::uint64_t{code.slotOfOp[i]} * 4;
    one.text = image.text(image.base() + one.offset);
    one.source = image.object() ? image.object()->sourceLine(image.base() + one.offset) : "";
    one.stats = x.ops[i];
    e.instructions.push_back(std::move(one));
  }
  std::sort(e.instructions.begin(), e.instructions.end(),
            [](const Instruction& a, const Instruction& b) { return a.offset < b.offset; });
  e.timeline = x.timeline;
  e.lives = x.lives;
  e.picture = x.picture;
  e.pictured = x.pictured;
}

}  // namespace

std::string noClock(std::string_view chip) {
  std::string known;
  for (const TimingFacts& f : kTimingFacts) known += fmt::format("{}{}", known.empty() ? "" : ", ", f.chip);
  return fmt::format(
      "the clock has no facts of {} (target/timing.h has those of {}): turn timing off, or simulate one of these", chip,
      known);
}

Estimate estimate(Launch& launch, DeviceCaches& caches) {
  Recording& rec = *launch.recording;
  const TimingFacts& f = rec.facts();
  const sardonyx::Chip& c = sardonyx::chip_of(launch.chip->name);
  const sardonyx::Product& product = *launch.chip->product;
  const std::vector<GroupTrace*> traces = rec.traces();
  Estimate e;
  e.chip = launch.chip->name;
  e.product = product.name;
  e.groups = rec.groups();
  e.occupancy = rec.occupancy();
  e.poolName = c.units_per_pool > 1 ? "workgroup processors" : "compute units";
  e.dies = rec.placement().dies;
  e.pools = static_cast<int>(rec.placement().pools());
  e.activePools = static_cast<int>(std::min<std::uint64_t>(rec.placement().pools(), rec.groups()));
  e.launchMicroseconds = f.launch_us;
  e.recordedGroups = traces.size();
  e.sampledUnits = static_cast<double>(rec.units()) / rec.placement().unitsPerDie;
  e.hits = serveAll(rec, traces, *launch.chip, static_cast<std::uint64_t>(product.infinity_mib) << 20, caches);
  const Code code = codeOf(launch, traces, f);

  Setup setup;
  setup.facts = &f;
  setup.gen = launch.chip->gen;
  setup.waveSize = launch.kernel->waveSize;
  setup.simds = setup.simdsPerGroup = e.occupancy.simds;
  setup.simdsPerGroup = e.occupancy.simdsPerGroup;
  setup.residentGroups = e.occupancy.groups;
  setup.l1Bytes = static_cast<std::uint64_t>(c.l1_kib) << 10;
  // A die's pools get their workgroups in turn.
  setup.groupInterval =
      std::max<double>(f.group_cycles, f.wave_interval * e.occupancy.wavesPerGroup) *
      std::min<double>(rec.placement().unitsPerDie, static_cast<double>(rec.groups()) / rec.placement().dies);
  setup.timelineLimit = launch.config->timelineSegments;
  e.simds = setup.simds;
  const double fixed = launch.config->mhz;
  e.mhz = fixed > 0 ? fixed : product.mhz;
  Replayed r;
  // The clock follows from the matrix load, and memory's bytes a cycle from the clock: the second pass has it right
  // enough.
  for (int pass = 0; pass < 2; ++pass) {
    setup.shares = sharesOf(f, rec.placement(), static_cast<std::uint64_t>(e.activePools), product.gb_per_second * 1e9,
                            e.mhz, e.hits);
    r = replayPool(rec, traces, 0, setup, code);
    const double load = r.result.busy[static_cast<int>(Unit::kMatrix)] /
                        static_cast<double>(std::max<std::int64_t>(r.result.cycles, 1)) / setup.simds * e.activePools /
                        e.pools;
    // Instructions whose operands stay in registers do not reach the power limit.
    const double fed = r.result.busy[static_cast<int>(Unit::kLds)] /
                       static_cast<double>(std::max<std::int64_t>(r.result.cycles, 1)) / f.lds_ports / kFullLdsLoad;
    const double mhz =
        product.mhz - (product.mhz - f.matrix_mhz) * std::min(1.0, load / kFullMatrixLoad) * std::min(1.0, fed);
    if (pass == 1 || fixed > 0 || mhz > 0.98 * e.mhz) break;
    e.mhz = mhz;
  }
  double cycles = r.cycles;
  if (const int unit = rec.secondDetailedUnit(); unit != 0) {
    const Replayed other = replayPool(rec, traces, unit, setup, code);
    if (other.groups > 0) cycles = rec.complete() ? std::max(cycles, other.cycles) : (cycles + other.cycles) / 2;
  }
  // Atomics on one line follow one another, whichever units they come from.
  const double all = static_cast<double>(rec.groups()) / static_cast<double>(std::max<std::uint64_t>(e.hits.groups, 1));
  e.atomicCycles = static_cast<double>(e.hits.mostAtomics()) * all * f.atomic_ns * e.mhz / 1000;
  e.cycles = cycles = std::max(cycles, e.atomicCycles);
  e.extrapolated = r.extrapolated;
  e.microseconds = cycles / e.mhz;
  describe(e, launch, r, code, setup);
  return e;
}

}  // namespace sardonyx::sim::timing
