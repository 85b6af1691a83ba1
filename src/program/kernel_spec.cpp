#include "program/kernel_spec.h"

#include <fmt/format.h>

#include <set>

#include "support/error.h"

namespace sardonyx {

std::string_view name(KernelFamily family) {
  switch (family) {
    case KernelFamily::kLoop:
      return "loop";
    case KernelFamily::kRoutine:
      return "routine";
    case KernelFamily::kGemm:
      return "gemm";
    case KernelFamily::kAttention:
      return "attention";
    case KernelFamily::kCustom:
      return "custom";
  }
  fail(ErrorKind::kInternal, "kernel family {} does not exist", static_cast<int>(family));
}

std::string definition_of(const KernelSpec& spec, std::string_view symbol, bool gpu) {
  if (spec.family == KernelFamily::kCustom)
    return fmt::format(
        "extern \"C\" {}void {}{}",
        gpu ? fmt::format("SDX_ENTRY({}) ", spec.bounds.threads ? spec.bounds.threads : 1024) : "SDX_ENTRY ", symbol,
        spec.body);
  if (!gpu) return fmt::format("extern \"C\" void {}{}", symbol, spec.body);
  // The attribute macros of kernels/gpu.h.
  std::string head =
      spec.bounds.threads == 0 ? "SDX_KERNEL " : fmt::format("SDX_SIZED_KERNEL({}) ", spec.bounds.threads);
  const auto add = [&](std::string_view macro, std::uint32_t value) {
    if (value != 0) head += fmt::format("{}({}) ", macro, value);
  };
  add("SDX_MIN_BLOCKS", spec.bounds.min_blocks);
  add("SDX_MIN_WAVES", spec.bounds.min_waves);
  add("SDX_CLUSTER", spec.bounds.cluster);
  return fmt::format("{}void {}{}", head, symbol, spec.body);
}

std::string includes_of(const std::vector<const KernelSpec*>& specs, bool gpu) {
  if (specs.size() == 1 && specs[0]->family == KernelFamily::kCustom)
    return fmt::format("#include \"custom.h\"\n{}\n#line 1 \"(the operator's launch)\"\n", specs[0]->source);
  // The common header comes first in every source, so that all compilations can use its precompiled form.
  std::string text = gpu ? "#include \"gpu_kernels.h\"\n" : "#include \"prelude.h\"\n";
  std::set<std::string> headers;
  for (const KernelSpec* spec : specs) headers.insert(spec->headers.begin(), spec->headers.end());
  for (const std::string& h : headers) text += fmt::format("#include \"{}\"\n", h);
  return text + "using namespace sdx;\n";
}

}  // namespace sardonyx
