// Facts about LLVM's AMDGPU instruction descriptions that its public headers do not carry: the meaning of
// MCInstrDesc::TSFlags and of operand types. Checked by a unit test against a few known instructions.
#pragma once
#include <cstdint>

namespace sardonyx::sim::enc {

constexpr std::uint64_t kSalu = 1ull << 0, kValu = 1ull << 1, kSop1 = 1ull << 2, kSop2 = 1ull << 3, kSopc = 1ull << 4,
                        kSopk = 1ull << 5, kSopp = 1ull << 6, kVop1 = 1ull << 7, kVop2 = 1ull << 8, kVopc = 1ull << 9,
                        kVop3 = 1ull << 10, kVop3p = 1ull << 12, kSdwa = 1ull << 14, kDpp = 1ull << 15,
                        kMubuf = 1ull << 17, kMtbuf = 1ull << 18, kSmrd = 1ull << 19, kFlat = 1ull << 24,
                        kDs = 1ull << 25, kVmCnt = 1ull << 32, kExpCnt = 1ull << 33, kLgkmCnt = 1ull << 34,
                        kFlatGlobal = 1ull << 51, kIsMai = 1ull << 54, kFlatScratch = 1ull << 56,
                        kAtomicNoRet = 1ull << 57, kAtomicRet = 1ull << 58, kIsWmma = 1ull << 59,
                        kTiedNotRead = 1ull << 60, kIsSwmmac = 1ull << 63;

// MCOI operand types.
constexpr int kRegister = 2, kImmediate = 1, kPcRel = 4, kUnknown = 0;
// Operand types of the target.
constexpr int kSrcFirst = 13, kSrcLast = 43, kInlineSplitBarrier = 37, kKimm32 = 38, kKimm16 = 39, kKimm64 = 40,
              kInputMods = 45, kSdwaVopcDst = 46;
// Bits of a kInputMods operand.
constexpr unsigned kNeg = 1, kAbs = 2, kOpSel0 = 4, kOpSel1 = 8, kSext = 16;

}  // namespace sardonyx::sim::enc
