// Tracks which register contents derive from initialised data, so that uses of uninitialised registers are reported
// where they matter. Compiled code moves, spills and computes with uninitialised values (the unused half of a 64-bit
// sum, lanes of a register that holds spilled scalars). Such a value may be copied, but it may not be an address, be
// stored to global memory or LDS, set EXEC or be an operand of a matrix instruction. The idea is that of memory
// checkers on CPUs (Seward and Nethercote, "Using Valgrind to detect undefined value errors with bit-precision", 2005),
// by register and lane.
#include <fmt/format.h>

#include <bit>
#include <string_view>
#include <unordered_map>

#include "sim/exec/checks.h"
#include "sim/exec/fault.h"
#include "sim/ops/lanes.h"

namespace sardonyx::sim {
namespace {

/// Which dwords of the sources a dword of the result depends on.
enum class Spread : std::uint8_t { kAll, kUpwards, kSame, kHalves, kSelect, kFirstLane, kLane, kUnknown };

Spread spreadOf(const Inst& in) {
  if (in.dual || in.dpp) return Spread::kUnknown;
  std::string_view n = in.op->name;
  auto starts = [&](std::string_view p) { return n.substr(0, p.size()) == p; };
  if (starts("v_cndmask_b") || starts("s_cselect_b")) return Spread::kSelect;
  if (n == "v_readfirstlane_b32") return Spread::kFirstLane;
  if (n == "v_readlane_b32") return Spread::kLane;
  if (in.op->flags & (kReadsLane | kWritesLane)) return Spread::kUnknown;
  if (starts("v_mad_u64_") || starts("v_mad_i64_") || starts("v_mad_co_") || n == "v_lshl_add_u64" ||
      n == "v_lshlrev_b64" || n == "v_add_nc_u64" || n == "s_add_u64" || n == "s_add_nc_u64" || n == "s_lshl_b64" ||
      n == "s_sub_nc_u64")
    return Spread::kUpwards;
  if (n == "v_mov_b64" || n == "s_mov_b64" || n == "s_not_b64" || n == "s_and_b64" || n == "s_or_b64" ||
      n == "s_xor_b64" || n == "s_andn2_b64" || n == "s_and_not1_b64" || n == "s_orn2_b64" || n == "s_or_not1_b64")
    return Spread::kSame;
  if (starts("v_pk_") && in.ndst && in.dst[0].dwords == 2) return Spread::kHalves;
  return Spread::kAll;
}
Spread spread(const Inst& in) { return spreadOf(in); }

/// Lanes in which register `k` of an operand is defined.
std::uint64_t lanesOf(const WaveChecks& c, const Operand& o, int k) {
  std::size_t r = static_cast<std::size_t>(o.index + k);
  switch (o.file) {
    case RegFile::kVgpr:
      return c.vectorWritten[r];
    case RegFile::kAgpr:
      return c.accumWritten[r];
    case RegFile::kSgpr:
      return c.scalarWritten[r] ? ~0ull : 0;
    default:
      return ~0ull;
  }
}
std::uint64_t allOf(const WaveChecks& c, const Operand& o, int upTo = 99) {
  std::uint64_t m = ~0ull;
  for (int k = 0; k < o.dwords && k <= upTo; ++k) m &= lanesOf(c, o, k);
  return m;
}
const Operand& source(const Inst& in, int i) {
  if (in.sdwa && i < 2 && in.sdwa->source[i].present()) return in.sdwa->source[i];
  return in.src[i];
}

bool isMemory(const Inst& in) {
  return in.format == Format::kFlat || in.format == Format::kGlobal || in.format == Format::kScratch ||
         in.format == Format::kBuffer || in.format == Format::kDs;
}

std::string name(const Operand& o, int k) {
  char file = o.file == RegFile::kVgpr ? 'v' : o.file == RegFile::kAgpr ? 'a' : 's';
  if (o.file == RegFile::kSgpr && o.index + k >= kVcc && o.index + k < kVcc + 2) return "vcc";
  return fmt::format("{}{}", file, o.index + k);
}
void require(const WaveChecks& c, const Operand& o, std::uint64_t lanes) {
  for (int k = 0; k < o.dwords; ++k) {
    std::uint64_t missing = lanes & ~lanesOf(c, o, k);
    if (!missing) continue;
    if (o.file == RegFile::kSgpr) throw Fault(fmt::format("{} is read but was never written", name(o, k)));
    throw Fault(fmt::format("{} is read but was never written in this lane", name(o, k)), std::countr_zero(missing));
  }
}

std::uint64_t resultLanes(Wave& w, const Inst& in, Spread how, const Operand& dst, int k) {
  const WaveChecks& c = *w.checks;
  std::uint64_t m = ~0ull;
  switch (how) {
    case Spread::kUnknown:
      return ~0ull;
    case Spread::kFirstLane:
    case Spread::kLane: {
      int lane = w.mask ? std::countr_zero(w.mask) : 0;
      if (how == Spread::kLane)
        lane = static_cast<int>(isRow(in.src[1]) ? 0 : scalar32(w, in.src[1]) & static_cast<unsigned>(w.lanes - 1));
      return lanesOf(c, in.src[0], 0) >> lane & 1 ? ~0ull : 0;
    }
    case Spread::kSelect: {
      if (in.format == Format::kSalu) return lanesOf(c, in.src[w.scc ? 0 : 1], k);
      std::uint64_t chosen = in.nsrc > 2 ? maskOf(w, in.src[2]) : w.vcc();
      return (lanesOf(c, source(in, 1), 0) & chosen) | (lanesOf(c, source(in, 0), 0) & ~chosen);
    }
    case Spread::kSame:
      for (int i = 0; i < in.nsrc; ++i)
        if (k < in.src[i].dwords) m &= lanesOf(c, in.src[i], k);
      return m;
    case Spread::kHalves:
      for (int i = 0; i < in.nsrc; ++i) {
        bool high = k ? in.src[i].opSelHi : in.src[i].opSel;
        m &= lanesOf(c, in.src[i], high && in.src[i].dwords > 1 ? 1 : 0);
      }
      return m;
    case Spread::kUpwards:
    case Spread::kAll:
      for (int i = 0; i < in.nsrc; ++i) {
        // The half that a 16-bit result leaves alone.
        if (in.src[i].tied && std::string_view(in.op->name).find("_mix") != std::string_view::npos) continue;
        m &= allOf(c, source(in, i), how == Spread::kUpwards && dst.dwords > 1 ? k : 99);
      }
      return m;
  }
  return m;
}

}  // namespace

void requireDefined(Wave& w, const Inst& in) {
  WaveChecks& c = *w.checks;
  c.storeUndefinedAny = 0;
  if (isMemory(in) || in.format == Format::kSmem) {
    std::fill(std::begin(c.loadUndefined), std::end(c.loadUndefined), 0);
    if (in.src[0].present()) require(c, in.src[0], w.mask);
    if (in.format == Format::kSmem || in.format == Format::kBuffer) {
      for (int i = in.format == Format::kBuffer ? 2 : 1; i < in.nsrc; ++i)
        if (in.src[i].present()) require(c, in.src[i], ~0ull);
    } else if (in.format != Format::kDs && in.src[2].present()) {
      require(c, in.src[2], ~0ull);
    }
    if (in.op->flags & kReadsLane) return;
    int next = 0;
    for (int i = 1; i < (in.format == Format::kDs ? 3 : 2); ++i)
      for (int k = 0; in.src[i].present() && k < in.src[i].dwords && next < 4; ++k) {
        c.storeUndefined[next] = w.mask & ~lanesOf(c, in.src[i], k);
        c.storeUndefinedAny |= c.storeUndefined[next++];
      }
    return;
  }
  if (in.category == Category::kMatrix)
    for (int i = 0; i < in.nsrc; ++i) require(c, in.src[i], w.mask);
  bool decides = in.format == Format::kSalu && in.ndst && in.dst[0].file == RegFile::kSgpr &&
                 in.dst[0].index >= kExec && in.dst[0].index < kExec + 2;
  std::string_view n = in.op->name;
  if (decides || n == "s_setpc_b64" || n == "s_swappc_b64" || n.find("saveexec") != std::string_view::npos)
    for (int i = 0; i < in.nsrc; ++i) require(c, in.src[i], ~0ull);
}

void noteDefined(Wave& w, const Inst& in) {
  WaveChecks& c = *w.checks;
  bool memory = isMemory(in);
  Spread how = memory || in.format == Format::kSmem || in.category == Category::kMatrix ? Spread::kUnknown : spread(in);
  // A register that is source and destination must be judged by what it was: results first, then the marks.
  std::uint64_t lanes[3][32];
  for (int d = 0; d < in.ndst; ++d)
    for (int k = 0; k < in.dst[d].dwords && k < 32; ++k)
      lanes[d][k] = memory && d == 0 && k < 4 ? ~c.loadUndefined[k] : resultLanes(w, in, how, in.dst[d], k);
  auto mark = [&](const Operand& o, int k, std::uint64_t defined) {
    std::size_t r = static_cast<std::size_t>(o.index + k);
    if (o.file == RegFile::kSgpr) {
      c.scalarWritten[r] = (w.mask & ~defined) == 0;
    } else if ((o.file == RegFile::kVgpr || o.file == RegFile::kAgpr) && !(in.op->flags & kWritesLane)) {
      std::uint64_t& written = (o.file == RegFile::kVgpr ? c.vectorWritten : c.accumWritten)[r];
      written = (written & ~w.mask) | (defined & w.mask);
    }
  };
  for (int d = 0; d < in.ndst; ++d) {
    const Operand& o = d == 0 && in.sdwa && in.sdwa->dst.present() ? in.sdwa->dst : in.dst[d];
    for (int k = 0; k < o.dwords && k < 32; ++k) mark(o, k, lanes[d][k]);
  }
  if (in.dual) {
    Operand x;
    x.file = RegFile::kVgpr;
    x.index = static_cast<std::uint16_t>(in.imm2);
    mark(x, 0, ~0ull);
    for (int d = 0; d < in.dual->ndst; ++d) mark(in.dual->dst[d], 0, ~0ull);
  }
}

}  // namespace sardonyx::sim
