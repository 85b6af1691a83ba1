#include "codegen/custom_kernels.h"

#include <algorithm>

namespace sardonyx::codegen {
namespace {

constexpr std::size_t kSizes = 7;  // of a grid, a block, and shared memory

std::uint32_t threads_of(const CustomLaunch& l, const Exprs& params) {
  std::int64_t n = 1;
  for (std::size_t k = 3; k < 6; ++k) {
    std::int64_t size;
    if (!is_const_int(params[l.first + k], size) || size < 1 || size > 1024) return 0;
    n *= size;
  }
  return n <= 1024 ? static_cast<std::uint32_t>(n) : 0;
}

}  // namespace

CustomKernelSource custom_kernel(const CustomLaunch& l, const Exprs& params, bool gpu) {
  using Kind = CustomLaunch::Argument::Kind;
  CustomKernelSource out;
  std::string call;
  for (const CustomLaunch::Argument& a : l.arguments) {
    if (!call.empty()) call += ", ";
    if (a.kind == Kind::kText) call += a.text;
    if (a.kind == Kind::kWhole) call += fmt::format("sdx::custom::Whole{{s{}}}", a.param - l.first - kSizes);
    if (a.kind != Kind::kTensor) continue;
    const auto at = std::find(out.tensors.begin(), out.tensors.end(), a.tensor);
    call += fmt::format("sdx::custom::Tensor<{}>{{b{}}}", a.type.empty() ? "void" : a.type, at - out.tensors.begin());
    if (at == out.tensors.end()) out.tensors.push_back(a.tensor);
  }
  const std::size_t numbers = l.end - l.first - kSizes;
  KernelSpec& k = out.kernel;
  k.family = KernelFamily::kCustom;
  k.source = l.source;
  k.bounds.threads = threads_of(l, params);
  std::int64_t shared;
  if (is_const_int(params[l.first + 6], shared) && shared > 0 && shared < (1 << 20))
    k.shared_bytes = static_cast<std::uint32_t>(shared);
  if (gpu) {
    std::string head;
    for (std::size_t b = 0; b < out.tensors.size(); ++b) head += fmt::format("{}void* b{}", b ? ", " : "", b);
    for (std::size_t s = 0; s < numbers; ++s) head += fmt::format("{}sdx::i64 s{}", head.empty() ? "" : ", ", s);
    k.body = fmt::format("({}) {{\n  {}({});\n}}\n", head, l.kernel, call);
    return out;
  }
  std::string local;
  for (std::size_t b = 0; b < out.tensors.size(); ++b) local += fmt::format("  void* const b{0} = buffers[{0}];\n", b);
  for (std::size_t s = 0; s < numbers; ++s) local += fmt::format("  const sdx::i64 s{} = values[{}];\n", s, s + kSizes);
  k.body = fmt::format(
      "(char** buffers, const sdx::i64* values, sdx::i64 begin, sdx::i64 end) {{\n{}"
      "  sdx::custom::run_blocks(values, begin, end, [&] {{ {}({}); }});\n}}\n",
      local, l.kernel, call);
  return out;
}

}  // namespace sardonyx::codegen
