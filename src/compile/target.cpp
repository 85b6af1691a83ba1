// The targets the compiler knows.
#include <algorithm>

#include "compile/compiler.h"
#include "compile/host_cpu.h"
#include "support/error.h"

namespace sardonyx {
namespace {

constexpr std::string_view kAmdgpu[] = {"gfx90a",  "gfx942",  "gfx950",  "gfx1030", "gfx1100", "gfx1101",
                                        "gfx1102", "gfx1103", "gfx1150", "gfx1151", "gfx1200", "gfx1201"};
constexpr std::string_view kNvptx[] = {"sm_80", "sm_90", "sm_90a"};
constexpr std::string_view kHost[] = {"x86_64", "aarch64"};

template <std::size_t N>
bool contains(const std::string_view (&names)[N], std::string_view name) {
  return std::find(std::begin(names), std::end(names), name) != std::end(names);
}

}  // namespace

const Target& host_target() {
  static const Target host = {TargetKind::kHost, detect_host_cpu()};
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
