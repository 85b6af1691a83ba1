// What the tests of matrix instructions share: elements as bits of a lane's registers.
#pragma once
#include <cstdint>
#include <string>
#include <vector>

#include "../formats.h"
#include "lab.h"

struct Numbers {
  std::uint32_t state = 1;
  std::uint32_t next() {
    state ^= state << 13, state ^= state >> 17, state ^= state << 5;
    return state;
  }
};

/// Element `index` of a lane's registers from `reg` on, packed from bit 0.
inline void putElement(Lab& lab, int reg, int lane, int index, int bits, std::uint32_t code) {
  for (int b = 0; b < bits; ++b) {
    int at = index * bits + b;
    std::uint32_t& word = lab.v(reg + at / 32, lane);
    word = (word & ~(1u << (at & 31))) | (code >> b & 1) << (at & 31);
  }
}

inline std::string regs(const char* file, int first, int count) {
  return std::string(file) + (count == 1 ? std::to_string(first)
                                         : "[" + std::to_string(first) + ":" + std::to_string(first + count - 1) + "]");
}

/// A word of D as a number.
inline double value(bool integer, std::uint32_t word) {
  return integer ? static_cast<double>(static_cast<std::int32_t>(word))
                 : static_cast<double>(std::bit_cast<float>(word));
}

/// Where tests put A, B, C and D.
inline constexpr int kA = 2, kB = 34, kC = 64, kD = 128;
