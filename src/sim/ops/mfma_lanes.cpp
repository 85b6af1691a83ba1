// See mfma_lanes.h.
#include "sim/ops/mfma_lanes.h"

namespace sardonyx::sim {

Rows::Rows(Wave& w, const Operand& o, int registers) : count_(registers) {
  if (!isRow(o)) throw Fault("a matrix operand is not in vector registers");
  for (int r = 0; r < registers; ++r) at[r] = w.row(o, r);
}

void Rows::permute(int blgp) {
  if (!blgp) return;
  if (count_ > 8) throw Fault("BLGP is not known for this instruction");
  for (int r = 0; r < count_; ++r) {
    for (int l = 0; l < 64; ++l) {
      int from = blgp == 1 ? l & 31 : blgp == 2 ? l | 32 : blgp == 3 ? (l + 16) & 63 : (l & 15) | (blgp - 4) * 16;
      permuted_[r][l] = at[r][from];
    }
    at[r] = permuted_[r];
  }
}

void unpackSide(const Rows& rows, Element e, int width, int blocks, int k, bool split, float* out) {
  int groups = 64 / width, parts = groups / blocks, perLane = k / parts;
  alignas(64) float lane[64];
  for (int i = 0; i < perLane; ++i) {
    unpack(e, rows.at, i, 64, lane);
    for (int g = 0; g < groups; ++g) {
      int block = g % blocks, part = g / blocks;
      int at = split ? (i / 16) * (k / 2) + part * 16 + i % 16 : part * perLane + i;
      std::memcpy(out + (block * k + at) * width, lane + g * width, static_cast<std::size_t>(width) * 4);
    }
  }
}

namespace {

/// Calls f(register, first lane, offset in the tile) for each run of n lanes of the accumulator.
template <class F>
void forRuns(const Tile& t, F f) {
  int registers = t.m * t.n * t.blocks / 64, groups = 64 / t.n;
  for (int r = 0; r < registers; ++r)
    for (int g = 0; g < groups; ++g) {
      int block, row;
      if (t.m == 4) {
        block = g, row = r;
      } else if (t.m == 16) {
        block = r / 4, row = 4 * g + r % 4;
      } else {
        block = r / 16, row = 8 * (r % 16 / 4) + 4 * g + r % 4;
      }
      f(r, g * t.n, (block * t.m + row) * t.n);
    }
}

}  // namespace

void readAccumulator(Wave& w, const Operand& o, Tile& t) {
  bool integer = t.sum == Sum::kExactInteger;
  auto* to = integer ? reinterpret_cast<std::uint32_t*>(t.ci) : reinterpret_cast<std::uint32_t*>(t.c);
  if (!isRow(o)) {
    std::uint32_t v = scalar32(w, o);
    for (int i = 0; i < t.m * t.n * t.blocks; ++i) to[i] = v;
    return;
  }
  forRuns(
      t, [&](int r, int lane, int at) { std::memcpy(to + at, w.row(o, r) + lane, static_cast<std::size_t>(t.n) * 4); });
}

void writeAccumulator(Wave& w, const Operand& o, const Tile& t) {
  const void* from = t.sum == Sum::kExactInteger ? static_cast<const void*>(t.ci) : t.c;
  forRuns(t, [&](int r, int lane, int at) {
    std::memcpy(w.row(o, r) + lane, static_cast<const std::uint32_t*>(from) + at, static_cast<std::size_t>(t.n) * 4);
  });
  w.mask = w.full;
}

}  // namespace sardonyx::sim
