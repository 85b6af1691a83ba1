// The arithmetic of matrix instructions, apart from where their elements lie in registers: operands are unpacked into a
// Tile, accumulated here, and packed again by mfma.cpp, smfmac.cpp and wmma.cpp.
//
// Numerics. AMD does not publish them in full. What is done here:
//   f32, xf32, f64   one fused multiply-add an element, in the order of k.
//   gfx90a           16-bit types: denormal inputs, intermediate results and outputs are flushed (AMD's "MI200 MFMA
//                    behaviour specifics"); products are added in pairs, pairs of pairs (bf16_1k and f16) and then to
//                    C, each addition rounded to f32, as measured by Xie et al., "MMA-Sim", arXiv 2511.10909.
//   gfx942, gfx950   denormals are kept. Products of a group of 8 (16-bit types), 16 (8-bit types) or 32 (scaled
//                    forms) are exact and summed without rounding; the sum and C are rounded once to f32. The same
//                    paper measured these groups, but there addends are cut off about 24 bits below the largest, which
//                    is not simulated.
//   WMMA             one such group with all of K, rounded once to the type of D.
//   integers         exact modulo 2^32, or saturated by clamp.
// The MODE register is not read: rounding is to nearest even, and denormals are as above. A NaN result is 0x7fc00000.
#pragma once
#include <cstdint>

#include "sim/ops/lanes.h"
#include "sim/ops/small_floats.h"

namespace sardonyx::sim {

/// Types of matrix elements in registers.
enum class Element : std::uint8_t {
  kF32,
  kXf32,
  kF16,
  kBf16,
  kFp8,
  kBf8,
  kFp8Fnuz,
  kBf8Fnuz,
  kFp6,
  kBf6,
  kFp4,
  kI8,
  kU8,
  kI4,
  kU4
};

int bitsOf(Element e);
inline bool isInteger(Element e) { return e >= Element::kI8; }

/// Element `index` of a vector register group of each lane, as float: elements are packed from bit 0 of `first` on,
/// over as many registers as it takes. The lane's sources are rows of `lanes` dwords, `rows[r]` being register r.
void unpack(Element e, const std::uint32_t* const* rows, int index, int lanes, float* out);

/// Order and rounding of the sums.
enum class Sum : std::uint8_t { kFused, kPairs, kGroups, kExactInteger };

struct Tile {
  int m = 0, n = 0, blocks = 1;
  int steps = 0;        ///< products of one element of D: k, or k / 2 of a sparse A
  bool sparse = false;  ///< index says which row of B goes with each element of A
  Sum sum = Sum::kFused;
  bool saturate = false;                 ///< of kExactInteger: to the range of int32 instead of modulo 2^32
  int group = 1;                         ///< of kPairs and kGroups
  int bRows = 0;                         ///< rows of B of one block
  bool scaled = false;                   ///< of kGroups with group 32: aScale and bScale count
  double aScale[4][32];                  ///< [k / 32][row]
  double bScale[4][32];                  ///< [k / 32][column]
  alignas(64) float a[2048];             ///< [block][step][row]
  alignas(64) float b[4096];             ///< [block][k][column]
  alignas(64) std::uint8_t index[2048];  ///< [step][row]: k; sparse forms have one block
  alignas(64) float c[2048];             ///< [block][row][column]; becomes D
  alignas(64) std::int32_t ci[2048];     ///< of kExactInteger
};

/// c += a * b for every block.
void accumulate(Tile& t);
/// As accumulate with kGroups and one group, but not rounded: out[row][column] for the one block.
void exactSums(const Tile& t, double* out);

}  // namespace sardonyx::sim
