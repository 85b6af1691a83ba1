// What differs between the chips that the simulator can pretend to be. One row a chip; nothing else in src/sim may ask
// for a chip by name: it asks for a trait.
#pragma once
#include <cstdint>
#include <string_view>
#include <vector>

namespace sardonyx::sim {

/// Generation of the instruction set: decides encodings of waits, hardware registers and cache bits.
enum class Gen : std::uint8_t { kGfx9, kGfx11, kGfx12 };

struct Chip {
  const char* name;       ///< LLVM's processor name: "gfx942"
  const char* archName;   ///< HIP's gcnArchName: "gfx942:sramecc+:xnack-"
  const char* marketing;  ///< product whose numbers the device properties repeat
  Gen gen;
  int major, minor;  ///< HIP's compute capability
  int waveSize;      ///< lanes of a wave unless the code object asks otherwise
  bool allowsWave32, allowsWave64;
  int ldsBytes;                 ///< LDS a workgroup may use
  bool unifiedVgprs;            ///< accumulation registers are the upper part of one file (gfx90a and later CDNA)
  bool packedTid;               ///< work-item ids arrive packed in v0, 10 bits each
  bool architectedFlatScratch;  ///< FLAT_SCRATCH is set up by hardware; no wave offset SGPR
  bool architectedSgprs;        ///< workgroup ids arrive in TTMP7 and TTMP9
  bool zeroesHigh16;            ///< most 16-bit vector results clear the upper half of the register
  bool scratchDwordSwizzle;     ///< private segment buffer is used by the compiler (MUBUF scratch)
  int computeUnits;             ///< HIP's multiProcessorCount
  int maxWavesPerCu;
  int clockKhz, memoryClockKhz, memoryBusBits;
  std::uint64_t memoryBytes;
  int l2Bytes;
  int xccCount;
  bool fp8Fnuz = false;      ///< 8-bit floats without infinity and negative zero (OCP's formats elsewhere)
  bool mi200Matrix = false;  ///< MFMA flushes 16-bit denormals, and takes BLGP on every type but f64
};

/// Row of `name` ("gfx942", features after ':' are ignored), or nullptr.
const Chip* findChip(std::string_view name);
/// All rows.
const std::vector<Chip>& allChips();

}  // namespace sardonyx::sim
