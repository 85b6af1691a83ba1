#include "compile/kernel_code.h"

#include "compile/backend.h"
#include "support/error.h"

namespace sardonyx {
namespace {

std::uint64_t count(std::string_view text, std::string_view word) {
  std::uint64_t n = 0;
  for (std::size_t at = text.find(word); at != std::string_view::npos; at = text.find(word, at + word.size())) ++n;
  return n;
}

// ".visible .entry NAME(" ... "{" ... "\n}\n"
std::vector<KernelCode> read_ptx(std::string_view ptx) {
  constexpr std::string_view kEntry = ".entry ";
  std::vector<KernelCode> out;
  for (std::size_t at = ptx.find(kEntry); at != std::string_view::npos;) {
    const std::size_t next = ptx.find(kEntry, at + kEntry.size());
    const std::string_view body = ptx.substr(
        at + kEntry.size(), next == std::string_view::npos ? std::string_view::npos : next - at - kEntry.size());
    KernelCode k;
    k.symbol = body.substr(0, body.find_first_of("( \n"));
    k.code_bytes = body.size();
    k.instructions = count(body, ";\n");
    k.matrix_instructions = count(body, "\tmma.sync") + count(body, "wgmma.mma_async");
    out.push_back(std::move(k));
    at = next;
  }
  return out;
}

}  // namespace

std::vector<KernelCode> read_kernel_code(std::string_view object, const Target& target) {
  switch (target.kind) {
    case TargetKind::kAmdgpu:
      return compiler_backend().read_amd(object, target.arch);
    case TargetKind::kNvptx:
      return read_ptx(object);
    case TargetKind::kHost:
      break;
  }
  fail(ErrorKind::kUnsupported, "reports are for GPU kernels; name a chip with --arch");
}

}  // namespace sardonyx
