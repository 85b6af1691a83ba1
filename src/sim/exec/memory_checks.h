// Checks on global memory beyond bounds: data races between waves of one launch, and reads of bytes never written. Both
// are options; Wave::watchGlobal says that one of them is on.
#pragma once
#include <atomic>
#include <cstdint>
#include <memory>
#include <mutex>
#include <unordered_map>

#include "sim/exec/access.h"
#include "sim/exec/device_memory.h"

namespace sardonyx::sim {

struct Launch;

/// Who last wrote and read each dword of global memory in one launch, and the order between workgroups. Time is one
/// clock of the launch that every barrier and every synchronising access advances.
class GlobalShadow {
 public:
  /// A mark packs workgroup + 1 [63:36], wave [35:31], bytes [30:27] and time [26:0]; 0: no access yet.
  struct Cell {
    std::atomic<std::uint64_t> writer{0}, reader{0};
    std::atomic<std::uint32_t> writerPc{0}, readerPc{0};  ///< offset in the code object
  };
  explicit GlobalShadow(std::uint64_t groups);

  Cell& cell(std::uint64_t address);
  std::uint32_t time() const { return clock_.load(std::memory_order_relaxed); }
  std::uint32_t advance() { return clock_.fetch_add(1, std::memory_order_acq_rel) + 1; }
  /// Time of the last synchronising access of a workgroup.
  std::atomic<std::uint32_t>& lastSync(std::uint64_t group) { return sync_[group]; }
  /// Beyond this many synchronising accesses or workgroups nothing is checked any more.
  static constexpr std::uint32_t kMaxTime = (1u << 27) - 1;
  static constexpr std::uint64_t kMaxGroups = 1u << 26;

 private:
  static constexpr std::uint64_t kPageDwords = 1024;
  struct Page {
    Cell cells[kPageDwords];
  };
  std::mutex mutex_;
  std::unordered_map<std::uint64_t, std::unique_ptr<Page>> pages_;
  std::atomic<std::uint32_t> clock_{1};
  std::unique_ptr<std::atomic<std::uint32_t>[]> sync_;
  std::uint64_t id_;  ///< tells this shadow from an earlier one at the same address, for threads' caches
};

/// An access in bounds, before it happens. `a` contains it.
void checkGlobal(Wave& w, const Allocation& a, int lane, std::uint64_t address, unsigned size, AccessKind kind);
/// After the instruction: stores that conflict with another wave's access fail if they changed something.
void judgeSuspects(Wave& w);
/// The workgroup passed a barrier; the wave executed an atomic.
void noteGlobalBarrier(Workgroup& group);
void noteGlobalSync(Wave& w);
/// After an instruction that synchronises: it may have read what another workgroup stored since it was checked.
void noteGlobalSynced(Wave& w);

}  // namespace sardonyx::sim
