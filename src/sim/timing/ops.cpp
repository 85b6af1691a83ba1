// See ops.h.
#include "sim/timing/ops.h"

#include <algorithm>
#include <cstdio>
#include <cstring>
#include <string_view>

#include "sim/exec/code_image.h"
#include "sim/timing/matrix_rate.h"

namespace sardonyx::sim::timing {
namespace {

bool has(std::string_view text, std::string_view part) { return text.find(part) != std::string_view::npos; }
bool starts(std::string_view text, std::string_view part) { return text.substr(0, part.size()) == part; }

Span span(RegFile file, int index, int count) {
  Span s;
  const int base = file == RegFile::kVgpr ? 0 : file == RegFile::kAgpr ? kAccumBase : kScalarBase;
  s.first = static_cast<std::uint16_t>(std::min(base + index, kRegisters - 1));
  s.count = static_cast<std::uint8_t>(std::min(count, kRegisters - s.first));
  return s;
}
bool isRegister(RegFile f) { return f == RegFile::kSgpr || f == RegFile::kVgpr || f == RegFile::kAgpr; }

void registers(const Inst& in, Op& op) {
  if (in.category == Category::kMatrix) {
    for (int i = 0; i < in.nsrc && op.nreads < 12; ++i) {
      if (!isRegister(in.src[i].file)) continue;
      op.reads[op.nreads] = span(in.src[i].file, in.src[i].index, in.src[i].dwords);
      op.reads[op.nreads++].chain = i == 2;
    }
  } else {
    for (int i = 0; i < in.nreads; ++i)
      op.reads[op.nreads++] = span(in.reads[i].file, in.reads[i].index, in.reads[i].count);
  }
  for (int i = 0; i < in.nwrites; ++i)
    op.writes[op.nwrites++] = span(in.writes[i].file, in.writes[i].index, in.writes[i].count);
}

/// Thresholds of the waits, as ops/waits.cpp reads them.
void waits(std::string_view n, const Inst& in, const Chip& chip, Op& op) {
  const auto v = static_cast<unsigned>(in.imm);
  auto set = [&](Counter c, unsigned limit) {
    op.waits[static_cast<int>(c)] = static_cast<std::uint8_t>(limit);
    op.anyWait = true;
  };
  if (n == "s_waitcnt" && chip.gen == Gen::kGfx9) {
    set(Counter::kLoad, (v & 15) | (v >> 14 & 3) << 4);
    set(Counter::kDs, v >> 8 & 15);
    if ((v >> 8 & 15) == 15) op.waits[static_cast<int>(Counter::kDs)] = 63;
  } else if (n == "s_waitcnt") {
    set(Counter::kLoad, v >> 10 & 63);
    set(Counter::kDs, v >> 4 & 63);
  } else if (n == "s_waitcnt_vscnt" || n == "s_wait_storecnt") {
    set(Counter::kStore, v & 63);
  } else if (n == "s_waitcnt_vmcnt" || n == "s_wait_loadcnt") {
    set(Counter::kLoad, v & 63);
  } else if (n == "s_waitcnt_lgkmcnt" || n == "s_wait_dscnt") {
    set(Counter::kDs, v & 63);
  } else if (n == "s_wait_kmcnt") {
    set(Counter::kKm, v & 63);
  } else if (n == "s_wait_loadcnt_dscnt" || n == "s_wait_storecnt_dscnt") {
    set(n[7] == 'l' ? Counter::kLoad : Counter::kStore, v >> 8 & 63);
    set(Counter::kDs, v & 63);
  } else if (n == "s_wait_idle") {
    for (int c = 0; c < static_cast<int>(Counter::kCount); ++c) set(static_cast<Counter>(c), 0);
  }
}

void control(std::string_view n, const Inst& in, const Chip& chip, const TimingFacts& f, Op& op) {
  waits(n, in, chip, op);
  if (n == "s_nop") {
    op.idle = static_cast<std::uint16_t>((in.imm & 15) * f.issue_slot);
  } else if (n == "s_sleep") {
    op.idle = static_cast<std::uint16_t>(64 * (in.imm & 127));
  } else if (n == "s_setprio") {
    op.priority = static_cast<std::int8_t>(in.imm & 3);
  } else if (n == "s_barrier") {
    op.signals = op.awaits = true;
  } else if (starts(n, "s_barrier_signal")) {
    op.signals = true;
  } else if (n == "s_barrier_wait") {
    op.awaits = true;
  } else if (starts(n, "s_endpgm")) {
    op.unit = Unit::kEnd;
  }
}

bool isInternal(std::string_view n) {
  for (const char* one : {"s_nop", "s_sleep", "s_setprio", "s_clause", "s_delay_alu", "s_wait", "s_barrier", "s_endpgm",
                          "s_inst_prefetch", "s_set_inst_prefetch", "s_code_end", "s_sethalt", "s_ttracedata"})
    if (starts(n, one)) return true;
  return false;
}

void vector(std::string_view n, const Inst& in, const TimingFacts& f, int waveSize, Op& op) {
  static constexpr std::string_view kTranscendental[] = {"v_exp_",  "v_log_", "v_rcp_", "v_rsq_",
                                                         "v_sqrt_", "v_sin_", "v_cos_", "v_s_"};
  const bool trans = std::any_of(std::begin(kTranscendental), std::end(kTranscendental),
                                 [&](std::string_view t) { return starts(n, t); });
  const int halves = waveSize / 32;
  const bool f64 = has(n, "_f64") && !has(n, "cvt");
  const bool mul32 = starts(n, "v_mul_lo_") || starts(n, "v_mul_hi_") || has(n, "u64_u32") || has(n, "i64_i32");
  const int per = trans ? f.trans_cycles * (f64 ? 4 : 1) : f64 ? f.f64_cycles : mul32 ? f.mul32_cycles : f.valu_cycles;
  op.unit = trans ? Unit::kTrans : Unit::kValu;
  op.paired =
      f.valu_pipes > 1 && !trans && !f64 && !has(n, "cvt") && !starts(n, "v_pk_") && (has(n, "_f32") || has(n, "_f16"));
  op.cycles = static_cast<std::uint16_t>(per * halves);
  const int latency = trans ? f.trans_latency : f.valu_latency;
  // The last part of a wave starts after the others: its result is as much later.
  op.latency = static_cast<std::uint16_t>(std::max(latency + (per * halves - f.issue_slot), latency));
  if (in.category == Category::kMatrix) {
    op.unit = Unit::kMatrix;
  }
}

}  // namespace

const char* name(Cause c) {
  constexpr const char* kNames[] = {"memory",        "lds",           "scalar_memory", "barrier",     "vector_result",
                                    "matrix_result", "scalar_result", "matrix_busy",   "vector_busy", "lds_busy",
                                    "memory_busy",   "scalar_busy",   "branch",        "nop"};
  static_assert(sizeof kNames / sizeof *kNames == kCauses);
  return kNames[static_cast<int>(c)];
}

Op classify(const Inst& in, const Chip& chip, const TimingFacts& f, int waveSize) {
  Op op;
  std::memset(op.waits, 255, sizeof op.waits);
  op.size = in.size;
  op.counters = in.counters;
  op.isStore = in.isStore;
  registers(in, op);
  const std::string_view n = in.op ? in.op->name : "";
  switch (in.format) {
    case Format::kSmem:
      op.unit = Unit::kSmem;
      return op;
    case Format::kDs:
      op.unit = Unit::kLds;
      op.ldsCycles = static_cast<std::uint32_t>(std::max(1, waveSize * 4 / f.lds_bytes_per_cycle));
      return op;
    case Format::kFlat:
    case Format::kGlobal:
    case Format::kScratch:
    case Format::kBuffer:
      op.unit = Unit::kVmem;
      return op;
    default:
      break;
  }
  if (in.category == Category::kBranch && !starts(n, "s_endpgm")) {
    op.unit = Unit::kBranch;
  } else if (isInternal(n)) {
    control(n, in, chip, f, op);
  } else if (starts(n, "s_")) {
    op.unit = Unit::kSalu;
    op.latency = static_cast<std::uint16_t>(f.salu_latency);
  } else {
    vector(n, in, f, waveSize, op);
    if (op.unit == Unit::kMatrix) {
      const int cycles = matrixCycles(n, in.ndst ? in.dst[0].dwords : 4, chip, waveSize, in);
      op.cycles = static_cast<std::uint16_t>(cycles);
      op.latency = static_cast<std::uint16_t>(cycles + f.matrix_latency);
      // CDNA: two wait states where the instruction has two passes, else none ([isa], dependency checks).
      op.chain = static_cast<std::uint16_t>(cycles + (f.matrix_separate && cycles <= 8 ? 8 : 0));
    }
  }
  return op;
}

}  // namespace sardonyx::sim::timing
