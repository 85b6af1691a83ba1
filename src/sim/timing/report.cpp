// See report.h.
#include "sim/timing/report.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <map>
#include <nlohmann/json.hpp>
#include <numeric>

namespace sardonyx::sim::timing {
namespace {

using nlohmann::json;

const char* name(Unit u) {
  constexpr const char* kNames[] = {"vector", "transcendental", "matrix",   "scalar", "scalar_memory", "lds",
                                    "l1",     "branch",         "internal", "end"};
  static_assert(sizeof kNames / sizeof *kNames == kUnits);
  return kNames[static_cast<int>(u)];
}

double lostOf(const Instruction& i) {
  double n = 0;
  for (const std::uint64_t c : i.stats.lost) n += static_cast<double>(c);
  return n;
}

constexpr int kPictureWidth = 96;
/// A letter for what a wave waits for most in a part of its life.
char letter(int cause) {
  constexpr char kLetters[] = {'m', 'l', 's', 'b', 'v', 'x', 'a', 'X', 'V', 'L', 'M', 'A', 'j', 'n'};
  static_assert(sizeof kLetters == kCauses);
  return kLetters[cause];
}

/// The life of one wave, a character for each `step` cycles: '#' where it issues at least half of them, else the letter
/// of what it waits for most.
std::string picture(const Estimate& e, std::int64_t& step) {
  const std::int64_t life = e.pictured.end - e.pictured.begin;
  step = std::max<std::int64_t>((life + kPictureWidth - 1) / kPictureWidth, 1);
  const auto columns = static_cast<std::size_t>((life + step - 1) / step);
  std::vector<std::array<std::int64_t, kCauses>> lost(columns);
  for (const Segment& s : e.picture)
    for (std::int64_t at = s.begin - e.pictured.begin, end = s.end - e.pictured.begin; at < end;) {
      const std::int64_t next = std::min(end, (at / step + 1) * step);
      if (at >= 0 && at / step < static_cast<std::int64_t>(columns))
        lost[static_cast<std::size_t>(at / step)][static_cast<std::size_t>(s.cause)] += next - at;
      at = next;
    }
  std::string out;
  for (const auto& column : lost) {
    const auto most = std::max_element(column.begin(), column.end());
    const std::int64_t all = std::accumulate(column.begin(), column.end(), std::int64_t{0});
    out += 2 * all <= step ? '#' : letter(static_cast<int>(most - column.begin()));
  }
  return out;
}

std::string legend(const std::string& life) {
  std::string out;
  for (int c = 0; c < kCauses; ++c)
    if (life.find(letter(c)) != std::string::npos)
      out += fmt::format("{}{} {}", out.empty() ? "" : ", ", letter(c), name(static_cast<Cause>(c)));
  return out;
}

/// Of each source line: executed instructions and lost cycles of a wave, by cause; the most expensive first.
json bySource(const Estimate& e, double waves) {
  std::map<std::string, OpStats> lines;
  for (const Instruction& i : e.instructions) {
    if (i.source.empty()) continue;
    OpStats& s = lines[i.source];
    s.count += i.stats.count;
    for (int c = 0; c < kCauses; ++c) s.lost[c] += i.stats.lost[c];
  }
  std::vector<Instruction> sorted;
  for (const auto& [source, stats] : lines) sorted.push_back({0, "", source, stats});
  std::stable_sort(sorted.begin(), sorted.end(), [](auto& a, auto& b) { return lostOf(a) > lostOf(b); });
  json out = json::array();
  for (const Instruction& i : sorted) {
    json one = {{"source", i.source}, {"instructions_per_wave", static_cast<double>(i.stats.count) / waves}};
    for (int c = 0; c < kCauses; ++c)
      if (i.stats.lost[c])
        one["lost_cycles_per_wave"][name(static_cast<Cause>(c))] = static_cast<double>(i.stats.lost[c]) / waves;
    out.push_back(std::move(one));
  }
  return out;
}

/// The busiest unit or level, and its share.
std::pair<std::string, double> limit(const Estimate& e) {
  std::pair<std::string, double> best{"nothing", 0};
  const auto consider = [&](const char* what, double share) {
    if (share > best.second) best = {what, share};
  };
  for (const Unit u : {Unit::kValu, Unit::kTrans, Unit::kMatrix, Unit::kLds, Unit::kVmem})
    consider(name(u), e.busy[static_cast<int>(u)]);
  consider("l2", e.l2);
  consider("infinity_cache", e.mall);
  consider("memory", e.memory);
  consider("atomics", e.cycles > 0 ? e.atomicCycles / e.cycles : 0);
  return best;
}

json hitsOf(const HitCounts& h) {
  return {{"requests", h.requests},       {"l1", h.l1},           {"l2", h.waits[0]},
          {"infinity_cache", h.waits[1]}, {"memory", h.waits[2]}, {"array", h.waits[3]},
          {"memory_fills", h.memoryFills}};
}

json instructionOf(const Instruction& i, double waves) {
  json one = {{"offset", i.offset}, {"text", i.text}, {"count", i.stats.count}};
  if (!i.source.empty()) one["source"] = i.source;
  if (i.stats.conflicts) one["bank_conflict_cycles"] = i.stats.conflicts;
  json lost = json::object();
  for (int c = 0; c < kCauses; ++c)
    if (i.stats.lost[c]) lost[name(static_cast<Cause>(c))] = static_cast<double>(i.stats.lost[c]) / waves;
  if (!lost.empty()) one["lost_cycles_per_wave"] = std::move(lost);
  return one;
}

}  // namespace

json toJson(const TimedLaunch& l) {
  const Estimate& e = *l.estimate;
  json j = {{"kernel", l.kernel},
            {"chip", e.chip},
            {"product", e.product},
            {"grid", l.grid},
            {"block", l.block},
            {"start_us", l.start},
            {"us", e.microseconds},
            {"launch_us", e.launchMicroseconds},
            {"cycles", e.cycles},
            {"mhz", e.mhz},
            {"limited_by", limit(e).first},
            {"limit_share", limit(e).second},
            {"workgroups", e.groups},
            {"pools", e.pools},
            {"active_pools", e.activePools},
            {"workgroups_per_pool", e.occupancy.groups},
            {"waves_per_simd", e.occupancy.wavesPerSimd},
            {"occupancy_limit", e.occupancy.limit},
            {"issued", e.issued},
            {"l2", e.l2},
            {"infinity_cache", e.mall},
            {"memory", e.memory},
            {"memory_bytes_per_second", e.memoryBytesPerSecond},
            {"bank_conflict_cycles", e.bankConflicts},
            {"atomic_cycles", e.atomicCycles},
            {"lines", hitsOf(e.hits)}};
  for (int u = 0; u < kUnits; ++u)
    if (e.busy[u] > 0) j["busy"][name(static_cast<Unit>(u))] = e.busy[u];
  for (int c = 0; c < kCauses; ++c)
    if (e.lost[c] > 0) j["lost"][name(static_cast<Cause>(c))] = e.lost[c];
  j["sample"] = {{"recorded_workgroups", e.recordedGroups},
                 {"replayed_workgroups", e.replayedGroups},
                 {"extrapolated", e.extrapolated},
                 {"share_of_pools", e.sampledUnits}};
  const double waves = std::max<double>(1, static_cast<double>(e.lives.size()));
  for (const Instruction& i : e.instructions) j["instructions"].push_back(instructionOf(i, waves));
  if (!e.instructions.empty()) j["lines_of_source"] = bySource(e, waves);
  if (e.pictured.end > e.pictured.begin) {
    std::int64_t step = 1;
    const std::string life = picture(e, step);
    j["wave"] = {{"cycles", e.pictured.end - e.pictured.begin}, {"life", life}, {"cycles_a_character", step}};
  }
  return j;
}

std::string toText(const TimedLaunch& l, int lines) {
  const Estimate& e = *l.estimate;
  const auto [what, share] = limit(e);
  std::string out = fmt::format(
      "kernel {}: {:.1f} us estimated on {} ({:.0f} cycles at {:.0f} MHz); {} {:.0f} % busy\n"
      "  {} workgroups on {} of {} {}, {} resident on each ({} of {} waves a SIMD, limited by {})\n",
      l.kernel, e.microseconds, e.product, e.cycles, e.mhz, what, share * 100, e.groups, e.activePools, e.pools,
      e.poolName, e.occupancy.groups, e.occupancy.wavesPerSimd, e.occupancy.maxWavesPerSimd, e.occupancy.limit);
  out += "  busy:";
  for (const Unit u : {Unit::kMatrix, Unit::kValu, Unit::kTrans, Unit::kSalu, Unit::kLds, Unit::kVmem})
    if (e.busy[static_cast<int>(u)] > 0) out += fmt::format(" {} {:.0f} %", name(u), e.busy[static_cast<int>(u)] * 100);
  out += fmt::format("; L2 {:.0f} %", e.l2 * 100);
  if (e.mall > 0) out += fmt::format(", Infinity Cache {:.0f} %", e.mall * 100);
  out += fmt::format(", memory {:.0f} % ({:.0f} GB/s)\n", e.memory * 100, e.memoryBytesPerSecond * 1e-9);
  std::vector<std::pair<double, const char*>> causes;
  for (int c = 0; c < kCauses; ++c)
    if (e.lost[c] >= 0.005) causes.emplace_back(e.lost[c], name(static_cast<Cause>(c)));
  std::sort(causes.rbegin(), causes.rend());
  out += fmt::format("  of the waves' cycles: issued {:.0f} %", e.issued * 100);
  for (const auto& [part, cause] : causes) out += fmt::format(", {} {:.0f} %", cause, part * 100);
  out += fmt::format("\n  from {} of {} workgroups", e.replayedGroups, e.groups);
  if (e.extrapolated) out += ", the rest by their rate";
  if (e.sampledUnits < 1) out += fmt::format("; caches modelled with {:.0f} % of the pools", e.sampledUnits * 100);
  out += '\n';
  if (lines > 0 && e.pictured.end > e.pictured.begin) {
    std::int64_t step = 1;
    const std::string life = picture(e, step);
    out += fmt::format("  a wave, {} cycles a character (# issues, {}):\n    {}\n", step, legend(life), life);
  }
  std::vector<const Instruction*> worst;
  for (const Instruction& i : e.instructions) worst.push_back(&i);
  std::sort(worst.begin(), worst.end(), [](auto* a, auto* b) { return lostOf(*a) > lostOf(*b); });
  double total = 0;
  for (const Instruction* i : worst) total += lostOf(*i);
  for (int k = 0; k < std::min<int>(lines, static_cast<int>(worst.size())); ++k) {
    const Instruction& i = *worst[static_cast<std::size_t>(k)];
    if (lostOf(i) < 0.01 * total) break;
    const auto most = std::max_element(std::begin(i.stats.lost), std::end(i.stats.lost)) - std::begin(i.stats.lost);
    out += fmt::format("  {:5.1f} % of lost cycles: {:6x}  {:<48} {}{}{}\n", 100 * lostOf(i) / total, i.offset, i.text,
                       name(static_cast<Cause>(most)), i.source.empty() ? "" : "  ", i.source);
  }
  return out;
}

namespace {

/// Rows of one kernel's waves: a process of its own, whose threads are the slots of its SIMDs.
void addWaves(json& events, const Estimate& e, const std::string& kernel, int pid) {
  events.push_back({{"ph", "M"}, {"name", "process_name"}, {"pid", pid}, {"args", {{"name", kernel + " (cycles)"}}}});
  std::vector<std::vector<std::int64_t>> ends(static_cast<std::size_t>(e.simds));  // of slots
  std::vector<int> slotOfWave;
  std::vector<WaveLife> lives = e.lives;
  std::sort(lives.begin(), lives.end(), [](auto& a, auto& b) { return a.begin < b.begin; });
  for (const WaveLife& w : lives) {
    auto& slots = ends[static_cast<std::size_t>(w.simd)];
    std::size_t slot = 0;
    while (slot < slots.size() && slots[slot] > w.begin) ++slot;
    if (slot == slots.size()) slots.push_back(0);
    slots[slot] = w.end;
    if (slotOfWave.size() <= w.wave) slotOfWave.resize(w.wave + 1);
    const int tid = w.simd * 100 + static_cast<int>(slot);
    slotOfWave[w.wave] = tid;
    events.push_back({{"ph", "M"},
                      {"name", "thread_name"},
                      {"pid", pid},
                      {"tid", tid},
                      {"args", {{"name", fmt::format("SIMD {} slot {}", w.simd, slot)}}}});
    events.push_back({{"ph", "X"},
                      {"name", fmt::format("workgroup {} wave {}", w.group, w.wave)},
                      {"pid", pid},
                      {"tid", tid},
                      {"ts", w.begin},
                      {"dur", w.end - w.begin}});
  }
  std::vector<std::string> texts;
  for (const Segment& s : e.timeline) {
    if (static_cast<std::size_t>(s.wave) >= slotOfWave.size()) continue;
    const auto at = std::lower_bound(e.instructions.begin(), e.instructions.end(), std::uint64_t{s.slot} * 4,
                                     [](const Instruction& i, std::uint64_t offset) { return i.offset < offset; });
    events.push_back({{"ph", "X"},
                      {"name", s.cause < 0 ? "issue" : name(static_cast<Cause>(s.cause))},
                      {"pid", pid},
                      {"tid", slotOfWave[static_cast<std::size_t>(s.wave)]},
                      {"ts", s.begin},
                      {"dur", s.end - s.begin},
                      {"args", {{"instruction", at == e.instructions.end() ? "" : at->text}}}});
  }
}

}  // namespace

std::string toTimeline(const std::vector<TimedLaunch>& launches) {
  json events = json::array();
  events.push_back({{"ph", "M"}, {"name", "process_name"}, {"pid", 0}, {"args", {{"name", "launches"}}}});
  int pid = 1;
  for (const TimedLaunch& l : launches) {
    events.push_back({{"ph", "X"},
                      {"name", l.kernel},
                      {"pid", 0},
                      {"tid", 0},
                      {"ts", l.start},
                      {"dur", l.estimate->microseconds},
                      {"args", {{"cycles", l.estimate->cycles}}}});
    if (!l.estimate->timeline.empty()) addWaves(events, *l.estimate, l.kernel, pid++);
  }
  return json{{"traceEvents", std::move(events)}, {"displayTimeUnit", "ns"}}.dump();
}

}  // namespace sardonyx::sim::timing
