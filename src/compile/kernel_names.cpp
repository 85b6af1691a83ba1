// In a code object, kernels' names are in the tables of symbols' names, in the metadata (MessagePack in a note, as the
// AMDGPU backend's user guide of LLVM describes) and in the hash table of symbols. No section changes its place: new
// names are not longer than the placeholders, and what is left over is zero.
#include "compile/kernel_names.h"

#include <elf.h>

#include <cstdint>
#include <cstring>
#include <span>
#include <vector>

#include "support/error.h"

namespace sardonyx {
namespace {

using Names = std::map<std::string, std::string, std::less<>>;

constexpr std::uint32_t kMetadataNote = 32;  // NT_AMDGPU_METADATA
constexpr std::string_view kPrefix = "sdx_k_";

[[noreturn]] void refuse(std::string_view what) {
  fail(ErrorKind::kCompile, "kernels of compiled code can't be renamed: {}", what);
}

/// Kernels and their descriptors: "NAME" and "NAME.kd". Null if the string is neither.
const std::string* new_name(const Names& names, std::string_view text, std::string_view& suffix) {
  if (text.size() < kKernelNameLength) return nullptr;
  suffix = text.substr(kKernelNameLength);
  const auto it = names.find(text.substr(0, kKernelNameLength));
  return it == names.end() ? nullptr : &it->second;
}

/// An ELF file that is changed in place.
class CodeObject {
 public:
  explicit CodeObject(std::string& bytes) : bytes_(bytes) {
    const auto header = read<Elf64_Ehdr>(0);
    if (std::memcmp(header.e_ident, ELFMAG, SELFMAG) != 0 || header.e_ident[EI_CLASS] != ELFCLASS64)
      refuse("it is not an ELF file of 64 bits");
    for (std::size_t k = 0; k < header.e_shnum; ++k)
      sections_.push_back(
          {header.e_shoff + k * sizeof(Elf64_Shdr), read<Elf64_Shdr>(header.e_shoff + k * sizeof(Elf64_Shdr))});
    for (std::size_t k = 0; k < header.e_phnum; ++k)
      segments_.push_back(
          {header.e_phoff + k * sizeof(Elf64_Phdr), read<Elf64_Phdr>(header.e_phoff + k * sizeof(Elf64_Phdr))});
  }

  void rename(const Names& names) {
    for (const auto& [at, section] : sections_) {
      if (section.sh_type == SHT_STRTAB) rename_strings(section, names);
      if (section.sh_type == SHT_NOTE) rename_metadata(at, section, names);
      if (section.sh_type == SHT_GNU_HASH) refuse("it has a hash table of GNU's form");
    }
    for (const auto& [at, section] : sections_)
      if (section.sh_type == SHT_HASH) rebuild_hash(section);
  }

 private:
  template <typename T>
  T read(std::uint64_t at) const {
    T value;
    std::memcpy(&value, range(at, sizeof(T)).data(), sizeof(T));
    return value;
  }
  template <typename T>
  void write(std::uint64_t at, const T& value) {
    std::memcpy(range(at, sizeof(T)).data(), &value, sizeof(T));
  }
  std::span<char> range(std::uint64_t at, std::uint64_t size) const {
    if (at > bytes_.size() || size > bytes_.size() - at) refuse("it is damaged");
    return {bytes_.data() + at, static_cast<std::size_t>(size)};
  }

  void rename_strings(const Elf64_Shdr& section, const Names& names) {
    const std::span<char> table = range(section.sh_offset, section.sh_size);
    for (std::size_t at = 0; at < table.size();) {
      const char* begin = &table[at];
      const void* end = std::memchr(begin, 0, table.size() - at);
      if (end == nullptr) refuse("a table of strings has no end");
      const std::string text(begin, static_cast<const char*>(end));
      std::string_view suffix;
      if (const std::string* name = new_name(names, text, suffix)) {
        const std::string now = *name + std::string(suffix);
        std::memset(&table[at], 0, text.size());
        std::memcpy(&table[at], now.data(), now.size());
      }
      at += text.size() + 1;
    }
  }

  // Strings of up to 31 bytes have one byte before them, longer ones two; other types have no sizes in bytes.
  static std::string rename_packed(std::string_view packed, const Names& names) {
    std::string out;
    while (!packed.empty()) {
      const std::size_t length = packed.size() > 1 ? static_cast<unsigned char>(packed[1]) : 0;
      std::string_view suffix;
      const std::string* name = nullptr;
      if (packed[0] == '\xd9' && packed.size() - 2 >= length) name = new_name(names, packed.substr(2, length), suffix);
      if (name == nullptr) {
        out += packed[0];
        packed.remove_prefix(1);
        continue;
      }
      const std::string now = *name + std::string(suffix);
      if (now.size() < 32)
        out += static_cast<char>(0xa0 + now.size());
      else
        out += {'\xd9', static_cast<char>(now.size())};
      out += now;
      packed.remove_prefix(2 + length);
    }
    return out;
  }

  void rename_metadata(std::uint64_t header_at, Elf64_Shdr section, const Names& names) {
    auto note = read<Elf64_Nhdr>(section.sh_offset);
    const std::uint64_t before = sizeof(note) + (note.n_namesz + 3) / 4 * 4;
    const auto padded = [](std::uint64_t n) { return (n + 3) / 4 * 4; };
    if (note.n_type != kMetadataNote || before + padded(note.n_descsz) != section.sh_size)
      refuse("its note is not the metadata alone");
    const std::span<char> data = range(section.sh_offset + before, note.n_descsz);
    const std::string now = rename_packed({data.data(), data.size()}, names);
    std::memset(data.data(), 0, data.size());
    std::memcpy(data.data(), now.data(), now.size());
    note.n_descsz = static_cast<Elf64_Word>(now.size());
    write(section.sh_offset, note);
    const std::uint64_t old_size = section.sh_size;
    section.sh_size = before + padded(now.size());
    write(header_at, section);
    for (auto& [at, segment] : segments_)
      if (segment.p_type == PT_NOTE && segment.p_offset == section.sh_offset && segment.p_filesz == old_size) {
        segment.p_filesz = segment.p_memsz = section.sh_size;
        write(at, segment);
      }
  }

  // Source: System V ABI, chapter 5 (hash table).
  static std::uint32_t hash_of(const char* name) {
    std::uint32_t h = 0;
    for (; *name != 0; ++name) {
      h = (h << 4) + static_cast<unsigned char>(*name);
      h ^= (h & 0xf0000000) >> 24;
      h &= 0x0fffffff;
    }
    return h;
  }

  void rebuild_hash(const Elf64_Shdr& table) {
    const Elf64_Shdr symbols = section(table.sh_link), strings = section(symbols.sh_link);
    const auto buckets = read<std::uint32_t>(table.sh_offset), count = read<std::uint32_t>(table.sh_offset + 4);
    const std::uint64_t size = (2 + std::uint64_t{buckets} + count) * sizeof(std::uint32_t);
    if (buckets == 0 || size != table.sh_size || count * sizeof(Elf64_Sym) != symbols.sh_size) refuse("it is damaged");
    const std::span<char> text = range(strings.sh_offset, strings.sh_size);
    if (text.empty() || text.back() != 0) refuse("a table of strings has no end");
    std::vector<std::uint32_t> words(size / sizeof(std::uint32_t));
    words[0] = buckets;
    words[1] = count;
    for (std::uint32_t k = 1; k < count; ++k) {
      const auto name = read<Elf64_Sym>(symbols.sh_offset + k * sizeof(Elf64_Sym)).st_name;
      if (name >= text.size()) refuse("a symbol has no name");
      std::uint32_t* end = &words[2 + hash_of(&text[name]) % buckets];
      while (*end != 0) end = &words[2 + buckets + *end];
      *end = k;
    }
    std::memcpy(range(table.sh_offset, size).data(), words.data(), size);
  }

  Elf64_Shdr section(std::uint32_t number) const {
    if (number >= sections_.size()) refuse("it is damaged");
    return sections_[number].second;
  }

  std::string& bytes_;
  std::vector<std::pair<std::uint64_t, Elf64_Shdr>> sections_;  // and where each is in the file
  std::vector<std::pair<std::uint64_t, Elf64_Phdr>> segments_;
};

// Parameters of a kernel have names that begin with the kernel's.
std::string rename_text(std::string_view text, const Names& names) {
  std::string out;
  while (!text.empty()) {
    const std::size_t at = text.find(kPrefix);
    out += text.substr(0, at);
    if (at == std::string_view::npos) break;
    text.remove_prefix(at);
    const auto it = names.find(text.substr(0, kKernelNameLength));
    out += it == names.end() ? text.substr(0, 1) : it->second;
    text.remove_prefix(it == names.end() ? 1 : kKernelNameLength);
  }
  return out;
}

}  // namespace

std::string kernel_placeholder(std::string_view id) {
  std::string name = std::string(kPrefix) + std::string(id);
  check(name.size() < kKernelNameLength, "{} is too long for a kernel's name", id);
  name.resize(kKernelNameLength, '_');
  return name;
}

std::string rename_kernels(std::string object, TargetKind kind, const Names& names) {
  for (const auto& [placeholder, name] : names)
    check(placeholder.size() == kKernelNameLength && name.size() <= kKernelNameLength && !name.empty(),
          "{} can't be the name of a kernel", name);
  if (kind == TargetKind::kNvptx) return rename_text(object, names);
  check(kind == TargetKind::kAmdgpu, "only kernels of GPUs are renamed");
  CodeObject(object).rename(names);
  return object;
}

}  // namespace sardonyx
