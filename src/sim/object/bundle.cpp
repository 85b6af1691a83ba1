// clang's offload bundles: many code objects in one image, each with a target name such as
// "hipv4-amdgcn-amd-amdhsa--gfx942:xnack-". Layout: clang's "Clang Offload Bundler" documentation.
#include <llvm/BinaryFormat/ELF.h>
#include <llvm/Object/OffloadBundle.h>
#include <llvm/Support/MemoryBuffer.h>

#include <cstring>

#include "sim/object/code_object.h"
#include "support/error.h"

namespace sardonyx::sim {
namespace {

constexpr std::string_view kMagic = "__CLANG_OFFLOAD_BUNDLE__", kCompressedMagic = "CCOB";
constexpr std::uint64_t kMaxEntries = 1024, kMaxImageBytes = 4ull << 30, kMaxDecompressedBytes = 1ull << 30;

template <class T>
T readAt(std::string_view s, std::size_t at) {
  if (at > s.size() || s.size() - at < sizeof(T))
    fail(ErrorKind::kInvalidArgument, "malformed offload bundle: it ends early");
  T v;
  std::memcpy(&v, s.data() + at, sizeof v);
  return v;
}

/// The size after decompression that the header claims: LLVM allocates it before it looks at the data. Header: magic,
/// version and method (16 bits each); then, in 64 bits from version 3 on and in 32 before, the file's size (not in
/// version 1) and the size after decompression.
void checkClaimedSize(std::string_view bytes) {
  auto version = readAt<std::uint16_t>(bytes, 4);
  std::uint64_t size = version >= 3   ? readAt<std::uint64_t>(bytes, 16)
                       : version == 2 ? readAt<std::uint32_t>(bytes, 12)
                                      : readAt<std::uint32_t>(bytes, 8);
  if (size > kMaxDecompressedBytes)
    fail(ErrorKind::kInvalidArgument, "compressed offload bundle: it claims {} bytes, more than the {} that are taken",
         size, kMaxDecompressedBytes);
}

/// "gfx942:sramecc+:xnack-" fits a chip whose settings are "gfx942:sramecc+:xnack-" unless a named feature has the
/// other sign.
bool fits(std::string_view target, const Chip& chip) {
  std::string_view processor = target.substr(0, target.find(':'));
  if (processor != chip.name) return false;
  std::string_view have = chip.archName;
  for (std::size_t at = target.find(':'); at != std::string_view::npos;) {
    std::size_t next = target.find(':', at + 1);
    std::string_view feature = target.substr(at, next == std::string_view::npos ? next : next - at);
    if (have.find(feature) == std::string_view::npos) return false;
    at = next;
  }
  return true;
}

}  // namespace

bool isOffloadBundle(std::string_view bytes) {
  return bytes.substr(0, kMagic.size()) == kMagic || bytes.substr(0, kCompressedMagic.size()) == kCompressedMagic;
}

std::string extractFromBundle(std::string_view bytes, const Chip& chip) {
  std::string decompressed;
  if (bytes.substr(0, kCompressedMagic.size()) == kCompressedMagic) {
    checkClaimedSize(bytes);
    auto buffer = llvm::MemoryBuffer::getMemBuffer(llvm::StringRef(bytes.data(), bytes.size()), "bundle", false);
    auto out = llvm::object::CompressedOffloadBundle::decompress(*buffer, nullptr);
    if (!out) fail(ErrorKind::kInvalidArgument, "compressed offload bundle: {}", llvm::toString(out.takeError()));
    decompressed = (*out)->getBuffer().str();
    bytes = decompressed;
  }
  if (bytes.substr(0, kMagic.size()) != kMagic) fail(ErrorKind::kInvalidArgument, "not an offload bundle");
  auto count = readAt<std::uint64_t>(bytes, kMagic.size());
  if (count > kMaxEntries) fail(ErrorKind::kInvalidArgument, "malformed offload bundle: {} entries", count);
  std::size_t at = kMagic.size() + 8;
  std::string seen;
  std::string_view best;
  bool found = false;
  std::size_t bestLength = 0;
  for (std::uint64_t i = 0; i < count; ++i) {
    auto offset = readAt<std::uint64_t>(bytes, at), size = readAt<std::uint64_t>(bytes, at + 8),
         length = readAt<std::uint64_t>(bytes, at + 16);
    at += 24;
    if (length > bytes.size() - at || offset > bytes.size() || size > bytes.size() - offset)
      fail(ErrorKind::kInvalidArgument, "malformed offload bundle: entry {} lies outside it", i);
    std::string_view id = bytes.substr(at, length);
    at += length;
    seen += (seen.empty() ? "" : ", ") + std::string(id);
    std::size_t gfx = id.find("gfx");
    if (gfx == std::string_view::npos || id.substr(0, 4) == "host" || !fits(id.substr(gfx), chip)) continue;
    // The entry that names more features is the more specific one.
    if (!found || length > bestLength) best = bytes.substr(offset, size), bestLength = length, found = true;
  }
  if (!found)
    fail(ErrorKind::kInvalidArgument, "the offload bundle has no code for {}; it has {}", chip.archName, seen);
  return std::string(best);
}

std::size_t imageSize(const void* image) {
  const auto* p = static_cast<const char*>(image);
  if (std::memcmp(p, "\177ELF", 4) == 0) {
    llvm::ELF::Elf64_Ehdr h;
    std::memcpy(&h, p, sizeof h);
    std::uint64_t end = sizeof h;
    auto extend = [&](std::uint64_t v) { end = std::max(end, v); };
    if (h.e_shnum && h.e_shentsize == sizeof(llvm::ELF::Elf64_Shdr)) {
      extend(h.e_shoff + static_cast<std::uint64_t>(h.e_shnum) * h.e_shentsize);
      for (unsigned i = 0; i < h.e_shnum; ++i) {
        llvm::ELF::Elf64_Shdr s;
        std::memcpy(&s, p + h.e_shoff + static_cast<std::uint64_t>(i) * h.e_shentsize, sizeof s);
        if (s.sh_type != llvm::ELF::SHT_NOBITS) extend(s.sh_offset + s.sh_size);
      }
    }
    return end <= kMaxImageBytes ? end : 0;
  }
  if (std::memcmp(p, kMagic.data(), kMagic.size()) == 0) {
    std::uint64_t count, end = 0;
    std::memcpy(&count, p + kMagic.size(), 8);
    if (count > kMaxEntries) return 0;
    std::size_t at = kMagic.size() + 8;
    for (std::uint64_t i = 0; i < count; ++i) {
      std::uint64_t e[3];
      std::memcpy(e, p + at, sizeof e);
      if (e[2] > 4096) return 0;
      at += 24 + e[2];
      end = std::max({end, e[0] + e[1], static_cast<std::uint64_t>(at)});
    }
    return end <= kMaxImageBytes ? end : 0;
  }
  if (std::memcmp(p, kCompressedMagic.data(), kCompressedMagic.size()) == 0) {
    std::uint16_t version;
    std::memcpy(&version, p + 4, 2);
    if (version == 2) {
      std::uint32_t size;
      std::memcpy(&size, p + 8, 4);
      return size;
    }
    if (version == 3) {
      std::uint64_t size;
      std::memcpy(&size, p + 8, 8);
      return size <= kMaxImageBytes ? size : 0;
    }
  }
  return 0;
}

}  // namespace sardonyx::sim
