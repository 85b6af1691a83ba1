// What the simulator needs of a chip, taken from the table in target/chip.h. Nothing in src/sim asks for a chip by its
// name: it asks for one of these traits.
#pragma once
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace sardonyx {
struct Product;
}

namespace sardonyx::sim {

/// Generation of the instruction set: decides encodings of waits, hardware registers and cache bits.
enum class Gen : std::uint8_t { kGfx9, kGfx10, kGfx11, kGfx12 };

struct Chip {
  std::string name;       ///< LLVM's processor name: "gfx942"
  std::string archName;   ///< HIP's gcnArchName: "gfx942:sramecc+:xnack-"
  std::string marketing;  ///< product whose numbers the device properties repeat: "AMD Instinct MI300X"
  const Product* product = nullptr;
  Gen gen;
  int major, minor;  ///< HIP's compute capability
  int waveSize;      ///< lanes of a wave unless the code object asks otherwise
  bool allowsWave32, allowsWave64;
  int ldsBytes;                 ///< LDS a workgroup may use
  bool unifiedVgprs;            ///< accumulation registers are the upper part of one file (gfx90a and later CDNA)
  bool packedTid;               ///< work-item ids arrive packed in v0, 10 bits each; otherwise in v0, v1, v2
  bool architectedFlatScratch;  ///< FLAT_SCRATCH is set up by hardware; no wave offset SGPR
  bool architectedSgprs;        ///< workgroup ids arrive in TTMP7 and TTMP9
  bool zeroesHigh16;            ///< most 16-bit vector results clear the upper half of the register
  bool d16LoadsZeroOtherHalf;   ///< loads of 16 bits into half a register clear the other half
  bool scratchDwordSwizzle;     ///< private segment buffer is used by the compiler (MUBUF scratch)
  int vgprEncoding;             ///< granule in which descriptors count VGPRs, for waves of waveSize
  int registersPerCu;           ///< HIP's regsPerMultiprocessor: 32-bit registers of all lanes
  int sgprs;                    ///< scalar registers that instructions can name
  int computeUnits;             ///< HIP's multiProcessorCount
  int maxWavesPerCu;            ///< of one of those
  int clockKhz, memoryClockKhz, memoryBusBits;
  std::uint64_t memoryBytes;
  int l2Bytes;  ///< of one die
  int xccCount;
  bool fp8Fnuz;      ///< 8-bit floats without infinity and negative zero (OCP's formats elsewhere)
  bool mi200Matrix;  ///< MFMA flushes 16-bit denormals, and takes BLGP on every type but f64
};

/// The chip of `name` ("gfx942", features after ':' are ignored) with its first product, or the product of that name
/// ("Radeon RX 7900 XT", "MI300A"); nullptr if the table has none.
const Chip* findChip(std::string_view name);
/// Every AMD chip of the table with its first product: each can be simulated.
const std::vector<Chip>& allChips();

}  // namespace sardonyx::sim
