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
  const std::uint64_t store = kind == AccessKind::kWrite || kind == AccessKind::kAtomic ? 1 : 0;
  const std::uint64_t first = address >> 6, last = (address + size - 1) >> 6;
  for (std::uint64_t half = first; half <= last; ++half) {
    const std::uint64_t key = half << 1 | store;
    if (halves_.empty() || halves_.back() != key) halves_.push_back(key);
  }
  bytes_ += size;
  ++calls_;
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
  if (!halves_.empty()) reduceGlobal(a, w.lanes);
  if (!lds_.empty()) reduceLds(a, in);
  halves_.clear();
  lds_.clear();
  bytes_ = 0;
  calls_ = 0;
  if (!detailed_) return kNoAccess;
  trace.accesses.push_back(a);
  return static_cast<std::uint32_t>(trace.accesses.size() - 1);
}

void WaveRecorder::reduceGlobal(Access& a, int lanes) {
  // The data path moves whole halves of lines; addresses are taken for 16 lanes a cycle; each line needs a look-up.
  std::sort(halves_.begin(), halves_.end());
  halves_.erase(std::unique(halves_.begin(), halves_.end()), halves_.end());
  a.firstLine = static_cast<std::uint32_t>(trace.lines.size());
  std::uint64_t previous = ~0ull;
  for (const std::uint64_t key : halves_) {
    const std::uint64_t number = key >> 2, store = key & 1;
    const std::uint64_t id = number << 1 | store;
    if (id != previous) {
      trace.lines.push_back({number << 8 | store << 5});
      positions.push_back(static_cast<std::uint32_t>(executed));
      previous = id;
    }
    trace.lines.back().bits |= 1ull << (key >> 1 & 1);
  }
  a.lines = static_cast<std::uint16_t>(trace.lines.size() - a.firstLine);
  const unsigned data = std::max<unsigned>(static_cast<unsigned>(halves_.size()) * 64, bytes_);
  const unsigned width = static_cast<unsigned>(facts_.l1_bytes_per_cycle);
  const int addresses = (std::min(calls_, lanes) + 15) / 16;
  a.l1Cycles = static_cast<std::uint16_t>(
      std::max({addresses, static_cast<int>(a.lines), static_cast<int>((data + width - 1) / width)}));
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
  const bool scattered = gen_ == Gen::kGfx9 && !in.isStore;
  while (at < lds_.size()) {
    std::size_t end = at;
    unsigned bytes = 0;
    while (end < lds_.size() && lds_[end].pass == lds_[at].pass) bytes += std::max<unsigned>(lds_[end++].size, 4);
    cycles += conflictCycles(&lds_[at], end - at, scattered && lds_[at].size == 16);
    ideal += static_cast<int>((bytes + static_cast<unsigned>(facts_.lds_bytes_per_cycle) - 1) /
                              static_cast<unsigned>(facts_.lds_bytes_per_cycle));
    at = end;
  }
  a.ldsCycles = static_cast<std::uint16_t>(std::min(std::max(cycles, 1), 65535));
  a.ldsIdeal = static_cast<std::uint16_t>(std::max(1, std::min(ideal, cycles)));
  std::fill(std::begin(passes_), std::end(passes_), std::uint8_t{0});
}

}  // namespace sardonyx::sim::timing
