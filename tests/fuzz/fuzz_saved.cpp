// libFuzzer target: what Sardonyx wrote and somebody changed. Input: edits (4 bytes of place, 1 of value) of a program
// file, whose checksums are put right again so that what lies after them is reached, and of an entry of the cache.
// A program must be refused with kInvalidModel or kUnsupported, or have constants that can be read; the cache must give
// the blob that was stored, or nothing.
#include <stdlib.h>

#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <string>

#include "../cpp/program/example.h"
#include "compile/cache.h"
#include "compile/compiler.h"
#include "program/program_file.h"
#include "support/error.h"

namespace sardonyx {

namespace {

namespace fs = std::filesystem;

void require(bool holds, const char* what) {
  if (holds) return;
  std::fprintf(stderr, "broken promise: %s\n", what);
  std::abort();
}

std::string contents(const fs::path& file) {
  std::ifstream f(file, std::ios::binary);
  return {std::istreambuf_iterator<char>(f), {}};
}

/// A folder that goes when the process ends, with a program file and a cache of one entry.
struct Saved {
  fs::path folder, entry;
  std::string program, original_entry, blob = std::string(300, 'b') + "lob";
  CacheKey key;

  Saved() {
    std::string name = (fs::exists("/dev/shm") ? "/dev/shm" : fs::temp_directory_path().string()) + "/fuzz-XXXXXX";
    require(::mkdtemp(name.data()) != nullptr, "a folder for files can be made");
    folder = name;
    const auto p = example_program();
    p->target = host_target().arch;
    const auto other = example_program();
    other->target = "gfx942";
    save_programs({p, other}, folder / "p.sdx");
    program = contents(folder / "p.sdx");
    const std::string_view parts[] = {"fuzz"};
    key = cache_key(parts);
    CodeCache(CacheOptions{folder / "cache"}).put(key, blob);
    for (const auto& f : fs::directory_iterator(folder / "cache")) entry = f.path();
    original_entry = contents(entry);
    require(!original_entry.empty(), "an entry is stored");
  }
  ~Saved() {
    std::error_code ignored;
    fs::remove_all(folder, ignored);
  }
};

std::string edited(std::string text, const std::uint8_t* data, std::size_t size) {
  for (; size >= 5; data += 5, size -= 5) {
    std::uint32_t place;
    std::memcpy(&place, data, 4);
    text[place % text.size()] = static_cast<char>(data[4]);
  }
  text.resize(text.size() - std::min<std::size_t>(size, text.size()));  // bytes left over cut the end off
  return text;
}

// The header's layout is in program_file.cpp: sizes at 32, 40 and 48, the checksum at 64.
void fix_checksum(std::string& file) {
  constexpr std::size_t kHeader = 128, kChecksum = 64, kEntry = 48;
  if (file.size() < kHeader) return;
  std::uint64_t sizes[3];
  std::memcpy(sizes, file.data() + 32, sizeof sizes);
  std::memset(file.data() + kChecksum, 0, 32);
  const std::uint64_t body = file.size() - kHeader;
  if (sizes[0] > body || sizes[1] > body || sizes[2] > body / kEntry) return;
  const std::uint64_t rest = sizes[0] + sizes[1] + kEntry * sizes[2];
  if (rest > body) return;
  const std::string_view parts[] = {"program", {file.data(), kHeader}, {file.data() + kHeader, rest}};
  std::memcpy(file.data() + kChecksum, cache_key(parts).bytes.data(), 32);
}

void try_program(std::string file) {
  const auto memory = std::shared_ptr<void>(std::aligned_alloc(64, (file.size() + 64) / 64 * 64), std::free);
  std::memcpy(memory.get(), file.data(), file.size());
  std::shared_ptr<Program> p;
  try {
    p = parse_program({static_cast<const std::byte*>(memory.get()), file.size()}, memory);
  } catch (const Error& e) {
    require(e.kind() == ErrorKind::kInvalidModel || e.kind() == ErrorKind::kUnsupported, e.what());
    return;
  }
  unsigned sum = 0;
  for (const Data& d : p->constants)
    for (std::size_t k = 0; k < d.size; ++k) sum += static_cast<unsigned>(d.bytes[k]);
  static volatile unsigned sink;
  sink = sum;
}

}  // namespace
}  // namespace sardonyx

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  using namespace sardonyx;
  static const Saved saved;
  std::string file = edited(saved.program, data, size);
  fix_checksum(file);
  try_program(std::move(file));
  try_program(std::string(reinterpret_cast<const char*>(data), size));

  std::ofstream(saved.entry, std::ios::binary) << edited(saved.original_entry, data, size);
  const auto got = CodeCache(CacheOptions{saved.folder / "cache"}).get(saved.key);
  require(!got || *got == saved.blob, "the cache gives what was stored, or nothing");
  return 0;
}
