// See reg_ranges.h. A 64-bit scalar address or a 128-bit resource counts as one range.
#include "sim/isa/reg_ranges.h"

namespace sardonyx::sim {
namespace {

std::uint8_t halves(const Operand& o) {
  if (!o.half) return RegRange::kWhole;
  return o.hi ? RegRange::kHigh : RegRange::kLow;
}

void addRead(Inst& in, const Operand& o) {
  if (o.file != RegFile::kSgpr && o.file != RegFile::kVgpr && o.file != RegFile::kAgpr) return;
  if (in.nreads < 10) in.reads[in.nreads++] = {o.file, o.dwords, o.index, halves(o)};
}

void addWrite(Inst& in, const Operand& o) {
  if (o.file != RegFile::kSgpr && o.file != RegFile::kVgpr && o.file != RegFile::kAgpr) return;
  if (o.file == RegFile::kSgpr && o.index == kNullSink) return;
  if (in.nwrites < 5) in.writes[in.nwrites++] = {o.file, o.dwords, o.index, halves(o)};
}

}  // namespace

void fillRanges(Inst& in, int waveSize) {
  for (int i = 0; i < in.nsrc; ++i) addRead(in, in.src[i]);
  for (int i = 0; i < in.ndst; ++i) addWrite(in, in.dst[i]);
  if (in.dpp) addRead(in, in.dpp->source);
  if (in.sdwa) {
    for (const Operand& o : in.sdwa->source) addRead(in, o);
    addWrite(in, in.sdwa->dst);
  }
  if (in.dual) {
    if (in.nwrites < 5) in.writes[in.nwrites++] = {RegFile::kVgpr, 1, static_cast<std::uint16_t>(in.imm2)};
    for (int i = 0; i < in.dual->nsrc; ++i) addRead(in, in.dual->src[i]);
    for (int i = 0; i < in.dual->ndst; ++i) addWrite(in, in.dual->dst[i]);
  }
}

}  // namespace sardonyx::sim
