// See code_object.h. Layouts: LLVM's "User Guide for AMDGPU Backend", sections "ELF Code Object", "Kernel Descriptor"
// and "Code Object V4/V5 Metadata".
#include "sim/object/code_object.h"

#include <llvm/BinaryFormat/ELF.h>
#include <llvm/BinaryFormat/MsgPackDocument.h>
#include <llvm/BinaryFormat/MsgPackReader.h>
#include <llvm/DebugInfo/DWARF/DWARFContext.h>
#include <llvm/Demangle/Demangle.h>
#include <llvm/Object/ELF.h>
#include <llvm/Object/ELFObjectFile.h>
#include <llvm/Support/MemoryBuffer.h>

#include <algorithm>
#include <cstring>
#include <mutex>

#include "sim/exec/device_memory.h"
#include "support/error.h"
#include "target/chip.h"

namespace sardonyx::sim {

using llvm::object::ELF64LEFile;
using llvm::object::ELF64LEObjectFile;

namespace {

constexpr std::uint64_t kMaxImage = 4ull << 30;

[[noreturn]] void malformed(llvm::Error e) {
  fail(ErrorKind::kInvalidArgument, "malformed code object: {}", llvm::toString(std::move(e)));
}
template <class T>
T must(llvm::Expected<T> e) {
  if (!e) malformed(e.takeError());
  return std::move(*e);
}

/// LLVM's MessagePack document takes only scalars as keys, without a check, and nests as deep as the data does.
bool wellFormed(llvm::StringRef blob) {
  constexpr std::size_t kMaxDepth = 32;
  struct Level {
    bool map;
    std::uint64_t left;  ///< values to come; of a map, keys and values
  };
  std::vector<Level> open;
  llvm::msgpack::Reader reader(llvm::MemoryBufferRef(blob, "metadata"));
  do {
    llvm::msgpack::Object o;
    auto got = reader.read(o);
    if (!got) llvm::consumeError(got.takeError());
    if (!got || !*got) return false;
    if (!open.empty()) {
      Level& level = open.back();
      if (level.map && level.left % 2 == 0 && o.Kind != llvm::msgpack::Type::String) return false;
      --level.left;
    }
    bool map = o.Kind == llvm::msgpack::Type::Map;
    if (map || o.Kind == llvm::msgpack::Type::Array) {
      if (open.size() == kMaxDepth) return false;
      open.push_back({map, map ? 2 * std::uint64_t{o.Length} : std::uint64_t{o.Length}});
    }
    while (!open.empty() && open.back().left == 0) open.pop_back();
  } while (!open.empty());
  return true;
}

/// "_Z5saxpyifPKfPf" is "saxpy", "_Z3addIfEvPT_" is "add<float>".
std::string shownName(const std::string& name) {
  std::string s = llvm::demangle(name);
  if (s == name) return name;
  int depth = 0;
  for (std::size_t i = 0; i < s.size(); ++i) {
    if (s[i] == '<') ++depth;
    if (s[i] == '>') --depth;
    if (s[i] != '(' || depth) continue;
    if (s.compare(i, 21, "(anonymous namespace)") == 0) {
      i += 20;
      continue;
    }
    s.resize(i);
    break;
  }
  return s.substr(0, 5) == "void " ? s.substr(5) : s;  // templates have their result type in front
}

}  // namespace

struct CodeObject::Parsed {
  std::unique_ptr<llvm::MemoryBuffer> buffer;
  std::unique_ptr<ELF64LEObjectFile> file;
  std::unique_ptr<llvm::DWARFContext> dwarf;
  std::mutex mutex;
};

std::uint32_t Kernel::explicitBytes() const {
  std::uint32_t end = 0;
  for (const KernelArg& a : args)
    if (!a.hidden()) end = std::max(end, a.offset + a.size);
  return end;
}

CodeObject::CodeObject(std::string_view bytes, const Chip& chip, int device)
    : chip_(chip), device_(device), parsed_(std::make_unique<Parsed>()) {
  parsed_->buffer = llvm::MemoryBuffer::getMemBufferCopy(llvm::StringRef(bytes.data(), bytes.size()), "code object");
  parsed_->file =
      std::make_unique<ELF64LEObjectFile>(must(ELF64LEObjectFile::create(parsed_->buffer->getMemBufferRef())));
  const auto& header = parsed_->file->getELFFile().getHeader();
  if (header.e_machine != llvm::ELF::EM_AMDGPU)
    fail(ErrorKind::kInvalidArgument, "the code object is for machine {}, not AMDGPU",
         static_cast<int>(header.e_machine));
  int abi = header.e_ident[llvm::ELF::EI_ABIVERSION];
  if (header.e_ident[llvm::ELF::EI_OSABI] != llvm::ELF::ELFOSABI_AMDGPU_HSA ||
      abi < llvm::ELF::ELFABIVERSION_AMDGPU_HSA_V4 || abi > llvm::ELF::ELFABIVERSION_AMDGPU_HSA_V6)
    fail(ErrorKind::kInvalidArgument, "the code object has ABI version {}; versions 4 to 6 of the HSA ABI are executed",
         abi + 2);
  const sardonyx::Chip* target = chip_of_machine(header.e_flags & llvm::ELF::EF_AMDGPU_MACH);
  if (!target || chip.name != target->name)
    fail(ErrorKind::kInvalidArgument, "the code object is for {}, the device is {}",
         target ? target->name : "a chip that is not known", chip.name);
  readSegments(bytes);
  relocate();
  readSymbols();
  readMetadata();
  for (auto& [name, k] : kernels_) finishKernel(*k);
}

CodeObject::~CodeObject() {
  if (base_) DeviceMemory::instance().release(base_);
}

void CodeObject::readSegments(std::string_view bytes) {
  const auto& elf = parsed_->file->getELFFile();
  std::uint64_t end = 0;
  for (const auto& p : must(elf.program_headers())) {
    if (p.p_type != llvm::ELF::PT_LOAD) continue;
    if (p.p_filesz > p.p_memsz || p.p_offset > bytes.size() || p.p_filesz > bytes.size() - p.p_offset ||
        p.p_vaddr > kMaxImage || p.p_memsz > kMaxImage)
      fail(ErrorKind::kInvalidArgument, "malformed code object: a segment lies outside the file");
    end = std::max<std::uint64_t>(end, p.p_vaddr + p.p_memsz);
  }
  if (!end) fail(ErrorKind::kInvalidArgument, "malformed code object: no loadable segment (is it a relocatable file?)");
  size_ = end;
  base_ = DeviceMemory::instance().allocate(size_, MemoryKind::kCode, device_, 0, 4096);
  if (!base_) fail(ErrorKind::kDevice, "no memory to load a code object of {} bytes", size_);
  std::vector<std::pair<std::uint64_t, std::uint64_t>> writable;
  for (const auto& p : must(elf.program_headers())) {
    if (p.p_type != llvm::ELF::PT_LOAD) continue;
    std::memcpy(reinterpret_cast<void*>(base_ + p.p_vaddr), bytes.data() + p.p_offset, p.p_filesz);
    if (p.p_flags & llvm::ELF::PF_W) writable.push_back({base_ + p.p_vaddr, base_ + p.p_vaddr + p.p_memsz});
  }
  DeviceMemory::instance().setReadOnly(base_, std::move(writable));
}

void CodeObject::relocate() {
  const auto& elf = parsed_->file->getELFFile();
  auto sections = must(elf.sections());
  for (const auto& s : sections) {
    if (s.sh_type != llvm::ELF::SHT_RELA || !(s.sh_flags & llvm::ELF::SHF_ALLOC)) continue;
    const auto* symtab = must(elf.getSection(s.sh_link));
    for (const auto& r : must(elf.relas(s))) {
      if (r.r_offset > size_ || size_ - r.r_offset < 8)
        fail(ErrorKind::kInvalidArgument, "malformed code object: a relocation lies outside the image");
      const auto* sym = must(elf.getRelocationSymbol(r, symtab));
      std::uint64_t value = base_ + static_cast<std::uint64_t>(r.r_addend);
      unsigned type = r.getType(false);
      if (type == llvm::ELF::R_AMDGPU_RELATIVE64) {
      } else if (type == llvm::ELF::R_AMDGPU_ABS64 && sym && sym->st_shndx != llvm::ELF::SHN_UNDEF) {
        value += sym->st_value;
      } else {
        fail(ErrorKind::kInvalidArgument, "code object: relocation type {} or an undefined symbol cannot be resolved",
             type);
      }
      std::memcpy(reinterpret_cast<void*>(base_ + r.r_offset), &value, 8);
    }
  }
}

void CodeObject::readSymbols() {
  const auto& elf = parsed_->file->getELFFile();
  for (const auto& s : must(elf.sections())) {
    if (s.sh_type != llvm::ELF::SHT_DYNSYM) continue;
    llvm::StringRef strings = must(elf.getStringTableForSymtab(s));
    for (const auto& sym : must(elf.symbols(&s))) {
      if (sym.st_shndx == llvm::ELF::SHN_UNDEF || sym.st_value >= size_ || sym.st_size > size_ - sym.st_value) continue;
      llvm::StringRef name = must(sym.getName(strings));
      symbols_[name.str()] = {base_ + sym.st_value, sym.st_size};
    }
  }
}

void CodeObject::readMetadata() {
  const auto& elf = parsed_->file->getELFFile();
  for (const auto& p : must(elf.program_headers())) {
    if (p.p_type != llvm::ELF::PT_NOTE) continue;
    llvm::Error error = llvm::Error::success();
    for (const auto& note : elf.notes(p, error)) {
      if (note.getName() != "AMDGPU" || note.getType() != llvm::ELF::NT_AMDGPU_METADATA) continue;
      llvm::msgpack::Document doc;
      llvm::StringRef blob = note.getDescAsStringRef(4);
      if (!wellFormed(blob) || !doc.readFromBlob(blob, false))
        fail(ErrorKind::kInvalidArgument, "malformed code object: metadata is not MessagePack");
      auto& root = doc.getRoot();
      if (!root.isMap()) continue;
      auto kernels = root.getMap().find("amdhsa.kernels");
      if (kernels == root.getMap().end() || !kernels->second.isArray()) continue;
      for (auto& node : kernels->second.getArray()) {
        if (!node.isMap()) continue;
        auto& map = node.getMap();
        auto number = [](llvm::msgpack::MapDocNode& m, llvm::StringRef key) -> std::uint64_t {
          auto it = m.find(key);
          if (it == m.end()) return 0;
          if (it->second.getKind() == llvm::msgpack::Type::UInt) return it->second.getUInt();
          if (it->second.getKind() == llvm::msgpack::Type::Int && it->second.getInt() >= 0)
            return static_cast<std::uint64_t>(it->second.getInt());
          return 0;
        };
        auto text = [](llvm::msgpack::MapDocNode& m, llvm::StringRef key) -> std::string {
          auto it = m.find(key);
          return it != m.end() && it->second.isString() ? it->second.getString().str() : std::string();
        };
        auto k = std::make_unique<Kernel>();
        k->name = text(map, ".name");
        auto descriptor = symbols_.find(text(map, ".symbol"));
        if (descriptor == symbols_.end() || descriptor->second.address + 64 > base_ + size_)
          fail(ErrorKind::kInvalidArgument, "malformed code object: kernel {} has no descriptor", k->name);
        k->descriptor = descriptor->second.address;
        k->kernargBytes = static_cast<std::uint32_t>(number(map, ".kernarg_segment_size"));
        k->waveSize = static_cast<int>(number(map, ".wavefront_size"));
        k->maxWorkgroup = static_cast<std::uint32_t>(number(map, ".max_flat_workgroup_size"));
        auto dynamic = map.find(".uses_dynamic_stack");
        k->dynamicStack = dynamic != map.end() && dynamic->second.getKind() == llvm::msgpack::Type::Boolean &&
                          dynamic->second.getBool();
        auto required = map.find(".reqd_workgroup_size");
        if (required != map.end() && required->second.isArray()) {
          int i = 0;
          for (auto& v : required->second.getArray())
            if (i < 3 && v.getKind() == llvm::msgpack::Type::UInt)
              k->requiredWorkgroup[i++] = static_cast<std::uint32_t>(v.getUInt());
        }
        auto args = map.find(".args");
        if (args != map.end() && args->second.isArray())
          for (auto& a : args->second.getArray()) {
            if (!a.isMap()) continue;
            KernelArg arg;
            arg.offset = static_cast<std::uint32_t>(number(a.getMap(), ".offset"));
            arg.size = static_cast<std::uint32_t>(number(a.getMap(), ".size"));
            arg.kind = text(a.getMap(), ".value_kind");
            if (arg.offset > k->kernargBytes || arg.size > k->kernargBytes - arg.offset)
              fail(ErrorKind::kInvalidArgument, "malformed code object: argument of kernel {} lies outside the segment",
                   k->name);
            k->args.push_back(std::move(arg));
          }
        kernels_[k->name] = std::move(k);
      }
    }
    if (error) malformed(std::move(error));
  }
}

void CodeObject::finishKernel(Kernel& k) {
  k.shown = shownName(k.name);
  // Kernel descriptor, 64 bytes.
  const auto* d = reinterpret_cast<const std::uint8_t*>(k.descriptor);
  auto get = [&](int at, auto& value) { std::memcpy(&value, d + at, sizeof value); };
  std::uint32_t kernarg = 0;
  std::int64_t entry = 0;
  get(0, k.groupBytes);
  get(4, k.privateBytes);
  get(8, kernarg);
  get(16, entry);
  get(44, k.rsrc3);
  get(48, k.rsrc1);
  get(52, k.rsrc2);
  get(56, k.properties);
  get(58, k.preload);
  k.kernargBytes = std::max(k.kernargBytes, kernarg);
  k.entry = k.descriptor + static_cast<std::uint64_t>(entry);
  if (k.entry < base_ || k.entry >= base_ + size_ || (k.entry & 3))
    fail(ErrorKind::kInvalidArgument, "malformed code object: kernel {} starts outside the image", k.name);
  if (k.kernargBytes > (1u << 20))
    fail(ErrorKind::kInvalidArgument, "kernel {} asks for {} bytes of arguments", k.name, k.kernargBytes);
  if (chip_.gen != Gen::kGfx9)
    k.waveSize = k.properties & (1u << 10) ? 32 : 64;  // ENABLE_WAVEFRONT_SIZE32
  else
    k.waveSize = 64;
  if (!k.maxWorkgroup) k.maxWorkgroup = 1024;
  // RDNA's waves of 64 take twice the space for a register, so that descriptors count them in half the granule.
  int granule = k.waveSize == chip_.waveSize ? chip_.vgprEncoding : chip_.vgprEncoding / 2;
  int total = static_cast<int>((k.rsrc1 & 63) + 1) * granule;
  if (chip_.unifiedVgprs) {
    k.vgprs = std::min(total, static_cast<int>((k.rsrc3 & 63) + 1) * 4);  // ACCUM_OFFSET
    k.agprs = total - k.vgprs;
  } else {
    k.vgprs = total;
  }
  k.sgprs = chip_.sgprs;
  auto& image = images_[k.waveSize == 64];
  if (!image) image = std::make_unique<CodeImage>(base_, size_, Decoder::shared(chip_, k.waveSize), this);
  k.image = image.get();
}

const Kernel* CodeObject::kernel(const std::string& name) const {
  auto it = kernels_.find(name);
  return it == kernels_.end() ? nullptr : it->second.get();
}

const DeviceSymbol* CodeObject::symbol(const std::string& name) const {
  auto it = symbols_.find(name);
  return it == symbols_.end() ? nullptr : &it->second;
}

std::string CodeObject::sourceLine(std::uint64_t pc) const {
  std::lock_guard lock(parsed_->mutex);
  if (!parsed_->dwarf) parsed_->dwarf = llvm::DWARFContext::create(*parsed_->file);
  auto kind = llvm::DILineInfoSpecifier(llvm::DILineInfoSpecifier::FileLineInfoKind::RawValue);
  // Instructions that the compiler invented have line 0: then the nearest line before them is the best answer.
  constexpr std::uint64_t kLookBack = 256;
  for (std::uint64_t back = 0; back <= kLookBack && pc - back >= base_; back += 4) {
    auto info =
        parsed_->dwarf->getLineInfoForAddress({pc - back - base_, llvm::object::SectionedAddress::UndefSection}, kind);
    if (!info || info->FileName == llvm::DILineInfo::BadString) return {};
    if (info->Line == 0) continue;
    std::string_view file = info->FileName;
    return fmt::format("{}:{}", file.substr(file.rfind('/') + 1), info->Line);
  }
  return {};
}

}  // namespace sardonyx::sim
