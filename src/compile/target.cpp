// The targets the compiler knows.
#include <llvm/ADT/StringMap.h>
#include <llvm/TargetParser/Host.h>
#include <llvm/TargetParser/Triple.h>

#include <algorithm>

#include "compile/compiler.h"
#include "support/error.h"

namespace sardonyx {
namespace {

constexpr std::string_view kAmdgpu[] = {"gfx90a",  "gfx942",  "gfx950",  "gfx1030", "gfx1100", "gfx1101",
                                        "gfx1102", "gfx1103", "gfx1150", "gfx1151", "gfx1200", "gfx1201"};
constexpr std::string_view kNvptx[] = {"sm_80", "sm_90", "sm_90a"};
constexpr std::string_view kHost[] = {"x86_64", "aarch64"};

Target detect_host() {
  const llvm::Triple triple(llvm::sys::getProcessTriple());
  std::string arch = triple.getArchName().str();
  if (triple.isAArch64()) arch = "aarch64";
  if (std::find(std::begin(kHost), std::end(kHost), arch) == std::end(kHost))
    fail(ErrorKind::kUnsupported, "the host's architecture is {}; Sardonyx compiles for x86_64 and aarch64 hosts",
         arch);
  std::vector<std::string> features;
  for (const auto& f : llvm::sys::getHostCPUFeatures()) features.push_back((f.second ? "+" : "-") + f.first().str());
  std::sort(features.begin(), features.end());  // the map's order is arbitrary, and the text is part of cache keys
  const llvm::StringRef cpu = llvm::sys::getHostCPUName();
  arch += " " + (cpu.empty() ? "generic" : cpu.str());
  for (std::size_t i = 0; i < features.size(); ++i) arch += (i == 0 ? " " : ",") + features[i];
  return {TargetKind::kHost, arch};
}

template <std::size_t N>
bool contains(const std::string_view (&names)[N], std::string_view name) {
  return std::find(std::begin(names), std::end(names), name) != std::end(names);
}

}  // namespace

const Target& host_target() {
  static const Target host = detect_host();
  return host;
}

std::vector<std::string> known_targets() {
  std::vector<std::string> names = {"host"};
  for (auto n : kHost) names.emplace_back(n);
  for (auto n : kAmdgpu) names.emplace_back(n);
  for (auto n : kNvptx) names.emplace_back(n);
  return names;
}

Target parse_target(std::string_view text) {
  if (text == "host") return host_target();
  if (contains(kAmdgpu, text)) return {TargetKind::kAmdgpu, std::string(text)};
  if (contains(kNvptx, text)) return {TargetKind::kNvptx, std::string(text)};
  if (contains(kHost, text.substr(0, text.find(' ')))) return {TargetKind::kHost, std::string(text)};
  fail(ErrorKind::kUnsupported, "unknown target \"{}\"; known targets: {}", text, fmt::join(known_targets(), ", "));
}

}  // namespace sardonyx
