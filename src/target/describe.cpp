// See describe.h.
#include "target/describe.h"

#include <fmt/format.h>

#include <algorithm>
#include <nlohmann/json.hpp>
#include <vector>

#include "target/chip.h"

namespace sardonyx {
namespace {

constexpr DType kPeakTypes[] = {DType::kFloat32, DType::kFloat16, DType::kInt8};

DType float8_type(const Chip& c) { return c.float8 == Float8::kFnuz ? DType::kFloat8E4M3FNUZ : DType::kFloat8E4M3FN; }

std::string float8_name(Float8 f) { return f == Float8::kFnuz ? "FNUZ" : f == Float8::kOcp ? "OCP" : "-"; }

std::string floor_of(const Chip& c) {
  if (c.is_nvidia())
    return fmt::format("CUDA {}.{}, PTX {}.{}", c.floors.cuda / 1000, c.floors.cuda % 1000 / 10, c.floors.ptx / 10,
                       c.floors.ptx % 10);
  return c.floors.rocm > 0 ? fmt::format("ROCm {}.{}", c.floors.rocm / 10, c.floors.rocm % 10) : "not listed";
}

/// What kernels multiply with matrix instructions: "mfma 16x16: float32 K 4, float16 K 16".
std::string matrix_text(const Chip& c) {
  if (c.layout() == MatrixLayout::kVector) return "-";
  std::vector<std::string> types;
  for (const MatrixInstruction& i : c.matrix_instructions)
    if (i.in_kernels) types.push_back(fmt::format("{} K {}", name(i.type), i.k));
  const MatrixInstruction& first = *std::find_if(c.matrix_instructions.begin(), c.matrix_instructions.end(),
                                                 [](const MatrixInstruction& i) { return i.in_kernels; });
  return fmt::format("{} {}x{}: {}{}", name(c.layout()), first.m, first.n, fmt::join(types, ", "),
                     c.has(Feature::kWgmma) ? "; wgmma" : "");
}

std::string or_dash(double x, const char* suffix = "") { return x > 0 ? fmt::format("{:g}{}", x, suffix) : "-"; }

/// Rows of cells, the first of them the heads, with columns padded to one width.
std::string markdown(const std::vector<std::vector<std::string>>& rows) {
  std::vector<std::size_t> widths(rows[0].size());
  for (const auto& row : rows)
    for (std::size_t k = 0; k < row.size(); ++k) widths[k] = std::max(widths[k], row[k].size());
  std::string out;
  for (std::size_t r = 0; r < rows.size(); ++r) {
    for (std::size_t k = 0; k < widths.size(); ++k) out += fmt::format("| {:<{}} ", rows[r][k], widths[k]);
    out += "|\n";
    if (r > 0) continue;
    for (const std::size_t w : widths) out += fmt::format("|{}", std::string(w + 2, '-'));
    out += "|\n";
  }
  return out;
}

nlohmann::ordered_json json_of(const Chip& c, const Product& p) {
  nlohmann::ordered_json peaks;
  for (const DType t : kPeakTypes) peaks[std::string(name(t))] = peak(c, p, t);
  if (c.float8 != Float8::kNone) peaks[std::string(name(float8_type(c)))] = peak(c, p, float8_type(c));
  return {{"name", p.name},
          {"units", p.units},
          {"driver_units", driver_units(c, p)},
          {"dies", p.dies},
          {"mhz", p.mhz},
          {"memory_gib", p.memory_gib},
          {"bytes_per_second", p.gb_per_second * 1e9},
          {"l2_kib", p.l2_kib * p.dies},
          {"infinity_cache_mib", p.infinity_mib},
          {"operations_per_second", std::move(peaks)}};
}

nlohmann::ordered_json json_of(const Chip& c) {
  nlohmann::ordered_json features = nlohmann::ordered_json::array(), matrix = features, products = features;
  for (int f = 0; f < kFeatureCount; ++f)
    if (c.has(static_cast<Feature>(f))) features.push_back(name(static_cast<Feature>(f)));
  for (const MatrixInstruction& i : c.matrix_instructions)
    matrix.push_back({{"name", i.name},
                      {"layout", name(i.layout)},
                      {"type", name(i.type)},
                      {"shape", {i.m, i.n, i.k}},
                      {"cycles", i.cycles > 0 ? nlohmann::ordered_json(i.cycles) : nlohmann::ordered_json()},
                      {"in_kernels", i.in_kernels}});
  for (const Product& p : c.products) products.push_back(json_of(c, p));
  return {{"chip", c.name},
          {"vendor", c.is_nvidia() ? "NVIDIA" : "AMD"},
          {"family", name(c.family)},
          {"wave", c.wave},
          {"lds_per_workgroup", c.lds.per_workgroup},
          {"lds_pool", c.lds.pool},
          {"registers_per_simd", c.registers.vector},
          {"register_granule", c.registers.vector_granule},
          {"waves_per_simd", c.registers.waves},
          {"l1_kib", c.l1_kib},
          {"cache_line", c.line},
          {"float8", float8_name(c.float8)},
          {"needs", floor_of(c)},
          {"features", std::move(features)},
          {"matrix_instructions", std::move(matrix)},
          {"products", std::move(products)}};
}

}  // namespace

std::string chips_markdown() {
  std::vector<std::vector<std::string>> chips = {{"chip", "family", "wave", "LDS KiB", "registers", "waves", "L1 KiB",
                                                  "float8", "needs", "matrix instructions in use"}};
  std::vector<std::vector<std::string>> products = {{"chip", "product", "units", "MHz", "GiB", "GB/s", "L2 MiB",
                                                     "Infinity Cache MiB", "float32", "float16", "int8", "float8"}};
  for (const Chip& c : all_chips()) {
    chips.push_back({std::string(c.name), std::string(name(c.family)), std::to_string(c.wave),
                     fmt::format("{} of {}", c.lds.per_workgroup >> 10, c.lds.pool >> 10),
                     fmt::format("{} by {}", c.registers.vector, c.registers.vector_granule),
                     std::to_string(c.registers.waves), std::to_string(c.l1_kib), float8_name(c.float8), floor_of(c),
                     matrix_text(c)});
    for (const Product& p : c.products) {
      const auto tera = [&](DType t) { return fmt::format("{:.1f}", peak(c, p, t) / 1e12); };
      products.push_back({std::string(c.name), std::string(p.name), std::to_string(p.units), std::to_string(p.mhz),
                          or_dash(p.memory_gib), fmt::format("{:g}", p.gb_per_second),
                          fmt::format("{:g}", p.l2_kib * p.dies / 1024.0), or_dash(p.infinity_mib),
                          tera(DType::kFloat32), tera(DType::kFloat16), tera(DType::kInt8),
                          c.float8 == Float8::kNone ? "-" : tera(float8_type(c))});
    }
  }
  return markdown(chips) + "\n" + markdown(products);
}

std::string chips_json() {
  nlohmann::ordered_json out = nlohmann::ordered_json::array();
  for (const Chip& c : all_chips()) out.push_back(json_of(c));
  return out.dump(2) + "\n";
}

}  // namespace sardonyx
