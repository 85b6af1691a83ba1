// See record.h.
#include "sim/timing/record.h"

#include <algorithm>
#include <array>

#include "sim/exec/access.h"
#include "sim/exec/code_image.h"
#include "sim/exec/fault.h"

namespace sardonyx::sim::timing {
namespace {

constexpr std::size_t kMaxEntries = std::size_t{1} << 24;  // of one wave

// ds_read_b128 of CDNA serves these eight lanes of 32 in one cycle ("LDS bank conflicts" on AMD's ROCm blogs); other
// instructions take lanes in their order.
constexpr int kReadGroup128[32] = {0, 0, 0, 0, 1, 1, 1, 1, 2, 2, 2, 2, 3, 3, 3, 3,
                                   1, 1, 1, 1, 0, 0, 0, 0, 3, 3, 3, 3, 2, 2, 2, 2};

}  // namespace

void WaveRecorder::global(std::uint64_t address, unsigned size, AccessKind kind) {
  const std::uint64_t flags = kind == AccessKind::kAtomic ? 3 : kind == AccessKind::kWrite ? 1 : 0;
  const std::uint64_t first = address >> 6, last = (address + size - 1) >> 6;
  for (std::uint64_t half = first; half <= last; ++half) {
    const std::uint64_t key = half << 2 | flags;
    if (halves_.empty() || halves_.back() != key) halves_.push_back(key);
  }
  if (detailed_) lanes_.push_back({address, size});
}

void WaveRecorder::lds(int lane, std::uint32_t offset, unsigned size) {
  if (!detailed_ || lane < 0) return;
  lds_.push_back({offset, static_cast<std::uint8_t>(lane), passes_[lane]++, static_cast<std::uint16_t>(size)});
}

void WaveRecorder::finish(const Wave& w, const Inst& in) {
  std::uint32_t access = kNoAccess;
  if (!halves_.empty() || !lds_.empty()) access = reduce(w, in);
  ++executed;
  if (!detailed_) return;
  if (trace.entries.size() >= kMaxEntries)
    throw Fault(
        "the wave is too long for the clock: more than 16 million instructions. If it waits for workgroups that "
        "sampled execution leaves out, use \"timing\": {\"execute\": \"all\"}");
  trace.entries.push_back({static_cast<std::uint32_t>((w.pc - w.code->base()) >> 2), access});
}

std::uint32_t WaveRecorder::reduce(const Wave& w, const Inst& in) {
  Access a;
  if (!halves_.empty()) reduceGlobal(a);
  if (!lds_.empty()) {
    const auto lanes = static_cast<int>(lds_.size());
    reduceLds(a, in);
    // A flat instruction's addresses go through the cache's unit as well: 16 a cycle.
    if (in.format != Format::kDs && halves_.empty())
      a.l1Cycles = static_cast<std::uint16_t>((std::min(lanes, w.lanes) + 15) / 16);
  }
  halves_.clear();
  lanes_.clear();
  lds_.clear();
  if (!detailed_) return kNoAccess;
  trace.accesses.push_back(a);
  return static_cast<std::uint32_t>(trace.accesses.size() - 1);
}

void WaveRecorder::reduceGlobal(Access& a) {
  std::sort(halves_.begin(), halves_.end());
  halves_.erase(std::unique(halves_.begin(), halves_.end()), halves_.end());
  a.firstLine = static_cast<std::uint32_t>(trace.lines.size());
  std::uint64_t previous = ~0ull;
  for (const std::uint64_t key : halves_) {
    const std::uint64_t number = key >> 3, flags = key & 3;
    const std::uint64_t id = number << 2 | flags;
    if (id != previous) {
      trace.lines.push_back({number << 8 | flags << 5});
      positions.push_back(static_cast<std::uint32_t>(executed) + later_);
      previous = id;
    }
    trace.lines.back().bits |= 1ull << (key >> 2 & 1);
  }
  a.lines = static_cast<std::uint16_t>(trace.lines.size() - a.firstLine);
  if (detailed_) a.l1Cycles = static_cast<std::uint16_t>(l1Cycles(a.lines, (halves_.front() & 1) != 0));
}

/// Cycles that the instruction in lanes_ takes of a cache: for its lanes and bytes, for finding the lines, and for
/// lanes whose data lie in the same banks. As gpu-strides measured MI210 and RX 6900 XT (target/timing.h); of stores
/// the bytes alone are known.
int WaveRecorder::l1Cycles(int lines, bool store) const {
  const int width = facts_.l1_bytes_per_cycle;
  unsigned bytes = 0, widest = 0;
  for (const GlobalAccess& g : lanes_) bytes += std::max(g.size, 4u), widest = std::max(widest, g.size);
  bytes = std::max(bytes, static_cast<unsigned>(halves_.size()) * 64 * (store ? 1 : 0));
  const int data = (static_cast<int>(bytes) + width - 1) / width;
  const int found = (lines + facts_.l1_lines - 1) / facts_.l1_lines;
  if (store) return std::max(data, found);
  if (facts_.l1_bank_cycles == 0) return std::max(data, quadCycles());
  const int together = widest > 4 ? 4 : facts_.l1_lanes;
  const int lanes = (static_cast<int>(lanes_.size()) + together - 1) / together;
  // 32 banks of a dword; lanes of the same dword share its read.
  std::vector<std::uint64_t> dwords;
  for (const GlobalAccess& g : lanes_)
    for (std::uint64_t d = g.address >> 2; d <= (g.address + g.size - 1) >> 2; ++d) dwords.push_back(d);
  std::sort(dwords.begin(), dwords.end());
  dwords.erase(std::unique(dwords.begin(), dwords.end()), dwords.end());
  int onBank[32] = {}, most = 0;
  for (const std::uint64_t d : dwords) most = std::max(most, ++onBank[d & 31]);
  return std::max({data, lanes, found, most > 1 ? most * facts_.l1_bank_cycles : 1});
}

/// GCN's way: four lanes a cycle. Quads of adjacent dwords (or of one) join others of their 16 lanes that go on where
/// they end or lie in the same 64 bytes. The lanes of others must lie in different banks, four of a dword or eight of
/// eight bytes, and a quad of dwords that span 64 bytes takes two cycles.
int WaveRecorder::quadCycles() const {
  int cycles = 0;
  std::uint64_t end = ~0ull;  ///< of the quad before, if it can be joined
  std::vector<std::uint64_t> joined;
  for (std::size_t from = 0; from < lanes_.size(); from += 4) {
    if (from % 16 == 0) joined.clear(), end = ~0ull;
    const std::size_t to = std::min(from + 4, lanes_.size());
    const GlobalAccess& g = lanes_[from];
    bool adjacent = g.size <= 4, same = g.size <= 4, near = true;
    int onBank[8] = {}, most = 1;
    std::uint64_t seen[4];
    int distinct = 0;
    for (std::size_t i = from; i < to; ++i) {
      const GlobalAccess& l = lanes_[i];
      adjacent = adjacent && l.size == g.size && l.address == g.address + (i - from) * g.size;
      same = same && l.address >> 2 == g.address >> 2;
      near = near && std::max(l.address, g.address) - std::min(l.address, g.address) < 60;
      const std::uint64_t place = l.size <= 4 ? l.address >> 2 : l.size <= 8 ? l.address >> 3 : l.address >> 4;
      if (std::find(seen, seen + distinct, place) != seen + distinct) continue;
      seen[distinct++] = place;
      most = std::max(most, ++onBank[place & (l.size == 8 ? 7 : 3)]);
    }
    if (!adjacent && !same) {
      cycles += std::max(most, near || g.size > 4 ? 1 : 2);
      end = ~0ull;
      continue;
    }
    const std::uint64_t half = g.address >> 6;
    if (g.address != end && std::find(joined.begin(), joined.end(), half) == joined.end()) ++cycles;
    joined.push_back(half);
    end = lanes_[to - 1].address + g.size;
    joined.push_back((end - 1) >> 6);
  }
  return cycles;
}

/// Cycles of the largest number of different dwords on one bank, summed over the groups of lanes that go together.
int WaveRecorder::conflictCycles(const LdsAccess* first, std::size_t n, bool scattered128) const {
  const unsigned banks = static_cast<unsigned>(facts_.lds_banks);
  const unsigned dwords = std::max<unsigned>((first->size + 3u) / 4u, 1);
  const unsigned perCycle = static_cast<unsigned>(facts_.lds_bytes_per_cycle) / 4;
  const unsigned together = std::max(1u, perCycle / dwords);
  const bool scattered = scattered128 && together == 8;
  const auto groupOf = [&](const LdsAccess& a) {
    return scattered ? a.lane / 32u * 4 + static_cast<unsigned>(kReadGroup128[a.lane % 32]) : a.lane / together;
  };
  int cycles = 0;
  std::vector<std::uint32_t> words;
  std::array<std::uint8_t, 64> onBank;
  for (unsigned group = 0; group * together < 64; ++group) {
    words.clear();
    for (std::size_t i = 0; i < n; ++i)
      if (groupOf(first[i]) == group)
        for (unsigned d = 0; d < dwords; ++d) words.push_back(first[i].offset / 4 + d);
    std::sort(words.begin(), words.end());
    words.erase(std::unique(words.begin(), words.end()), words.end());
    onBank.fill(0);
    int most = 0;
    for (const std::uint32_t word : words) most = std::max<int>(most, ++onBank[word % banks]);
    cycles += most;
  }
  return cycles;
}

void WaveRecorder::reduceLds(Access& a, const Inst& in) {
  std::stable_sort(lds_.begin(), lds_.end(), [](const LdsAccess& x, const LdsAccess& y) { return x.pass < y.pass; });
  std::size_t at = 0;
  int cycles = 0, ideal = 0;
  unsigned moved = 0, widest = 0;
  const bool scattered = gen_ == Gen::kGfx9 && !in.isStore;
  while (at < lds_.size()) {
    std::size_t end = at;
    unsigned bytes = 0;
    while (end < lds_.size() && lds_[end].pass == lds_[at].pass) bytes += std::max<unsigned>(lds_[end++].size, 4);
    cycles += conflictCycles(&lds_[at], end - at, scattered && lds_[at].size == 16);
    ideal += static_cast<int>((bytes + static_cast<unsigned>(facts_.lds_bytes_per_cycle) - 1) /
                              static_cast<unsigned>(facts_.lds_bytes_per_cycle));
    moved += bytes;
    widest = std::max<unsigned>(widest, lds_[at].size);
    at = end;
  }
  const auto pair = static_cast<unsigned>(widest > 4 && !in.isStore ? facts_.lds_wide_bytes : facts_.lds_pair_bytes);
  a.pairCycles = static_cast<std::uint16_t>(std::min(std::max((moved + pair - 1) / pair, 1u), 65535u));
  a.ldsCycles = static_cast<std::uint16_t>(std::min(std::max(cycles, 1), 65535));
  a.ldsIdeal = static_cast<std::uint16_t>(std::max(1, std::min(ideal, cycles)));
  std::fill(std::begin(passes_), std::end(passes_), std::uint8_t{0});
}

}  // namespace sardonyx::sim::timing
