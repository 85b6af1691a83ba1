// The targets that the compiler supports.
#include <algorithm>

#include "compile/compiler.h"
#include "compile/host_cpu.h"
#include "support/error.h"
#include "target/chip.h"

namespace sardonyx {
namespace {

constexpr std::string_view kHost[] = {"x86_64", "aarch64"};

bool is_host(std::string_view architecture) {
  return std::find(std::begin(kHost), std::end(kHost), architecture) != std::end(kHost);
}

}  // namespace

const Target& host_target() {
  static const Target host = {TargetKind::kHost, detect_host_cpu()};
  return host;
}

std::vector<std::string> known_targets() {
  std::vector<std::string> names = {"host"};
  for (auto n : kHost) names.emplace_back(n);
  for (const Chip& c : all_chips()) names.emplace_back(c.name);
  return names;
}

Target parse_target(std::string_view text) {
  if (text == "host") return host_target();
  // Code is generated for a chip's default settings: a name with others (":xnack+") is unknown.
  if (const Chip* c = find_chip(text); c && c->name == text)
    return {c->is_nvidia() ? TargetKind::kNvptx : TargetKind::kAmdgpu, std::string(text)};
  if (is_host(text.substr(0, text.find(' ')))) return {TargetKind::kHost, std::string(text)};
  fail(ErrorKind::kUnsupported, "unknown target \"{}\"; known targets: {}", text, fmt::join(known_targets(), ", "));
}

}  // namespace sardonyx
