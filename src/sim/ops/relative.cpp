// Moves whose register numbers M0 shifts (MOVREL), and gfx9's mode that shifts the vector registers of all vector
// instructions (s_set_gpr_idx_*, carried out by exec/gpr_index.cpp). ISA documents, "Relative addressing", "GPR
// indexing".
#include "sim/exec/checks.h"
#include "sim/ops/families.h"
#include "sim/ops/lanes.h"

namespace sardonyx::sim {
namespace {

using U = std::uint32_t;

int scalarIndex(const Wave& w, const Operand& o, U offset) {
  std::int64_t index = std::int64_t{o.index} + static_cast<std::int32_t>(offset);
  if (o.file != RegFile::kSgpr || index < 0 || index + o.dwords > w.sgprs)
    throw Fault("M0 moves a scalar register number to " + std::to_string(index) + ", which the kernel does not have");
  return static_cast<int>(index);
}
Operand vectorAt(Wave& w, const Operand& o, U offset) {
  std::int64_t index = std::int64_t{o.index} + static_cast<std::int32_t>(offset);
  if (o.file != RegFile::kVgpr || index < 0 || index >= w.vgprs)
    throw Fault("M0 moves a vector register number to " + std::to_string(index) + ", which the kernel does not have");
  Operand moved = o;
  moved.index = static_cast<std::uint16_t>(index);
  return moved;
}
void noteScalar(Wave& w, int index, int count) {
  for (int i = 0; i < count; ++i) w.checks->scalarWritten[index + i] = true;
}
void noteVector(Wave& w, const Operand& o) { w.checks->vectorWritten[o.index] |= w.mask; }

/// M0 shifts the source by its low 32 bits (or 10, where the destination has bits 25:16).
U m0(const Wave& w) { return w.s[kM0]; }
U sourceShift(const Wave& w) { return w.s[kM0] & 0x3ff; }
U destinationShift(const Wave& w) { return w.s[kM0] >> 16 & 0x3ff; }

/// LLVM describes a destination that M0 moves as a source in front of the others.
const Operand& movedDst(const Inst& in) { return in.ndst ? in.dst[0] : in.src[0]; }
const Operand& sourceOf(const Inst& in) { return in.ndst ? in.src[0] : in.src[1]; }

void sMovrels(Wave& w, const Inst& in) {
  int from = scalarIndex(w, in.src[0], m0(w));
  if (in.dst[0].dwords == 2)
    setScalar64(w, in.dst[0], w.pair(from));
  else
    setScalar32(w, in.dst[0], w.s[from]);
}
void sMovreld(Wave& w, const Inst& in) {
  const Operand& dst = movedDst(in);
  int to = scalarIndex(w, dst, m0(w));
  if (dst.dwords == 2)
    w.setPair(to, scalar64(w, sourceOf(in)));
  else
    w.s[to] = scalar32(w, sourceOf(in));
  noteScalar(w, to, dst.dwords);
}
void sMovrelsd2(Wave& w, const Inst& in) {
  int from = scalarIndex(w, sourceOf(in), sourceShift(w)), to = scalarIndex(w, movedDst(in), destinationShift(w));
  w.s[to] = w.s[from];
  noteScalar(w, to, 1);
}

void move(Wave& w, const Operand& to, const Operand& from) {
  Row t, out;
  std::memcpy(out, readB32(w, from, t), static_cast<std::size_t>(w.lanes) * 4);
  writeB32(w, to, out);
  noteVector(w, to);
}
void vMovreld(Wave& w, const Inst& in) { move(w, vectorAt(w, movedDst(in), m0(w)), sourceOf(in)); }
void vMovrels(Wave& w, const Inst& in) { move(w, in.dst[0], vectorAt(w, in.src[0], m0(w))); }
void vMovrelsd(Wave& w, const Inst& in) { move(w, vectorAt(w, movedDst(in), m0(w)), vectorAt(w, sourceOf(in), m0(w))); }
void vMovrelsd2(Wave& w, const Inst& in) {
  move(w, vectorAt(w, movedDst(in), destinationShift(w)), vectorAt(w, sourceOf(in), sourceShift(w)));
}
void vSwaprel(Wave& w, const Inst& in) {
  Operand d = vectorAt(w, movedDst(in), destinationShift(w));
  Operand s = vectorAt(w, in.ndst > 1 ? in.dst[1] : sourceOf(in), sourceShift(w));
  Row a, b;
  std::memcpy(a, w.row(d), static_cast<std::size_t>(w.lanes) * 4);
  std::memcpy(b, w.row(s), static_cast<std::size_t>(w.lanes) * 4);
  writeB32(w, d, b);
  writeB32(w, s, a);
  noteVector(w, d);
  noteVector(w, s);
}

/// M0: index in [7:0], which operands it moves in [15:12].
void setIndex(Wave& w, U index) { w.s[kM0] = (w.s[kM0] & ~0xffu) | (index & 0xff); }
void setWhich(Wave& w, U which) { w.s[kM0] = (w.s[kM0] & ~0xf000u) | (which & 15) << 12; }

}  // namespace

void addRelative(OpTable& t) {
  t.add("s_movrels_b32|s_movrels_b64", sMovrels, kNoCheckReads);
  t.add("s_movreld_b32|s_movreld_b64", sMovreld);
  t.add("s_movrelsd_2_b32", sMovrelsd2, kNoCheckReads);
  t.add("v_movreld_b32", vMovreld, kNoCheckReads | kWritesLane);
  t.add("v_movrels_b32", vMovrels, kNoCheckReads | kWritesLane);
  t.add("v_movrelsd_b32", vMovrelsd, kNoCheckReads | kWritesLane);
  t.add("v_movrelsd_2_b32", vMovrelsd2, kNoCheckReads | kWritesLane);
  t.add("v_swaprel_b32", vSwaprel, kNoCheckReads | kWritesLane);
  t.add("s_set_gpr_idx_on", [](Wave& w, const Inst& in) {
    w.gprIndex = true;
    setIndex(w, scalar32(w, in.src[0]));
    setWhich(w, static_cast<U>(in.imm));
  });
  t.add("s_set_gpr_idx_off", [](Wave& w, const Inst&) { w.gprIndex = false; });
  t.add("s_set_gpr_idx_idx", [](Wave& w, const Inst& in) { setIndex(w, scalar32(w, in.src[0])); });
  t.add("s_set_gpr_idx_mode", [](Wave& w, const Inst& in) { setWhich(w, static_cast<U>(in.imm)); });
}

}  // namespace sardonyx::sim
