// Waits on the outstanding-operation counters. Results are there at once in this simulator; what a wait does is to
// declare them usable, and exec/checks.cpp fails a use that no wait has covered.
#include "sim/exec/checks.h"
#include "sim/ops/families.h"
#include "sim/ops/lanes.h"

namespace sardonyx::sim {
namespace {

/// s_waitcnt packs all counters into SIMM16: vmcnt [3:0] and [15:14], expcnt [6:4], lgkmcnt [11:8] on gfx9 ([13:8] on
/// gfx10); vmcnt [15:10], lgkmcnt [9:4], expcnt [2:0] on gfx11. Before gfx12, scalar memory shares lgkmcnt with LDS
/// (Counter::kDs).
void waitcnt(Wave& w, const Inst& in) {
  auto v = static_cast<unsigned>(in.imm);
  if (w.chip->gen <= Gen::kGfx10) {
    noteWait(w, Counter::kLoad, (v & 15) | (v >> 14 & 3) << 4);
    noteWait(w, Counter::kExp, v >> 4 & 7);
    noteWait(w, Counter::kDs, v >> 8 & (w.chip->gen == Gen::kGfx9 ? 15 : 63));
  } else {
    noteWait(w, Counter::kLoad, v >> 10 & 63);
    noteWait(w, Counter::kDs, v >> 4 & 63);
    noteWait(w, Counter::kExp, v & 7);
  }
}
template <Counter C>
void waitOne(Wave& w, const Inst& in) {
  noteWait(w, C, static_cast<unsigned>(in.imm) & 63);
}
/// gfx12's combined waits: the first counter in [13:8], LDS in [5:0].
template <Counter C>
void waitTwo(Wave& w, const Inst& in) {
  noteWait(w, C, static_cast<unsigned>(in.imm) >> 8 & 63);
  noteWait(w, Counter::kDs, static_cast<unsigned>(in.imm) & 63);
}
void waitIdle(Wave& w, const Inst&) {
  for (int c = 0; c < static_cast<int>(Counter::kCount); ++c) noteWait(w, static_cast<Counter>(c), 0);
}
/// Dependencies between arithmetic units: always resolved here.
void waitAlu(Wave&, const Inst&) {}

}  // namespace

void addWaits(OpTable& t) {
  t.add("s_waitcnt", waitcnt, kWait);
  t.add("s_waitcnt_vscnt|s_wait_storecnt", waitOne<Counter::kStore>, kWait);
  t.add("s_waitcnt_vmcnt|s_wait_loadcnt", waitOne<Counter::kLoad>, kWait);
  t.add("s_waitcnt_lgkmcnt|s_wait_dscnt", waitOne<Counter::kDs>, kWait);
  t.add("s_waitcnt_expcnt|s_wait_expcnt", waitOne<Counter::kExp>, kWait);
  t.add("s_wait_kmcnt", waitOne<Counter::kKm>, kWait);
  t.add("s_wait_samplecnt", waitOne<Counter::kSample>, kWait);
  t.add("s_wait_bvhcnt", waitOne<Counter::kBvh>, kWait);
  t.add("s_wait_loadcnt_dscnt", waitTwo<Counter::kLoad>, kWait);
  t.add("s_wait_storecnt_dscnt", waitTwo<Counter::kStore>, kWait);
  t.add("s_wait_idle", waitIdle, kWait);
  t.add("s_waitcnt_depctr|s_wait_alu|s_wait_event", waitAlu, kWait);
}

}  // namespace sardonyx::sim
