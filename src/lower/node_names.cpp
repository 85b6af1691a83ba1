#include "lower/node_names.h"

#include <fmt/format.h>

#include <cctype>
#include <set>
#include <string_view>

#include "compile/kernel_names.h"
#include "program/visit.h"

namespace sardonyx {
namespace {

constexpr std::string_view kBetween = " + ";

/// "/layer1/conv (Conv)": layer1_conv.
std::string identifier(std::string_view node) {
  if (!node.empty() && node.back() == ')')
    if (const std::size_t type = node.rfind(" ("); type != std::string_view::npos && type > 0)
      node = node.substr(0, type);
  std::string out;
  for (const char c : node)
    if (std::isalnum(static_cast<unsigned char>(c)))
      out += c;
    else if (!out.empty() && out.back() != '_')
      out += '_';
  while (!out.empty() && out.back() == '_') out.pop_back();
  return out;
}

std::vector<std::string> identifiers(std::string_view origin) {
  std::vector<std::string> out;
  while (!origin.empty()) {
    const std::size_t end = origin.find(kBetween);
    std::string name = identifier(origin.substr(0, end));
    if (!name.empty()) out.push_back(std::move(name));
    origin.remove_prefix(end == std::string_view::npos ? origin.size() : end + kBetween.size());
  }
  return out;
}

std::string label(const std::vector<std::string>& nodes, std::size_t room) {
  std::string out;
  for (std::size_t k = 0; k < nodes.size(); ++k) {
    const std::string rest = k + 1 < nodes.size() ? fmt::format("_and_{}", nodes.size() - k - 1) : "";
    std::string next = out + "_" + nodes[k];
    if (next.size() + rest.size() > room) {
      if (k > 0) return out + fmt::format("_and_{}", nodes.size() - k);
      const std::size_t kept = room - rest.size() - 1;
      return "_" + nodes[0].substr(nodes[0].size() > kept ? nodes[0].size() - kept : 0) + rest;
    }
    out = std::move(next);
  }
  return out;
}

}  // namespace

std::vector<std::string> kernel_names(const Program& program) {
  struct Use {
    std::string origin;
    int steps = 0;
  };
  std::vector<Use> uses(program.kernels.size());
  for (const Block* block : {&program.main, &program.init})
    for_steps(*block, [&](const ProgramStep& step) {
      std::set<int> kernels;
      for_launches(step, [&](const LaunchStep& launch) { kernels.insert(launch.kernel); });
      for (const int k : kernels) {
        Use& use = uses[static_cast<std::size_t>(k)];
        if (use.steps++ == 0) use.origin = step.origin;
      }
    });
  std::vector<std::string> names;
  for (std::size_t k = 0; k < uses.size(); ++k) {
    const std::string& id = program.kernels[k].symbol;
    const std::string times = uses[k].steps > 1 ? fmt::format("_x{}", uses[k].steps) : "";
    names.push_back(id + label(identifiers(uses[k].origin), kKernelNameLength - id.size() - times.size()) + times);
  }
  return names;
}

}  // namespace sardonyx
