// A linker for x86-64 objects in memory: sections into three ranges (code, constants, data), symbols, relocations.
#include "compile/elf_link.h"

#include <elf.h>
#include <sys/mman.h>
#include <unistd.h>

#include <cstdint>
#include <cstring>
#include <string_view>
#include <vector>

#include "support/error.h"

namespace sardonyx {
namespace {

[[noreturn]] void refuse(std::string_view what) {
  fail(ErrorKind::kCompile,
       "compiled host code can't be linked: {}. Code may call memcpy, memmove, memset, memcmp, libm and its own "
       "functions",
       what);
}

/// An object's bytes, read as arrays; refuses what is out of bounds. Objects are first copied to aligned memory.
class Bytes {
 public:
  explicit Bytes(const std::string& object) : words_((object.size() + 7) / 8), size_(object.size()) {
    std::memcpy(words_.data(), object.data(), object.size());
  }
  template <typename T>
  std::span<const T> array(std::uint64_t offset, std::uint64_t bytes) const {
    if (offset > size_ || bytes > size_ - offset || offset % alignof(T) != 0) refuse("it is damaged");
    return {reinterpret_cast<const T*>(reinterpret_cast<const char*>(words_.data()) + offset), bytes / sizeof(T)};
  }

 private:
  std::vector<std::uint64_t> words_;
  std::size_t size_;
};

enum Range { kCode, kConstants, kData, kRanges };

struct Section {
  const Elf64_Shdr* header = nullptr;
  Range range = kRanges;  // kRanges: not in memory
  std::uint64_t offset = 0;
};

struct Object {
  Bytes bytes;
  std::vector<Section> sections;
  std::span<const Elf64_Sym> symbols;
  std::span<const char> names;

  std::string_view name(const Elf64_Sym& s) const {
    if (s.st_name >= names.size()) refuse("it is damaged");
    const char* begin = names.data() + s.st_name;
    return {begin, strnlen(begin, names.size() - s.st_name)};
  }
};

class Linker {
 public:
  Linker(std::span<const std::string> objects, std::span<const RuntimeSymbol> runtime) {
    for (const RuntimeSymbol& r : runtime) runtime_[r.name] = reinterpret_cast<std::uint64_t>(r.address);
    for (const std::string& o : objects) read(o);
  }
  Linker(const Linker&) = delete;  // sections point into objects_

  std::shared_ptr<void> link(std::unordered_map<std::string, void*>& symbols) {
    count_slots();
    map_memory();
    define();
    for (Object& o : objects_)
      for (const Section& s : o.sections)
        if (s.header->sh_type == SHT_RELA && relevant(o, s)) relocate(o, s);
    protect();
    for (const auto& [name, definition] : globals_)
      symbols[std::string(name)] = reinterpret_cast<void*>(definition.address);
    return memory_;
  }

 private:
  struct Definition {
    std::uint64_t address;
    bool weak;
  };

  void read(const std::string& text) {
    if (text.size() < sizeof(Elf64_Ehdr)) refuse("it is not an ELF object");
    Object& o = objects_.emplace_back(Object{Bytes(text), {}, {}, {}});
    const Elf64_Ehdr& e = o.bytes.array<Elf64_Ehdr>(0, sizeof(Elf64_Ehdr))[0];
    if (std::memcmp(e.e_ident, ELFMAG, SELFMAG) != 0 || e.e_ident[EI_CLASS] != ELFCLASS64 || e.e_type != ET_REL)
      refuse("it is not an ELF object");
    if (e.e_machine != EM_X86_64)
      refuse(fmt::format("it is for machine {} of ELF, and this machine is x86-64", e.e_machine));
    if (e.e_shentsize != sizeof(Elf64_Shdr)) refuse("it is damaged");
    const auto headers = o.bytes.array<Elf64_Shdr>(e.e_shoff, std::uint64_t{e.e_shnum} * sizeof(Elf64_Shdr));
    for (const Elf64_Shdr& h : headers) {
      o.sections.push_back({&h, place(h), 0});
      if (h.sh_type == SHT_INIT_ARRAY || h.sh_type == SHT_PREINIT_ARRAY)
        refuse("it has a global variable with a constructor; make the initialiser constexpr");
      if (h.sh_type == SHT_SYMTAB) {
        o.symbols = o.bytes.array<Elf64_Sym>(h.sh_offset, h.sh_size);
        if (h.sh_link >= headers.size()) refuse("it is damaged");
        o.names = o.bytes.array<char>(headers[h.sh_link].sh_offset, headers[h.sh_link].sh_size);
      }
      Section& s = o.sections.back();
      if (s.range == kRanges) continue;
      if (h.sh_flags & SHF_TLS) refuse("it has thread-local variables");
      if (h.sh_type != SHT_NOBITS) o.bytes.array<char>(h.sh_offset, h.sh_size);
      const std::uint64_t align = std::max<std::uint64_t>(1, h.sh_addralign);
      if ((align & (align - 1)) != 0 || align > 4096 || h.sh_size > kMaxBytes) refuse("it is damaged");
      s.offset = (size_[s.range] + align - 1) & ~(align - 1);
      size_[s.range] = s.offset + h.sh_size;
      if (size_[s.range] > kMaxBytes) refuse("it is larger than 1 GiB");
    }
  }

  static Range place(const Elf64_Shdr& h) {
    // Unwind tables are not needed: nothing throws through this code.
    if (!(h.sh_flags & SHF_ALLOC) || h.sh_type == SHT_X86_64_UNWIND || h.sh_type == SHT_NOTE) return kRanges;
    if (h.sh_flags & SHF_EXECINSTR) return kCode;
    return h.sh_flags & SHF_WRITE ? kData : kConstants;
  }

  static bool relevant(const Object& o, const Section& s) {
    const std::uint32_t target = s.header->sh_info;
    if (target >= o.sections.size()) refuse("it is damaged");
    return o.sections[target].range != kRanges;
  }

  std::span<const Elf64_Rela> relocations(const Object& o, const Section& s) const {
    return o.bytes.array<Elf64_Rela>(s.header->sh_offset, s.header->sh_size);
  }

  // Reserves, for each relocation that may need it, a slot with an address and (for calls) a jump through the slot.
  void count_slots() {
    for (const Object& o : objects_) slots_ += o.symbols.size();
    slot_base_ = (size_[kConstants] + 7) & ~std::uint64_t{7};
    size_[kConstants] = slot_base_ + 8 * slots_;
    jump_base_ = (size_[kCode] + 7) & ~std::uint64_t{7};
    size_[kCode] = jump_base_ + 8 * slots_;
  }

  void map_memory() {
    const auto page = static_cast<std::uint64_t>(::sysconf(_SC_PAGESIZE));
    std::uint64_t total = 0;
    for (int r = 0; r < kRanges; ++r) {
      start_[r] = total;
      total += (size_[r] + page - 1) / page * page;
    }
    total = std::max(total, page);
    void* p = ::mmap(nullptr, total, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (p == MAP_FAILED) fail(ErrorKind::kDevice, "out of memory: {} bytes for compiled code", total);
    memory_ = std::shared_ptr<void>(p, [total](void* m) { ::munmap(m, total); });
    for (int r = 0; r < kRanges; ++r) start_[r] += reinterpret_cast<std::uint64_t>(p);
    for (const Object& o : objects_)
      for (const Section& s : o.sections)
        if (s.range != kRanges && s.header->sh_type != SHT_NOBITS)
          std::memcpy(reinterpret_cast<void*>(address(s)),
                      o.bytes.array<char>(s.header->sh_offset, s.header->sh_size).data(), s.header->sh_size);
  }

  std::uint64_t address(const Section& s) const { return start_[s.range] + s.offset; }

  void define() {
    for (const Object& o : objects_)
      for (const Elf64_Sym& s : o.symbols) {
        const int binding = ELF64_ST_BIND(s.st_info), type = ELF64_ST_TYPE(s.st_info);
        if (binding == STB_LOCAL || s.st_shndx == SHN_UNDEF) continue;
        if (s.st_shndx == SHN_COMMON || type == STT_TLS || type == STT_GNU_IFUNC)
          refuse(fmt::format("'{}' is of a kind that is not supported", o.name(s)));
        const Definition d{symbol_address(o, s), binding == STB_WEAK};
        const auto [it, is_new] = globals_.emplace(o.name(s), d);
        if (is_new || d.weak) continue;
        if (!it->second.weak) refuse(fmt::format("'{}' is defined twice", o.name(s)));
        it->second = d;
      }
  }

  std::uint64_t symbol_address(const Object& o, const Elf64_Sym& s) const {
    if (s.st_shndx == SHN_ABS) return s.st_value;
    if (s.st_shndx >= o.sections.size()) refuse("it is damaged");
    const Section& section = o.sections[s.st_shndx];
    if (section.range == kRanges || s.st_value > section.header->sh_size) refuse("it is damaged");
    return address(section) + s.st_value;
  }

  std::uint64_t resolve(const Object& o, const Elf64_Sym& s) const {
    if (ELF64_ST_BIND(s.st_info) == STB_LOCAL) return symbol_address(o, s);
    const std::string_view name = o.name(s);
    if (const auto it = globals_.find(name); it != globals_.end()) return it->second.address;
    if (const auto it = runtime_.find(name); it != runtime_.end()) return it->second;
    if (const auto dot = name.find('.'); dot != std::string_view::npos)  // RuntimeSymbol::name with a dot
      if (const auto it = runtime_.find(name.substr(0, dot + 1)); it != runtime_.end()) return it->second;
    refuse(fmt::format("'{}' is not defined", name));
  }

  // The index of the slot that holds an address.
  std::uint64_t slot(std::uint64_t value) {
    const auto [it, is_new] = slot_of_.emplace(value, slot_of_.size());
    if (is_new) {
      check(it->second < slots_, "more slots than symbols");
      std::memcpy(reinterpret_cast<void*>(slot_address(it->second)), &value, 8);
      // jmp *slot(%rip), padded with two bytes that are never executed
      unsigned char jump[8] = {0xff, 0x25, 0, 0, 0, 0, 0xcc, 0xcc};
      const std::int64_t distance =
          static_cast<std::int64_t>(slot_address(it->second) - (jump_address(it->second) + 6));
      const auto distance32 = static_cast<std::int32_t>(distance);
      std::memcpy(jump + 2, &distance32, 4);
      std::memcpy(reinterpret_cast<void*>(jump_address(it->second)), jump, 8);
    }
    return it->second;
  }
  std::uint64_t slot_address(std::uint64_t k) const { return start_[kConstants] + slot_base_ + 8 * k; }
  std::uint64_t jump_address(std::uint64_t k) const { return start_[kCode] + jump_base_ + 8 * k; }

  void relocate(const Object& o, const Section& rela) {
    const Section& section = o.sections[rela.header->sh_info];
    for (const Elf64_Rela& r : relocations(o, rela)) {
      const std::uint64_t number = ELF64_R_SYM(r.r_info);
      const auto type = static_cast<std::uint32_t>(ELF64_R_TYPE(r.r_info));
      const std::uint64_t width = type == R_X86_64_64 || type == R_X86_64_PC64 ? 8 : 4;
      if (type == R_X86_64_NONE) continue;
      if (number >= o.symbols.size() || section.header->sh_type == SHT_NOBITS || r.r_offset > section.header->sh_size ||
          width > section.header->sh_size - r.r_offset)
        refuse("it is damaged");
      const std::uint64_t place = address(section) + r.r_offset;
      const std::uint64_t target = resolve(o, o.symbols[number]);
      const auto addend = static_cast<std::uint64_t>(r.r_addend);
      std::uint64_t value = 0;
      switch (type) {
        case R_X86_64_64:
          value = target + addend;
          break;
        case R_X86_64_PC64:
          value = target + addend - place;
          break;
        case R_X86_64_PC32:
        case R_X86_64_PLT32:
          value = target + addend - place;
          // A function of the process may be out of range.
          if (type == R_X86_64_PLT32 && !fits(value)) value = jump_address(slot(target)) + addend - place;
          break;
        case R_X86_64_GOTPCREL:
        case R_X86_64_GOTPCRELX:
        case R_X86_64_REX_GOTPCRELX:
          value = slot_address(slot(target)) + addend - place;
          break;
        default:
          refuse(fmt::format("relocation {} is not supported", type));
      }
      if (width == 4 && !fits(value)) refuse(fmt::format("'{}' is too far away", o.name(o.symbols[number])));
      std::memcpy(reinterpret_cast<void*>(place), &value, width);
    }
  }

  static bool fits(std::uint64_t value) {
    const auto v = static_cast<std::int64_t>(value);
    return v == static_cast<std::int32_t>(v);
  }

  void protect() {
    const auto page = static_cast<std::uint64_t>(::sysconf(_SC_PAGESIZE));
    const int protection[] = {PROT_READ | PROT_EXEC, PROT_READ, PROT_READ | PROT_WRITE};
    for (int r = 0; r < kRanges; ++r) {
      const std::uint64_t bytes = (size_[r] + page - 1) / page * page;
      if (bytes != 0 && ::mprotect(reinterpret_cast<void*>(start_[r]), bytes, protection[r]) != 0)
        fail(ErrorKind::kDevice,
             "the system does not let compiled code be executed ({}); a security policy may forbid it",
             std::strerror(errno));
    }
  }

  static constexpr std::uint64_t kMaxBytes = std::uint64_t{1} << 30;  // so that 32-bit displacements reach everything

  std::vector<Object> objects_;
  std::unordered_map<std::string_view, std::uint64_t> runtime_;
  std::unordered_map<std::string_view, Definition> globals_;
  std::unordered_map<std::uint64_t, std::uint64_t> slot_of_;
  std::uint64_t size_[kRanges] = {}, start_[kRanges] = {};
  std::uint64_t slots_ = 0, slot_base_ = 0, jump_base_ = 0;
  std::shared_ptr<void> memory_;
};

}  // namespace

std::shared_ptr<void> elf_link(std::span<const std::string> objects, std::span<const RuntimeSymbol> runtime,
                               std::unordered_map<std::string, void*>& symbols) {
  return Linker(objects, runtime).link(symbols);
}

}  // namespace sardonyx
