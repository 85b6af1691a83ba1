// What an estimate of time needs of an AMD chip beyond target/chip.h: pipelines, latencies, bandwidths and clocks, one
// row a chip. None of the numbers was fitted to a single measurement; docs/amd-clock.md compares the estimates
// with published ones. A number without a comment of its own follows from the sources of its column:
//
//   [isa]    AMD's ISA documents: CDNA 2, "AMD Instinct MI300" (CDNA 3), CDNA 4, RDNA 3, RDNA 4
//   [llvm]   LLVM's scheduling models and hazard recogniser for AMDGPU
//   [wp]     white papers "AMD CDNA 2/3/4 Architecture", "RDNA Architecture", and AMD's Hot Chips presentations
//   [gcn]    "AMD GCN3 ISA" and optimisation guides: a SIMD of 16 lanes takes a wave of 64 in four cycles
//   [rcp]    ROCm Compute Profiler's documentation of the performance model (L1, L2 and fabric widths)
//   [cc]     measurements of Chips and Cheese (MI210, MI300X, RX 7900 XTX, RX 9070)
//   [mall]   "The MALL is Open" (SC25 workshops): latencies of MI250X and MI300X
//   [rrze] RRZE's gpu-benches on MI210, MI300X and MI300A (benchmarks/amd_clock/published.json)
//   [clpeak] clpeak's results on MI300X and MI250X (benchmarks/amd_clock/published.json)
//   [maf]    AMD, "Measuring Max-Achievable FLOPs", parts 1 and 2: clocks under matrix load
//   [hip]    ROCm's HIP documentation, "Hardware implementation": LDS banks, and a 64-byte port for each pair of SIMDs
//   [rr]     rocRoller's model of LDS (ROCm/rocm-libraries, shared/rocroller): lanes that a port serves in a cycle
//   [bench]  gpu-benches of T. Ernst on MI210 and RX 6900 XT: gpu-strides, gpu-cache, gpu-l2-cache, gpu-latency
//   [hello]  datawhalechina/hello-gpu on RX 9070 XT
#pragma once
#include <string_view>

namespace sardonyx {

/// RDNA 1 to 3's L1: between the L0s of a shader array and L2, for reads only.
struct ArrayCache {
  int kib = 0;                         ///< 0: there is none
  int pools = 1, bytes_per_cycle = 0;  ///< that share one, and what it gives them
  int latency = 0;                     ///< of a hit, cycles, issue to use
};

struct TimingFacts {
  std::string_view chip;  ///< row of target/chip.h

  // Issue, in cycles of the shader clock.
  int valu_pipes;    ///< of a SIMD, that take float arithmetic of two waves side by side
  int issue_slot;    ///< cycles between two instructions of one wave, and of one kind on one SIMD
  int valu_cycles;   ///< vector pipe's cycles for 32 lanes of 32-bit arithmetic
  int trans_cycles;  ///< ... of a transcendental, quarter rate
  int f64_cycles;    ///< ... of 64-bit arithmetic
  int mul32_cycles;  ///< ... of a 32-bit integer product
  int valu_latency;  ///< until the result of vector arithmetic can be read
  int trans_latency;
  int salu_latency;
  int branch_taken, branch_fallen;  ///< until the wave issues again
  bool matrix_separate;             ///< matrix instructions run beside vector arithmetic (CDNA)
  int matrix_latency;  ///< from a matrix instruction's last pass until vector arithmetic may read its result
  int matrix_chain;    ///< ... until the next matrix instruction may add to it
  bool shared_salu;    ///< one scalar unit serves the SIMDs in turn

  // LDS.
  int lds_ports;            ///< that serve the SIMDs of a pool side by side
  int lds_bytes_per_cycle;  ///< of a port
  int lds_banks;            ///< of 4 bytes, of a port
  int lds_pair_bytes;       ///< bytes a cycle between LDS and a pair of SIMDs
  int lds_wide_bytes;       ///< ... for reads of 8 and 16 bytes a lane
  int lds_latency;          ///< of a 32-bit read without conflicts, issue to use

  // Vector memory. L1 is RDNA's L0.
  int l1_ports;            ///< L1 caches of a pool
  int l1_bytes_per_cycle;  ///< of one
  int l1_lanes;            ///< lanes a cycle of loads of at most 4 bytes a lane; four of wider ones
  int l1_lines;            ///< lines that one finds in a cycle
  int l1_bank_cycles;  ///< for each dword of the bank with the most, of 32; 0: GCN's quads, which have banks of their
                       ///< own
  int l1_latency;      ///< of a hit, cycles, issue to use
  ArrayCache array;    ///< the cache of a shader array
  int fill_bytes;      ///< what a miss of L1 asks of L2
  int scalar_latency;  ///< scalar load that hits the scalar cache
  int l2_latency;      ///< of a hit, cycles, issue to use
  double l2_bytes_per_cycle;  ///< of one die
  double mall_ns;             ///< latency of a hit in the Infinity Cache; 0: there is none
  double mall_gb_per_second;
  double memory_ns;
  double memory_efficiency;  ///< share of the memory's peak rate that long streams reach
  double atomic_ns = 0;      ///< between two atomics of waves on one line; 0: not known

  // Launches and clocks.
  int group_cycles;           ///< that the dispatcher of a die needs for one workgroup, at least
  double wave_interval;       ///< cycles between two waves that it starts
  int wave_cycles;            ///< from dispatch until the wave's first instruction
  double launch_us;           ///< an empty kernel in a stream
  double copy_gb_per_second;  ///< host to device
  int matrix_mhz;             ///< clock that the card's power limit leaves under full 16-bit matrix load
};

/// What the chips of a family have in common, and each row's own on top.
constexpr TimingFacts kRdna = {
    .chip = "",
    .valu_pipes = 1,
    .issue_slot = 1,
    .valu_cycles = 1,
    .trans_cycles = 4,
    .f64_cycles = 16,
    .mul32_cycles = 4,
    .valu_latency = 5,
    .trans_latency = 10,
    .salu_latency = 2,  // [llvm]
    .branch_taken = 16,
    .branch_fallen = 4,
    .matrix_separate = false,
    .matrix_latency = 5,
    .matrix_chain = 0,
    .shared_salu = false,
    .lds_ports = 2,
    .lds_bytes_per_cycle = 128,
    .lds_banks = 32,
    .lds_pair_bytes = 64,
    .lds_wide_bytes = 64,  // [hip]
    .lds_latency = 44,
    .l1_ports = 2,
    .l1_bytes_per_cycle = 64,
    .l1_lanes = 16,
    .l1_lines = 2,
    .l1_bank_cycles = 2,  // [bench] gpu-strides
    .l1_latency = 80,
    .array = {},
    .fill_bytes = 128,
    .scalar_latency = 38,
    .l2_latency = 230,
    .l2_bytes_per_cycle = 0,
    .mall_ns = 0,
    .mall_gb_per_second = 0,
    .memory_ns = 260,
    .memory_efficiency = 0.90,
    .group_cycles = 4,
    .wave_interval = 1,
    .wave_cycles = 100,
    .launch_us = 4,
    .copy_gb_per_second = 25,
    .matrix_mhz = 0,
};

constexpr TimingFacts rdna2(std::string_view chip) {
  TimingFacts f = kRdna;
  f.chip = chip;
  f.l1_latency = 71;             // [bench] gpu-latency, at 2570 MHz, as what follows
  f.array = {128, 5, 512, 107};  // [bench]; gpu-cache: 10 TB/s of eight arrays
  f.l2_latency = 207;
  f.l2_bytes_per_cycle = 2048;  // [bench] 4.6 to 5.2 TB/s: 16 channels of 128 bytes
  f.mall_ns = 152;
  f.mall_gb_per_second = 1970;  // [bench] gpu-l2-cache
  f.memory_ns = 250;
  f.memory_efficiency = 0.98;  // [bench] gpu-stream
  f.matrix_mhz = 0;
  return f;
}

/// `pools`: workgroup processors of a shader array; `l2`: bytes a cycle, 64 for each of the channels [wp].
constexpr TimingFacts rdna3(std::string_view chip, int pools, double l2, double mall, int mhz) {
  TimingFacts f = kRdna;
  f.chip = chip;
  f.array = {256, pools, 512, 116};  // [wp]; its latency beyond L0's as on RDNA 2
  f.l2_bytes_per_cycle = l2;
  f.mall_ns = mall > 0 ? 150 : 0;  // [cc]
  f.mall_gb_per_second = mall;
  f.matrix_mhz = mhz;
  return f;
}

/// The same without the array's cache: RDNA 4 has a buffer there that joins requests [cc].
constexpr TimingFacts rdna4(std::string_view chip, double l2, double mall, int mhz) {
  TimingFacts f = kRdna;
  f.chip = chip;
  f.f64_cycles = 32;
  f.l2_latency = 250;
  f.l2_bytes_per_cycle = l2;
  f.mall_ns = 140;
  f.mall_gb_per_second = mall;
  f.memory_ns = 250;
  f.atomic_ns = 66;  // [hello] 65536 workgroups and 524288 waves on one address
  f.matrix_mhz = mhz;
  return f;
}

/// Of chips after "gfx1200" there is no measurement in docs/amd-clock.md: their rows follow from their family's.
inline constexpr TimingFacts kTimingFacts[] = {
    {.chip = "gfx90a",
     .valu_pipes = 1,
     .issue_slot = 4,  // [gcn]
     .valu_cycles = 2,
     .trans_cycles = 8,
     .f64_cycles = 2,
     .mul32_cycles = 2,  // [wp]: float64 at full rate; [llvm]: 32-bit products too
     .valu_latency = 4,
     .trans_latency = 16,
     .salu_latency = 4,  // [gcn]
     .branch_taken = 16,
     .branch_fallen = 8,  // [gcn]
     .matrix_separate = true,
     .matrix_latency = 12,
     .matrix_chain = 8,    // [llvm] passes + 3 and + 2 wait states
     .shared_salu = true,  // [gcn]
     .lds_ports = 1,
     .lds_bytes_per_cycle = 128,
     .lds_banks = 32,
     .lds_pair_bytes = 64,
     .lds_wide_bytes = 64,  // [hip], [rr]
     .lds_latency = 64,     // [wp], [llvm]
     .l1_ports = 1,
     .l1_bytes_per_cycle = 64,
     .l1_lanes = 16,
     .l1_lines = 1,
     .l1_bank_cycles = 0,  // [bench] gpu-strides
     .l1_latency = 117,
     .fill_bytes = 64,      // [rcp], [cc]
     .scalar_latency = 50,  // [cc]
     .l2_latency = 246,
     .l2_bytes_per_cycle = 3100,  // [cc]; [wp] 32 channels of 128 bytes
     .mall_ns = 0,
     .mall_gb_per_second = 0,
     .memory_ns = 340,
     .memory_efficiency = 0.85,
     .group_cycles = 4,
     .wave_interval = 0.6,
     .wave_cycles = 150,
     .launch_us = 4,
     .copy_gb_per_second = 28,
     .matrix_mhz = 1600},
    {.chip = "gfx942",
     .valu_pipes = 2,  // [clpeak] 133 of 163 TFLOP/s by multiply-adds that are not packed
     .issue_slot = 4,
     .valu_cycles = 2,
     .trans_cycles = 8,
     .f64_cycles = 2,
     .mul32_cycles = 2,
     .valu_latency = 4,
     .trans_latency = 16,
     .salu_latency = 4,
     .branch_taken = 16,
     .branch_fallen = 8,
     .matrix_separate = true,
     .matrix_latency = 12,
     .matrix_chain = 8,
     .shared_salu = true,
     .lds_ports = 1,
     .lds_bytes_per_cycle = 128,
     .lds_banks = 32,
     .lds_pair_bytes = 64,
     .lds_wide_bytes = 64,  // [hip], [rr]
     .lds_latency = 64,
     .l1_ports = 1,
     .l1_bytes_per_cycle = 64,
     .l1_lanes = 16,
     .l1_lines = 1,
     .l1_bank_cycles = 0,  // [bench] gpu-strides
     .l1_latency = 112,
     .fill_bytes = 128,
     .scalar_latency = 52,
     .l2_latency = 206,
     .l2_bytes_per_cycle = 1560,  // [wp] 16 channels of 128 bytes
     .mall_ns = 212,
     .mall_gb_per_second = 11900,  // [cc] measured; the peak is 17.2 TB/s
     .memory_ns = 360,
     .memory_efficiency = 0.81,
     .group_cycles = 4,
     .wave_interval = 1.08,  // [rrze] workgroups of 16 waves of one load each
     .wave_cycles = 150,
     .launch_us = 5,
     .copy_gb_per_second = 55,
     .matrix_mhz = 1300},
    {.chip = "gfx950",
     .valu_pipes = 2,
     .issue_slot = 4,
     .valu_cycles = 2,
     .trans_cycles = 4,
     .f64_cycles = 2,
     .mul32_cycles = 2,  // [wp]: transcendentals twice as fast
     .valu_latency = 4,
     .trans_latency = 12,
     .salu_latency = 4,
     .branch_taken = 16,
     .branch_fallen = 8,
     .matrix_separate = true,
     .matrix_latency = 12,
     .matrix_chain = 8,
     .shared_salu = true,
     .lds_ports = 1,
     .lds_bytes_per_cycle = 128,
     .lds_banks = 64,
     .lds_pair_bytes = 64,
     .lds_wide_bytes = 128,  // [hip], [rr]
     .lds_latency = 64,
     .l1_ports = 1,
     .l1_bytes_per_cycle = 64,
     .l1_lanes = 16,
     .l1_lines = 1,
     .l1_bank_cycles = 0,  // [bench] gpu-strides
     .l1_latency = 112,
     .fill_bytes = 128,
     .scalar_latency = 52,
     .l2_latency = 206,
     .l2_bytes_per_cycle = 1560,
     .mall_ns = 215,
     .mall_gb_per_second = 14000,
     .memory_ns = 380,
     .memory_efficiency = 0.81,
     .group_cycles = 4,
     .wave_interval = 1.08,
     .wave_cycles = 150,
     .launch_us = 5,
     .copy_gb_per_second = 55,
     .matrix_mhz = 1800},
    rdna2("gfx1030"),
    rdna3("gfx1100", 4, 3072, 2900, 2400),
    rdna4("gfx1201", 4096, 2000, 2750),
    rdna4("gfx1200", 2048, 1000, 2900),
    rdna3("gfx1101", 5, 2048, 1930, 2300),
    rdna3("gfx1102", 4, 1024, 970, 2500),
    rdna3("gfx1103", 3, 1024, 0, 2500),
    rdna3("gfx1150", 4, 1024, 0, 2600),
    rdna3("gfx1151", 5, 1024, 900, 2600),
};

/// Null for a chip without a row.
constexpr const TimingFacts* timing_facts(std::string_view chip) {
  for (const TimingFacts& f : kTimingFacts)
    if (f.chip == chip) return &f;
  return nullptr;
}

}  // namespace sardonyx
