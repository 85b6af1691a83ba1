#include "compile/kernel_code.h"

#include <algorithm>

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

struct Chip {
  int registers, granule, most_waves, wave;  // VGPRs of a SIMD's lane, how they are given out
  std::uint32_t lds;                         // bytes that four SIMDs share
};

std::optional<Chip> chip_of(std::string_view name) {
  const auto is = [&](std::initializer_list<std::string_view> list) {
    return std::find(list.begin(), list.end(), name) != list.end();
  };
  if (is({"gfx90a", "gfx942"})) return Chip{512, 8, 8, 64, 64 << 10};
  if (name == "gfx950") return Chip{512, 8, 8, 64, 160 << 10};
  if (is({"gfx1100", "gfx1101", "gfx1151", "gfx1200", "gfx1201"})) return Chip{1536, 24, 16, 32, 128 << 10};
  if (is({"gfx1030", "gfx1102", "gfx1103", "gfx1150"})) return Chip{1024, 16, 16, 32, 128 << 10};
  return std::nullopt;
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
  fail(ErrorKind::kUnsupported, "reports are of GPUs' kernels; name one with --arch");
}

int waves_per_simd(std::string_view chip, int vgprs, std::uint32_t lds, int threads) {
  const std::optional<Chip> c = chip_of(chip);
  if (!c) return 0;
  const int taken = std::max((vgprs + c->granule - 1) / c->granule * c->granule, c->granule);
  int waves = std::min(c->most_waves, c->registers / taken);
  if (lds > 0) {
    const int per_group = std::max((threads + c->wave - 1) / c->wave, 1);
    const int groups = static_cast<int>(c->lds / lds);
    waves = std::min(waves, (groups * per_group + 3) / 4);
  }
  return waves;
}

}  // namespace sardonyx
