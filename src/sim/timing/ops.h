// An instruction as the clock sees it: which unit takes it, for how long, what it waits for and what waits for it.
#pragma once
#include <cstdint>

#include "sim/isa/chip.h"
#include "sim/isa/inst.h"
#include "target/timing.h"

namespace sardonyx::sim::timing {

enum class Unit : std::uint8_t { kValu, kTrans, kMatrix, kSalu, kSmem, kLds, kVmem, kBranch, kInternal, kEnd, kCount };
inline constexpr int kUnits = static_cast<int>(Unit::kCount);

/// Why a wave does not issue.
enum class Cause : std::uint8_t {
  kMemory,        ///< waits for loads or stores of global memory (vmcnt, loadcnt, storecnt)
  kLds,           ///< waits for LDS (lgkmcnt, dscnt)
  kScalarMemory,  ///< waits for scalar loads
  kBarrier,       ///< other waves of the workgroup have not arrived
  kVectorResult,  ///< an operand is being computed by the vector pipe
  kMatrixResult,  ///< an operand is being computed by the matrix pipe
  kScalarResult,
  kMatrixBusy,  ///< the SIMD's matrix pipe has another instruction
  kVectorBusy,  ///< the SIMD's vector pipe has another instruction
  kLdsBusy,     ///< the queue of LDS is full
  kMemoryBusy,  ///< the queue of the cache is full
  kScalarBusy,  ///< scalar or branch unit
  kBranch,      ///< instructions after a branch are being fetched
  kNop,         ///< s_nop and s_sleep
  kCount
};
inline constexpr int kCauses = static_cast<int>(Cause::kCount);
const char* name(Cause c);  ///< "memory", "matrix_busy"

/// Registers in one number space: vector, accumulation, scalar.
inline constexpr int kAccumBase = 256, kScalarBase = 512, kRegisters = kScalarBase + kScalarFileSize;
struct Span {
  std::uint16_t first = 0;
  std::uint8_t count = 0;
  bool chain = false;  ///< the addend of a matrix instruction
};

struct Op {
  Unit unit = Unit::kInternal;
  std::uint16_t cycles = 1;   ///< that the unit is taken
  std::uint16_t latency = 0;  ///< until the results can be read
  std::uint16_t chain = 0;    ///< matrix: until the next one may add to the result
  std::uint16_t idle = 0;     ///< s_nop, s_sleep: cycles without issue
  std::uint8_t nreads = 0, nwrites = 0;
  Span reads[12], writes[5];
  std::uint8_t counters = 0;  ///< as Inst::counters
  std::uint8_t waits[static_cast<int>(Counter::kCount)];
  bool anyWait = false;
  bool signals = false, awaits = false;  ///< halves of a barrier
  bool isStore = false;
  bool paired = false;          ///< float arithmetic, which either of two vector pipes takes
  std::int8_t priority = -1;    ///< s_setprio
  std::uint8_t size = 4;        ///< bytes
  std::uint32_t ldsCycles = 0;  ///< of permutes, which touch no LDS memory
};

/// What `in` costs on a chip.
Op classify(const Inst& in, const Chip& chip, const TimingFacts& facts, int waveSize);
}  // namespace sardonyx::sim::timing
