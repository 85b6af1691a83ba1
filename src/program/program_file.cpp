// See program_file.h.
#include "program/program_file.h"

#include <fcntl.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <cerrno>
#include <cstring>
#include <fstream>
#include <map>
#include <set>
#include <string_view>

#include "compile/compiler.h"
#include "compile/hash.h"
#include "program/serialize.h"
#include "program_format.h"
#include "support/error.h"
#include "support/mapped_file.h"
#include "support/tasks.h"
#include "support/version.h"
#include "target/chip.h"

namespace sardonyx {
namespace {

namespace fs = std::filesystem;

static_assert(std::endian::native == std::endian::little, "headers are read and written as they lie in memory");

constexpr std::size_t kAlignment = 64;                           // bytes; what vector kernels need
constexpr std::size_t kMaxPrograms = 64;                         // in a file
constexpr std::uint64_t kMaxStructure = std::uint64_t{1} << 30;  // bytes; a large model has a few million

struct Header {
  char magic[8] = {'S', 'D', 'X', 'P', 'R', 'O', 'G', '\n'};
  std::uint32_t format = SARDONYX_PROGRAM_FORMAT;
  char version[20] = {};  // version of the writer, padded with zeros
  std::uint64_t target_size = 0, structure_size = 0, constants = 0;
  std::uint64_t file_size = 0;
  Hash checksum{};         // of the header (with zeros here), target, structure and table
  std::uint64_t next = 0;  // offset of the next program's header; 0: none
  std::uint8_t reserved[24] = {};
};
static_assert(sizeof(Header) == 128);

struct ConstantEntry {
  std::uint64_t offset = 0, size = 0;
  Hash checksum{};
};
static_assert(sizeof(ConstantEntry) == 48);

std::string_view text(std::span<const std::byte> b) { return {reinterpret_cast<const char*>(b.data()), b.size()}; }

Hash hash(std::string_view kind, std::string_view bytes) {
  const std::string_view parts[] = {kind, bytes};
  return hash_of_parts(parts);
}

Hash checksum_of(Header header, std::string_view rest) {
  header.checksum = {};
  const std::string_view parts[] = {"program", {reinterpret_cast<const char*>(&header), sizeof header}, rest};
  return hash_of_parts(parts);
}

std::uint64_t aligned(std::uint64_t n) { return (n + kAlignment - 1) / kAlignment * kAlignment; }

struct Entries {
  Header header;
  std::string rest;  // target, structure and table
  std::vector<ConstantEntry> table;
};

// Everything except the constants' bytes. `constants`: the program and index of each constant that is written, by
// offset.
std::vector<Entries> entries_of(const std::vector<std::shared_ptr<const Program>>& programs,
                                std::vector<std::pair<std::uint64_t, const Data*>>& constants) {
  std::vector<Entries> all;
  std::vector<std::string> structures;
  std::uint64_t end = 0;
  std::set<std::string> targets;
  for (const auto& p : programs) {
    structures.push_back(serialize(*p));
    if (structures.back().size() > kMaxStructure) fail(ErrorKind::kUnsupported, "the program is too large to be saved");
    if (!targets.insert(p->target).second)
      fail(ErrorKind::kInvalidArgument, "a program file holds one program for {}", p->target);
    Entries e;
    e.header.target_size = p->target.size();
    e.header.structure_size = structures.back().size();
    e.header.constants = p->constants.size();
    const std::string_view version_text = version();
    std::copy_n(version_text.data(), std::min(version_text.size(), sizeof e.header.version - 1), e.header.version);
    end += sizeof(Header) + p->target.size() + structures.back().size() + p->constants.size() * sizeof(ConstantEntry);
    if (all.size() + 1 < programs.size()) end = e.header.next = aligned(end);
    all.push_back(std::move(e));
  }
  std::map<std::pair<Hash, std::uint64_t>, std::uint64_t> known;
  for (std::size_t k = 0; k < programs.size(); ++k)
    for (const Data& d : programs[k]->constants) {
      ConstantEntry c;
      c.size = d.size;
      c.checksum = hash("constant", text({d.bytes, d.size}));
      const auto [it, fresh] = known.emplace(std::make_pair(c.checksum, c.size), aligned(end));
      c.offset = it->second;
      if (fresh) {
        end = c.offset + c.size;
        constants.emplace_back(c.offset, &d);
      }
      all[k].table.push_back(c);
    }
  for (std::size_t k = 0; k < programs.size(); ++k) {
    Entries& e = all[k];
    e.header.file_size = aligned(end) + kAlignment;  // vector code may read past a constant's end
    e.rest = programs[k]->target + structures[k];
    e.rest.append(reinterpret_cast<const char*>(e.table.data()), e.table.size() * sizeof(ConstantEntry));
    e.header.checksum = checksum_of(e.header, e.rest);
  }
  return all;
}

/// A file with a temporary name, which is deleted unless it is renamed.
class NewFile {
 public:
  explicit NewFile(const fs::path& path) : path_(path) {
    static std::atomic<unsigned> number = 0;
    temporary_ = path.string() + ".writing-" + std::to_string(::getpid()) + "-" + std::to_string(number++);
    fd_ = ::open(temporary_.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0666);
    if (fd_ < 0) give_up();
  }
  NewFile(const NewFile&) = delete;
  NewFile& operator=(const NewFile&) = delete;
  ~NewFile() {
    if (fd_ < 0) return;
    ::close(fd_);
    ::unlink(temporary_.c_str());
  }
  void write(const void* from, std::size_t size) {
    written_ += size;
    for (auto* p = static_cast<const char*>(from); size > 0;) {
      const ssize_t n = ::write(fd_, p, size);
      if (n < 0 && errno == EINTR) continue;
      if (n < 0) give_up();
      p += n;
      size -= static_cast<std::size_t>(n);
    }
  }
  void pad_to(std::uint64_t offset) {
    static constexpr char kZeros[2 * kAlignment] = {};
    write(kZeros, offset - written_);
  }
  void finish() {
    if (::close(std::exchange(fd_, -1)) != 0 || ::rename(temporary_.c_str(), path_.c_str()) != 0) {
      const int error = errno;
      ::unlink(temporary_.c_str());
      errno = error;
      give_up();
    }
  }

 private:
  [[noreturn]] void give_up() const {
    fail(ErrorKind::kIo, "can't write {}: {}", path_.string(), std::strerror(errno));
  }

  const fs::path path_;
  std::string temporary_;
  int fd_ = -1;
  std::uint64_t written_ = 0;
};

[[noreturn]] void damaged(std::string_view what) {
  fail(ErrorKind::kInvalidModel, "the program file is damaged ({}); compile the model and save it again", what);
}

bool printable(std::string_view s) {
  return !s.empty() && std::all_of(s.begin(), s.end(), [](char c) { return c >= ' ' && c <= '~'; });
}

void check_version(const Header& h) {
  const std::string_view writer(h.version, std::find(std::begin(h.version), std::end(h.version), '\0') - h.version);
  if (h.format == SARDONYX_PROGRAM_FORMAT && writer == version()) return;
  fail(
      ErrorKind::kUnsupported,
      "the program was saved by Sardonyx {} (format {:x}), and this is {} (format {:x}); compile the model and save it "
      "again",
      printable(writer) ? writer : "?", h.format, version(), SARDONYX_PROGRAM_FORMAT);
}

struct HostName {
  std::string_view arch, cpu;
  std::set<std::string_view> features;  // those that are there, without "+"
};

HostName parse_host(std::string_view text) {
  HostName h;
  const auto word = [&](char end) {
    const std::size_t n = std::min(text.find(end), text.size());
    const std::string_view w = text.substr(0, n);
    text.remove_prefix(std::min(n + 1, text.size()));
    return w;
  };
  h.arch = word(' ');
  h.cpu = word(' ');
  while (!text.empty())
    if (const std::string_view f = word(','); f.starts_with('+')) h.features.insert(f.substr(1));
  return h;
}

}  // namespace

std::string why_not_on(const std::string& target, const std::string& here) {
  if (target == here) return {};
  const HostName t = parse_host(target), h = parse_host(here);
  if (t.arch != h.arch) return fmt::format("it is for {} CPUs, and this one is {}", t.arch, h.arch);
  // If the list of features is empty, the CPU's name determines them.
  if (t.features.empty() && t.cpu != h.cpu && !t.cpu.empty())
    return fmt::format("it is for the CPU {}, and this one is {}", t.cpu, h.cpu);
  std::vector<std::string_view> missing;
  std::set_difference(t.features.begin(), t.features.end(), h.features.begin(), h.features.end(),
                      std::back_inserter(missing));
  if (missing.empty()) return {};
  return fmt::format("it is for the CPU {} with {}, which this one ({}) has not", t.cpu, fmt::join(missing, ", "),
                     h.cpu);
}

void save_program(const Program& program, const fs::path& path) {
  save_programs({std::shared_ptr<const Program>(std::shared_ptr<void>(), &program)}, path);
}

void save_programs(const std::vector<std::shared_ptr<const Program>>& programs, const fs::path& path) {
  if (programs.empty() || programs.size() > kMaxPrograms)
    fail(ErrorKind::kInvalidArgument, "a program file holds 1 to {} programs, not {}", kMaxPrograms, programs.size());
  std::vector<std::pair<std::uint64_t, const Data*>> constants;
  const std::vector<Entries> all = entries_of(programs, constants);
  NewFile file(path);
  for (const Entries& e : all) {
    file.write(&e.header, sizeof e.header);
    file.write(e.rest.data(), e.rest.size());
    if (e.header.next > 0) file.pad_to(e.header.next);
  }
  for (const auto& [offset, data] : constants) {
    file.pad_to(offset);
    file.write(data->bytes, data->size);
  }
  file.pad_to(all[0].header.file_size);
  file.finish();
}

bool runs_on(std::string_view target, std::string_view card) { return code_runs_on(target, card); }

namespace {

/// One of a file's programs, whose checksum has been verified.
struct Section {
  Header header;
  std::string target;
  std::span<const std::byte> rest;  // target, structure and table
  bool for_gpu = false;
};

Section section_at(std::span<const std::byte> bytes, std::uint64_t at) {
  Section s;
  Header& h = s.header;
  bytes = bytes.subspan(at);
  if (bytes.size() < sizeof h.magic || std::memcmp(bytes.data(), h.magic, sizeof h.magic) != 0) {
    if (at > 0) damaged("a program's header is wrong");
    fail(ErrorKind::kInvalidModel, "not a program that Sardonyx saved");
  }
  if (bytes.size() < sizeof h) damaged("it ends in its header");
  std::memcpy(&h, bytes.data(), sizeof h);
  check_version(h);
  if (h.file_size != at + bytes.size())
    damaged(fmt::format("it has {} bytes, and {} were written", at + bytes.size(), h.file_size));
  // These sums cannot overflow: each term is at most the file's size.
  const std::uint64_t body = bytes.size() - sizeof h;
  if (h.target_size > body || h.structure_size > std::min(body, kMaxStructure) ||
      h.constants > body / sizeof(ConstantEntry) ||
      h.target_size + h.structure_size + h.constants * sizeof(ConstantEntry) > body)
    damaged("its parts are larger than itself");
  s.rest = bytes.subspan(sizeof h, h.target_size + h.structure_size + h.constants * sizeof(ConstantEntry));
  if (checksum_of(h, text(s.rest)) != h.checksum) damaged("its checksum is wrong");
  s.target = text(s.rest.first(h.target_size));
  if (!printable(s.target)) damaged("it names no CPU");
  try {
    s.for_gpu = parse_target(s.target).kind != TargetKind::kHost;
  } catch (const Error&) {
    s.for_gpu = false;  // not a processor that we know: why_not_on says so
  }
  return s;
}

std::vector<Section> sections_of(std::span<const std::byte> bytes) {
  std::vector<Section> all;
  for (std::uint64_t at = 0;;) {
    all.push_back(section_at(bytes, at));
    const std::uint64_t next = all.back().header.next;
    if (next == 0) return all;
    if (next <= at || next >= bytes.size() || next % kAlignment != 0 || all.size() >= kMaxPrograms)
      damaged("a program lies outside of it");
    at = next;
  }
}

// The program for a GPU, or for the host.
const Section& choose(const std::vector<Section>& all, std::string_view gpu) {
  if (gpu.empty()) {
    for (const Section& s : all)
      if (!s.for_gpu) return s;
    return all[0];
  }
  for (const Section& s : all)
    if (s.target == gpu) return s;
  const Section* best = nullptr;
  for (const Section& s : all)
    if (s.for_gpu && runs_on(s.target, gpu) && (!best || s.target > best->target)) best = &s;
  if (best) return *best;
  std::vector<std::string_view> targets;
  for (const Section& s : all) targets.push_back(s.for_gpu ? std::string_view(s.target) : "the host");
  fail(ErrorKind::kUnsupported, "the program is for {}, and this GPU is a {}; compile the model for it",
       fmt::join(targets, ", "), gpu);
}

// Calls f with the bytes of a file; adds the path to the message of errors.
template <typename F>
auto with_file(const fs::path& path, const F& f) {
  const auto file = std::make_shared<const MappedFile>(path);  // its own errors name the path
  try {
    return f(file);
  } catch (const Error& e) {
    throw Error(e.kind(), path.string() + ": " + e.what());
  }
}

}  // namespace

std::shared_ptr<Program> parse_program(std::span<const std::byte> bytes, std::shared_ptr<const void> owner, int threads,
                                       std::string_view gpu) {
  const std::vector<Section> all = sections_of(bytes);
  const Section& s = choose(all, gpu);
  const Header& h = s.header;
  if (const std::string why = s.for_gpu ? "" : why_not_on(s.target, host_target().arch); !why.empty())
    fail(ErrorKind::kUnsupported, "the program can't run here: {}; compile the model on this machine", why);

  std::vector<ConstantEntry> table(h.constants);
  if (h.constants > 0)
    std::memcpy(table.data(), s.rest.data() + h.target_size + h.structure_size, h.constants * sizeof(ConstantEntry));
  std::vector<Data> constants;
  for (const ConstantEntry& c : table) {
    if (c.offset > bytes.size() || c.size > bytes.size() - c.offset || c.offset % kAlignment != 0)
      damaged("a constant lies outside of it");
    constants.push_back({owner, bytes.data() + c.offset, c.size});
  }
  std::atomic<bool> wrong = false;
  run_tasks(table.size(), threads, [&](std::size_t k) {
    if (hash("constant", text({constants[k].bytes, constants[k].size})) != table[k].checksum) wrong = true;
  });
  if (wrong) damaged("a constant's checksum is wrong");

  auto program = deserialize(s.rest.subspan(h.target_size, h.structure_size), std::move(constants));
  if (program->target != s.target) damaged("two targets");
  return program;
}

bool is_program_file(const fs::path& path) {
  std::error_code ignored;
  if (!fs::is_regular_file(path, ignored)) return false;
  char start[sizeof Header::magic] = {};
  std::ifstream(path, std::ios::binary).read(start, sizeof start);
  return std::memcmp(start, Header{}.magic, sizeof start) == 0;
}

std::shared_ptr<Program> load_program(const fs::path& path, int threads, std::string_view gpu) {
  return with_file(path, [&](const std::shared_ptr<const MappedFile>& file) {
    return parse_program({file->data(), file->size()}, file, threads, gpu);
  });
}

std::vector<std::string> program_targets(const fs::path& path) {
  return with_file(path, [&](const std::shared_ptr<const MappedFile>& file) {
    std::vector<std::string> targets;
    for (const Section& s : sections_of({file->data(), file->size()})) targets.push_back(s.target);
    return targets;
  });
}

std::string program_format() { return fmt::format("{}/{:08x}", version(), SARDONYX_PROGRAM_FORMAT); }

}  // namespace sardonyx
