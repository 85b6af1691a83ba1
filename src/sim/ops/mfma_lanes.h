// Where the elements of CDNA's matrix operands lie: AMD Instinct ISA documents, "Matrix Arithmetic Instructions".
//
// A row of D belongs to consecutive lanes, one per column; A and B have m (n) consecutive lanes for each group of K.
// With 64 lanes there are 64 / m such groups; the lower ones are blocks (independent products), the higher ones parts
// of k.
#pragma once
#include "sim/ops/matrix.h"

namespace sardonyx::sim {

/// The rows of an operand of `registers` registers. Throws Fault when it is not in vector registers.
struct Rows {
  const std::uint32_t* at[32];
  Rows(Wave& w, const Operand& o, int registers);
  /// BLGP: which lanes of B the 64 lanes of the multiplier see (ISA documents, "B matrix lane group pattern").
  void permute(int blgp);

 private:
  std::uint32_t permuted_[8][64];
  int count_;
};

/// Unpacks A (width = m) or B (width = n) into `out` [block][k][width]. `perLane`: elements a lane holds. `split`: a
/// lane's elements are two runs of 16 consecutive k, half of all k apart (8-bit types of the f8f6f4 forms).
void unpackSide(const Rows& rows, Element e, int width, int blocks, int k, bool split, float* out);

/// C from src2, or a constant, into t.c or t.ci; t.m, t.n, t.blocks are set.
void readAccumulator(Wave& w, const Operand& o, Tile& t);
/// D, for all 64 lanes: EXEC is ignored.
void writeAccumulator(Wave& w, const Operand& o, const Tile& t);

/// An 8-bit float type as this chip has it.
inline Element on(const Chip& chip, Element e) {
  if (!chip.fp8Fnuz) return e;
  return e == Element::kFp8 ? Element::kFp8Fnuz : e == Element::kBf8 ? Element::kBf8Fnuz : e;
}
/// How many products are summed exactly before one rounding, on gfx942 and later.
inline int groupOf(Element e, int k) { return std::min(bitsOf(e) == 16 ? 8 : 16, k); }

}  // namespace sardonyx::sim
