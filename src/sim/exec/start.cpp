// Initial state of a workgroup's waves: LLVM's AMDGPU guide, "Initial Kernel Execution State", and the kernel
// descriptor's bits.
#include <algorithm>

#include "sim/exec/checks.h"
#include "sim/exec/interpreter.h"
#include "sim/timing/record.h"

namespace sardonyx::sim {

Wave::Wave() = default;
Wave::~Wave() = default;
Workgroup::Workgroup() = default;
Workgroup::~Workgroup() = default;

namespace {

/// What registers and LDS hold before the first write: a value that is conspicuous as an integer and as a float.
constexpr std::uint32_t kGarbage = 0xbadc0de5;

std::uint64_t scratchPerWave(const Launch& launch) {
  return static_cast<std::uint64_t>((launch.privateBytes + 3) & ~3u) * static_cast<unsigned>(launch.kernel->waveSize);
}

/// Writes SGPRs in order and notes them as written.
struct ScalarWriter {
  Wave& w;
  int next = 0;
  void put(std::uint32_t v) { at(next++, v); }
  void put64(std::uint64_t v) {
    put(static_cast<std::uint32_t>(v));
    put(static_cast<std::uint32_t>(v >> 32));
  }
  void at(int index, std::uint32_t v) {
    if (index >= kScalarFileSize) return;
    w.s[index] = v;
    w.checks->scalarWritten[index] = true;
  }
};

/// Arguments that are in scalar registers when a wave starts, in words of 32 bits. Older firmware leaves them out.
int preloadedWords(const Launch& launch) { return launch.config->preloadArguments ? launch.kernel->preload & 0x7f : 0; }

void scalarRegisters(const Launch& launch, Wave& w) {
  const Kernel& k = *launch.kernel;
  const Chip& chip = *launch.chip;
  ScalarWriter s{w};
  auto property = [&](int bit) { return (k.properties >> bit & 1) != 0; };
  if (property(0)) {
    // Private segment buffer: a swizzled resource over this wave's scratch; the wave offset SGPR below is zero.
    s.put(static_cast<std::uint32_t>(w.scratchBase));
    s.put(static_cast<std::uint32_t>(w.scratchBase >> 32 & 0xffff) | 1u << 31);  // SWIZZLE_ENABLE
    s.put(static_cast<std::uint32_t>(scratchPerWave(launch)));
    std::uint32_t format = chip.gen == Gen::kGfx9 ? 4u << 15 : 20u << 12 | 1u << 24;  // 32 bits; gfx10: RESOURCE_LEVEL
    s.put(1u << 23 | (w.wave32 ? 2u : 3u) << 21 | format);                            // ADD_TID_ENABLE, INDEX_STRIDE
  }
  if (property(1)) s.put64(launch.dispatchPacket);
  if (property(2)) s.put64(launch.queue);
  if (property(3)) s.put64(launch.kernarg);
  if (property(4)) s.put64(launch.dispatchId);
  if (property(5)) s.put64(w.scratchBase);
  if (property(6)) s.put(launch.privateBytes);
  int preload = preloadedWords(launch), from = k.preload >> 7;
  for (int i = 0; i < preload; ++i) {
    std::uint32_t v = 0;
    if (static_cast<std::uint32_t>(from + i) * 4 + 4 <= k.kernargBytes)
      std::memcpy(&v, reinterpret_cast<const void*>(launch.kernarg + static_cast<std::uint64_t>(from + i) * 4), 4);
    s.put(v);
  }
  s.next = static_cast<int>(k.rsrc2 >> 1 & 31);  // USER_SGPR_COUNT
  const std::uint32_t* id = w.group->id;
  if (chip.architectedSgprs) {
    s.at(kTtmp0 + 9, id[0]);
    s.at(kTtmp0 + 7, (id[1] & 0xffff) | id[2] << 16);
    s.at(kTtmp0 + 8, static_cast<std::uint32_t>(w.id) << 25);
  } else {
    for (int i = 0; i < 3; ++i)
      if (k.rsrc2 >> (7 + i) & 1) s.put(id[i]);
    if (k.rsrc2 >> 10 & 1) s.put(static_cast<std::uint32_t>(w.group->waves.size()));
    if ((k.rsrc2 & 1) && !chip.architectedFlatScratch) s.put(0);  // private segment wave offset
  }
  // EXEC and VCC are always readable; the trap and NULL registers never trip the check.
  for (int i = kVcc; i < kScalarFileSize; ++i)
    if (i != kM0) w.checks->scalarWritten[i] = true;
  w.checks->scalarWritten[kVcc] = w.checks->scalarWritten[kVcc + 1] = false;
}

void vectorRegisters(const Launch& launch, Wave& w) {
  const Kernel& k = *launch.kernel;
  std::uint32_t extent[3];
  for (int d = 0; d < 3; ++d) {
    std::uint32_t total = launch.total[d] ? launch.total[d] : launch.grid[d] * launch.block[d];
    extent[d] = std::min(launch.block[d], total - w.group->id[d] * launch.block[d]);
  }
  std::uint32_t items = extent[0] * extent[1] * extent[2];
  unsigned level = k.rsrc2 >> 11 & 3;  // VGPR_WORKITEM_ID
  std::uint64_t exec = 0;
  for (int l = 0; l < w.lanes; ++l) {
    std::uint32_t flat = static_cast<std::uint32_t>(w.id * w.lanes + l);
    if (flat >= items) break;
    exec |= 1ull << l;
    std::uint32_t x = flat % extent[0], y = flat / extent[0] % extent[1], z = flat / (extent[0] * extent[1]);
    if (launch.chip->packedTid) {
      w.v[l] = x | (level >= 1 ? y << 10 : 0) | (level >= 2 ? z << 20 : 0);
    } else {
      const std::uint32_t ids[3] = {x, y, z};
      for (unsigned d = 0; d <= std::min(level, 2u); ++d) w.v[static_cast<int>(d) * w.lanes + l] = ids[d];
    }
  }
  if (w.wave32)
    w.s[kExec] = static_cast<std::uint32_t>(exec), w.s[kExec + 1] = 0;
  else
    w.setPair(kExec, exec);
  for (unsigned d = 0; d <= (launch.chip->packedTid ? 0 : std::min(level, 2u)); ++d) w.checks->vectorWritten[d] = exec;
}

}  // namespace

std::uint64_t scratchBytes(const Launch& launch) {
  std::uint32_t items = launch.block[0] * launch.block[1] * launch.block[2];
  std::uint64_t waves =
      (items + static_cast<unsigned>(launch.kernel->waveSize) - 1) / static_cast<unsigned>(launch.kernel->waveSize);
  return waves * scratchPerWave(launch);
}

std::unique_ptr<Workgroup> startWorkgroup(Launch& launch, std::uint64_t index, std::uint64_t scratch) {
  const Kernel& k = *launch.kernel;
  auto g = std::make_unique<Workgroup>();
  g->flat = index;
  g->id[0] = static_cast<std::uint32_t>(index % launch.grid[0]);
  g->id[1] = static_cast<std::uint32_t>(index / launch.grid[0] % launch.grid[1]);
  g->id[2] = static_cast<std::uint32_t>(index / launch.grid[0] / launch.grid[1]);
  g->lds.resize((launch.ldsBytes + 3) & ~3u);
  for (std::size_t i = 0; i + 4 <= g->lds.size(); i += 4) std::memcpy(&g->lds[i], &kGarbage, 4);
  if (!g->lds.empty() && (launch.config->checkRaces || launch.config->checkUninitialized)) {
    g->shadow = std::make_unique<LdsShadow>();
    if (launch.config->checkRaces) g->shadow->cells.resize(g->lds.size() / 4);
    if (launch.config->checkUninitialized) g->shadow->written.resize(g->lds.size());
  }
  std::uint32_t items = 1;
  for (int d = 0; d < 3; ++d) {
    std::uint32_t total = launch.total[d] ? launch.total[d] : launch.grid[d] * launch.block[d];
    items *= std::min(launch.block[d], total - g->id[d] * launch.block[d]);
  }
  int lanes = k.waveSize;
  int waves = static_cast<int>((items + static_cast<unsigned>(lanes) - 1) / static_cast<unsigned>(lanes));
  g->live = waves;
  for (int i = 0; i < waves; ++i) g->waves.push_back(std::make_unique<Wave>());
  for (int i = 0; i < waves; ++i) {
    Wave& w = *g->waves[static_cast<std::size_t>(i)];
    w.id = i;
    w.lanes = lanes;
    w.wave32 = lanes == 32;
    w.full = w.wave32 ? 0xffffffffull : ~0ull;
    w.chip = launch.chip;
    w.code = k.image;
    w.group = g.get();
    w.launch = &launch;
    // Firmware that puts arguments into registers skips the instructions that would load them ("Preloaded Kernel
    // Arguments" in LLVM's AMDGPU usage guide).
    constexpr std::uint64_t kLoadsOfArguments = 256;
    w.pc = k.entry + (preloadedWords(launch) != 0 ? kLoadsOfArguments : 0);
    w.vgprs = k.vgprs;
    w.agprs = k.agprs;
    w.sgprs = k.sgprs;
    w.registers.assign(static_cast<std::size_t>(k.vgprs + k.agprs) * static_cast<unsigned>(lanes), kGarbage);
    w.v = w.registers.data();
    w.a = w.v + static_cast<std::size_t>(k.vgprs) * static_cast<unsigned>(lanes);
    for (int r = 0; r < kVcc + 2; ++r) w.s[r] = kGarbage;
    w.s[kM0] = kGarbage;
    w.scratchBytes = (launch.privateBytes + 3) & ~3u;
    w.scratchBase = scratch + static_cast<std::uint64_t>(i) * scratchPerWave(launch);
    // FLOAT_ROUND_MODE and FLOAT_DENORM_MODE, DX10_CLAMP, IEEE_MODE, FP16_OVFL.
    w.mode = (k.rsrc1 >> 12 & 0xff);
    if (launch.chip->gen != Gen::kGfx12) w.mode |= (k.rsrc1 >> 21 & 1) << 8 | (k.rsrc1 >> 23 & 1) << 9;
    w.mode |= (k.rsrc1 >> 26 & 1) << 23;
    w.checks = std::make_unique<WaveChecks>();
    w.checks->config = launch.config;
    w.watchGlobal = launch.shadow != nullptr || launch.config->checkUninitialized || launch.config->summary;
    if (launch.config->summary) w.traffic = &g->traffic;
    if (launch.config->checkUninitialized)
      w.scratchWritten.resize(std::size_t{w.scratchBytes} * static_cast<unsigned>(lanes));
    w.checks->vectorPending.resize(static_cast<std::size_t>(k.vgprs));
    w.checks->accumPending.resize(static_cast<std::size_t>(k.agprs));
    w.checks->vectorWritten.resize(static_cast<std::size_t>(k.vgprs));
    w.checks->accumWritten.resize(static_cast<std::size_t>(k.agprs));
    scalarRegisters(launch, w);
    vectorRegisters(launch, w);
  }
  return g;
}

}  // namespace sardonyx::sim
