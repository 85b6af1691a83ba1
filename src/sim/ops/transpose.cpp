// Loads that transpose small blocks between lanes, for matrix operands. Every lane loads a run of elements from its own
// address; the block of lanes then hands each lane one column.
//   gfx950, DS_READ_B64_TR_B16 and relatives (CDNA4 ISA, "LDS transpose loads"): blocks of 16 lanes hold a matrix of 16
//   columns, as many lanes to a row as it takes; lane c of the block receives column c.
//   gfx12 wave32, GLOBAL_LOAD_TR_B128: blocks of 8 lanes, 8 elements of 16 bits each, fully transposed. AMD's page
//   "RDNA4 WMMA transpose load builtins" gives the lane map. GLOBAL_LOAD_TR_B64: 8 elements of 8 bits; the half-wave's
//   16 lanes are rows of a 16-column matrix in the order that the function below states (measured on gfx1201 by
//   others).
// The wave64 forms of gfx12 are not documented and stay refused.
#include "sim/exec/fault.h"
#include "sim/ops/addresses.h"
#include "sim/ops/families.h"

namespace sardonyx::sim {
namespace {

using U = std::uint32_t;

/// Loaded data, 128 bits a lane, and the lanes that have it.
struct Block {
  std::uint8_t bytes[64][16];
};

U element(const std::uint8_t* bytes, unsigned index, unsigned bits) {
  unsigned at = index * bits;
  std::uint16_t v = bytes[at / 8];
  if (at % 8 + bits > 8) v = static_cast<std::uint16_t>(v | bytes[at / 8 + 1] << 8);
  return v >> (at % 8) & ((1u << bits) - 1);
}

/// Element k of `lane`'s result comes from lane from(lane, k), position at(lane, k).
template <unsigned kBits, unsigned kCount, class From, class At>
void gather(Wave& w, const Inst& in, const Block& block, From from, At at) {
  forActive(w.mask, [&](int l) {
    std::uint64_t out[2] = {};
    for (unsigned k = 0; k < kCount; ++k) {
      int source = from(l, static_cast<int>(k));
      if (!(w.mask >> source & 1)) throw Fault("a transposing load needs the data of an inactive lane", l);
      std::uint64_t v = element(block.bytes[source], static_cast<unsigned>(at(l, static_cast<int>(k))), kBits);
      unsigned bit = k * kBits;
      out[bit / 64] |= v << (bit % 64);
      if (bit % 64 + kBits > 64) out[1] |= v >> (64 - bit % 64);
    }
    for (unsigned d = 0; d < kBits * kCount / 32; ++d)
      w.row(in.dst[0], static_cast<int>(d))[l] = static_cast<U>(out[d / 2] >> (32 * (d % 2)));
  });
}

template <unsigned kBits, unsigned kCount>
void dsTranspose(Wave& w, const Inst& in) {
  Block block;
  const U* base = w.row(in.src[0]);
  constexpr unsigned size = kBits * kCount / 8;
  forActive(w.mask, [&](int l) {
    U at = base[l] + static_cast<U>(in.imm);
    std::memcpy(block.bytes[l], ldsAccess(w, l, at, size, AccessKind::kRead, size == 12 ? 4 : size), size);
  });
  constexpr int lanesPerRow = 16 / kCount;
  gather<kBits, kCount>(
      w, in, block, [](int l, int k) { return (l & ~15) | (k * lanesPerRow + (l & 15) / static_cast<int>(kCount)); },
      [](int l, int) { return (l & 15) % static_cast<int>(kCount); });
}

void loadBlock(Wave& w, const Inst& in, unsigned size, Block& block) {
  if (!w.wave32) throw Fault("transposing loads of a wave64 are not implemented: their lane map is not documented");
  Row64 at;
  laneAddresses<Segment::kGlobal>(w, in, at);
  forActive(w.mask,
            [&](int l) { std::memcpy(block.bytes[l], globalAccess(w, l, at[l], size, AccessKind::kRead), size); });
}
void globalTranspose16(Wave& w, const Inst& in) {
  Block block;
  loadBlock(w, in, 16, block);
  gather<16, 8>(w, in, block, [](int l, int k) { return (l & ~7) | k; }, [](int l, int) { return l & 7; });
}
void globalTranspose8(Wave& w, const Inst& in) {
  Block block;
  loadBlock(w, in, 8, block);
  gather<8, 8>(
      w, in, block, [](int l, int k) { return (l & 16) | (k & 4) << 1 | (l & 8) >> 1 | (k & 3); },
      [](int l, int) { return l & 7; });
}

}  // namespace

void addTranspose(OpTable& t) {
  t.add("ds_read_b64_tr_b16", dsTranspose<16, 4>, kReadsLane);
  t.add("ds_read_b64_tr_b8", dsTranspose<8, 8>, kReadsLane);
  t.add("ds_read_b64_tr_b4", dsTranspose<4, 16>, kReadsLane);
  t.add("ds_read_b96_tr_b6", dsTranspose<6, 16>, kReadsLane);
  t.add("global_load_tr_b128", globalTranspose16, kReadsLane);
  t.add("global_load_tr_b64", globalTranspose8, kReadsLane);
}

}  // namespace sardonyx::sim
