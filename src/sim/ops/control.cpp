// Branches, the program counter, hardware registers, barriers, messages and the end of a wave: SOPP and its relatives.
#include <chrono>

#include "sim/exec/barrier.h"
#include "sim/exec/launch.h"
#include "sim/ops/families.h"
#include "sim/ops/hwreg.h"
#include "sim/ops/lanes.h"

namespace sardonyx::sim {
namespace {

void jump(Wave& w, const Inst& in) {
  w.nextPc += static_cast<std::uint64_t>(static_cast<std::int64_t>(static_cast<std::int16_t>(in.imm)) * 4);
}

template <auto F>
void branchIf(Wave& w, const Inst& in) {
  if (F(w)) jump(w, in);
}

void getpc(Wave& w, const Inst& in) { setScalar64(w, in.dst[0], w.nextPc); }
void setpc(Wave& w, const Inst& in) { w.nextPc = scalar64(w, in.src[0]); }
void swappc(Wave& w, const Inst& in) {
  std::uint64_t target = scalar64(w, in.src[0]);
  setScalar64(w, in.dst[0], w.nextPc);
  w.nextPc = target;
}
void call(Wave& w, const Inst& in) {
  setScalar64(w, in.dst[0], w.nextPc);
  jump(w, in);
}

void endpgm(Wave& w, const Inst&) { w.state = WaveState::kEnded; }
void nothing(Wave&, const Inst&) {}
void sleep(Wave& w, const Inst&) { w.yield = true; }
void trap(Wave&, const Inst& in) {
  throw Fault("the kernel executed s_trap " + std::to_string(in.imm & 0xff) + " (an abort or an assertion)");
}

void barrier(Wave& w, const Inst&) {
  signalBarrier(w);
  waitBarrier(w);
}

/// Split barriers name the workgroup's barrier -1. Named barriers do not exist on the supported chips.
void requireWorkgroupBarrier(std::int64_t id) {
  if (static_cast<std::int32_t>(id) != -1)
    throw Fault("barrier " + std::to_string(static_cast<std::int32_t>(id)) + " is not the workgroup's barrier (-1)");
}
std::int64_t barrierId(Wave& w, const Inst& in) {
  return in.nsrc ? static_cast<std::int32_t>(scalar32(w, in.src[0])) : static_cast<std::int32_t>(w.s[kM0]);
}
void barrierSignal(Wave& w, const Inst& in) {
  requireWorkgroupBarrier(barrierId(w, in));
  signalBarrier(w);
}
void barrierSignalIsFirst(Wave& w, const Inst& in) {
  requireWorkgroupBarrier(barrierId(w, in));
  w.scc = w.group->signalled == 0;
  signalBarrier(w);
}
/// RDNA4 ISA document, S_GET_BARRIER_STATE: signals in [22:16], members in [10:4], valid in [0].
void barrierState(Wave& w, const Inst& in) {
  requireWorkgroupBarrier(barrierId(w, in));
  setScalar32(
      w, in.dst[0],
      static_cast<std::uint32_t>(w.group->signalled) << 16 | static_cast<std::uint32_t>(w.group->live) << 4 | 1);
}
void barrierWait(Wave& w, const Inst& in) {
  requireWorkgroupBarrier(static_cast<std::int16_t>(in.imm));
  waitBarrier(w);
}

/// Field of a hardware register that SIMM16 names: id [5:0], offset [10:6], size - 1 [15:11].
struct Field {
  unsigned id, offset, size;
  std::uint32_t mask;
};
Field field(const Inst& in) {
  auto v = static_cast<unsigned>(in.imm);
  Field f{v & 63, v >> 6 & 31, (v >> 11 & 31) + 1, 0};
  f.mask = f.size == 32 ? ~0u : (1u << f.size) - 1;
  return f;
}
void getreg(Wave& w, const Inst& in) {
  Field f = field(in);
  setScalar32(w, in.dst[0], readHwreg(w, f.id) >> f.offset & f.mask);
}
void setreg(Wave& w, const Inst& in) {
  Field f = field(in);
  std::uint32_t value = scalar32(w, in.src[0]);
  std::uint32_t old = readHwreg(w, f.id);
  writeHwreg(w, f.id, (old & ~(f.mask << f.offset)) | (value & f.mask) << f.offset);
}
void roundMode(Wave& w, const Inst& in) { w.mode = (w.mode & ~0xfu) | (static_cast<std::uint32_t>(in.imm) & 0xf); }
void denormMode(Wave& w, const Inst& in) {
  w.mode = (w.mode & ~0xf0u) | (static_cast<std::uint32_t>(in.imm) & 0xf) << 4;
}

void sendmsg(Wave&, const Inst& in) {
  unsigned message = static_cast<unsigned>(in.imm) & 0xff;
  if (message != 1 && message != 3)
    throw Fault("s_sendmsg " + std::to_string(message) + " has no meaning in a compute kernel");
}
void sendmsgRtn(Wave& w, const Inst& in) {
  unsigned message = static_cast<unsigned>(in.imm) & 0xff;
  std::uint64_t value;
  if (message == 131)
    value = realtimeClock();  // GET_REALTIME
  else if (message == 128 || message == 135)
    value = 0;  // GET_DOORBELL, GET_SE_AID_ID
  else
    throw Fault("s_sendmsg_rtn " + std::to_string(message) + " has no meaning in a compute kernel");
  if (in.dst[0].dwords == 2)
    setScalar64(w, in.dst[0], value);
  else
    setScalar32(w, in.dst[0], static_cast<std::uint32_t>(value));
}

}  // namespace

std::uint64_t realtimeClock() {
  // 100 MHz, as the constant clock of these chips.
  return static_cast<std::uint64_t>(
             std::chrono::duration_cast<std::chrono::nanoseconds>(std::chrono::steady_clock::now().time_since_epoch())
                 .count()) /
         10;
}

void addControl(OpTable& t) {
  t.add("s_branch", jump, kBranch);
  t.add("s_cbranch_scc0", branchIf<([](const Wave& w) { return !w.scc; })>, kBranch);
  t.add("s_cbranch_scc1", branchIf<([](const Wave& w) { return w.scc; })>, kBranch);
  t.add("s_cbranch_vccz", branchIf<([](const Wave& w) { return w.vcc() == 0; })>, kBranch);
  t.add("s_cbranch_vccnz", branchIf<([](const Wave& w) { return w.vcc() != 0; })>, kBranch);
  t.add("s_cbranch_execz", branchIf<([](const Wave& w) { return w.exec() == 0; })>, kBranch);
  t.add("s_cbranch_execnz", branchIf<([](const Wave& w) { return w.exec() != 0; })>, kBranch);
  t.add("s_getpc_b64", getpc, kBranch);
  t.add("s_setpc_b64", setpc, kBranch);
  t.add("s_swappc_b64", swappc, kBranch);
  t.add("s_call_b64", call, kBranch);
  t.add("s_endpgm|s_endpgm_saved", endpgm, kBranch);
  t.add("s_trap", trap);
  t.add("s_barrier", barrier, kWait);
  t.add("s_barrier_signal", barrierSignal, kWait);
  t.add("s_barrier_signal_isfirst", barrierSignalIsFirst, kWait);
  t.add("s_barrier_wait", barrierWait, kWait);
  t.add("s_get_barrier_state", barrierState);
  for (const char* debug :
       {"s_cbranch_cdbgsys", "s_cbranch_cdbguser", "s_cbranch_cdbgsys_or_user", "s_cbranch_cdbgsys_and_user"})
    t.add(debug, nothing, kBranch);  // no debugger sets the conditions
  t.add("s_sleep|s_sleep_var", sleep, kWait);
  t.add("s_getreg_b32", getreg);
  t.add("s_setreg_b32|s_setreg_imm32_b32", setreg);
  t.add("s_round_mode", roundMode);
  t.add("s_denorm_mode", denormMode);
  t.add("s_sendmsg|s_sendmsghalt", sendmsg);
  t.add("s_sendmsg_rtn_b32|s_sendmsg_rtn_b64", sendmsgRtn);
  // Scheduling hints and cache maintenance: no effect on results here, since memory is coherent and execution in order.
  for (const char* hint : {"s_nop", "s_setprio", "s_setkill", "s_clause", "s_delay_alu", "s_inst_prefetch",
                           "s_set_inst_prefetch_distance", "s_icache_inv", "s_code_end", "s_wakeup", "s_ttracedata",
                           "s_ttracedata_imm", "s_version", "s_incperflevel", "s_decperflevel", "s_sethalt"})
    t.add(hint, nothing);
}

}  // namespace sardonyx::sim
