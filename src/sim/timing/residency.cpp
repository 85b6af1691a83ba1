// See residency.h.
#include "sim/timing/residency.h"

#include <algorithm>
#include <map>
#include <memory>

#include "sim/exec/device_memory.h"

namespace sardonyx::sim::timing {
namespace {

struct Touched {
  std::uint64_t first = ~std::uint64_t{0}, last = 0;  ///< lines
  std::uint64_t end = 0;                              ///< line after the allocation
  std::vector<bool> seen;
  std::uint64_t base = 0, lines = 0;
};

std::map<std::uint64_t, Touched> touchedBy(const std::vector<GroupTrace*>& recorded) {
  std::map<std::uint64_t, Touched> all;  // by the allocation's first line
  Touched* at = nullptr;
  for (const GroupTrace* g : recorded)
    for (const WaveTrace& w : g->waves)
      for (const Line& l : w.lines) {
        const std::uint64_t n = l.number();
        if (!at || n < at->base || n >= at->end) {
          const auto a = DeviceMemory::instance().find(n << kLineBits);
          if (!a) continue;  // freed, or memory of the host
          Touched& t = all[a->base >> kLineBits];
          t.base = a->base >> kLineBits;
          t.end = (a->base + a->size + (1 << kLineBits) - 1) >> kLineBits;
          if (t.seen.empty()) t.seen.resize(t.end - t.base);
          at = &t;
        }
        at->first = std::min(at->first, n);
        at->last = std::max(at->last, n);
        if (!at->seen[n - at->base]) at->seen[n - at->base] = true, ++at->lines;
      }
  return all;
}

}  // namespace

void leaveBehind(DeviceCaches& caches, const std::vector<GroupTrace*>& recorded, double scale) {
  std::vector<Resident> ranges;
  double bytes = 0;
  for (const auto& [base, t] : touchedBy(recorded)) {
    const double length = static_cast<double>(t.last + 1 - t.first) * scale;
    const std::uint64_t end = std::min<std::uint64_t>(t.end, t.first + static_cast<std::uint64_t>(length));
    const double lines = std::min(static_cast<double>(t.lines) * scale, static_cast<double>(end - t.first));
    ranges.push_back({t.first, end});
    bytes += lines * (1 << kLineBits);
  }
  for (Cache& l2 : caches.l2)
    if (bytes > static_cast<double>(l2.bytes())) l2.clear();
  if (bytes > static_cast<double>(caches.mall.bytes())) {
    caches.mall.clear();
    caches.resident.clear();
    return;
  }
  // Older ranges give way when there is no room for all.
  caches.filled += static_cast<std::uint64_t>(bytes);
  for (const Resident& r : ranges) {
    std::erase_if(caches.resident, [&](const Resident& o) { return o.first < r.end && r.first < o.end; });
    caches.resident.push_back({r.first, r.end, caches.filled});
  }
}

}  // namespace sardonyx::sim::timing
