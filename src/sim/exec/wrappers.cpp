// See wrappers.h. DPP: "Data Parallel Primitives" and SDWA: "Sub-Dword Addressing" in AMD's ISA documents (MI300 ISA,
// chapter 6; RDNA3 ISA, chapter 7).
#include "sim/exec/wrappers.h"

#include "sim/exec/fault.h"
#include "sim/exec/wave.h"

namespace sardonyx::sim {
namespace {

constexpr int kDualRow = 3;

/// Source lane of `lane` under a DPP16 control, or -1 when it lies outside.
int dppLane(const Chip& chip, unsigned ctrl, int lane, int lanes) {
  int row = lane & ~15, in = lane & 15;
  if (ctrl <= 0xff) return (lane & ~3) | (ctrl >> (2 * (lane & 3)) & 3);
  int n = ctrl & 15;
  switch (ctrl & 0x1f0) {
    case 0x100:  // row_shl:1-15
      if (n) return in + n < 16 ? lane + n : -1;
      break;
    case 0x110:  // row_shr
      if (n) return in - n >= 0 ? lane - n : -1;
      break;
    case 0x120:  // row_ror
      if (n) return row | ((in - n) & 15);
      break;
    case 0x150:  // row_newbcast (gfx90a and later), row_share (gfx10 and later): the same operation
      return row | n;
    case 0x160:  // row_xmask
      if (chip.gen != Gen::kGfx9) return row | (in ^ n);
      break;
    default:
      break;
  }
  if (ctrl == 0x140) return row | (15 - in);  // row_mirror
  if (ctrl == 0x141) return lane ^ 7;         // row_half_mirror: reversed within 8 lanes
  if (chip.gen == Gen::kGfx9) {
    switch (ctrl) {
      case 0x130:  // wave_shl:1
        return lane + 1 < lanes ? lane + 1 : -1;
      case 0x134:  // wave_rol:1
        return (lane + 1) % lanes;
      case 0x138:  // wave_shr:1
        return lane - 1;
      case 0x13c:  // wave_ror:1
        return (lane + lanes - 1) % lanes;
      case 0x142:  // row_bcast:15: last lane of each row to the next row
        return lane >= 16 ? row - 1 : -1;
      case 0x143:  // row_bcast:31: lane 31 to rows 2 and 3
        return lane >= 32 ? 31 : -1;
      default:
        break;
    }
  }
  throw Fault("DPP control " + std::to_string(ctrl) + " is not known on this chip");
}

/// Lanes whose row and bank the masks enable.
std::uint64_t maskedLanes(const Dpp& d, int lanes) {
  std::uint64_t on = 0;
  for (int l = 0; l < lanes; ++l)
    if ((d.rowMask >> (l >> 4 & 3) & 1) && (d.bankMask >> (l >> 2 & 3) & 1)) on |= 1ull << l;
  return on;
}

/// Gathers the permuted source into temp row 0 and takes the lanes that DPP disables out of the active mask.
void dppFetch(Wave& w, const Inst& in) {
  const Dpp& d = *in.dpp;
  std::uint64_t exec = w.mask;
  std::uint64_t enabled = d.is8 ? w.full : maskedLanes(d, w.lanes);
  for (int l = 0; l < w.lanes; ++l) {
    int from = d.is8 ? (l & ~7) | d.sel8[l & 7] : dppLane(*w.chip, d.ctrl, l, w.lanes);
    bool valid = from >= 0;
    bool readable = valid && (d.fetchInactive || (exec >> from & 1));
    if (!readable && !(d.boundCtrl || d.is8)) {
      // Out of range or reading a disabled lane: without bound_ctrl the lane writes nothing; with it, it reads zero.
      enabled &= ~(1ull << l);
    }
    for (int k = 0; k < d.source.dwords; ++k) w.temp[k][l] = readable ? w.row(d.source, k)[from] : 0;
  }
  w.mask = exec & enabled;
}

std::uint32_t select(std::uint32_t v, unsigned sel, bool sext) {
  switch (sel) {
    case 0:
    case 1:
    case 2:
    case 3: {
      std::uint32_t b = v >> (8 * sel) & 0xff;
      return sext ? static_cast<std::uint32_t>(static_cast<std::int8_t>(b)) : b;
    }
    case 4:
    case 5: {
      std::uint32_t h = v >> (16 * (sel - 4)) & 0xffff;
      return sext ? static_cast<std::uint32_t>(static_cast<std::int16_t>(h)) : h;
    }
    default:
      return v;
  }
}

void sdwaFetch(Wave& w, const Inst& in) {
  const Sdwa& s = *in.sdwa;
  for (int i = 0; i < 2; ++i) {
    const Operand& o = s.source[i];
    if (!o.present()) continue;
    bool vector = o.file == RegFile::kVgpr || o.file == RegFile::kAgpr;
    std::uint32_t scalar = o.file == RegFile::kSgpr ? w.s[o.index] : static_cast<std::uint32_t>(o.imm);
    const std::uint32_t* from = vector ? w.row(o) : nullptr;
    for (int l = 0; l < w.lanes; ++l) w.temp[i][l] = select(from ? from[l] : scalar, s.sel[i], o.sext);
  }
  if (s.dst.present()) std::memcpy(w.temp[2], w.row(s.dst), static_cast<std::size_t>(w.lanes) * 4);
}

void sdwaMerge(Wave& w, const Inst& in) {
  const Sdwa& s = *in.sdwa;
  if (!s.dst.present()) return;
  std::uint32_t* to = w.row(s.dst);
  for (int l = 0; l < w.lanes; ++l) {
    if (!(w.mask >> l & 1)) continue;
    std::uint32_t r = w.temp[2][l];
    unsigned bits = s.dstSel < 4 ? 8 : s.dstSel < 6 ? 16 : 32;
    unsigned shift = s.dstSel < 4 ? 8 * s.dstSel : s.dstSel < 6 ? 16 * (s.dstSel - 4) : 0;
    if (bits == 32) {
      to[l] = r;
      continue;
    }
    std::uint32_t field = ((1u << bits) - 1) << shift;
    std::uint32_t value = (r << shift) & field;
    if (s.dstUnused == 2) {
      to[l] = (to[l] & ~field) | value;  // UNUSED_PRESERVE
    } else if (s.dstUnused == 1) {       // UNUSED_SEXT: sign above, zero below
      bool sign = value >> (shift + bits - 1) & 1;
      std::uint32_t above = shift + bits == 32 ? 0 : ~0u << (shift + bits);
      to[l] = value | (sign ? above : 0);
    } else {
      to[l] = value;  // UNUSED_PAD
    }
  }
}

void runDual(Wave& w, const Inst& in) {
  // The first half writes a temporary row, so that the second reads the registers as they were.
  const Inst& y = *in.dual;
  std::uint32_t* held = w.temp[kDualRow];
  std::uint32_t* x = w.v + in.imm2 * w.lanes;
  std::memcpy(held, x, static_cast<std::size_t>(w.lanes) * 4);
  in.op->fn(w, in);
  y.fn(w, y);
  std::memcpy(x, held, static_cast<std::size_t>(w.lanes) * 4);
}

}  // namespace

void attachDpp(Inst& in) { in.pre = dppFetch; }

void attachSdwa(Inst& in) {
  in.pre = sdwaFetch;
  in.post = sdwaMerge;
}

void attachDual(Inst& in) {
  in.imm2 = in.dst[0].index;
  in.dst[0].file = RegFile::kTemp;
  in.dst[0].index = kDualRow;
  in.fn = runDual;
}

}  // namespace sardonyx::sim
