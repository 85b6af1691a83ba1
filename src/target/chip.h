// What each GPU is: one row for every target that code is generated for (chips.cpp), AMD's and NVIDIA's. Code that
// differs between chips asks a row (`chip.has(Feature::kWgmma)`, `chip.wave`, `chip.matrix(DType::kFloat16)`) and never
// compares names.
//
// Words that serve both makers: a wave is AMD's wavefront and NVIDIA's warp; a unit is AMD's compute unit (CU) and
// NVIDIA's multiprocessor (SM); a SIMD is also one of an SM's four sub-partitions; LDS is also NVIDIA's shared memory.
#pragma once
#include <cstdint>
#include <initializer_list>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "sardonyx/dtype.h"
#include "target/matrix_instructions.h"

namespace sardonyx {

enum class Vendor : std::uint8_t { kAmd, kNvidia };
enum class ChipFamily : std::uint8_t { kCdna2, kCdna3, kCdna4, kRdna2, kRdna3, kRdna35, kRdna4, kAmpere, kHopper };
/// The 8-bit floats that a chip converts and multiplies: AMD's early form without infinities and negative zero, or
/// OCP's.
enum class Float8 : std::uint8_t { kNone, kFnuz, kOcp };

enum class Feature : std::uint8_t {
  // NVIDIA
  kAsyncCopy,        ///< cp.async: global to shared memory without registers
  kWgmma,            ///< asynchronous matrix instructions of four warps
  kTensorCopy,       ///< the copy engine (TMA) and its tensor maps
  kClusters,         ///< clusters of workgroups that read one another's shared memory
  kDependentLaunch,  ///< a kernel may start before the one ahead of it has ended
  kNativeMaximum,    ///< also AMD: IEEE 754-2019 minimum and maximum of float32 as one instruction
  kExactChip,        ///< PTX for this row ("sm_90a") runs on its own compute capability alone
  // AMD
  kWave32,                   ///< kernels may run in waves of 32
  kWave64,                   ///< kernels may run in waves of 64
  kUnifiedRegisters,         ///< accumulation registers are the upper part of the vector registers' file
  kBfloat16Convert,          ///< v_cvt_pk_bf16_f32
  kPackedWorkItemIds,        ///< work-item ids arrive in v0, 10 bits each
  kArchitectedScratch,       ///< hardware sets up FLAT_SCRATCH; kernels get no wave offset
  kArchitectedWorkgroupIds,  ///< workgroup ids arrive in TTMP7 and TTMP9
  kZeroesUpperHalf,          ///< most 16-bit vector results clear the upper half of the register
  kScratchSwizzle,           ///< compilers reach scratch through a buffer resource (MUBUF)
  kWideLoadsToLds,           ///< global_load_lds_dwordx4: 16 bytes a lane, without registers
  kFlushesMatrixDenormals,   ///< MFMA flushes 16-bit denormals, and takes BLGP on all types but float64
  kPreloadsArguments,        ///< firmware can put a kernel's first arguments into scalar registers
};
constexpr int kFeatureCount = static_cast<int>(Feature::kPreloadsArguments) + 1;
std::string_view name(Feature f);  ///< "wgmma", "unified-registers"

/// A set of features.
class Features {
 public:
  constexpr Features(std::initializer_list<Feature> list) {
    for (const Feature f : list) bits_ |= 1u << static_cast<int>(f);
  }
  constexpr bool has(Feature f) const { return (bits_ >> static_cast<int>(f) & 1) != 0; }

 private:
  std::uint32_t bits_ = 0;
};

/// Registers of one SIMD, in 32-bit registers of a lane (vector) or of a wave (scalar).
struct RegisterFile {
  int vector = 0;           ///< shared by the waves of a SIMD, for waves of Chip::wave lanes
  int vector_granule = 0;   ///< in which they are given to waves
  int vector_encoding = 0;  ///< granule in which a kernel descriptor counts them; 0 where there is none
  int vector_per_wave = 0;  ///< that instructions can name, without accumulation registers
  int accumulation_per_wave = 0;
  int scalar = 0, scalar_granule = 0, scalar_per_wave = 0;
  int waves = 0;  ///< at most so many on a SIMD
};

struct LocalMemory {
  int per_workgroup = 0;   ///< bytes that one workgroup may use at most
  int without_asking = 0;  ///< bytes that a launch may use without raising the kernel's limit first
  int pool = 0;            ///< bytes that the SIMDs of a pool share: a CU, RDNA's workgroup processor, an SM
};

/// Operations (a multiply-add is two) per clock of one unit in vector arithmetic; 0: no faster than float32.
struct VectorRates {
  int float32 = 0, float16 = 0, int8 = 0;
};

/// The oldest software that takes the chip's code. 0: does not apply, or no release lists the chip as supported.
struct DriverFloors {
  int ptx = 0;   ///< 81: PTX 8.1
  int cuda = 0;  ///< 12010: a driver for CUDA 12.1
  int rocm = 0;  ///< 57: ROCm 5.7
};

/// What is sold with a chip. Where a card has several dies that the driver shows as devices (MI250X), this is one.
struct Product {
  std::string_view name;
  int units = 0;
  int dies = 1;        ///< accelerator dies (XCD) that form the device
  int mhz = 0;         ///< highest clock
  int matrix_mhz = 0;  ///< at which the maker states matrix peaks, if it is another
  int memory_gib = 0;  ///< 0: the host's memory
  int memory_mhz = 0, bus_bits = 0;
  double gb_per_second = 0;  ///< memory bandwidth, 1e9 bytes
  int l2_kib = 0;            ///< of one die
  int infinity_mib = 0;      ///< Infinity Cache (L3); 0: none
  /// Peaks that the maker publishes, dense, 1e12 operations a second; 0: not published. What estimates use is peak().
  double float32 = 0, float16 = 0, int8 = 0;
};

/// How kernels for a chip are generated and chosen where instructions and sizes do not decide it: measured on an H200
/// and, for AMD's chips, with the clock of the simulated GPU (docs/amd-clock.md).
struct KernelPolicy {
  bool narrow_indices = false;    ///< indices that certainly fit are computed in 32 bits
  bool block_transposes = false;  ///< loops that transpose do so in registers (codegen/gpu_blocks.cpp)
  bool loads_first = false;       ///< a window's loads come first: the compiler would not keep them in flight together
  bool fills_simds = false;       ///< loops have at least the threads with which every SIMD has one wave
  int row_bytes = 0;  ///< a thread may keep so many bytes of a row in registers even if these are many elements
  bool unsigned_int8 = false;  ///< int8 whose zero point is -128 is multiplied as uint8 (FuseOptions::integer_unsigned)
  bool wide_gemv = false;      ///< GEMMs of few rows may run kernels/gemv_wide.h
  bool short_vectors = false;  ///< convolutions load 12 bytes of a vector (FuseOptions::short_vectors)
  bool split_k_tree = false;   ///< split-K adds its sums in the same launch (kernels/gemm_split_k_tree.h)
  /// Share of a model's estimated time that may be lost by compiling fewer kernels (lower/drop_candidates.h).
  double compile_loss = 0;
  int kernels_per_module = 0;  ///< kernels that are compiled together
  float finish = 0;  ///< split-K: nanoseconds of the launch that adds the partial sums, beside those of the tilings
  bool half_extremes = false;  ///< maxima and minima of float16 windows are computed in that type, two at a time
  bool any_address = false;    ///< loops load and store vectors at any multiple of an element
  bool long_rows = false;  ///< several workgroups compute a long row after its partial sums (FuseOptions::long_rows)
  int unpacked_each = 1;   ///< vectors that a thread of unpack_columns() (kernels/skinny.h) dequantises
  bool guarded_loads = false;         ///< loads of one side of a select are instructions with a predicate, not branches
  bool packs_float8 = false;          ///< results in float8 are rounded and packed together (kernels/prelude_pack.h)
  bool joins_bounds = false;          ///< Relu and Clip are part of a rounding that saturates (Emitter::joins_bounds)
  bool subpixel_convolution = false;  ///< FuseOptions::subpixel_convolution
  bool quad_gathers = false;   ///< L1 serves lanes that are apart four at a time: loops that gather have shorter packs
  bool octet_results = false;  ///< epilogues store eight results at once, also where no copy engine loads operands
};

struct Chip {
  std::string_view name;  ///< LLVM's name of the processor
  Vendor vendor = Vendor::kAmd;
  ChipFamily family = ChipFamily::kCdna2;
  int major = 0, minor = 0;   ///< compute capability, as HIP and CUDA report it
  int elf_machine = 0;        ///< EF_AMDGPU_MACH of code objects; 0 on NVIDIA
  std::string_view settings;  ///< what HIP appends to the name: ":sramecc+:xnack-"
  int wave = 0;               ///< lanes of a wave in the code that we generate
  int simds = 0;              ///< of a unit
  int units_per_pool = 1;     ///< units that share LDS, and that the driver counts as one (RDNA: 2)
  RegisterFile registers;
  LocalMemory lds;
  int l1_kib = 0;  ///< vector data cache of a unit (RDNA: L0); NVIDIA: together with shared memory
  int line = 0;    ///< bytes of a line of the L2 cache
  VectorRates rates;
  Float8 float8 = Float8::kNone;
  DriverFloors floors;
  Features features = {};
  KernelPolicy policy;
  std::span<const MatrixInstruction> matrix_instructions;
  std::span<const Product> products;  ///< the first is the one that estimates are for

  constexpr bool has(Feature f) const { return features.has(f); }
  constexpr bool is_nvidia() const { return vendor == Vendor::kNvidia; }
  constexpr const Product& product() const { return products.front(); }
  /// The matrix instruction that kernels/matrix.h uses for operands of this type; null if it has none.
  constexpr const MatrixInstruction* matrix(DType type) const {
    for (const MatrixInstruction& i : matrix_instructions)
      if (i.type == type && i.in_kernels) return &i;
    return nullptr;
  }
  /// The layout of the kernels' matrix instructions; kVector if there are none.
  constexpr MatrixLayout layout() const {
    for (const MatrixInstruction& i : matrix_instructions)
      if (i.in_kernels) return i.layout;
    return MatrixLayout::kVector;
  }
};

/// All rows; AMD's first.
std::span<const Chip> all_chips();
/// Row of `name`, whose settings (":xnack-") are ignored; null if there is none, as for CPUs.
const Chip* find_chip(std::string_view name);
/// As find_chip, but throws Error(kUnsupported) with the names that there are.
const Chip& chip_of(std::string_view name);
/// Row of AMD's machine number in an ELF header; null if there is none.
const Chip* chip_of_machine(unsigned elf_machine);
/// The row whose PTX is best for NVIDIA's cards of this compute capability; null if they are older than all rows.
const Chip* nvidia_chip(int major, int minor);
/// Names of AMD's chips, all of which src/sim can execute.
std::vector<std::string> amd_chips();

/// Whether code for the target `code` runs on a card whose own target is `card`: AMD's code and PTX for one chip only
/// on that chip, other PTX also on later ones.
bool code_runs_on(std::string_view code, std::string_view card);

std::string_view name(ChipFamily f);    ///< "CDNA 3", "Hopper"
std::string_view name(MatrixLayout l);  ///< "mfma", "wmma11"

/// Units as the driver counts them (HIP on RDNA: workgroup processors of two).
constexpr int driver_units(const Chip& c, const Product& p) { return p.units / c.units_per_pool; }
inline int driver_units(const Chip& c) { return driver_units(c, c.product()); }

/// Bytes of the last cache before memory.
inline std::int64_t last_cache_bytes(const Chip& c) {
  const Product& p = c.product();
  return std::int64_t{1024} * (p.infinity_mib > 0 ? p.infinity_mib * 1024 : p.l2_kib * p.dies);
}

/// Dense operations per clock of one unit on elements of this type: by the fastest matrix instruction, or vector
/// arithmetic where that is faster.
constexpr double operations_per_clock(const Chip& c, DType type) {
  double best = type == DType::kFloat16 ? c.rates.float16 : type == DType::kInt8 ? c.rates.int8 : 0;
  if (best < c.rates.float32 && type != DType::kFloat4E2M1) best = c.rates.float32;
  for (const MatrixInstruction& i : c.matrix_instructions) {
    if (i.type != type || i.cycles == 0) continue;
    const double rate = 2.0 * i.m * i.n * i.k * c.simds / i.cycles / i.waves;
    if (rate > best) best = rate;
  }
  return best;
}
/// Dense operations per second of a product at its highest clock.
constexpr double peak(const Chip& c, const Product& p, DType type) {
  const double rate = operations_per_clock(c, type);
  const int mhz = p.matrix_mhz > 0 && rate > c.rates.float32 ? p.matrix_mhz : p.mhz;
  return rate * p.units * mhz * 1e6;
}

/// Waves of one kernel that a SIMD holds at a time, by its vector registers (with accumulation registers where they are
/// one file) and by the LDS (bytes) of its workgroups of `threads` threads.
int waves_per_simd(const Chip& c, int vector_registers, std::uint32_t lds, int threads);

/// Preprocessor definitions ("NAME=VALUE") that tell kernels what chip they are compiled for:
///   SDX_WAVE           lanes of a wave
///   SDX_MATRIX_LAYOUT  enumerator of MatrixLayout, where there are matrix instructions
///   SDX_MATRIX_F32, _F16, _BF16, _I8, _F8_FNUZ, _F8_OCP
///                      K of the matrix instruction for such operands, where there is one
///   SDX_DIES           dies of the first product, where there are several
///   SDX_BF16_CONVERT   where there is an instruction that rounds float32 to bfloat16
///   SDX_F8_CONVERT     where PTX has conversions of OCP's 8-bit floats
///   SDX_LOADS_TO_LDS   where loads of 16 bytes a lane go straight to LDS
std::vector<std::string> kernel_definitions(const Chip& c);

}  // namespace sardonyx
