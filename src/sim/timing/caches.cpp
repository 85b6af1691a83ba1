// See caches.h.
#include "sim/timing/caches.h"

#include <algorithm>

namespace sardonyx::sim::timing {

Cache::Cache(std::uint64_t bytes) {
  const std::uint64_t lines = bytes >> kLineBits;
  if (lines < kWays) return;
  sets_ = static_cast<std::size_t>(lines / kWays);
  tags_.assign(sets_ * kWays, ~0ull);
  stamps_.assign(tags_.size(), 0);
  used_.assign(tags_.size(), 0);
}

void Cache::clear() { std::fill(tags_.begin(), tags_.end(), ~0ull); }

std::uint64_t& Cache::touch(std::uint64_t line, bool& hit) {
  // A hash spreads strides of powers of two over the sets, as the hardware's address hashing does.
  const std::uint64_t mixed = line ^ (line >> 11) ^ (line >> 23);
  const std::size_t base = static_cast<std::size_t>(mixed % sets_) * kWays;
  std::size_t victim = base;
  for (std::size_t i = base; i < base + kWays; ++i) {
    if (tags_[i] == line) {
      used_[i] = ++clock_;
      hit = true;
      return stamps_[i];
    }
    if (tags_[i] == ~0ull) {
      if (tags_[victim] != ~0ull) victim = i;
    } else if (tags_[victim] != ~0ull && used_[i] < used_[victim]) {
      victim = i;
    }
  }
  hit = false;
  tags_[victim] = line;
  used_[victim] = ++clock_;
  stamps_[victim] = 0;
  return stamps_[victim];
}

DeviceCaches::DeviceCaches(int dies, std::uint64_t l2Bytes, std::uint64_t mallBytes) : mall(mallBytes) {
  for (int i = 0; i < std::max(dies, 1); ++i) l2.emplace_back(l2Bytes);
}

bool DeviceCaches::isResident(std::uint64_t line) const {
  for (const Resident& r : resident)
    if (line >= r.first && line < r.end) return filled - r.since < mall.bytes();
  return false;
}

double HitCounts::fabricShare() const {
  const std::uint64_t waited = waits[1] + waits[2];
  return waited == 0 ? 1 : static_cast<double>(fabricFills) / static_cast<double>(waited);
}
double HitCounts::memoryShare() const {
  return waits[2] == 0 ? 1 : static_cast<double>(memoryFills) / static_cast<double>(waits[2]);
}

std::uint64_t HitCounts::mostAtomics() const {
  std::uint64_t most = 0;
  for (const auto& [line, n] : atomics) most = std::max(most, n);
  return most;
}

namespace {

constexpr std::uint64_t kVisits = 100'000'000;  // of waves by the loop of serve(): less than a second

/// Reads lines of one wave in order of execution.
struct Cursor {
  GroupTrace* group;
  std::size_t wave, next;
  Cache* l1;
  Cache* array;  ///< null: there is none
  Cache* l2;
};

/// Stamps of L2 lines: step << 2 | level; of lines of the Infinity Cache: step. A line that came in this very step is
/// still on its way.
struct Pass {
  DeviceCaches& caches;
  HitCounts& counts;
  std::uint64_t step = 0;

  void request(Line& line, Cursor& from) {
    const std::uint64_t number = line.number();
    ++counts.requests;
    bool hit = false;
    if (line.store()) {
      ++counts.stores;  // written through: L1 keeps no copy that counts
      if (line.atomic()) ++counts.atomics[number];
    } else if (from.l1->touch(number, hit); hit) {
      ++counts.l1;
      return line.setLevel(Level::kL2);
    }
    const Level level = from.array && !line.store() ? throughArray(line, from) : below(line, *from.l2);
    ++counts.waits[static_cast<int>(level)];
    line.setLevel(level);
  }

  /// Units that ask for a line in the same step wait for it together; L2 gives it once.
  Level throughArray(const Line& line, Cursor& from) {
    bool hit = false;
    std::uint64_t& stamp = from.array->touch(line.number(), hit);
    if (hit) {
      const auto level = static_cast<Level>(stamp & 3);
      return stamp >> 2 == step && level != Level::kL2 ? level : Level::kArray;
    }
    const Level level = below(line, *from.l2);
    stamp = step << 2 | static_cast<std::uint64_t>(level);
    return level;
  }

  Level below(const Line& line, Cache& l2) {
    bool hit = false;
    std::uint64_t& stamp = l2.touch(line.number(), hit);
    if (hit) return stamp >> 2 == step ? static_cast<Level>(stamp & 3) : Level::kL2;
    ++counts.fabricFills;
    Level level = Level::kMemory;
    if (caches.mall.enabled()) {
      std::uint64_t& mallStamp = caches.mall.touch(line.number(), hit);
      if (hit ? mallStamp != step : caches.isResident(line.number())) level = Level::kMall;
      if (!hit) {
        mallStamp = level == Level::kMall ? 0 : step;
        if (level == Level::kMemory) ++counts.memoryFills, caches.filled += 1 << kLineBits;
      }
    } else {
      ++counts.memoryFills;
    }
    // A store's data need not come from below: the next reader of the line finds it in L2.
    stamp = line.store() ? static_cast<std::uint64_t>(Level::kL2) : step << 2 | static_cast<std::uint64_t>(level);
    return level;
  }
};

}  // namespace

void serve(const std::vector<GroupTrace*>& groups, const Placement& place, LaunchCaches& own, DeviceCaches& caches,
           HitCounts& counts) {
  std::vector<Cursor> cursors;
  std::uint64_t longest = 1;
  for (GroupTrace* g : groups) {
    const auto die = static_cast<std::size_t>(place.die(g->index));
    const auto unit = static_cast<std::size_t>(place.unit(g->index));
    Cache& l1 = own.l1[die * static_cast<std::size_t>(place.unitsPerDie) + unit];
    Cache* array = own.arrays.empty() ? nullptr : &own.arrays[unit % own.arrays.size()];
    for (std::size_t w = 0; w < g->waves.size(); ++w) {
      cursors.push_back({g, w, 0, &l1, array, &caches.l2[die]});
      const auto& positions = g->positions[w];
      if (!positions.empty()) longest = std::max<std::uint64_t>(longest, positions.back() + 1);
    }
  }
  counts.groups += groups.size();
  // Steps of some hundred cycles, about the time that a miss takes, but no more than 65536 of them. Within a step waves
  // take turns of a few instructions, so that they compete for L1; of long launches, as many turns as there is time
  // for.
  const std::uint64_t stride = std::max<std::uint64_t>(longest / 65536, 64);
  const std::uint64_t visits = std::max<std::uint64_t>((longest + stride - 1) / stride * cursors.size(), 1);
  const std::uint64_t turns = std::clamp<std::uint64_t>(kVisits / visits, 1, stride / 4);
  const std::uint64_t turn = (stride + turns - 1) / turns;
  Pass pass{caches, counts};
  for (std::uint64_t from = 0; from < longest; from += stride) {
    pass.step = ++caches.steps;
    for (std::uint64_t at = from; at < from + stride; at += turn)
      for (Cursor& c : cursors) {
        const std::uint64_t end = std::min(at + turn, from + stride);
        const auto& positions = c.group->positions[c.wave];
        auto& lines = c.group->waves[c.wave].lines;
        while (c.next < positions.size() && positions[c.next] < end) pass.request(lines[c.next++], c);
      }
  }
}

}  // namespace sardonyx::sim::timing
