// See memory_path.h.
#include "sim/timing/memory_path.h"

#include <algorithm>
#include <cmath>

namespace sardonyx::sim::timing {
namespace {

/// Takes `bytes` of a server that serves `rate` a cycle, in order: when it is done with them.
double take(double& free, double at, double bytes, double rate) {
  free = std::max(free, at) + bytes / rate;
  return free;
}

}  // namespace

MemoryPath::MemoryPath(const Setup& s) : s_(s), scalar_(16 << 10) {
  for (int i = 0; i < s.facts->l1_ports; ++i) {
    l1Free_.push_back(0);
    l1_.emplace_back(s.l1Bytes);
  }
}

/// When the levels below L1 deliver the line; L1's own time is not included.
double MemoryPath::below(const Line& line, double at, double bytes) {
  if (s_.shares.array > 0 && !line.store()) at = take(arrayFree_, at, bytes, s_.shares.array);
  if (line.level() == Level::kArray) return at + s_.shares.arrayLatency;
  l2Bytes_ += bytes;
  const double queued = take(l2Free_, at, bytes, s_.shares.l2);
  if (line.level() == Level::kL2) return queued + s_.shares.l2Latency;
  // The levels below move whole lines, once for all that wait for them at the same time.
  const double fabric = (1 << kLineBits) * s_.shares.fabricShare;
  mallBytes_ += fabric;
  const double through = s_.shares.mall > 0 ? take(mallFree_, queued, fabric, s_.shares.mall) : queued;
  if (line.level() == Level::kMall) return through + s_.shares.mallLatency;
  const double bytesOfMemory = (1 << kLineBits) * s_.shares.memoryShare;
  memoryBytes_ += bytesOfMemory;
  return std::max(through, take(memoryFree_, queued, bytesOfMemory, s_.shares.memory)) + s_.shares.memoryLatency;
}

std::int64_t MemoryPath::vector(const WaveTrace& trace, const Access& a, std::uint32_t repetition, int simd,
                                std::int64_t t) {
  const std::size_t p = port(simd);
  const std::int64_t start = std::max(t, l1Free_[p]);
  l1Free_[p] = start + a.l1Cycles;
  double done = static_cast<double>(start + a.l1Cycles - 1 + s_.facts->l1_latency);
  bool stores = false;
  for (std::uint32_t i = a.firstLine; i < a.firstLine + a.lines; ++i) {
    const Line& line = trace.lines[i];
    const auto cycle = (i - a.firstLine) / s_.facts->l1_lines;  // so many lines in each
    const double at = static_cast<double>(start + cycle);
    lines_ += 1;
    if (line.store()) {
      stores = true;
      // An L2 channel takes 64 bytes of stores in a cycle, half of what it reads (white papers of CDNA 2 and 3).
      done = std::max(done, below(line, at, 2 * 64.0 * line.halves()));
      continue;
    }
    // A repeated trace stands for another workgroup: its lines are others.
    bool hit = false;
    std::uint64_t& ready = l1_[p].touch(line.number() ^ (static_cast<std::uint64_t>(repetition) << 44), hit);
    if (hit) {
      hits_ += 1;
      done = std::max(done, static_cast<double>(ready));
      continue;
    }
    const double bytes = std::min<double>(s_.facts->fill_bytes, 1 << kLineBits) == 64 ? 64.0 * line.halves() : 128.0;
    const double there = below(line, at, bytes);
    ready = static_cast<std::uint64_t>(there);
    done = std::max(done, there);
  }
  const auto end = static_cast<std::int64_t>(std::ceil(done));
  if (stores) lastStore_ = std::max(lastStore_, end);
  return end;
}

std::int64_t MemoryPath::scalar(const WaveTrace& trace, const Access& a, std::int64_t t) {
  double done = static_cast<double>(t + s_.facts->scalar_latency);
  for (std::uint32_t i = a.firstLine; i < a.firstLine + a.lines; ++i) {
    bool hit = false;
    std::uint64_t& ready = scalar_.touch(trace.lines[i].number(), hit);
    if (!hit) ready = static_cast<std::uint64_t>(below(trace.lines[i], static_cast<double>(t), 64));
    done = std::max(done, static_cast<double>(ready));
  }
  return static_cast<std::int64_t>(std::ceil(done));
}

void MemoryPath::report(Result& r) const {
  r.l2Bytes = l2Bytes_, r.mallBytes = mallBytes_, r.memoryBytes = memoryBytes_;
  r.l1Lines = lines_, r.l1Hits = hits_;
}

}  // namespace sardonyx::sim::timing
