#include "compile/ptxas.h"

#include <dlfcn.h>
#include <fmt/format.h>
#include <unistd.h>

#include <array>
#include <atomic>
#include <charconv>
#include <fstream>
#include <iterator>
#include <map>
#include <mutex>
#include <string_view>
#include <tuple>

#include "compile/cache.h"
#include "support/error.h"
#include "support/process.h"
#include "support/warning.h"

namespace sardonyx {
namespace {

namespace fs = std::filesystem;

constexpr std::size_t kWordsLength = 300;  // maximum length of a quoted message

std::string text_of(const fs::path& file) {
  std::ifstream in(file, std::ios::binary);
  return {std::istreambuf_iterator<char>(in), std::istreambuf_iterator<char>()};
}

// "Cuda compilation tools, release 12.9, V12.9.86": 12090; 0 if there is no such line.
int release_of(std::string_view version) {
  constexpr std::string_view kRelease = "release ";
  const std::size_t at = version.find(kRelease);
  if (at == std::string_view::npos) return 0;
  const char* p = version.data() + at + kRelease.size();
  const char* end = version.data() + version.size();
  int major = 0, minor = 0;
  const auto dot = std::from_chars(p, end, major);
  if (dot.ec != std::errc() || dot.ptr == end || *dot.ptr != '.' || major < 1 || major > 1000) return 0;
  if (std::from_chars(dot.ptr + 1, end, minor).ec != std::errc() || minor < 0 || minor > 99) return 0;
  return major * 1000 + minor * 10;
}

// The oldest version of CUDA whose assembler supports the PTX version of a text (".version").
int oldest_for(std::string_view ptx) {
  constexpr std::string_view kVersion = ".version ";
  const std::size_t at = ptx.find(kVersion);
  const std::string_view v = at == std::string_view::npos ? "" : ptx.substr(at + kVersion.size(), 3);
  return v <= "7.0" ? 11000 : v <= "7.8" ? 11080 : v <= "8.1" ? 12010 : 13000;
}

}  // namespace

std::vector<fs::path> ptxas_places(const PtxasSearch& search) {
  if (search.program == "off") return {};
  if (!search.program.empty()) return {fs::path(search.program)};
  std::vector<fs::path> places;
  // In Python's site-packages this library is in sardonyx/.
  Dl_info info{};
  std::error_code ignored;
  if (dladdr(reinterpret_cast<const void*>(&ptxas_places), &info) != 0 && info.dli_fname != nullptr) {
    const fs::path packages = fs::weakly_canonical(info.dli_fname, ignored).parent_path().parent_path();
    for (const char* p : {"nvidia/cu13/bin", "nvidia/cuda_nvcc/bin", "triton/backends/nvidia/bin"})
      places.push_back(packages / p / "ptxas");
  }
  for (std::string_view path = search.path; !path.empty();) {
    const std::size_t end = std::min(path.find(':'), path.size());
    if (end > 0 && path[0] == '/') places.push_back(fs::path(path.substr(0, end)) / "ptxas");
    path.remove_prefix(std::min(end + 1, path.size()));
  }
  for (const std::string& home : search.toolkits)
    if (home.starts_with('/')) places.push_back(fs::path(home) / "bin" / "ptxas");
  places.emplace_back("/usr/local/cuda/bin/ptxas");
  return places;
}

std::optional<Ptxas> find_ptxas(std::span<const fs::path> places, int oldest, int newest, std::string& why) {
  why = "no ptxas is installed";
  for (const fs::path& place : places) {
    if (::access(place.c_str(), X_OK) != 0) continue;
    const TemporaryFolder folder;
    const fs::path log = folder.path() / "version";
    Ptxas found{place, 0, ""};
    if (run_program({place.string(), "--version"}, log) == 0) found.version = text_of(log);
    found.cuda = release_of(found.version);
    if (found.cuda >= oldest && found.cuda / 1000 <= newest / 1000) return found;
    why = found.cuda == 0 ? fmt::format("{} does not say its version", place.string())
                          : fmt::format("{} is CUDA {}.{}'s; this card and its driver want one of {}.{} to {}.x",
                                        place.string(), found.cuda / 1000, found.cuda % 1000 / 10, oldest / 1000,
                                        oldest % 1000 / 10, newest / 1000);
  }
  return std::nullopt;
}

std::string assemble(const Ptxas& assembler, const std::string& ptx, const std::string& chip) {
  const TemporaryFolder folder;
  const fs::path in = folder.path() / "kernel.ptx", out = folder.path() / "kernel.cubin", log = folder.path() / "log";
  if (!(std::ofstream(in, std::ios::binary) << ptx).flush()) fail(ErrorKind::kIo, "{} can't be written", in.string());
  const int status = run_program({assembler.program.string(), "-arch=" + chip, in.string(), "-o", out.string()}, log);
  std::string code = text_of(out);
  if (status == 0 && code.starts_with("\177ELF")) return code;
  std::string words = text_of(log);
  words.resize(std::min(words.find('\n'), std::min(words.size(), kWordsLength)));
  fail(ErrorKind::kCompile, "{} failed (status {}): {}", assembler.program.string(), status,
       words.empty() ? "it says nothing" : words);
}

std::optional<std::string> assemble_here(const std::string& ptx, const PtxCard& card, CodeCache* cache,
                                         const PtxasSearch& search) {
  static std::mutex mutex;
  static std::map<std::tuple<PtxasSearch, int, int>, std::optional<Ptxas>> known;  // by the oldest and newest version
  static std::atomic<bool> failed = false;
  if (failed) return std::nullopt;
  std::optional<Ptxas> assembler;
  try {
    const int oldest = oldest_for(ptx);
    {
      const std::lock_guard lock(mutex);
      auto at = known.find({search, oldest, card.cuda});
      if (at == known.end()) {
        std::string why;
        at = known
                 .emplace(std::tuple(search, oldest, card.cuda),
                          find_ptxas(ptxas_places(search), oldest, card.cuda, why))
                 .first;
        if (!at->second && !search.program.empty() && search.program != "off")
          warn(fmt::format("{} is not used, the driver compiles kernels: {}", search.program, why));
      }
      assembler = at->second;
    }
    if (!assembler) return std::nullopt;
    const std::array<std::string_view, 4> parts = {"cubin", assembler->version, card.chip, ptx};
    const CacheKey key = cache ? cache_key(parts) : CacheKey{};
    if (cache)
      if (auto found = cache->get(key)) return found;
    std::string code = assemble(*assembler, ptx, card.chip);
    if (cache) cache->put(key, code);
    return code;
  } catch (const Error& e) {
    if (!failed.exchange(true))
      warn(fmt::format("NVIDIA's assembler is not used any more, the driver compiles kernels: {}", e.what()));
    return std::nullopt;
  }
}

}  // namespace sardonyx
