// Kernels' metadata (AMDGPU code object version 5) and instructions.
#include "compile/llvm/amd_report.h"

#include <llvm/BinaryFormat/MsgPackDocument.h>
#include <llvm/Object/ELFObjectFile.h>

#include <algorithm>
#include <array>

#include "compile/llvm/amd_disassembler.h"
#include "support/error.h"

namespace sardonyx {
namespace {

using llvm::object::ELF64LE;

[[noreturn]] void damaged(const char* what) {
  fail(ErrorKind::kInvalidModel, "a GPU's code object is damaged ({}); compile the model again", what);
}

template <typename T>
T value_of(llvm::Expected<T> e, const char* what) {
  if (e) return std::move(*e);
  llvm::consumeError(e.takeError());
  damaged(what);
}

int integer(llvm::msgpack::MapDocNode& kernel, const char* key) {
  const auto it = kernel.find(key);
  if (it == kernel.end()) return 0;
  if (it->second.getKind() == llvm::msgpack::Type::UInt) return static_cast<int>(it->second.getUInt());
  if (it->second.getKind() == llvm::msgpack::Type::Int) return static_cast<int>(it->second.getInt());
  damaged("its metadata");
}

std::vector<KernelCode> metadata_of(const llvm::object::ELFFile<ELF64LE>& file) {
  std::vector<KernelCode> out;
  for (const auto& header : value_of(file.program_headers(), "its headers")) {
    if (header.p_type != llvm::ELF::PT_NOTE) continue;
    llvm::Error error = llvm::Error::success();
    for (const auto& note : file.notes(header, error)) {
      if (note.getName() != "AMDGPU" || note.getType() != llvm::ELF::NT_AMDGPU_METADATA) continue;
      llvm::msgpack::Document document;
      if (!document.readFromBlob(note.getDescAsStringRef(4), false) || !document.getRoot().isMap())
        damaged("its metadata");
      auto& root = document.getRoot().getMap();
      const auto kernels = root.find("amdhsa.kernels");
      if (kernels == root.end() || !kernels->second.isArray()) continue;
      for (auto& node : kernels->second.getArray()) {
        if (!node.isMap()) damaged("its metadata");
        auto& m = node.getMap();
        KernelCode k;
        const auto name = m.find(".name");
        if (name == m.end() || !name->second.isString()) damaged("its metadata");
        k.symbol = name->second.getString().str();
        k.vgprs = integer(m, ".vgpr_count");
        k.agprs = integer(m, ".agpr_count");
        k.sgprs = integer(m, ".sgpr_count");
        k.vgpr_spills = integer(m, ".vgpr_spill_count");
        k.sgpr_spills = integer(m, ".sgpr_spill_count");
        k.scratch = static_cast<std::uint32_t>(integer(m, ".private_segment_fixed_size"));
        k.lds = static_cast<std::uint32_t>(integer(m, ".group_segment_fixed_size"));
        out.push_back(std::move(k));
      }
    }
    if (error) {
      llvm::consumeError(std::move(error));
      damaged("its notes");
    }
  }
  return out;
}

void count(const AmdDisassembler& disassembler, llvm::ArrayRef<std::uint8_t> code, KernelCode& k) {
  constexpr std::array<llvm::StringRef, 5> kMatrix = {"V_MFMA", "V_SMFMAC", "V_WMMA", "V_SWMMAC", "V_DOT"};
  disassembler.each(code, [&](const llvm::MCInst* inst) {
    if (inst == nullptr) return;
    ++k.instructions;
    for (const llvm::StringRef m : kMatrix) k.matrix_instructions += disassembler.name(*inst).starts_with(m);
  });
}

}  // namespace

std::vector<KernelCode> read_amd(std::string_view object, const std::string& chip) {
  const auto elf = value_of(llvm::object::ELFObjectFile<ELF64LE>::create(
                                llvm::MemoryBufferRef(llvm::StringRef(object.data(), object.size()), "code object")),
                            "it is no ELF file");
  std::vector<KernelCode> kernels = metadata_of(elf.getELFFile());
  const AmdDisassembler disassembler(chip);
  for (const llvm::object::ELFSymbolRef symbol : elf.symbols()) {
    const llvm::StringRef name = value_of(symbol.getName(), "a symbol's name");
    const auto k = std::find_if(kernels.begin(), kernels.end(), [&](const KernelCode& c) { return name == c.symbol; });
    if (k == kernels.end() || k->code_bytes > 0 || symbol.getELFType() != llvm::ELF::STT_FUNC) continue;
    k->code_bytes = symbol.getSize();
    const auto section = value_of(symbol.getSection(), "a symbol's section");
    if (section == elf.section_end()) damaged("a symbol's section");
    const llvm::StringRef bytes = value_of(section->getContents(), "its code");
    const std::uint64_t at = value_of(symbol.getAddress(), "a symbol's address") - section->getAddress();
    if (at > bytes.size() || k->code_bytes > bytes.size() - at) damaged("a symbol's place");
    count(disassembler, {bytes.bytes_begin() + at, k->code_bytes}, *k);
  }
  return kernels;
}

}  // namespace sardonyx
