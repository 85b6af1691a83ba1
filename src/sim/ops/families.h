// One function per family of instructions, each in the file of its name. To add a family: a file, a line here, a line
// below.
#pragma once
#include "sim/ops/table.h"

namespace sardonyx::sim {

void addSalu(OpTable& t);            // salu.cpp: scalar moves, arithmetic, bits
void addSaluCompare(OpTable& t);     // salu_compare.cpp: scalar compares and selects
void addControl(OpTable& t);         // control.cpp: branches, program counter, mode, barriers, end
void addWaits(OpTable& t);           // waits.cpp: wait counters
void addSmem(OpTable& t);            // smem.cpp: scalar memory
void addValu32(OpTable& t);          // valu32.cpp: 32-bit vector integers and floats
void addValu64(OpTable& t);          // valu64.cpp: 64-bit vector integers and floats
void addValu16(OpTable& t);          // valu16.cpp: 16-bit vector integers and floats
void addPacked(OpTable& t);          // packed.cpp: two values in one register, mixed-precision multiply-adds
void addCarry(OpTable& t);           // carry.cpp: adds and subtracts with carry, wide multiplies
void addCompare(OpTable& t);         // compare.cpp: vector compares
void addConvert(OpTable& t);         // convert.cpp: conversions between number formats
void addTranscendental(OpTable& t);  // transcendental.cpp: rcp, rsq, sqrt, exp, log, sin, cos, division helpers
void addLane(OpTable& t);            // lane.cpp: readlane and the like
void addSaluFloat(OpTable& t);       // salu_float.cpp: gfx12's scalar half floats and transcendental functions
void addRelative(OpTable& t);        // relative.cpp: moves to and from registers that M0 names
void addRare(OpTable& t);            // rare.cpp: instructions for graphics, and leftovers of older chips
void addDot(OpTable& t);             // dot.cpp: dot products of two to eight elements
void addConvertSmall(OpTable& t);    // convert_small.cpp: 8-bit floats, bfloat16, stochastic rounding
void addConvertScaled(OpTable& t);   // convert_scaled.cpp: gfx950's conversions with a scale
void addMfma(OpTable& t);            // mfma.cpp: matrix products of CDNA
void addSmfmac(OpTable& t);          // smfmac.cpp: the same with a sparse A
void addWmma(OpTable& t);            // wmma.cpp: matrix products of RDNA, also with a sparse A
void addFlat(OpTable& t);            // flat.cpp: global, flat and scratch loads and stores
void addBuffer(OpTable& t);          // buffer.cpp: loads and stores through a resource descriptor
void addBufferTyped(OpTable& t);     // buffer_typed.cpp: buffer loads and stores that convert formats
void addDs(OpTable& t);              // ds.cpp: LDS loads, stores and permutes
void addDsSpecial(OpTable& t);       // ds_special.cpp: append, consume, exchanges of two, masked or, wrap
void addLdsTransfer(OpTable& t);     // lds_transfer.cpp: loads from memory into LDS
void addTranspose(OpTable& t);       // transpose.cpp: transposing loads
void addAtomics(OpTable& t);         // atomics.cpp: atomics on global, flat and LDS memory

inline void addAllFamilies(OpTable& t) {
  addSalu(t);
  addSaluCompare(t);
  addControl(t);
  addWaits(t);
  addSmem(t);
  addValu32(t);
  addValu64(t);
  addValu16(t);
  addPacked(t);
  addCarry(t);
  addCompare(t);
  addConvert(t);
  addTranscendental(t);
  addLane(t);
  addSaluFloat(t);
  addRelative(t);
  addRare(t);
  addDot(t);
  addConvertSmall(t);
  addConvertScaled(t);
  addMfma(t);
  addSmfmac(t);
  addWmma(t);
  addFlat(t);
  addBuffer(t);
  addBufferTyped(t);
  addDs(t);
  addDsSpecial(t);
  addLdsTransfer(t);
  addTranspose(t);
  addAtomics(t);
}

}  // namespace sardonyx::sim
