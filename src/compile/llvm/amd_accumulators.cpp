#include "compile/llvm/amd_accumulators.h"

#include <llvm/ADT/STLExtras.h>
#include <llvm/Object/ELFObjectFile.h>

#include <memory>
#include <set>
#include <vector>

#include "compile/llvm/amd_disassembler.h"
#include "support/error.h"

namespace sardonyx {
namespace {

using llvm::object::ELF64LE;

constexpr llvm::StringRef kAccumulators = "sdx_own_accumulators", kM0 = "sdx_own_m0";

template <typename T>
T value_of(llvm::Expected<T> e) {
  if (!e) fail(ErrorKind::kCompile, "the compiler's object can't be read: {}", llvm::toString(e.takeError()));
  return std::move(*e);
}

bool keeps_accumulators(const AmdDisassembler& disassembler, llvm::ArrayRef<std::uint8_t> code) {
  std::set<llvm::StringRef> cleared;
  bool kept = true;
  disassembler.each(code, [&](const llvm::MCInst* inst) {
    if (inst == nullptr) {  // unknown instructions could do anything
      kept = false;
      return;
    }
    for (unsigned i = 0; i < disassembler.description(*inst).getNumDefs(); ++i) {
      const llvm::MCOperand& to = inst->getOperand(i);
      if (!to.isReg()) continue;
      const llvm::StringRef name = disassembler.name(*inst), to_name = disassembler.register_name(to.getReg());
      if (!to_name.starts_with("AGPR")) continue;
      const auto operand = [&](unsigned n) {
        return n < inst->getNumOperands() ? inst->getOperand(n) : llvm::MCOperand();
      };
      if (name.starts_with("V_ACCVGPR_WRITE"))
        kept &= operand(1).isImm() && operand(1).getImm() == 0 && cleared.insert(to_name).second;
      else
        kept &= name.starts_with("V_MFMA") && operand(3).isReg() && operand(3).getReg() == to.getReg();
    }
  });
  return kept;
}

/// Whether an instruction that uses M0 although no operand names it is a load to LDS, or has the encoding of older
/// chips whose LDS instructions read M0.
bool is_of_lds(llvm::StringRef name) {
  if (name.contains("_LDS")) return true;
  const bool reads = name.contains("GWS") || name.contains("ADDTID") || name.contains("ORDERED") ||
                     name.contains("APPEND") || name.contains("CONSUME");
  return name.starts_with("DS_") && !reads;
}

bool keeps_m0(const AmdDisassembler& disassembler, llvm::ArrayRef<std::uint8_t> code) {
  bool kept = true;
  disassembler.each(code, [&](const llvm::MCInst* inst) {
    if (inst == nullptr) {
      kept = false;
      return;
    }
    const auto is_m0 = [&](llvm::MCRegister r) { return disassembler.register_name(r).starts_with("M0"); };
    const llvm::StringRef name = disassembler.name(*inst);
    const bool sets = name.starts_with("S_MOV_B32") || name.starts_with("S_ADD_U32");
    for (unsigned i = 0; i < inst->getNumOperands(); ++i)
      if (inst->getOperand(i).isReg() && is_m0(inst->getOperand(i).getReg())) kept &= sets && i == 0;
    const llvm::MCInstrDesc& d = disassembler.description(*inst);
    if (llvm::any_of(d.implicit_uses(), is_m0) || llvm::any_of(d.implicit_defs(), is_m0)) kept &= is_of_lds(name);
  });
  return kept;
}

using Keeps = bool (*)(const AmdDisassembler& disassembler, llvm::ArrayRef<std::uint8_t> code);

/// Whether `keeps` is true of all functions that have a label that begins with `name`.
bool all_keep(std::string_view object, const std::string& chip, llvm::StringRef name, Keeps keeps) {
  const auto elf = value_of(llvm::object::ELFObjectFile<ELF64LE>::create(
      llvm::MemoryBufferRef(llvm::StringRef(object.data(), object.size()), "object")));
  struct Place {
    std::uint64_t section, at;
  };
  const auto place_of = [](const llvm::object::ELFSymbolRef& symbol) {
    return Place{value_of(symbol.getSection())->getIndex(), value_of(symbol.getValue())};
  };
  std::vector<Place> labels;
  for (const llvm::object::ELFSymbolRef symbol : elf.symbols())
    if (value_of(symbol.getName()).starts_with(name)) labels.push_back(place_of(symbol));
  if (labels.empty()) return true;
  const AmdDisassembler disassembler(chip);
  for (const llvm::object::ELFSymbolRef symbol : elf.symbols()) {
    if (symbol.getELFType() != llvm::ELF::STT_FUNC || value_of(symbol.getSection()) == elf.section_end()) continue;
    const Place begin = place_of(symbol);
    const std::uint64_t size = symbol.getSize();
    const auto own = [&](const Place& p) { return p.section == begin.section && p.at - begin.at < size; };
    if (std::erase_if(labels, own) == 0) continue;
    const llvm::StringRef bytes = value_of(value_of(symbol.getSection())->getContents());
    if (begin.at > bytes.size() || size > bytes.size() - begin.at) return false;
    if (!keeps(disassembler, {bytes.bytes_begin() + begin.at, size})) return false;
  }
  return labels.empty();  // one outside of functions could belong to any
}

}  // namespace

bool keeps_own_registers(std::string_view object, const std::string& chip) {
  return all_keep(object, chip, kAccumulators, keeps_accumulators) && all_keep(object, chip, kM0, keeps_m0);
}

}  // namespace sardonyx
