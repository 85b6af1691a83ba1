// Traits of AMD's chips, from the library's table.
#include "sim/isa/chip.h"

#include <unistd.h>

#include "support/error.h"
#include "target/chip.h"

namespace sardonyx::sim {
namespace {

Gen generation(const sardonyx::Chip& c) {
  switch (c.family) {
    case ChipFamily::kCdna2:
    case ChipFamily::kCdna3:
    case ChipFamily::kCdna4:
      return Gen::kGfx9;
    case ChipFamily::kRdna2:
      return Gen::kGfx10;
    case ChipFamily::kRdna3:
    case ChipFamily::kRdna35:
      return Gen::kGfx11;
    case ChipFamily::kRdna4:
      return Gen::kGfx12;
    default:
      fail(ErrorKind::kInternal, "internal error: the simulator has no instruction set for the family of {}", c.name);
  }
}

/// Bytes of memory of this machine: what an integrated GPU uses.
std::uint64_t hostMemory() {
  return static_cast<std::uint64_t>(sysconf(_SC_PHYS_PAGES)) * static_cast<std::uint64_t>(sysconf(_SC_PAGESIZE));
}

Chip traits(const sardonyx::Chip& c, const Product& p) {
  Chip t;
  t.name = c.name;
  t.archName = t.name + std::string(c.settings);
  t.marketing = "AMD " + std::string(p.name);
  t.product = &p;
  t.gen = generation(c);
  t.major = c.major, t.minor = c.minor;
  t.waveSize = c.wave;
  t.allowsWave32 = c.has(Feature::kWave32), t.allowsWave64 = c.has(Feature::kWave64);
  t.ldsBytes = c.lds.per_workgroup;
  t.unifiedVgprs = c.has(Feature::kUnifiedRegisters);
  t.packedTid = c.has(Feature::kPackedWorkItemIds);
  t.architectedFlatScratch = c.has(Feature::kArchitectedScratch);
  t.architectedSgprs = c.has(Feature::kArchitectedWorkgroupIds);
  t.zeroesHigh16 = c.has(Feature::kZeroesUpperHalf);
  // With SRAM-ECC a vector register is written as a whole (LLVM: GCNSubtarget::d16PreservesUnusedBits).
  t.d16LoadsZeroOtherHalf = c.settings.find("sramecc+") != std::string_view::npos;
  t.scratchDwordSwizzle = c.has(Feature::kScratchSwizzle);
  t.vgprEncoding = c.registers.vector_encoding;
  t.registersPerCu = c.registers.vector * c.wave * c.simds * c.units_per_pool;
  t.sgprs = c.registers.scalar_per_wave;
  t.computeUnits = driver_units(c, p);
  t.maxWavesPerCu = c.registers.waves * c.simds * c.units_per_pool;
  t.clockKhz = p.mhz * 1000, t.memoryClockKhz = p.memory_mhz * 1000, t.memoryBusBits = p.bus_bits;
  t.memoryBytes = p.memory_gib > 0 ? static_cast<std::uint64_t>(p.memory_gib) << 30 : hostMemory();
  t.l2Bytes = p.l2_kib << 10;
  t.xccCount = p.dies;
  t.fp8Fnuz = c.float8 == Float8::kFnuz;
  t.mi200Matrix = c.has(Feature::kFlushesMatrixDenormals);
  return t;
}

std::vector<Chip> traitsOf(bool allProducts) {
  std::vector<Chip> all;
  for (const sardonyx::Chip& c : all_chips())
    if (c.vendor == Vendor::kAmd)
      for (const Product& p : c.products)
        if (allProducts || &p == &c.product()) all.push_back(traits(c, p));
  return all;
}

/// Whether `name` is the product's, with or without the words before it ("Instinct", "Radeon").
bool isCalled(const Product& p, std::string_view name) {
  return p.name == name || (p.name.size() > name.size() && p.name.ends_with(name) && !name.empty() &&
                            p.name[p.name.size() - name.size() - 1] == ' ');
}

}  // namespace

const std::vector<Chip>& allChips() {
  static const std::vector<Chip> chips = traitsOf(false);
  return chips;
}

const Chip* findChip(std::string_view name) {
  static const std::vector<Chip> products = traitsOf(true);
  for (const Chip& c : products)
    if (isCalled(*c.product, name)) return &c;
  name = name.substr(0, name.find(':'));
  for (const Chip& c : allChips())
    if (name == c.name) return &c;
  return nullptr;
}

}  // namespace sardonyx::sim
