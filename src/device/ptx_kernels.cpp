#include "device/ptx_kernels.h"

#include <algorithm>
#include <utility>

namespace sardonyx {
namespace {

constexpr std::string_view kEntry = ".entry ", kVisible = ".visible ", kWait = "griddepcontrol.wait;";

/// The end of the block whose "{" is the first from `at` on; npos if it is not closed.
std::size_t end_of_block(std::string_view ptx, std::size_t at) {
  int depth = 0;
  for (at = ptx.find_first_of("{}/", at); at != std::string_view::npos; at = ptx.find_first_of("{}/", at + 1)) {
    if (ptx[at] == '/') {
      if (ptx.substr(at).starts_with("//")) at = ptx.find('\n', at);
      if (at == std::string_view::npos) break;
      continue;
    }
    depth += ptx[at] == '{' ? 1 : -1;
    if (depth < 0) break;
    if (depth == 0) return at + 1;
  }
  return std::string_view::npos;
}

}  // namespace

PtxKernels::PtxKernels(std::string ptx) : ptx_(std::move(ptx)) {
  for (std::size_t at = ptx_.find(kEntry); at != std::string::npos; at = ptx_.find(kEntry, at)) {
    const std::size_t line = at == 0 ? 0 : ptx_.rfind('\n', at) + 1;  // npos + 1 is 0, the first line
    const std::string_view before = std::string_view(ptx_).substr(line, at - line);
    const std::size_t name = at + kEntry.size();
    at = name;
    if (!before.empty() && before != kVisible) continue;  // in a comment
    const std::size_t end = end_of_block(ptx_, name);
    if (end == std::string::npos) break;
    kernels_[ptx_.substr(name, ptx_.find_first_of("( \n", name) - name)] = {line, end};
    at = end;
  }
}

std::vector<std::string> PtxKernels::names() const {
  std::vector<std::string> out;
  for (const auto& k : kernels_) out.push_back(k.first);
  return out;
}

std::string PtxKernels::text_of(std::string_view kernel) const {
  std::map<std::size_t, std::size_t> others;
  for (const auto& [name, range] : kernels_)
    if (name != kernel) others[range.begin] = range.end;
  std::string out;
  std::size_t from = 0;
  for (const auto& [begin, end] : others) {
    out.append(ptx_, from, begin - from);
    from = end;
  }
  return out.append(ptx_, from);
}

bool PtxKernels::wait() const {
  return !kernels_.empty() && std::all_of(kernels_.begin(), kernels_.end(), [&](const auto& k) {
    const Range& r = k.second;
    return std::string_view(ptx_).substr(r.begin, r.end - r.begin).find(kWait) != std::string_view::npos;
  });
}

}  // namespace sardonyx
