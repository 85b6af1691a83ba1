// See operands.h. LLVM's operand order per format was read off its disassembler; modifiers that are not operands of the
// MCInst (clamp, omod, DPP and SDWA control) are taken from the encoding, as the ISA documents' "Microcode Formats" lay
// them out.
#include "sim/isa/operands.h"

#include <llvm/MC/MCExpr.h>
#include <llvm/MC/MCInst.h>
#include <llvm/MC/MCInstrDesc.h>

#include <algorithm>
#include <cctype>

#include "sim/isa/encoding.h"

namespace sardonyx::sim {
namespace {

struct Builder {
  const llvm::MCInst& inst;
  const llvm::MCInstrDesc& desc;
  const OperandContext& ctx;
  Inst& out;
  std::vector<Operand> uses;             // register, constant and literal sources in MCInst order
  std::vector<std::int64_t> immediates;  // plain immediates in MCInst order
  bool bad = false;

  std::uint64_t flags() const { return desc.TSFlags; }

  Operand reg(unsigned number) {
    Operand o = (*ctx.registers)[number];
    if (!o.present()) bad = true;
    return o;
  }

  static Operand constant(std::int64_t value, int dwords = 2) {
    Operand o;
    o.file = RegFile::kImm;
    o.imm = static_cast<std::uint64_t>(value);
    o.dwords = static_cast<std::uint8_t>(dwords);
    return o;
  }

  Operand vccMask() {
    Operand o;
    o.file = RegFile::kSgpr;
    o.index = kVcc;
    o.dwords = ctx.waveSize == 64 ? 2 : 1;
    return o;
  }

  void addDst(Operand o) {
    if (out.ndst < 3) out.dst[out.ndst++] = o;
  }
  void setSrc(int i, const Operand& o) {
    out.src[i] = o;
    out.nsrc = std::max<std::uint8_t>(out.nsrc, static_cast<std::uint8_t>(i + 1));
  }
  void appendSrc(const Operand& o) {
    if (out.nsrc < 6)
      setSrc(out.nsrc, o);
    else
      bad = true;
  }

  /// Reading the null register gives zero; a write to it goes to a sink.
  static Operand asSource(Operand o) {
    if (o.file == RegFile::kSgpr && o.index == kNullSink) {
      int dwords = o.dwords;
      o = constant(0, dwords);
    }
    return o;
  }

  void collect() {
    auto infos = desc.operands();
    unsigned n = std::min<unsigned>(inst.getNumOperands(), infos.size());
    unsigned defs = desc.getNumDefs();
    bool dpp = flags() & enc::kDpp;
    unsigned mods = 0;
    bool haveMods = false;
    for (unsigned i = 0; i < n; ++i) {
      const llvm::MCOperand& op = inst.getOperand(i);
      int type = infos[i].OperandType;
      bool tied = infos[i].Constraints & (1 << llvm::MCOI::TIED_TO);
      if (i < defs) {
        if (!op.isReg()) {  // an encoding that names no register
          bad = true;
          continue;
        }
        addDst(reg(op.getReg()));
        continue;
      }
      if (dpp && i == defs && tied) continue;  // the old value: what disabled lanes keep anyway
      if (type == enc::kInputMods) {
        if (!op.isImm()) {
          bad = true;
          continue;
        }
        mods = static_cast<unsigned>(op.getImm());
        haveMods = true;
        continue;
      }
      Operand o;
      if (op.isReg()) {
        if (!op.getReg()) continue;
        o = asSource(reg(op.getReg()));
        o.tied = tied;
      } else if (op.isImm() && ((type >= enc::kSrcFirst && type <= enc::kSrcLast))) {
        o = constant(op.getImm());
      } else if (op.isImm()) {
        immediates.push_back(op.getImm());
        continue;
      } else {
        std::int64_t value;
        if (!op.isExpr() || !op.getExpr()->evaluateAsAbsolute(value)) {
          bad = true;
          continue;
        }
        o = constant(value);
      }
      if (haveMods) applyMods(o, mods, uses.empty());
      haveMods = false;
      uses.push_back(o);
    }
  }

  void applyMods(Operand& o, unsigned mods, bool first) {
    o.neg = mods & enc::kNeg;
    o.opSel = mods & enc::kOpSel0;
    o.opSelHi = mods & enc::kOpSel1;
    o.sext = mods & enc::kSext;
    if (flags() & enc::kVop3p) {
      o.negHi = mods & enc::kAbs;
    } else {
      o.abs = mods & enc::kAbs;
      if (o.opSel) o.hi = true;
      if (first && o.opSelHi && out.ndst) out.dst[0].hi = true;
    }
  }

  void implicitVcc() {
    auto has = [&](llvm::ArrayRef<llvm::MCPhysReg> list) {
      return std::any_of(list.begin(), list.end(), [&](unsigned r) { return r == ctx.vcc || r == ctx.vccLo; });
    };
    bool compareToVcc = (flags() & enc::kVopc) && ctx.mnemonic.substr(0, 6) == "v_cmp_";
    if (has(desc.implicit_defs()) || (compareToVcc && out.ndst == 0)) addDst(vccMask());
    if (has(desc.implicit_uses())) appendSrc(vccMask());
  }

  void scalar() {
    out.format = Format::kSalu;
    for (const Operand& o : uses) appendSrc(o);
    for (std::size_t i = 0; i + 1 < immediates.size(); ++i) appendSrc(constant(immediates[i], 1));
    if (!immediates.empty()) out.imm = immediates.back();
  }

  void scalarMemory() {
    out.format = Format::kSmem;
    std::size_t next = 0;
    if (!desc.getNumDefs() && desc.mayStore() && uses.size() >= 2) setSrc(2, uses[next++]);
    if (next < uses.size()) setSrc(0, uses[next++]);
    if (next < uses.size()) setSrc(1, uses[next++]);
    if (immediates.size() >= 2) out.imm = immediates[immediates.size() - 2];
    if (!immediates.empty()) out.cpol = static_cast<std::uint32_t>(immediates.back());
  }

  static bool isVector(const Operand& o) { return o.file == RegFile::kVgpr || o.file == RegFile::kAgpr; }

  void flat() {
    bool scratch = flags() & enc::kFlatScratch;
    out.format = scratch ? Format::kScratch : flags() & enc::kFlatGlobal ? Format::kGlobal : Format::kFlat;
    bool load = out.ndst != 0 && !(flags() & enc::kAtomicRet);
    std::vector<Operand> vectors;
    for (const Operand& o : uses) {
      if (o.tied) continue;
      if (isVector(o))
        vectors.push_back(o);
      else
        setSrc(2, o);
    }
    bool lds = ctx.mnemonic.find("load_lds") != std::string_view::npos;
    bool hasAddress = !(scratch && (ctx.opcodeName.find("_SADDR") != std::string_view::npos ||
                                    ctx.opcodeName.find("_ST_") != std::string_view::npos));
    bool dataFirst = scratch && !load && !lds;
    std::size_t next = 0;
    if (dataFirst && next < vectors.size()) setSrc(1, vectors[next++]);
    if (hasAddress && next < vectors.size()) setSrc(0, vectors[next++]);
    if (!dataFirst && next < vectors.size()) setSrc(1, vectors[next++]);
    if (next != vectors.size()) bad = true;
    if (immediates.size() >= 2) {
      out.imm = signExtend(immediates[immediates.size() - 2], flatOffsetBits());
      out.cpol = static_cast<std::uint32_t>(immediates.back());
    }
  }

  int flatOffsetBits() const {
    switch (ctx.chip->gen) {
      case Gen::kGfx10:
        return 12;
      case Gen::kGfx12:
        return 24;
      default:
        return 13;
    }
  }
  static std::int64_t signExtend(std::int64_t v, int bits) {
    return static_cast<std::int64_t>(static_cast<std::uint64_t>(v) << (64 - bits)) >> (64 - bits);
  }

  void buffer() {
    out.format = Format::kBuffer;
    std::vector<Operand> vectors, scalars;
    bool plainLoad = desc.mayLoad() && !desc.mayStore();
    for (const Operand& o : uses) {
      if (o.tied && plainLoad) continue;  // 16-bit loads keep the other half of their destination
      if (isVector(o))
        vectors.push_back(o);
      else
        scalars.push_back(o);
    }
    // MUBUF/MTBUF (gfx9 and gfx10, gfx11) and VBUFFER (gfx12) keep offen and idxen at different places.
    bool offen, idxen;
    if (ctx.chip->gen == Gen::kGfx12) {
      offen = out.raw[1] >> 30 & 1, idxen = out.raw[1] >> 31 & 1;
    } else if (ctx.chip->gen == Gen::kGfx11) {
      offen = out.raw[1] >> 22 & 1, idxen = out.raw[1] >> 23 & 1;
    } else {
      offen = out.raw[0] >> 12 & 1, idxen = out.raw[0] >> 13 & 1;
    }
    out.imm2 = (offen ? kOffen : 0) | (idxen ? kIdxen : 0);
    bool hasAddress = offen || idxen;
    std::size_t expected = (hasAddress ? 1 : 0);
    bool data = vectors.size() > expected;  // stores and atomics: data first
    std::size_t next = 0;
    if (data && next < vectors.size()) setSrc(1, vectors[next++]);
    if (hasAddress && next < vectors.size()) setSrc(0, vectors[next++]);
    for (std::size_t i = 0; i < scalars.size() && i < 2; ++i) setSrc(2 + static_cast<int>(i), scalars[i]);
    if (!immediates.empty()) out.imm = immediates[0];
    std::size_t policy = 1;
    if (flags() & enc::kMtbuf && immediates.size() > 1)
      out.imm2 |= kTyped | static_cast<int>(immediates[policy++]) << 8;
    if (immediates.size() > policy) out.cpol = static_cast<std::uint32_t>(immediates[policy]);
  }

  void lds() {
    out.format = Format::kDs;
    int next = 0;
    for (const Operand& o : uses)
      if (!o.tied && isVector(o) && next < 3) setSrc(next++, o);
    if (!immediates.empty()) out.imm = immediates[0];
    if (immediates.size() >= 3) out.imm2 = static_cast<std::int32_t>(immediates[1]);
    // The last immediate says that global data share is meant, which these chips reach with ordered counts only.
    if (immediates.size() >= 2 && immediates.back() != 0) bad = true;
  }

  void vector() {
    out.format = flags() & enc::kVop3p ? Format::kVop3p : Format::kValu;
    for (const Operand& o : uses) appendSrc(o);
    if (!immediates.empty()) out.imm = immediates[0];
    bool mai = flags() & enc::kIsMai;
    if ((flags() & (enc::kVop3 | enc::kVop3p)) && !mai) {
      // e64 forms with DPP keep the VOP3 words first and add the DPP word, so the positions hold for them too.
      out.clamp = out.raw[0] >> 15 & 1;
      if (!(flags() & enc::kVop3p)) out.omod = out.raw[1] >> 27 & 3;
    }
    // The addend of a multiply-accumulate is the half that receives the result; LLVM attaches the modifier to the
    // result only.
    for (int i = 0; i < out.nsrc; ++i)
      if (out.src[i].tied && out.src[i].half && out.ndst) out.src[i].hi = out.dst[0].hi;
    if (flags() & enc::kDpp) dpp();
    if (flags() & enc::kSdwa) sdwa();
    implicitVcc();
  }

  Operand temp(const Operand& source, int row) {
    Operand t = source;
    t.file = RegFile::kTemp;
    t.index = static_cast<std::uint16_t>(row);
    return t;
  }

  void dpp() {
    auto d = std::make_unique<Dpp>();
    d->on = true;
    std::uint32_t word = out.raw[flags() & (enc::kVop3 | enc::kVop3p) ? 2 : 1];
    d->is8 = ctx.opcodeName.find("dpp8") != std::string_view::npos;
    if (d->is8) {
      for (int i = 0; i < 8; ++i) d->sel8[i] = word >> (8 + 3 * i) & 7;
      // DPP8 announces itself by the value of the src0 field: 0xe9, or 0xea to read inactive lanes as well.
      d->fetchInactive = (out.raw[0] & 0x1ff) == 0xea || (flags() & enc::kVop3 && (out.raw[1] & 0x1ff) == 0xea);
    } else {
      d->ctrl = word >> 8 & 0x1ff;
      d->fetchInactive = ctx.chip->gen != Gen::kGfx9 && (word >> 18 & 1);
      d->boundCtrl = word >> 19 & 1;
      d->bankMask = word >> 24 & 0xf;
      d->rowMask = word >> 28 & 0xf;
    }
    if (!out.nsrc) {
      bad = true;
      return;
    }
    d->source = out.src[0];
    out.src[0] = temp(out.src[0], 0);
    out.dpp = std::move(d);
  }

  void sdwa() {
    auto s = std::make_unique<Sdwa>();
    s->on = true;
    std::uint32_t word = out.raw[1];
    bool compare = flags() & enc::kVopc;
    if (!compare) {
      s->dstSel = word >> 8 & 7;
      s->dstUnused = word >> 11 & 3;
      out.clamp = word >> 13 & 1;
      out.omod = word >> 14 & 3;
    }
    s->sel[0] = word >> 16 & 7;
    s->sel[1] = word >> 24 & 7;
    for (int i = 0; i < 2 && i < out.nsrc; ++i) {
      if (out.src[i].tied) break;
      s->source[i] = out.src[i];
      out.src[i] = temp(out.src[i], i);
    }
    if (!compare && out.ndst && isVector(out.dst[0]) && out.dst[0].dwords == 1) {  // wider results have no selection
      s->dst = out.dst[0];
      out.dst[0] = temp(out.dst[0], 2);
    }
    out.sdwa = std::move(s);
  }

  void dual() {
    out.format = Format::kVopd;
    if (out.ndst != 2) {
      bad = true;
      return;
    }
    auto second = std::make_unique<Inst>();
    auto count = [](std::string_view m) {
      if (m.find("mov_b32") != std::string_view::npos) return 1;
      if (m.find("fma") != std::string_view::npos || m.find("dot2") != std::string_view::npos) return 3;
      return 2;
    };
    std::string x = dualMnemonic(ctx.opcodeName, false), y = dualMnemonic(ctx.opcodeName, true);
    std::size_t nx = count(x), ny = count(y);
    if (uses.size() != nx + ny) {
      bad = true;
      return;
    }
    second->dst[0] = out.dst[1];
    second->ndst = 1;
    out.ndst = 1;
    for (std::size_t i = 0; i < nx; ++i) appendSrc(uses[i]);
    for (std::size_t i = 0; i < ny; ++i) second->src[second->nsrc++] = uses[nx + i];
    // Each half accumulates into its own destination; LLVM's disassembler names the first half's for both.
    const auto accumulates = [](std::string_view m) { return m == "v_fmac_f32" || m.substr(0, 6) == "v_dot2"; };
    for (Inst* half : {&out, second.get()})
      if (accumulates(half == &out ? x : y)) {
        half->src[2] = asSource(half->dst[0]);
        half->src[2].tied = true;
      }
    if (x == "v_cndmask_b32") appendSrc(vccMask());
    if (y == "v_cndmask_b32") second->src[second->nsrc++] = vccMask();
    out.dual = std::move(second);
  }
};

}  // namespace

std::string dualMnemonic(std::string_view opcodeName, bool second) {
  // V_DUAL_<X>_X_<Y>_gfxNN, where X and Y may end in _e32.
  std::string_view s = opcodeName.substr(7);
  std::size_t cut = s.find("_X_");
  if (cut == std::string_view::npos) return {};
  s = second ? s.substr(cut + 3) : s.substr(0, cut);
  for (std::string_view suffix : {"_gfx1250", "_gfx11", "_gfx12", "_e32"}) {
    std::size_t at = s.rfind(suffix);
    if (at != std::string_view::npos && at + suffix.size() == s.size()) s = s.substr(0, at);
  }
  std::string out = "v_";
  for (char c : s) out += static_cast<char>(std::tolower(static_cast<unsigned char>(c)));
  return out;
}

bool fillOperands(const llvm::MCInst& inst, const llvm::MCInstrDesc& desc, const OperandContext& context, Inst& out) {
  Builder b{inst, desc, context, out, {}, {}};
  b.collect();
  if (b.bad) return false;
  std::uint64_t f = desc.TSFlags;
  if (context.opcodeName.substr(0, 7) == "V_DUAL_")
    b.dual();
  else if (f & enc::kFlat)
    b.flat();
  else if (f & (enc::kMubuf | enc::kMtbuf))
    b.buffer();
  else if (f & enc::kDs)
    b.lds();
  else if (f & enc::kSmrd)
    b.scalarMemory();
  else if (f & (enc::kSop1 | enc::kSop2 | enc::kSopc | enc::kSopk | enc::kSopp))
    b.scalar();
  else if (f & enc::kValu)
    b.vector();
  else
    return false;
  return !b.bad;
}

}  // namespace sardonyx::sim
