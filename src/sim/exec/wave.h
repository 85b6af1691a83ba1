// Architectural state of one wave, and of its workgroup, as handlers see it.
#pragma once
#include <cstdint>
#include <cstring>
#include <memory>
#include <unordered_map>
#include <vector>

#include "sim/isa/chip.h"
#include "sim/isa/inst.h"

namespace sardonyx::sim {

class CodeImage;
struct Launch;
struct Workgroup;
struct WaveChecks;
struct LdsShadow;
namespace timing {
class WaveRecorder;
}

inline constexpr int kTempRows = 40;  ///< rows for DPP, SDWA and dual issue; the last is enough for a 16-dword operand

/// LDS and private (scratch) apertures of the flat address space. The values are those of Linux' gfx9 and later driver.
inline constexpr std::uint64_t kSharedAperture = 1ull << 48, kPrivateAperture = 2ull << 48,
                               kApertureMask = ~0xffffffffull;

/// Bytes that a launch's lanes moved (an atomic reads and writes).
struct Traffic {
  std::uint64_t globalRead = 0, globalWritten = 0, ldsRead = 0, ldsWritten = 0, scratchRead = 0, scratchWritten = 0;
  Traffic& operator+=(const Traffic& o) {
    globalRead += o.globalRead, globalWritten += o.globalWritten, ldsRead += o.ldsRead, ldsWritten += o.ldsWritten;
    scratchRead += o.scratchRead, scratchWritten += o.scratchWritten;
    return *this;
  }
};

enum class WaveState : std::uint8_t { kReady, kAtBarrier, kEnded };

struct Wave {
  Wave();
  ~Wave();
  // Scalar state. VCC, TTMPs, M0 and EXEC live in `s` at the indices of isa/inst.h.
  alignas(64) std::uint32_t s[kScalarFileSize] = {};
  std::uint64_t pc = 0;
  std::uint64_t nextPc = 0;  ///< set by the interpreter before each handler; branches overwrite it
  bool scc = false;
  bool wave32 = false;
  bool gprIndex = false;   ///< gfx9: M0 shifts vector register numbers (exec/gpr_index.h)
  int lanes = 64;          ///< 32 or 64
  std::uint32_t mode = 0;  ///< MODE register: round [3:0], denorm [7:4], dx10_clamp 8, ieee 9
  std::uint64_t mask = 0;  ///< lanes that the current vector instruction works on: EXEC, less what DPP turns off
  std::uint64_t full = 0;  ///< all lanes

  // Vector registers: row r is v[r * lanes], one element a lane.
  std::uint32_t* v = nullptr;
  std::uint32_t* a = nullptr;
  int vgprs = 0, agprs = 0, sgprs = 0;
  alignas(64) std::uint32_t temp[kTempRows][64] = {};

  const Chip* chip = nullptr;
  CodeImage* code = nullptr;
  Workgroup* group = nullptr;
  Launch* launch = nullptr;
  int id = 0;                      ///< index in the workgroup
  std::uint64_t scratchBase = 0;   ///< device address of this wave's scratch, swizzled by dwords
  std::uint32_t scratchBytes = 0;  ///< per lane
  WaveState state = WaveState::kReady;
  bool watchGlobal = false;         ///< global accesses are checked for more than bounds, or counted
  Traffic* traffic = nullptr;       ///< bytes moved, when the summary is on
  bool yield = false;               ///< the wave asked for others to run (s_sleep)
  std::uint32_t barrierTarget = 0;  ///< phase of the workgroup's barrier that lets this wave go on
  std::uint64_t executed = 0;
  const Inst* current = nullptr;
  std::unique_ptr<WaveChecks> checks;
  std::unique_ptr<timing::WaveRecorder> recorder;  ///< for the clock; null when this wave is not recorded
  std::vector<std::uint32_t> registers;            ///< storage of v and a
  std::vector<std::uint8_t> scratchWritten;        ///< by lane and byte; only when never-written reads are checked

  std::uint32_t* row(const Operand& o, int dword = 0) {
    switch (o.file) {
      case RegFile::kVgpr:
        return v + (o.index + dword) * lanes;
      case RegFile::kAgpr:
        return a + (o.index + dword) * lanes;
      default:
        return temp[o.index + dword];
    }
  }
  std::uint64_t exec() const { return wave32 ? s[kExec] : pair(kExec); }
  std::uint64_t vcc() const { return wave32 ? s[kVcc] : pair(kVcc); }
  std::uint64_t pair(int index) const {
    std::uint64_t value;
    std::memcpy(&value, &s[index], 8);
    return value;
  }
  void setPair(int index, std::uint64_t value) { std::memcpy(&s[index], &value, 8); }
};

/// A load from memory into LDS that no wait has covered yet.
struct LdsTransfer {
  const Wave* wave;
  const Inst* by;
  std::uint32_t sequence;  ///< on the wave's load counter
  std::uint32_t begin, end;
};

/// State shared by the waves of one workgroup.
struct Workgroup {
  Workgroup();
  ~Workgroup();
  std::vector<std::unique_ptr<Wave>> waves;
  std::vector<std::uint8_t> lds;
  std::uint32_t id[3] = {};
  std::uint64_t flat = 0;          ///< linear index in the grid
  int live = 0;                    ///< waves not ended
  int signalled = 0;               ///< split barrier: waves that have signalled in this phase
  std::uint32_t barrierPhase = 0;  ///< completed barriers
  std::unique_ptr<LdsShadow> shadow;
  std::vector<LdsTransfer> transfers;
  Traffic traffic;
  /// Other workgroups' times that this one's loads at device scope have seen (exec/memory_checks.h).
  std::unordered_map<std::uint64_t, std::uint32_t> acquired;
};

}  // namespace sardonyx::sim
