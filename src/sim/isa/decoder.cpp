// See decoder.h.
#include "sim/isa/decoder.h"

#include <llvm/MC/MCAsmInfo.h>
#include <llvm/MC/MCContext.h>
#include <llvm/MC/MCDisassembler/MCDisassembler.h>
#include <llvm/MC/MCInst.h>
#include <llvm/MC/MCInstPrinter.h>
#include <llvm/MC/MCInstrInfo.h>
#include <llvm/MC/MCRegisterInfo.h>
#include <llvm/MC/MCSubtargetInfo.h>
#include <llvm/MC/MCTargetOptions.h>
#include <llvm/MC/TargetRegistry.h>
#include <llvm/Support/TargetSelect.h>
#include <llvm/Support/raw_ostream.h>

#include <cstring>
#include <map>
#include <mutex>

#include "sim/exec/wrappers.h"
#include "sim/isa/encoding.h"
#include "sim/isa/operands.h"
#include "sim/isa/reg_ranges.h"
#include "sim/isa/registers.h"
#include "sim/ops/table.h"
#include "support/error.h"

namespace sardonyx::sim {
namespace {

std::string_view stripEncoding(std::string_view m) {
  while (!m.empty() && (m.back() == ' ' || m.back() == '\t')) m.remove_suffix(1);
  m = m.substr(0, m.find(' '));  // "scratch_store_dword off,"
  for (std::string_view suffix : {"_dpp8", "_dpp", "_sdwa", "_e64", "_e32"})
    if (m.size() > suffix.size() && m.substr(m.size() - suffix.size()) == suffix) m.remove_suffix(suffix.size());
  return m;
}

}  // namespace

struct Decoder::Impl {
  const Chip& chip;
  int waveSize;
  std::mutex mutex;  // LLVM's disassembler and context are not thread-safe
  llvm::MCTargetOptions options;
  std::unique_ptr<llvm::MCRegisterInfo> registers;
  std::unique_ptr<llvm::MCAsmInfo> asmInfo;
  std::unique_ptr<llvm::MCInstrInfo> instructions;
  std::unique_ptr<llvm::MCSubtargetInfo> subtarget;
  std::unique_ptr<llvm::MCContext> context;
  std::unique_ptr<llvm::MCDisassembler> disassembler;
  std::unique_ptr<llvm::MCInstPrinter> printer;
  std::vector<Operand> operands;
  unsigned vcc = 0, vccLo = 0;

  Impl(const Chip& c, int w) : chip(c), waveSize(w) {}

  /// Encodings on which LLVM's disassembler itself crashes: a literal constant (255) where the encoding has no space
  /// for one, in VOP3 and in buffer offsets; matrix operands of V_MFMA_*_F8F6F4 that are not vector registers.
  bool crashesDisassembler(const std::uint8_t* bytes, std::size_t available) const {
    std::uint32_t word[2];
    if (available < sizeof word) return false;
    std::memcpy(word, bytes, sizeof word);
    constexpr std::uint32_t kLiteral = 255;
    std::uint32_t encoding = word[0] >> 26;
    if (chip.gen == Gen::kGfx9 && encoding == 0x34) {
      if (word[0] >> 16 == 0xd3ac && available >= 16)
        std::memcpy(word, bytes + 8, sizeof word);  // scales, then the operation
      std::uint32_t op = word[0] >> 16 & 0x3ff;
      if ((op == 0x3ad || op == 0x3ae) && (~word[1] & 0x20100)) return true;
      bool compare = op < 0x100;  // the destination is scalar
      return (compare && (word[0] & 0xff) == kLiteral) || (word[1] & 0x1ff) == kLiteral ||
             (word[1] >> 9 & 0x1ff) == kLiteral || (word[1] >> 18 & 0x1ff) == kLiteral;
    }
    return chip.gen != Gen::kGfx12 && (encoding == 0x38 || encoding == 0x3a) && word[1] >> 24 == kLiteral;
  }

  bool disassemble(const std::uint8_t* bytes, std::size_t available, std::uint64_t pc, llvm::MCInst& inst,
                   std::uint64_t& size) {
    if (crashesDisassembler(bytes, available)) return false;
    auto status =
        disassembler->getInstruction(inst, size, llvm::ArrayRef<std::uint8_t>(bytes, available), pc, llvm::nulls());
    if (status != llvm::MCDisassembler::Success || size == 0 || size > available) return false;
    // For some encodings that no assembler makes, LLVM calls the decoding a success but puts constants in the place of
    // registers; its printer would crash on them.
    auto infos = instructions->get(inst.getOpcode()).operands();
    for (unsigned i = 0; i < infos.size() && i < inst.getNumOperands(); ++i) {
      const llvm::MCOperand& op = inst.getOperand(i);
      if (!op.isValid() || (infos[i].OperandType == enc::kRegister && !op.isReg())) return false;
    }
    return true;
  }

  std::uint8_t loadedHalf(const Inst& in, std::string_view mnemonic) const;
  std::uint8_t counters(const llvm::MCInstrDesc& d, const Inst& in, std::string_view mnemonic) const;
  Category category(const llvm::MCInstrDesc& d, const Inst& in) const;
};

Decoder::Decoder(const Chip& chip, int waveSize) : impl_(std::make_unique<Impl>(chip, waveSize)) {
  static const bool initialised = [] {
    LLVMInitializeAMDGPUTargetInfo();
    LLVMInitializeAMDGPUTargetMC();
    LLVMInitializeAMDGPUDisassembler();
    return true;
  }();
  (void)initialised;
  Impl& d = *impl_;
  llvm::Triple triple("amdgcn-amd-amdhsa");
  std::string error;
  const llvm::Target* target = llvm::TargetRegistry::lookupTarget(triple, error);
  check(target != nullptr, "LLVM has no AMDGPU target: {}", error);
  d.registers.reset(target->createMCRegInfo(triple));
  d.asmInfo.reset(target->createMCAsmInfo(*d.registers, triple, d.options));
  d.instructions.reset(target->createMCInstrInfo());
  std::string features = chip.gen == Gen::kGfx9 ? ""
                         : waveSize == 32       ? "+wavefrontsize32,-wavefrontsize64"
                                                : "-wavefrontsize32,+wavefrontsize64";
  // 16-bit operands then name the half of the register that they are (v1.l, v1.h). Code compiled without it has the
  // same encodings and uses a part of them.
  if (chip.gen >= Gen::kGfx11) features += ",+real-true16";
  d.subtarget.reset(target->createMCSubtargetInfo(triple, chip.name, features));
  check(d.subtarget != nullptr, "LLVM does not know {}", chip.name);
  d.context = std::make_unique<llvm::MCContext>(triple, d.asmInfo.get(), d.registers.get(), d.subtarget.get());
  d.disassembler.reset(target->createMCDisassembler(*d.subtarget, *d.context));
  d.printer.reset(
      target->createMCInstPrinter(triple, d.asmInfo->getAssemblerDialect(), *d.asmInfo, *d.instructions, *d.registers));
  check(d.disassembler && d.printer, "LLVM was built without the AMDGPU disassembler");
  d.operands = mapRegisters(*d.registers);
  for (unsigned r = 1; r < d.registers->getNumRegs(); ++r) {
    llvm::StringRef name = d.registers->getName(r);
    if (name == "VCC") d.vcc = r;
    if (name == "VCC_LO") d.vccLo = r;
  }
}

Decoder::~Decoder() = default;

Decoder& Decoder::shared(const Chip& chip, int waveSize) {
  static std::mutex mutex;
  static auto* decoders = new std::map<std::pair<const Chip*, int>, std::unique_ptr<Decoder>>;  // outlives every thread
  std::lock_guard lock(mutex);
  auto& slot = (*decoders)[{&chip, waveSize}];
  if (!slot) slot = std::make_unique<Decoder>(chip, waveSize);
  return *slot;
}

/// Which half of its destination a load writes: d16 loads of one component leave the other half alone, unless the chip
/// clears it.
std::uint8_t Decoder::Impl::loadedHalf(const Inst& in, std::string_view mnemonic) const {
  const auto has = [&](std::string_view part) { return mnemonic.find(part) != std::string_view::npos; };
  if (!in.ndst || !in.counters || !has("d16") || in.dst[0].dwords != 1 || chip.d16LoadsZeroOtherHalf)
    return RegRange::kWhole;
  if (has("format") && mnemonic.substr(mnemonic.size() - 2) != "_x") return RegRange::kWhole;
  return has("d16_hi") || in.dst[0].hi ? RegRange::kHigh : RegRange::kLow;
}

std::uint8_t Decoder::Impl::counters(const llvm::MCInstrDesc& d, const Inst& in, std::string_view mnemonic) const {
  auto bit = [](Counter c) { return static_cast<std::uint8_t>(1u << static_cast<int>(c)); };
  std::uint64_t f = d.TSFlags;
  bool returns = in.ndst != 0 || mnemonic.find("load_lds") != std::string_view::npos || (d.mayLoad() && !d.mayStore());
  std::uint8_t mask = 0;
  switch (in.format) {
    case Format::kSmem:
      return bit(chip.gen == Gen::kGfx12 ? Counter::kKm : Counter::kDs);  // one lgkmcnt before gfx12
    case Format::kDs:
      return bit(Counter::kDs);
    case Format::kFlat:
      if (f & enc::kLgkmCnt) mask |= bit(Counter::kDs);
      [[fallthrough]];
    case Format::kGlobal:
    case Format::kScratch:
    case Format::kBuffer:
      if (!(f & enc::kVmCnt)) return mask;
      mask |= bit(returns || chip.gen == Gen::kGfx9 ? Counter::kLoad : Counter::kStore);
      return mask;
    default:
      return 0;
  }
}

Category Decoder::Impl::category(const llvm::MCInstrDesc& d, const Inst& in) const {
  if (in.op && in.op->flags & kWait) return Category::kWait;
  if (in.op && in.op->flags & kBranch) return Category::kBranch;
  switch (in.format) {
    case Format::kSalu:
      return Category::kScalar;
    case Format::kSmem:
      return Category::kScalarMemory;
    case Format::kDs:
      return Category::kLds;
    case Format::kFlat:
    case Format::kGlobal:
    case Format::kScratch:
    case Format::kBuffer:
      return Category::kMemory;
    default:
      return d.TSFlags & (enc::kIsMai | enc::kIsWmma | enc::kIsSwmmac) && in.ndst && in.dst[0].dwords > 1
                 ? Category::kMatrix
                 : Category::kVector;
  }
}

std::unique_ptr<Inst> Decoder::decode(const std::uint8_t* bytes, std::size_t available, std::uint64_t pc) {
  Impl& d = *impl_;
  auto out = std::make_unique<Inst>();
  out->pc = pc;
  std::lock_guard lock(d.mutex);
  llvm::MCInst inst;
  std::uint64_t size = 0;
  if (!d.disassemble(bytes, available, pc, inst, size)) return out;
  out->size = static_cast<std::uint8_t>(size);
  std::memcpy(out->raw, bytes, std::min<std::size_t>(size, sizeof out->raw));
  const llvm::MCInstrDesc& desc = d.instructions->get(inst.getOpcode());
  llvm::StringRef name = d.instructions->getName(inst.getOpcode());
  const char* printed = d.printer->getMnemonic(inst).first;
  std::string_view mnemonic = stripEncoding(printed ? printed : "");
  OperandContext ctx{&d.chip, d.waveSize, &d.operands, d.vcc, d.vccLo, std::string_view(name.data(), name.size()),
                     mnemonic};
  if (name.contains("_TFE_")) return out;  // loads that report residency: not executed
  if (!fillOperands(inst, desc, ctx, *out)) return out;
  if (out->dual) {
    out->op = findOp(dualMnemonic(ctx.opcodeName, false));
    out->dual->op = findOp(dualMnemonic(ctx.opcodeName, true));
    if (!out->op || !out->dual->op) {
      out->op = nullptr;
      return out;
    }
    out->dual->fn = out->dual->op->fn;
    out->dual->format = Format::kValu;
    attachDual(*out);
  } else {
    // A buffer load to LDS shares its mnemonic with the load to registers.
    bool toLds = out->format == Format::kBuffer && name.contains("_LDS_");
    out->op = findOp(toLds ? std::string(mnemonic) + "_lds" : std::string(mnemonic));
    if (!out->op) return out;
    out->fn = out->op->fn;
  }
  out->category = d.category(desc, *out);
  out->counters = d.counters(desc, *out, mnemonic);
  out->unordered = out->format == Format::kSmem;
  out->isStore = desc.mayStore() && out->ndst == 0;
  if (out->dpp) attachDpp(*out);
  if (out->sdwa) attachSdwa(*out);
  fillRanges(*out, d.waveSize);
  if (out->nwrites == 1) out->writes[0].halves &= d.loadedHalf(*out, mnemonic);
  return out;
}

std::string Decoder::text(const std::uint8_t* bytes, std::size_t available, std::uint64_t pc) {
  Impl& d = *impl_;
  std::lock_guard lock(d.mutex);
  llvm::MCInst inst;
  std::uint64_t size = 0;
  if (!d.disassemble(bytes, available, pc, inst, size)) {
    std::uint32_t word = 0;
    std::memcpy(&word, bytes, std::min<std::size_t>(4, available));
    return fmt::format(".long 0x{:08x}", word);
  }
  std::string s;
  llvm::raw_string_ostream os(s);
  d.printer->printInst(&inst, pc, "", *d.subtarget, os);
  for (char& c : s)
    if (c == '\t') c = ' ';
  std::size_t first = s.find_first_not_of(' ');
  return first == std::string::npos ? s : s.substr(first);
}

}  // namespace sardonyx::sim
