// Fields of the VOP3 encoding that are not operands.
#pragma once
#include "sim/isa/inst.h"

namespace sardonyx::sim {

/// Encoded as VOP3 (the shorter encodings have no op_sel).
inline bool isVop3(const Inst& in) { return in.raw[0] >> 26 == 0x34 || in.raw[0] >> 26 == 0x35; }
/// The four bits of op_sel; 0 without the field.
inline unsigned opSelBits(const Inst& in) { return isVop3(in) ? in.raw[0] >> 11 & 15 : 0; }

}  // namespace sardonyx::sim
