// What execution records for the clock: for every executed instruction its place, and for memory what it touched,
// reduced at once to cache lines and bank cycles.
#pragma once
#include <cstdint>
#include <memory>
#include <vector>

#include "sim/exec/wave.h"
#include "target/timing.h"

namespace sardonyx::sim {

enum class AccessKind : std::uint8_t;

namespace timing {

inline constexpr std::uint32_t kNoAccess = ~0u;
inline constexpr int kLineBits = 7;  ///< lines of 128 bytes

/// Where a line that the compute unit's own cache misses comes from. Found by caches.h. kArray: RDNA's L1, which the
/// units of a shader array share.
enum class Level : std::uint8_t { kL2, kMall, kMemory, kArray };
inline constexpr int kLevels = 4;

/// A line in a trace: the address's line number in the upper bits, then the halves (64 bytes) that are used and the
/// level.
struct Line {
  std::uint64_t bits = 0;
  std::uint64_t number() const { return bits >> 8; }
  int halves() const { return static_cast<int>(bits & 1) + static_cast<int>(bits >> 1 & 1); }
  Level level() const { return static_cast<Level>(bits >> 2 & 3); }
  bool store() const { return (bits >> 5 & 1) != 0; }
  bool atomic() const { return (bits >> 6 & 1) != 0; }  ///< then it is a store as well
  void setLevel(Level l) { bits = (bits & ~0xcull) | static_cast<std::uint64_t>(l) << 2; }
};

/// One execution of a memory instruction.
struct Access {
  std::uint32_t firstLine = 0;
  std::uint16_t lines = 0;
  std::uint16_t ldsCycles = 0;   ///< of an LDS port: data and bank conflicts
  std::uint16_t ldsIdeal = 0;    ///< without conflicts
  std::uint16_t pairCycles = 0;  ///< of the port between LDS and a pair of SIMDs
  std::uint16_t l1Cycles = 0;    ///< of the cache's tags and data path
};

struct Entry {
  std::uint32_t slot;    ///< (pc - base of the code object) / 4
  std::uint32_t access;  ///< index in WaveTrace::accesses, or kNoAccess
};

struct WaveTrace {
  std::vector<Entry> entries;
  std::vector<Access> accesses;
  std::vector<Line> lines;
};

/// One workgroup's traces. A workgroup that only feeds the cache model keeps lines, not entries.
struct GroupTrace {
  std::uint64_t index = 0;  ///< in the grid
  bool detailed = false;
  std::uint64_t executed = 0;
  std::vector<WaveTrace> waves;
  /// Of each wave's lines: instructions that the wave had executed before.
  std::vector<std::vector<std::uint32_t>> positions;
};

/// Observes one wave. Attached by Recording::attach, called by the interpreter and by exec/access.cpp.
class WaveRecorder {
 public:
  WaveRecorder(const TimingFacts& facts, Gen gen, bool detailed, bool skipMatrix)
      : skipMatrix(skipMatrix), facts_(facts), gen_(gen), detailed_(detailed) {}
  void global(std::uint64_t address, unsigned size, AccessKind kind);
  void lds(int lane, std::uint32_t offset, unsigned size);
  /// At an acquire of device scope: what this wave reads next, other workgroups have stored before.
  void acquired() { later_ += kAcquired; }
  /// After an instruction: what it touched becomes one entry. Throws Fault when the trace grows beyond reason.
  void finish(const Wave& w, const Inst& in);

  WaveTrace trace;
  std::vector<std::uint32_t> positions;  ///< of each line: executed instructions before it, more after acquires
  const bool skipMatrix;                 ///< matrix arithmetic is left out: nobody reads the results
  std::uint64_t executed = 0;

 private:
  struct LdsAccess {
    std::uint32_t offset;
    std::uint8_t lane, pass;
    std::uint16_t size;
  };
  struct GlobalAccess {
    std::uint64_t address;
    unsigned size;
  };
  // Longer than what workgroups execute between the stores and the reads of one exchange.
  static constexpr std::uint32_t kAcquired = 1024;
  std::uint32_t reduce(const Wave& w, const Inst& in);
  void reduceGlobal(Access& a);
  int l1Cycles(int lines, bool store) const;
  int quadCycles() const;
  void reduceLds(Access& a, const Inst& in);
  int conflictCycles(const LdsAccess* first, std::size_t n, bool scattered128) const;
  const TimingFacts& facts_;
  Gen gen_;
  bool detailed_;
  std::uint32_t later_ = 0;
  std::vector<std::uint64_t> halves_;  ///< (address >> 6) << 2 | atomic << 1 | store of the current instruction
  std::vector<GlobalAccess> lanes_;    ///< of the current instruction, in the order of lanes; where detailed
  std::vector<LdsAccess> lds_;
  std::uint8_t passes_[64] = {};
};

}  // namespace timing
}  // namespace sardonyx::sim
