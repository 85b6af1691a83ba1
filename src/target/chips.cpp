// The table of chips. Every row is checked when this file is compiled.
//
// Sources by column.
//   Wave sizes, LDS of a workgroup, registers that instructions name, features: AMD's ISA documents (CDNA 2, "AMD
//     Instinct MI300", CDNA 4, RDNA 2, RDNA 3, RDNA 3.5, RDNA 4); CUDA C++ programming guide, "Compute Capabilities".
//   Register files, their granules, waves of a SIMD, ELF machine numbers: LLVM's "User Guide for AMDGPU Backend".
//   Units, dies, LDS pools, caches, sizes of register files and of memory: ROCm documentation, "AMD GPU
//   specifications". Clocks, buses, bandwidths, peaks: AMD's product pages and data sheets of each product; "A100
//     Tensor Core GPU", "H100 Tensor Core GPU" and "H200 Tensor Core GPU" data sheets (SXM), "H100 Tensor Core GPU
//     Architecture".
//   Vector rates: "AMD CDNA 2", "CDNA 3" and "CDNA 4 Architecture" white papers (packed float32), "Using the Matrix
//     Cores of AMD RDNA 4 architecture GPUs" on GPUOpen (table of operations per clock of RDNA 2 to 4), NVIDIA's white
//     papers.
//   Floors: CUDA release notes (the first driver for a PTX version); ROCm compatibility matrix and release notes.
#include <algorithm>
#include <array>

#include "support/error.h"
#include "target/chip.h"

namespace sardonyx {
namespace {

// The first product of each list is the one that estimates are for: the largest of the chip.
constexpr Product kGfx90a[] = {
    {"Instinct MI250X", 110, 1, 1700, 0, 64, 1600, 4096, 1638, 8192, 0, 47.9, 191.5, 191.5},
    {"Instinct MI250", 104, 1, 1700, 0, 64, 1600, 4096, 1638, 8192, 0, 45.3, 181.0, 181.0},
    {"Instinct MI210", 104, 1, 1700, 0, 64, 1600, 4096, 1638, 8192, 0, 45.3, 181.0, 181.0},
};
constexpr Product kGfx942[] = {
    {"Instinct MI300X", 304, 8, 2100, 0, 192, 1300, 8192, 5300, 4096, 256, 163.4, 1307.4, 2614.9},
    {"Instinct MI325X", 304, 8, 2100, 0, 256, 1500, 8192, 6000, 4096, 256, 163.4, 1307.4, 2614.9},
    {"Instinct MI300A", 228, 6, 2100, 0, 128, 1300, 8192, 5300, 4096, 256, 122.6, 980.6, 1961.2},
};
constexpr Product kGfx950[] = {
    {"Instinct MI355X", 256, 8, 2400, 0, 288, 1900, 8192, 8000, 4096, 256, 157.3, 2516.6, 5033.2},
    {"Instinct MI350X", 256, 8, 2200, 0, 288, 1900, 8192, 8000, 4096, 256, 144.2, 2306.9, 4613.7},
};
constexpr Product kGfx1030[] = {
    {"Radeon RX 6900 XT", 80, 1, 2250, 0, 16, 1000, 256, 512, 4096, 128, 23.04, 46.08, 0},
    {"Radeon RX 6800 XT", 72, 1, 2250, 0, 16, 1000, 256, 512, 4096, 128, 20.74, 41.47, 0},
    {"Radeon PRO W6800", 60, 1, 2320, 0, 32, 1000, 256, 512, 4096, 128, 17.83, 35.66, 0},
};
constexpr Product kGfx1100[] = {
    {"Radeon RX 7900 XTX", 96, 1, 2500, 0, 24, 1249, 384, 960, 6144, 96, 61.4, 122.8, 0},
    {"Radeon PRO W7900", 96, 1, 2495, 0, 48, 1124, 384, 864, 6144, 96, 61.3, 122.6, 0},
    {"Radeon RX 7900 XT", 84, 1, 2400, 0, 20, 1249, 320, 800, 6144, 80, 51.6, 103.2, 0},
    {"Radeon RX 7900 GRE", 80, 1, 2245, 0, 16, 1124, 256, 576, 6144, 64, 46.0, 92.0, 0},
};
constexpr Product kGfx1101[] = {
    {"Radeon RX 7800 XT", 60, 1, 2430, 0, 16, 1219, 256, 624, 4096, 64, 37.3, 74.6, 0},
    {"Radeon RX 7700 XT", 54, 1, 2544, 0, 12, 1124, 192, 432, 4096, 48, 35.2, 70.3, 0},
};
constexpr Product kGfx1102[] = {
    {"Radeon RX 7600", 32, 1, 2655, 0, 8, 1124, 128, 288, 2048, 32, 21.75, 43.5, 0},
};
constexpr Product kGfx1103[] = {
    {"Radeon 780M", 12, 1, 2700, 0, 0, 1875, 128, 120, 2048, 0, 0, 0, 0},
};
constexpr Product kGfx1150[] = {
    {"Radeon 890M", 16, 1, 2900, 0, 0, 1875, 128, 120, 2048, 0, 0, 0, 0},
};
constexpr Product kGfx1151[] = {
    {"Radeon 8060S", 40, 1, 2900, 0, 0, 2000, 256, 256, 2048, 32, 0, 0, 0},
};
constexpr Product kGfx1200[] = {
    {"Radeon RX 9060 XT", 32, 1, 3130, 0, 16, 1258, 128, 320, 4096, 32, 25.6, 103, 205},
};
constexpr Product kGfx1201[] = {
    {"Radeon RX 9070 XT", 64, 1, 2970, 0, 16, 1258, 256, 640, 8192, 64, 48.7, 195, 389},
    {"Radeon AI PRO R9700", 64, 1, 2920, 0, 32, 1258, 256, 640, 8192, 64, 47.8, 191, 383},
    {"Radeon RX 9070", 56, 1, 2520, 0, 16, 1258, 256, 640, 8192, 64, 36.1, 145, 289},
};
constexpr Product kSm80[] = {
    {"A100 80 GB", 108, 1, 1410, 0, 80, 1593, 5120, 2039, 40960, 0, 19.5, 312, 624},
    {"A100 40 GB", 108, 1, 1410, 0, 40, 1215, 5120, 1555, 40960, 0, 19.5, 312, 624},
};
// Peaks of matrix instructions are stated at 1830 MHz, those of float32 at the highest clock.
constexpr Product kSm90[] = {
    {"H200", 132, 1, 1980, 1830, 141, 3201, 6144, 4800, 51200, 0, 67, 989, 1979},
    {"H100", 132, 1, 1980, 1830, 80, 2619, 5120, 3350, 51200, 0, 67, 989, 1979},
};

// On AMD, candidates and their costs are many and close: with a loss of 0.03, ResNet-50 for any batch on gfx942 has 101
// kernels instead of 149. Each code object is loaded separately, so that it has several kernels. The launch that ends a
// split of K is assumed to take longer than on an H200.
constexpr KernelPolicy kAmdPolicy = {.narrow_indices = true,
                                     .block_transposes = true,
                                     .loads_first = true,
                                     .fills_simds = true,
                                     .row_bytes = 640,  // 160 of the 256 registers that a wave can name
                                     .wide_gemv = true,
                                     .short_vectors = true,
                                     .compile_loss = 0.03,
                                     .kernels_per_module = 8,
                                     .finish = 6000,
                                     .half_extremes = true,
                                     .any_address = true,
                                     .long_rows = true,
                                     .guarded_loads = true,
                                     .joins_bounds = true,
                                     .subpixel_convolution = true,
                                     .octet_results = true};
// PTX of Hopper's matrix instructions is large, and is finally split into single kernels: compiling ResNet-50 takes 18
// s of CPU time with 2 kernels per module, 20 with 1 or 4, 23 with 8. When weights are unpacked, one load in flight for
// each thread does not keep an H200's memory busy; on AMD, the clock shows memory as busy and more vectors as slower.
constexpr KernelPolicy kNvidiaPolicy = {.block_transposes = true,
                                        .unsigned_int8 = true,
                                        .kernels_per_module = 2,
                                        .finish = 3400,
                                        .unpacked_each = 4,
                                        .guarded_loads = true,
                                        .subpixel_convolution = true};

constexpr Chip cdna(std::string_view name, ChipFamily family, int minor, int elf_machine, int lds, int l1, int rocm,
                    VectorRates rates, Float8 float8, Features features, std::span<const MatrixInstruction> matrix,
                    std::span<const Product> products) {
  Chip c;
  c.name = name;
  c.family = family;
  c.major = 9, c.minor = minor;
  c.elf_machine = elf_machine;
  c.settings = ":sramecc+:xnack-";
  c.wave = 64;
  c.simds = 4;
  c.registers = {512, 8, 8, 256, 256, 800, 16, 102, 8};
  c.lds = {lds, lds, lds};
  c.l1_kib = l1;
  c.policy = kAmdPolicy;
  c.policy.quad_gathers = true;
  c.policy.split_k_tree = true;  // on gfx1100 and gfx1201 it was no faster, and takes memory for the sums
  c.line = 128;
  c.rates = rates;
  c.float8 = float8;
  c.floors.rocm = rocm;
  c.features = features;
  c.matrix_instructions = matrix;
  c.products = products;
  return c;
}

// `vector`: registers of a SIMD's lane, 1024 or 1536 (LLVM: Feature1_5xVGPRs).
constexpr Chip rdna(std::string_view name, ChipFamily family, int major, int minor, int elf_machine, int vector,
                    int rocm, Features features, std::span<const Product> products) {
  Chip c;
  c.name = name;
  c.family = family;
  c.major = major, c.minor = minor;
  c.elf_machine = elf_machine;
  c.wave = 32;
  c.simds = 2;
  c.units_per_pool = 2;
  c.registers = {vector, vector / 64, 8, 256, 0, 2048, 128, 106, 16};
  c.lds = {64 << 10, 64 << 10, 128 << 10};
  c.l1_kib = family == ChipFamily::kRdna2 ? 16 : 32;
  c.line = 128;
  c.policy = kAmdPolicy;
  c.rates = family == ChipFamily::kRdna2 ? VectorRates{128, 256, 512} : VectorRates{256, 512, 512};
  c.float8 = family == ChipFamily::kRdna4 ? Float8::kOcp : Float8::kNone;
  c.floors.rocm = rocm;
  c.features = features;
  if (family == ChipFamily::kRdna3 || family == ChipFamily::kRdna35) c.matrix_instructions = kMatrixRdna3;
  if (family == ChipFamily::kRdna4) c.matrix_instructions = kMatrixRdna4;
  c.products = products;
  return c;
}

constexpr Chip nvidia(std::string_view name, ChipFamily family, int major, int lds, int l1, DriverFloors floors,
                      VectorRates rates, Float8 float8, Features features, std::span<const MatrixInstruction> matrix,
                      std::span<const Product> products) {
  Chip c;
  c.name = name;
  c.vendor = Vendor::kNvidia;
  c.family = family;
  c.major = major;
  c.wave = 32;
  c.simds = 4;
  c.registers = {512, 8, 0, 255, 0, 0, 0, 0, 16};
  c.lds = {lds, 48 << 10, lds + (1 << 10)};  // each workgroup takes 1 KiB more than it asks for
  c.l1_kib = l1;
  c.policy = kNvidiaPolicy;
  c.policy.packs_float8 = float8 == Float8::kOcp;
  c.line = 128;
  c.rates = rates;
  c.float8 = float8;
  c.floors = floors;
  c.features = features;
  c.matrix_instructions = matrix;
  c.products = products;
  return c;
}

using enum Feature;
constexpr Features kRdna2Features = {kWave32, kWave64, kScratchSwizzle};
constexpr Features kRdna3Features = {kWave32, kWave64, kPackedWorkItemIds, kArchitectedScratch};
constexpr Features kRdna4Features = {
    kWave32, kWave64, kPackedWorkItemIds, kArchitectedScratch, kArchitectedWorkgroupIds, kNativeMaximum};
constexpr Features kHopper = {kAsyncCopy, kDependentLaunch, kNativeMaximum};
// PTX for sm_90 may not use the instructions that only compute capability 9.0 has.
constexpr Features kHopperOnly = {kAsyncCopy, kDependentLaunch, kWgmma,        kTensorCopy,
                                  kClusters,  kExactChip,       kNativeMaximum};

constexpr Chip kChips[] = {
    cdna("gfx90a", ChipFamily::kCdna2, 0, 0x3f, 64 << 10, 16, 57, {256, 0, 0}, Float8::kNone,
         {kWave64, kPreloadsArguments, kUnifiedRegisters, kPackedWorkItemIds, kZeroesUpperHalf, kScratchSwizzle,
          kFlushesMatrixDenormals},
         kMatrixCdna2, kGfx90a),
    cdna("gfx942", ChipFamily::kCdna3, 4, 0x4c, 64 << 10, 32, 60, {256, 0, 0}, Float8::kFnuz,
         {kWave64, kPreloadsArguments, kUnifiedRegisters, kPackedWorkItemIds, kArchitectedScratch, kZeroesUpperHalf},
         kMatrixCdna3, kGfx942),
    cdna("gfx950", ChipFamily::kCdna4, 5, 0x4f, 160 << 10, 32, 70, {256, 0, 0}, Float8::kOcp,
         {kWave64, kPreloadsArguments, kUnifiedRegisters, kPackedWorkItemIds, kArchitectedScratch, kZeroesUpperHalf,
          kBfloat16Convert, kWideLoadsToLds, kNativeMaximum},
         kMatrixCdna4, kGfx950),
    rdna("gfx1030", ChipFamily::kRdna2, 10, 3, 0x36, 1024, 57, kRdna2Features, kGfx1030),
    rdna("gfx1100", ChipFamily::kRdna3, 11, 0, 0x41, 1536, 57, kRdna3Features, kGfx1100),
    rdna("gfx1101", ChipFamily::kRdna3, 11, 0, 0x46, 1536, 64, kRdna3Features, kGfx1101),
    rdna("gfx1102", ChipFamily::kRdna3, 11, 0, 0x47, 1024, 0, kRdna3Features, kGfx1102),
    rdna("gfx1103", ChipFamily::kRdna3, 11, 0, 0x44, 1024, 0, kRdna3Features, kGfx1103),
    rdna("gfx1150", ChipFamily::kRdna35, 11, 5, 0x43, 1024, 0, kRdna3Features, kGfx1150),
    rdna("gfx1151", ChipFamily::kRdna35, 11, 5, 0x4a, 1536, 0, kRdna3Features, kGfx1151),
    rdna("gfx1200", ChipFamily::kRdna4, 12, 0, 0x48, 1536, 64, kRdna4Features, kGfx1200),
    rdna("gfx1201", ChipFamily::kRdna4, 12, 0, 0x4e, 1536, 64, kRdna4Features, kGfx1201),
    nvidia("sm_80", ChipFamily::kAmpere, 8, 163 << 10, 192, {70, 11000, 0}, {128, 0, 0}, Float8::kNone,
           {kAsyncCopy, kNativeMaximum}, kMatrixAmpere, kSm80),
    nvidia("sm_90", ChipFamily::kHopper, 9, 227 << 10, 256, {78, 11080, 0}, {256, 0, 0}, Float8::kOcp, kHopper,
           kMatrixHopper, kSm90),
    nvidia("sm_90a", ChipFamily::kHopper, 9, 227 << 10, 256, {81, 12010, 0}, {256, 0, 0}, Float8::kOcp, kHopperOnly,
           kMatrixHopper, kSm90),
};

// ---- checks
constexpr bool within(double x, double expected, double share) {
  return x >= expected * (1 - share) && x <= expected * (1 + share);
}

constexpr bool peaks_agree(const Chip& c, const Product& p) {
  const auto agrees = [&](double published, DType type) {
    return published == 0 || within(peak(c, p, type), published * 1e12, 0.01);
  };
  return agrees(p.float32, DType::kFloat32) && agrees(p.float16, DType::kFloat16) && agrees(p.int8, DType::kInt8);
}

// The bandwidth is the bus' width times its clock times some power of two of transfers.
constexpr bool bandwidth_agrees(const Product& p) {
  for (int transfers = 2; transfers <= 16; transfers *= 2)
    if (within(p.gb_per_second, transfers * p.memory_mhz * 1e6 * p.bus_bits / 8 / 1e9, 0.06)) return true;
  return false;
}

constexpr bool products_agree(const Chip& c) {
  if (c.products.empty()) return false;
  for (const Product& p : c.products) {
    const bool divides = p.units % c.units_per_pool == 0 && p.units % p.dies == 0;
    if (!divides || p.l2_kib <= 0 || !peaks_agree(c, p) || !bandwidth_agrees(p)) return false;
    if (p.units > c.product().units) return false;  // the default is the largest
  }
  return true;
}

constexpr bool instructions_agree(const Chip& c) {
  for (const MatrixInstruction& i : c.matrix_instructions) {
    // All operands of one type, and of the kernels' instructions one layout for all types.
    if (i.in_kernels && (i.layout != c.layout() || c.matrix(i.type) != &i)) return false;
    if (i.cycles > 0 && i.cycles % 4 != 0) return false;
    const bool is_float8 = i.type == DType::kFloat8E4M3FN || i.type == DType::kFloat8E4M3FNUZ;
    if (is_float8 && (c.float8 == Float8::kNone || (i.type == DType::kFloat8E4M3FNUZ) != (c.float8 == Float8::kFnuz)))
      return false;
  }
  return true;
}

constexpr bool registers_agree(const Chip& c) {
  const RegisterFile& r = c.registers;
  if (r.vector % r.vector_granule != 0 || r.waves <= 0 || r.vector_per_wave > r.vector) return false;
  if (c.has(kUnifiedRegisters) != (r.accumulation_per_wave > 0)) return false;
  if (c.has(kUnifiedRegisters) && r.vector_per_wave + r.accumulation_per_wave > r.vector) return false;
  return r.scalar == 0 || (r.scalar % r.scalar_granule == 0 && r.scalar_per_wave <= r.scalar);
}

constexpr bool agrees(const Chip& c) {
  const bool amd = c.vendor == Vendor::kAmd;
  if (amd != c.name.starts_with("gfx") || amd == c.name.starts_with("sm_")) return false;
  if (amd != (c.elf_machine != 0) || amd == (c.floors.ptx != 0) || amd == (c.floors.cuda != 0)) return false;
  if (amd && !c.has(c.wave == 64 ? kWave64 : kWave32)) return false;
  if (c.has(kTensorCopy) != c.has(kClusters) || (c.has(kWgmma) && !c.has(kTensorCopy))) return false;
  if (c.lds.per_workgroup > c.lds.pool || c.lds.without_asking > c.lds.per_workgroup) return false;
  if (c.policy.kernels_per_module <= 0 || c.policy.finish <= 0 || c.policy.compile_loss < 0) return false;
  if (c.policy.row_bytes < 0 || c.policy.row_bytes / 4 > c.registers.vector_per_wave) return false;
  return c.simds * c.units_per_pool == 4;
}

constexpr bool names_differ() {
  for (std::size_t a = 0; a < std::size(kChips); ++a)
    for (std::size_t b = 0; b < a; ++b)
      if (kChips[a].name == kChips[b].name ||
          (kChips[a].elf_machine != 0 && kChips[a].elf_machine == kChips[b].elf_machine))
        return false;
  return true;
}

// A template, so that the compiler's message says which row is wrong.
template <std::size_t kRow>
consteval bool row_agrees() {
  constexpr const Chip& c = kChips[kRow];
  static_assert(products_agree(c), "peaks, bandwidth or units of a product contradict the chip's row");
  static_assert(instructions_agree(c), "the matrix instructions of a row contradict one another or its float8 kind");
  static_assert(registers_agree(c), "the register file of a row contradicts itself");
  static_assert(agrees(c), "names, floors, features, policy or LDS of a row contradict one another");
  return true;
}
static_assert([]<std::size_t... kRow>(std::index_sequence<kRow...>) {
  return (row_agrees<kRow>() && ...);
}(std::make_index_sequence<std::size(kChips)>{}));
static_assert(names_differ());

constexpr std::string_view kFeatureNames[] = {
    "async-copy",
    "wgmma",
    "tensor-copy",
    "clusters",
    "dependent-launch",
    "native-maximum",
    "exact-chip",
    "wave32",
    "wave64",
    "unified-registers",
    "bfloat16-convert",
    "packed-work-item-ids",
    "architected-scratch",
    "architected-workgroup-ids",
    "zeroes-upper-half",
    "scratch-swizzle",
    "wide-loads-to-lds",
    "flushes-matrix-denormals",
    "preloads-arguments",
};
static_assert(std::size(kFeatureNames) == kFeatureCount);

}  // namespace

std::string_view name(Feature f) { return kFeatureNames[static_cast<std::size_t>(f)]; }

std::string_view name(ChipFamily f) {
  constexpr std::string_view kNames[] = {"CDNA 2",   "CDNA 3", "CDNA 4", "RDNA 2", "RDNA 3",
                                         "RDNA 3.5", "RDNA 4", "Ampere", "Hopper"};
  return kNames[static_cast<std::size_t>(f)];
}

std::string_view name(MatrixLayout l) {
  constexpr std::string_view kNames[] = {"vector", "mfma", "wmma11", "wmma12", "mma", "wgmma"};
  return kNames[static_cast<std::size_t>(l)];
}

std::span<const Chip> all_chips() { return kChips; }

const Chip* find_chip(std::string_view name) {
  name = name.substr(0, name.find(':'));
  const auto at = std::find_if(std::begin(kChips), std::end(kChips), [&](const Chip& c) { return c.name == name; });
  return at == std::end(kChips) ? nullptr : &*at;
}

const Chip& chip_of(std::string_view name) {
  if (const Chip* c = find_chip(name)) return *c;
  std::vector<std::string_view> names;
  for (const Chip& c : kChips) names.push_back(c.name);
  fail(ErrorKind::kUnsupported, "no GPU chip is called \"{}\"; there are {}", name, fmt::join(names, ", "));
}

const Chip* chip_of_machine(unsigned elf_machine) {
  for (const Chip& c : kChips)
    if (c.elf_machine != 0 && static_cast<unsigned>(c.elf_machine) == elf_machine) return &c;
  return nullptr;
}

const Chip* nvidia_chip(int major, int minor) {
  const Chip* best = nullptr;
  for (const Chip& c : kChips) {
    if (!c.is_nvidia() || c.major > major || (c.major == major && c.minor > minor)) continue;
    if (c.has(kExactChip) && (c.major != major || c.minor != minor)) continue;
    best = &c;  // rows are in the order of their capabilities
  }
  return best;
}

std::vector<std::string> amd_chips() {
  std::vector<std::string> names;
  for (const Chip& c : kChips)
    if (c.vendor == Vendor::kAmd) names.emplace_back(c.name);
  return names;
}

bool code_runs_on(std::string_view code, std::string_view card) {
  if (code == card) return true;
  const Chip *from = find_chip(code), *to = find_chip(card);
  if (!from || !to || !from->is_nvidia() || !to->is_nvidia() || from->has(kExactChip)) return false;
  return from->major < to->major || (from->major == to->major && from->minor <= to->minor);
}

int waves_per_simd(const Chip& c, int vector_registers, std::uint32_t lds, int threads) {
  const RegisterFile& r = c.registers;
  const int granules = std::max((vector_registers + r.vector_granule - 1) / r.vector_granule, 1);
  int waves = std::min(r.waves, r.vector / (granules * r.vector_granule));
  if (lds > 0) {
    const int simds = c.simds * c.units_per_pool, per_group = std::max((threads + c.wave - 1) / c.wave, 1),
              groups = static_cast<int>(static_cast<std::uint32_t>(c.lds.pool) / lds);
    waves = std::min(waves, (groups * per_group + simds - 1) / simds);
  }
  return waves;
}

std::vector<std::string> kernel_definitions(const Chip& c) {
  std::vector<std::string> out = {fmt::format("SDX_WAVE={}", c.wave)};
  if (c.layout() != MatrixLayout::kVector) {
    constexpr std::string_view kLayouts[] = {"kVector", "kMfma", "kWmma11", "kWmma12", "kMma"};
    out.push_back(fmt::format("SDX_MATRIX_LAYOUT={}", kLayouts[static_cast<std::size_t>(c.layout())]));
  }
  constexpr std::pair<DType, std::string_view> kTypes[] = {{DType::kFloat32, "F32"},
                                                           {DType::kFloat16, "F16"},
                                                           {DType::kBFloat16, "BF16"},
                                                           {DType::kInt8, "I8"},
                                                           {DType::kFloat8E4M3FNUZ, "F8_FNUZ"},
                                                           {DType::kFloat8E4M3FN, "F8_OCP"}};
  for (const auto& [type, text] : kTypes)
    if (const MatrixInstruction* i = c.matrix(type)) out.push_back(fmt::format("SDX_MATRIX_{}={}", text, i->k));
  if (c.product().dies > 1) out.push_back(fmt::format("SDX_DIES={}", c.product().dies));
  if (c.has(kBfloat16Convert)) out.emplace_back("SDX_BF16_CONVERT=1");
  if (c.is_nvidia() && c.float8 == Float8::kOcp) out.emplace_back("SDX_F8_CONVERT=1");
  if (c.has(kWideLoadsToLds)) out.emplace_back("SDX_LOADS_TO_LDS=1");
  if (c.family == ChipFamily::kCdna2) out.emplace_back("SDX_NO_FLOAT_ATOMICS=1");
  if (c.has(kNativeMaximum)) out.emplace_back("SDX_NATIVE_MAXIMUM=1");
  return out;
}

}  // namespace sardonyx
