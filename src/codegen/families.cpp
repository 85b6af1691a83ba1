// All families of GPU kernels for GEMM and convolution. To add one: kernels in src/kernels, a file here that defines
// its class and this function, and its line in both lists.
#include "codegen/kernel_family.h"

namespace sardonyx::codegen {

const ContractionFamily& wgmma_family();      // gemm_families.cpp
const ContractionFamily& packed_family();     // packed_family.cpp
const ContractionFamily& tile_family();       // gemm_families.cpp
const ContractionFamily& gemv_family();       // gemm_families.cpp
const ContractionFamily& gemv_wide_family();  // gemv_wide_family.cpp
const ContractionFamily& skinny_family();     // skinny_family.cpp
const ContractionFamily& tma_family();        // tma_tiling.cpp
const ContractionFamily& stream_family();     // stream_tiling.cpp

std::span<const ContractionFamily* const> contraction_families() {
  static const ContractionFamily* const kFamilies[] = {&wgmma_family(), &packed_family(),    &tile_family(),
                                                       &gemv_family(),  &gemv_wide_family(), &skinny_family(),
                                                       &tma_family(),   &stream_family()};
  return kFamilies;
}

KernelSpec ContractionFamily::emit(const ContractionText& text, const KernelCandidate& c) const {
  std::string body;
  if (c.tiling.tree_acc > 0)
    body = fmt::format("{}split_k_tree(p, parts, u32(m >> 32), arrived, [](const auto& q) {{ {}(q); }});\n}}\n",
                       text.begin_split_k_tree(), c.kernel);
  else if (c.tiling.splits == 1)
    body = fmt::format("{}{}(p);\n}}\n", text.begin(), c.kernel);
  else
    body = fmt::format("{}split_k(p, parts, u32(splits), [](const auto& q) {{ {}(q); }});\n}}\n", text.begin_split_k(),
                       c.kernel);
  KernelSpec spec = gemm_spec(std::move(body), c.bounds, c.shared);
  spec.headers = c.headers;
  return spec;
}

KernelSpec gemm_spec(std::string body, const LaunchBounds& bounds, std::uint32_t shared_bytes) {
  KernelSpec s;
  s.family = KernelFamily::kGemm;
  s.body = std::move(body);
  s.bounds = bounds;
  s.shared_bytes = shared_bytes;
  return s;
}

}  // namespace sardonyx::codegen
