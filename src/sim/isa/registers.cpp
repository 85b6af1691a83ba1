// Maps LLVM's register names and hardware encodings to (file, index, width). The encoding's low 10 bits are the index;
// the flags above it tell vector, accumulation and high-half registers apart.
#include "sim/isa/registers.h"

#include <llvm/MC/MCRegisterInfo.h>

#include <algorithm>

namespace sardonyx::sim {
namespace {

constexpr unsigned kIndexMask = 0x3ff, kIsVgpr = 1u << 10, kIsAgpr = 1u << 11, kIsHigh = 1u << 12;

Operand special(Special s, int dwords) {
  Operand o;
  o.file = RegFile::kSpecial;
  o.index = static_cast<std::uint16_t>(s);
  o.dwords = static_cast<std::uint8_t>(dwords);
  return o;
}

Operand scalar(llvm::StringRef name, unsigned index, int dwords) {
  Operand o;
  o.dwords = static_cast<std::uint8_t>(dwords);
  if (name.starts_with("SGPR_NULL")) {
    o.file = RegFile::kSgpr;
    o.index = kNullSink;
  } else if (name.starts_with("M0")) {
    o.file = RegFile::kSgpr;
    o.index = kM0;
  } else if (name.starts_with("SRC_SHARED_BASE")) {
    return special(Special::kSharedBase, dwords);
  } else if (name.starts_with("SRC_SHARED_LIMIT")) {
    return special(Special::kSharedLimit, dwords);
  } else if (name.starts_with("SRC_PRIVATE_BASE")) {
    return special(Special::kPrivateBase, dwords);
  } else if (name.starts_with("SRC_PRIVATE_LIMIT")) {
    return special(Special::kPrivateLimit, dwords);
  } else if (name.starts_with("SRC_VCCZ")) {
    return special(Special::kVccz, 1);
  } else if (name.starts_with("SRC_EXECZ")) {
    return special(Special::kExecz, 1);
  } else if (name.starts_with("SRC_SCC")) {
    return special(Special::kScc, 1);
  } else if (name.starts_with("SGPR") || name.starts_with("TTMP") || name.starts_with("VCC") ||
             name.starts_with("EXEC") || name.starts_with("FLAT_SCR") || name.starts_with("XNACK_MASK")) {
    if (index < 128) {
      o.file = RegFile::kSgpr;
      o.index = static_cast<std::uint16_t>(index);
    }
  }
  return o;
}

}  // namespace

std::vector<Operand> mapRegisters(const llvm::MCRegisterInfo& registers) {
  std::vector<int> bits(registers.getNumRegs(), 0);
  for (const llvm::MCRegisterClass& c : registers.regclasses())
    for (unsigned r : c) bits[r] = std::max<int>(bits[r], c.getSizeInBits());
  std::vector<Operand> out(registers.getNumRegs());
  for (unsigned r = 1; r < registers.getNumRegs(); ++r) {
    llvm::StringRef name = registers.getName(r);
    unsigned code = registers.getEncodingValue(r);
    Operand& o = out[r];
    int dwords = std::max(1, bits[r] / 32);
    if (name.starts_with("SGPR_NULL64")) dwords = 2;
    if (code & (kIsVgpr | kIsAgpr)) {
      o.file = code & kIsAgpr ? RegFile::kAgpr : RegFile::kVgpr;
      o.index = static_cast<std::uint16_t>(code & kIndexMask);
      o.dwords = static_cast<std::uint8_t>(dwords);
      o.hi = (code & kIsHigh) != 0;
      o.half = bits[r] == 16;
    } else {
      o = scalar(name, code & kIndexMask, dwords);
      o.hi = (code & kIsHigh) != 0;
    }
  }
  return out;
}

}  // namespace sardonyx::sim
