// Per-wave state of the strict checks, and the checks themselves.
#pragma once
#include <cstdint>
#include <string>
#include <vector>

#include "sim/exec/config.h"
#include "sim/exec/device_memory.h"
#include "sim/exec/wave.h"

namespace sardonyx::sim {

enum class AccessKind : std::uint8_t;

/// An outstanding result: the instruction that will write the register, and its number on each counter it incremented.
struct Pending {
  const Inst* by = nullptr;
  std::uint32_t sequence[2] = {};
  bool lowOnly = false;  ///< the upper half of the register is not waited for
};

/// A store that conflicts with another wave's access, if it changes what is there.
struct Suspect {
  int lane;
  std::uint64_t address;
  unsigned size;
  std::uint8_t before[16];
  std::string message;
};

struct WaveChecks {
  const Config* config = nullptr;
  // Outstanding memory operations, per counter: how many were issued, up to which one the waits so far guarantee
  // completion when operations complete in order, and when they may overtake each other.
  static constexpr int kCounters = static_cast<int>(Counter::kCount);
  std::uint32_t issued[kCounters] = {}, done[kCounters] = {}, doneUnordered[kCounters] = {};
  std::uint32_t lastUnordered[kCounters] =
      {};  ///< newest operation that may be overtaken: counts above zero prove nothing before it
  std::vector<Pending> vectorPending, accumPending;
  std::vector<Pending> highPending;  ///< for the upper half of a vector register alone; empty until there is one
  Pending scalarPending[kScalarFileSize];
  int outstanding = 0;                          ///< upper bound of registers with a pending result; 0 skips the look-up
  std::uint32_t doneAtBarrier[kCounters] = {};  ///< what was complete when the wave last arrived at a barrier
  // Lanes of each vector register that were ever written; scalar registers as flags.
  std::vector<std::uint64_t> vectorWritten, accumWritten;
  bool scalarWritten[kScalarFileSize] = {};
  // Lanes whose data to store, by register, were never written; lanes that loaded never-written scratch.
  std::uint64_t storeUndefined[4] = {}, storeUndefinedAny = 0, loadUndefined[4] = {};
  // Position in the workgroup's logical time of the last barrier passed and the last atomic executed.
  std::uint64_t lastBarrier = 0, lastAtomic = 0;
  // The same on the launch's clock, for global memory (exec/memory_checks.h).
  std::uint32_t globalBarrier = 0, globalSync = 0, syncNumber = 0;
  bool synced = false;                   ///< this instruction synchronises through global memory
  std::vector<std::uint64_t> acquiring;  ///< dwords that this instruction loads at device scope
  std::vector<Suspect> suspects;
};

/// Before an instruction: its sources must be written and complete, its destinations must not await an older result.
void checkBefore(Wave& w, const Inst& in);
/// After an instruction: notes what it wrote and what it left outstanding.
void checkAfter(Wave& w, const Inst& in);
/// Never-written registers (exec/defined.cpp): before an instruction, what it may not use; after it, what it defined.
void requireDefined(Wave& w, const Inst& in);
void noteDefined(Wave& w, const Inst& in);
/// A wait on `counter` until at most `remaining` operations are outstanding.
void noteWait(Wave& w, Counter counter, unsigned remaining);
/// The wave has arrived at a barrier.
void noteBarrierSignal(Wave& w);
/// Every wave of the workgroup has passed a barrier.
void noteBarrier(Workgroup& group);
/// The wave executed an atomic operation, which may order it with other waves.
void noteAtomic(Wave& w);

/// Who last wrote and read each dword of LDS, for races.
struct LdsShadow {
  struct Cell {
    std::uint64_t writer = 0, reader = 0;  ///< time << 12 | wave << 4 | bytes touched
    const Inst *writtenBy = nullptr, *readBy = nullptr;
    std::uint32_t writeSequence = 0;  ///< number of the write on the wave's counter, for the wait before a barrier
    Counter writeCounter = Counter::kDs;
  };
  std::vector<Cell> cells;
  std::vector<std::uint8_t> written;  ///< per byte; kept when never-written reads are checked
  std::uint64_t time = 1;             ///< grows at every barrier and atomic
};

void checkLds(Wave& w, int lane, std::uint32_t offset, unsigned size, AccessKind kind);
/// Fails an access to LDS that a load from memory into LDS may still be writing.
void checkLdsTransfers(Wave& w, int lane, std::uint32_t offset, unsigned size, AccessKind kind);
/// The current instruction loads memory into these bytes of LDS.
void noteLdsTransfer(Wave& w, std::uint32_t offset, unsigned size);

}  // namespace sardonyx::sim
