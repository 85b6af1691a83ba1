// See occupancy.h. Sizes: target/chip.h. Granules: LLVM's "User Guide for AMDGPU Backend", kernel descriptor.
#include "sim/timing/occupancy.h"

#include <algorithm>

#include "sim/object/code_object.h"
#include "target/chip.h"

namespace sardonyx::sim::timing {
namespace {

constexpr int kGroupsOfPool = 16;  // of more than one wave: CDNA's limit for a compute unit; RDNA's is twice that
constexpr int kLdsGranule = 512;   // bytes

int roundUp(int n, int to) { return (n + to - 1) / to * to; }

/// Waves of the kernel that the registers of a SIMD hold.
int wavesByRegisters(const Kernel& k, const sardonyx::Chip& c) {
  const sardonyx::RegisterFile& r = c.registers;
  // A file holds `vector` registers for waves of the chip's usual width; RDNA's waves of 64 take two of them each.
  const int width = k.waveSize > c.wave ? 2 : 1;
  const int vector = roundUp(std::max(k.vgprs + k.agprs, 1), std::max(r.vector_granule / width, 1)) * width;
  int waves = r.vector / std::max(vector, 1);
  if (c.wave == 64) {  // CDNA; RDNA gives every wave the same number of scalar registers
    const int scalar = static_cast<int>((k.rsrc1 >> 6 & 15) / 2 + 1) * 16;
    waves = std::min(waves, r.scalar / scalar);
  }
  return waves;
}

}  // namespace

Occupancy occupancy(const Kernel& k, const Chip& chip, std::uint32_t threads, std::uint32_t ldsBytes) {
  const sardonyx::Chip& c = sardonyx::chip_of(chip.name);
  Occupancy o;
  o.simds = c.simds * c.units_per_pool;
  const bool cuMode = c.units_per_pool > 1 && (k.rsrc1 >> 29 & 1) == 0;  // WGP_MODE
  o.simdsPerGroup = cuMode ? c.simds : o.simds;
  o.wavesPerGroup =
      static_cast<int>((threads + static_cast<unsigned>(k.waveSize) - 1) / static_cast<unsigned>(k.waveSize));
  o.maxWavesPerSimd = c.registers.waves;
  const int parts = o.simds / o.simdsPerGroup;
  const auto groupsOf = [&](int waves) { return waves * o.simdsPerGroup / std::max(o.wavesPerGroup, 1) * parts; };
  const int byWaves = groupsOf(o.maxWavesPerSimd), byRegisters = groupsOf(wavesByRegisters(k, c));
  const int lds = roundUp(static_cast<int>(ldsBytes), kLdsGranule);
  const int byLds = lds > 0 ? c.lds.pool / parts / lds * parts : byWaves;
  const int byGroups = o.wavesPerGroup > 1 ? kGroupsOfPool * c.units_per_pool : byWaves;
  o.groups = std::max(1, std::min({byWaves, byRegisters, byLds, byGroups}));
  o.limit = o.groups >= byWaves       ? "waves"
            : o.groups >= byRegisters ? "registers"
            : o.groups >= byLds       ? "LDS"
                                      : "workgroups";
  if (o.groups == std::max(1, byRegisters) && byRegisters < byWaves) o.limit = "registers";
  o.wavesPerSimd = (o.groups * o.wavesPerGroup + o.simds - 1) / o.simds;
  return o;
}

}  // namespace sardonyx::sim::timing
