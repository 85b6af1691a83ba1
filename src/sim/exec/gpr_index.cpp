// See gpr_index.h. MI300 ISA document, "GPR Indexing"; the compiler uses it to index arrays that live in registers.
#include "sim/exec/gpr_index.h"

#include "sim/exec/fault.h"
#include "sim/isa/reg_ranges.h"

namespace sardonyx::sim {

std::unique_ptr<Inst> withGprIndex(const Inst& in, const Wave& w) {
  if (in.format != Format::kValu && in.format != Format::kVop3p) return nullptr;
  if (in.dpp || in.sdwa) throw Fault("GPR indexing of a DPP or SDWA instruction is not implemented");
  auto out = std::make_unique<Inst>();
  out->fn = in.fn, out->op = in.op, out->pc = in.pc;
  out->ndst = in.ndst, out->nsrc = in.nsrc, out->size = in.size, out->format = in.format, out->category = in.category;
  out->clamp = in.clamp, out->omod = in.omod, out->imm = in.imm, out->imm2 = in.imm2, out->cpol = in.cpol;
  out->ordinal = in.ordinal;
  std::copy(std::begin(in.raw), std::end(in.raw), out->raw);
  std::copy(std::begin(in.dst), std::end(in.dst), out->dst);
  std::copy(std::begin(in.src), std::end(in.src), out->src);
  std::uint32_t index = w.s[kM0] & 0xff, which = w.s[kM0] >> 12;
  auto shift = [&](Operand& o, std::uint32_t bit) {
    if (o.file == RegFile::kVgpr && (which & bit)) o.index = static_cast<std::uint16_t>(o.index + index);
  };
  for (int i = 0; i < 3 && i < out->nsrc; ++i)
    // A source that repeats the destination is moved with it.
    shift(out->src[i], out->src[i].tied ? 8 : 1u << i);
  for (int i = 0; i < out->ndst; ++i) shift(out->dst[i], 8);
  fillRanges(*out, w.lanes);
  return out;
}

}  // namespace sardonyx::sim
