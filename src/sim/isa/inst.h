// A decoded instruction: independent of chip and encoding, so that one handler serves every chip.
// Written once by the decoder, read by handlers and by the checks.
#pragma once
#include <cstdint>
#include <memory>

namespace sardonyx::sim {

struct Wave;
struct Inst;

/// Executes one instruction for all active lanes of a wave. Throws Fault (exec/fault.h) when the launch must fail.
using Handler = void (*)(Wave&, const Inst&);

/// Where an operand lives. kTemp rows are filled by the DPP, SDWA and dual-issue wrappers: handlers treat them as
/// VGPRs.
enum class RegFile : std::uint8_t { kNone, kSgpr, kVgpr, kAgpr, kTemp, kImm, kSpecial };

/// Indices in the scalar file that every chip shares after decoding (the encodings of M0 and NULL differ by chip).
inline constexpr int kFlatScratch = 102;  // gfx90a: FLAT_SCRATCH_LO/HI are SGPRs
inline constexpr int kVcc = 106;
inline constexpr int kTtmp0 = 108;
inline constexpr int kM0 = 124;
inline constexpr int kExec = 126;
inline constexpr int kNullSink = 128;  // writes to NULL land here; reads of NULL decode as the constant 0
inline constexpr int kScalarFileSize = 160;

/// Operands of RegFile::kSpecial.
enum class Special : std::uint16_t { kSharedBase, kSharedLimit, kPrivateBase, kPrivateLimit, kVccz, kExecz, kScc };

struct Operand {
  RegFile file = RegFile::kNone;
  std::uint8_t dwords = 1;  ///< registers it spans
  std::uint16_t index = 0;  ///< first register, or Special
  bool neg = false;         ///< float negate (VOP3P: of the low half)
  bool abs = false;         ///< float absolute value
  bool sext = false;        ///< SDWA: sign-extend the selected part
  bool hi = false;          ///< 16-bit operand in the upper half (op_sel, or a .h register)
  bool half = false;        ///< names half a register (v1.l, v1.h) and touches no more
  bool opSel = false;       ///< VOP3P op_sel: which half feeds the low result
  bool opSelHi = false;     ///< VOP3P op_sel_hi: which half feeds the high result
  bool negHi = false;       ///< VOP3P neg_hi
  bool tied = false;        ///< repeats the destination (FMAC's addend, D16 loads); a real read
  std::uint64_t imm = 0;    ///< RegFile::kImm: bit pattern; literals of 64-bit operands are already widened

  bool present() const { return file != RegFile::kNone; }
};

/// Encoding family, which decides what src[0..4] mean (see isa/decode_operands.cpp).
enum class Format : std::uint8_t { kSalu, kSmem, kValu, kVop3p, kVopd, kFlat, kGlobal, kScratch, kBuffer, kDs, kOther };

/// What the summary counts.
enum class Category : std::uint8_t {
  kScalar,
  kVector,
  kMatrix,
  kScalarMemory,
  kMemory,
  kLds,
  kWait,
  kBranch,
  kOther,
  kCount
};

/// DPP control as encoded (DPP16) or eight selectors (DPP8).
struct Dpp {
  bool on = false, is8 = false, boundCtrl = false, fetchInactive = false;
  std::uint16_t ctrl = 0;
  std::uint8_t rowMask = 0xf, bankMask = 0xf;
  std::uint8_t sel8[8] = {};
  Operand source;  ///< the register that is permuted; src[0] reads the permuted copy
};

/// SDWA selections (gfx9). sel: 0-3 byte, 4-5 word, 6 dword.
struct Sdwa {
  bool on = false;
  std::uint8_t dstSel = 6, dstUnused = 0, sel[2] = {6, 6};
  Operand source[2], dst;
};

/// A run of registers, for the checks on reads and writes.
struct RegRange {
  static constexpr std::uint8_t kLow = 1, kHigh = 2, kWhole = 3;
  RegFile file = RegFile::kNone;
  std::uint8_t count = 0;
  std::uint16_t index = 0;
  std::uint8_t halves = kWhole;  ///< which halves of each register
};

struct OpInfo;

struct Inst {
  Handler fn = nullptr;
  Handler pre = nullptr;   ///< wrapper before fn (DPP, SDWA); runs after the active mask is set
  Handler post = nullptr;  ///< wrapper after fn (SDWA destination)
  const OpInfo* op = nullptr;
  std::uint64_t pc = 0;
  Operand dst[3];
  Operand src[6];
  std::uint8_t ndst = 0, nsrc = 0;
  std::uint8_t size = 4;  ///< bytes
  Format format = Format::kOther;
  Category category = Category::kOther;
  bool clamp = false;
  std::uint8_t omod = 0;      ///< 0 none, 1 *2, 2 *4, 3 /2
  std::uint8_t counters = 0;  ///< bit mask of Counter this instruction increments
  bool unordered = false;     ///< its result may overtake others: only a wait to zero covers it
  bool isStore = false;       ///< writes memory and returns nothing
  std::int64_t imm = 0;   ///< SIMM16, byte offset of memory instructions, branch distance; VALU: LLVM's first immediate
  std::int32_t imm2 = 0;  ///< second DS offset, MFMA cbsz/abid/blgp packed, ...
  std::uint32_t cpol = 0;     ///< cache policy bits as LLVM gives them (bit 0: glc / return)
  std::uint32_t raw[4] = {};  ///< encoding, for fields that only one family needs
  std::uint8_t nreads = 0, nwrites = 0;
  RegRange reads[10];
  RegRange writes[5];
  std::uint32_t ordinal = 0;  ///< dense number in its code object, for counting
  std::unique_ptr<Dpp> dpp;
  std::unique_ptr<Sdwa> sdwa;
  std::unique_ptr<Inst> dual;  ///< second half of a dual-issue instruction
};

/// Physical outstanding-operation counters. gfx9: vm, lgkm, exp. gfx11: also vs. gfx12: load, store, ds, km, ...
enum class Counter : std::uint8_t { kLoad, kStore, kDs, kKm, kExp, kSample, kBvh, kAsync, kCount };

/// Properties of an operation that the machinery around a handler needs.
enum OpFlags : std::uint32_t {
  kNone = 0,
  kReadsLane = 1,       ///< reads lanes whatever EXEC says (readlane, permute): no check of inactive lanes' contents
  kWritesLane = 2,      ///< handler marks written lanes itself
  kPreservesHi16 = 4,   ///< 16-bit result keeps the other half even where the chip zeroes by default
  kIgnoresExec = 8,     ///< runs for all lanes
  kWait = 16,           ///< counted as a wait
  kBranch = 32,         ///< counted as a branch
  kMatrix = 64,         ///< counted as a matrix operation
  kNoCheckReads = 128,  ///< reads of never-written registers are fine (moves used by spills)
};

struct OpInfo {
  const char* name;
  Handler fn;
  std::uint32_t flags;
};

}  // namespace sardonyx::sim
