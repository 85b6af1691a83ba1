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
const ContractionFamily& short_k_family();    // short_k_family.cpp

std::span<const ContractionFamily* const> contraction_families() {
  static const ContractionFamily* const kFamilies[] = {&wgmma_family(), &packed_family(),    &tile_family(),
                                                       &gemv_family(),  &gemv_wide_family(), &skinny_family(),
                                                       &tma_family(),   &stream_family(),    &short_k_family()};
  return kFamilies;
}

namespace {
void replace(std::string& text, std::string_view name, std::int64_t size) {
  for (std::size_t at = 0; (at = text.find(name, at)) != std::string::npos;)
    text.replace(at, name.size(), fmt::format("u32({})", size));
}
}  // namespace

ContractionText ContractionText::shared(const KernelCandidate& c) const {
  // If K has at most so many tiles, the kernel is faster if it knows it: by the clock on gfx942, layers of 8 took up to
  // 11 % longer.
  constexpr std::int64_t kFewSteps = 8;
  ContractionText t = *this;
  if (columns == 0) return t;
  if (c.depth == 0) {
    replace(t.structs, kNamedN, columns);
    replace(t.structs, kNamedK, depth);
    return t;
  }
  const std::int64_t n = c.tiling.cols, k = c.depth, tiles = columns / n;
  if (columns % n == 0) t.structs += "enum : bool { kWholeN = true };\n";
  if (depth % k == 0) t.structs += "enum : bool { kWholeK = true };\n";
  // Divided and multiplied again, so that the compiler knows what divides them.
  if (columns % n == 0 && (tiles & (tiles - 1)) == 0) {
    t.structs += "enum : bool { kPowerN = true };\n";
    t.extents[2] = fmt::format("u32(nk) / {0} * {0}", n);
  }
  // Where workgroups divide K, the number of steps is unknown in any case.
  const bool unknown = c.tiling.tree_acc > 0 || extents[3].find("nk") != std::string::npos;
  if (depth % k == 0 && (unknown || depth / k > kFewSteps))
    t.extents[3] = fmt::format("u32(u64(nk) >> 32) / {0} * {0}", k);
  if (!unknown && depth / k > kFewSteps)
    t.structs += fmt::format("enum : u32 {{ kLeastSteps = {} }};\n", kFewSteps + 1);
  // Of whole tiles of rows the epilogue has no conditions.
  if (rows % c.tiling.rows != 0 && (t.extents[2] != extents[2] || t.extents[3] != extents[3])) t.extents[1] = "u32(m)";
  return t;
}

KernelSpec ContractionFamily::emit(const ContractionText& all, const KernelCandidate& c) const {
  const ContractionText text = all.shared(c);
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
