// The loop that executes waves, the scheduling of waves within a workgroup, and the text of failures.
#include "sim/exec/interpreter.h"

#include <fmt/format.h>

#include <algorithm>

#include "sim/exec/checks.h"
#include "sim/exec/fault.h"
#include "sim/exec/gpr_index.h"
#include "sim/exec/trace.h"
#include "sim/timing/record.h"

namespace sardonyx::sim {
namespace {

constexpr std::uint64_t kWaveTurn = 1 << 16;   // instructions before the next wave of the workgroup gets a turn
constexpr std::uint64_t kGroupTurn = 1 << 22;  // instructions before another workgroup may be started on this thread

[[noreturn]] void notImplemented(const Wave& w, const Inst& in) {
  bool known = in.op != nullptr || in.dual != nullptr;
  throw Fault(known ? "instruction form is not implemented"
                    : "instruction is not implemented, or not an instruction of this chip");
}

/// Matrix arithmetic where only the clock is of interest: addresses do not depend on it.
bool leftOut(const Wave& w, const Inst& in) {
  return w.recorder && w.recorder->skipMatrix && in.category == Category::kMatrix;
}

/// The result of a matrix instruction that is left out: its addend. Branches that depend on sums are then taken as if
/// operands were zeros; an old register could hold anything.
void passAddend(Wave& w, const Inst& in) {
  const Operand &to = in.dst[0], &from = in.src[2];
  const bool row = from.file == RegFile::kVgpr || from.file == RegFile::kAgpr;
  if (in.nsrc < 3 || (row && from.file == to.file && from.index == to.index)) return;
  for (int d = 0; d < to.dwords; ++d) {
    if (row && d < from.dwords)
      std::copy_n(w.row(from, d), w.lanes, w.row(to, d));
    else
      std::fill_n(w.row(to, d), w.lanes, 0u);
  }
}

/// Executes until the wave ends, blocks, yields or has used `budget`. Returns the instructions executed.
template <bool kObserved>
std::uint64_t runWave(Launch& launch, Wave& w, std::uint64_t budget, std::vector<std::uint64_t>* counts) {
  std::uint64_t n = 0;
  const Tracer* tracer = kObserved ? Tracer::of(launch, w) : nullptr;
  while (n < budget) {
    if (!w.code->contains(w.pc)) [[unlikely]] {
      w.current = nullptr;
      throw Fault("execution left the code object", -1, w.pc);
    }
    const Inst* decoded = w.code->at(w.pc);
    w.current = decoded;
    std::unique_ptr<Inst> moved;
    if (w.gprIndex) [[unlikely]] {
      moved = withGprIndex(*decoded, w);
      if (moved) decoded = moved.get();
    }
    const Inst& in = *decoded;
    if (!in.fn) [[unlikely]]
      notImplemented(w, in);
    w.nextPc = w.pc + in.size;
    w.mask = w.exec();
    checkBefore(w, in);
    if (kObserved && counts) ++(*counts)[static_cast<std::size_t>(in.category)];
    if (!kObserved || !leftOut(w, in)) {
      if (in.pre) in.pre(w, in);
      in.fn(w, in);
      if (in.post) in.post(w, in);
    } else {
      passAddend(w, in);
    }
    checkAfter(w, in);
    if (kObserved && w.recorder) w.recorder->finish(w, in);
    if (kObserved && tracer) tracer->print(w, in);
    w.pc = w.nextPc;
    ++n;
    if (w.state != WaveState::kReady || w.yield) break;
  }
  w.executed += n;
  if (w.executed > launch.config->maxInstructionsPerWave) [[unlikely]]
    throw Fault(fmt::format("the wave did not end within {} instructions", launch.config->maxInstructionsPerWave));
  return n;
}

std::string describe(const Launch& launch, const Workgroup& g, const Wave& w, const Fault& f) {
  std::string out = fmt::format("kernel {}: {}", launch.kernel->shown, f.what());
  if (f.hasAddress) out += fmt::format("; address 0x{:x}", f.address);
  if (w.current) {
    out += fmt::format("; instruction \"{}\" at offset 0x{:x}", w.code->text(w.current->pc),
                       w.current->pc - w.code->base());
    std::string line = w.code->object()->sourceLine(w.current->pc);
    if (!line.empty()) out += fmt::format("; source {}", line);
  }
  out += fmt::format("; workgroup ({}, {}, {}) wave {}", g.id[0], g.id[1], g.id[2], w.id);
  if (f.lane >= 0) out += fmt::format(" lane {}", f.lane);
  return out;
}

void completeBarrierIfAll(Workgroup& g) {
  if (g.live == 0 || g.signalled < g.live) return;
  g.signalled = 0;
  ++g.barrierPhase;
  noteBarrier(g);
}

}  // namespace

void signalBarrier(Wave& w) {
  Workgroup& g = *w.group;
  w.barrierTarget = g.barrierPhase + 1;
  noteBarrierSignal(w);
  ++g.signalled;
  completeBarrierIfAll(g);
}

void waitBarrier(Wave& w) {
  if (static_cast<std::int32_t>(w.group->barrierPhase - w.barrierTarget) < 0) w.state = WaveState::kAtBarrier;
}

GroupState runWorkgroup(Launch& launch, Workgroup& g, std::vector<std::uint64_t>* counts) {
  bool observed = counts != nullptr || !launch.config->traceKernel.empty() || launch.recording != nullptr;
  std::uint64_t used = 0;
  while (g.live) {
    bool progress = false, allYielded = true;
    for (auto& wave : g.waves) {
      Wave& w = *wave;
      if (w.state == WaveState::kAtBarrier && static_cast<std::int32_t>(g.barrierPhase - w.barrierTarget) >= 0)
        w.state = WaveState::kReady;
      if (w.state != WaveState::kReady) continue;
      progress = true;
      w.yield = false;
      try {
        used += observed ? runWave<true>(launch, w, kWaveTurn, counts) : runWave<false>(launch, w, kWaveTurn, counts);
      } catch (const Fault& f) {
        throw Fault(describe(launch, g, w, f));
      }
      if (!w.yield) allYielded = false;
      if (w.state == WaveState::kEnded) {
        --g.live;
        launch.executed.fetch_add(w.executed, std::memory_order_relaxed);
        completeBarrierIfAll(g);
      }
      if (launch.failed.load(std::memory_order_relaxed)) return GroupState::kStalled;
    }
    if (!progress && g.live) {
      for (auto& wave : g.waves)
        if (wave->state == WaveState::kAtBarrier)
          throw Fault(describe(launch, g, *wave, Fault("waits at a barrier that no other wave will reach")));
    }
    if (used > kGroupTurn || (progress && allYielded && g.live)) return GroupState::kStalled;
  }
  return GroupState::kFinished;
}

}  // namespace sardonyx::sim
