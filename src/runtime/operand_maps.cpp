// See operand_maps.h.
#include "runtime/operand_maps.h"

#include <algorithm>

#include "support/error.h"

namespace sardonyx {
namespace {

constexpr std::uint32_t kRow = 128,
                        kAcross = 64;  // bytes of K per copy; lines and elements of K, if lines are contiguous

// `box` lines and `step` elements of K are copied at a time; with `across`, 64 of each. `bytes`: of an element.
GpuCall::Map map_of(const CopiedOperand& operand, const ProblemSizes& s, std::int64_t lines, std::int32_t box,
                    std::uint32_t step, std::size_t bytes) {
  GpuCall::Map map;
  map.info.bytes = static_cast<std::uint32_t>(bytes);
  map.buffer = static_cast<std::size_t>(operand.buffer);
  map.offset = static_cast<std::size_t>(operand.offset) * bytes;
  const auto pitch = static_cast<std::uint64_t>(operand.pitch), batch = static_cast<std::uint64_t>(operand.batch);
  // Matrices: batches, unless they share one, or groups of contiguous lines.
  const std::int64_t matrices = operand.inner > 0 ? std::max<std::int64_t>(lines / operand.inner, 1)
                                : batch == 0      ? 1
                                                  : s.batches;
  if (operand.inner > 0) lines = operand.inner;
  const auto of_k = static_cast<std::uint64_t>(s.k), of_lines = static_cast<std::uint64_t>(lines);
  map.info.rank = 3;
  map.info.dims = {operand.across ? of_lines : of_k, operand.across ? of_k : of_lines,
                   static_cast<std::uint64_t>(matrices)};
  // The stride of a dim of size 1 is not used, but must be valid.
  map.info.strides = {bytes, pitch * bytes, (matrices > 1 ? batch : pitch) * bytes};
  map.info.box = {operand.across ? kAcross : step, operand.across ? kAcross : static_cast<std::uint32_t>(box), 1};
  if (operand.heads > 0) {
    const auto heads = static_cast<std::uint64_t>(operand.heads), head = static_cast<std::uint64_t>(operand.head),
               groups = std::max<std::uint64_t>(map.info.dims[2] / heads, 1);
    map.info.rank = 4;
    map.info.dims[2] = heads;
    map.info.dims[3] = groups;
    map.info.strides[2] = head * bytes;
    map.info.strides[3] = (groups > 1 ? batch : head) * bytes;
    map.info.box[3] = 1;
  }
  return map;
}

GpuCall::Map map_of(std::int32_t buffer, const CopiedWindows& w, const SymbolValues& symbols, std::int32_t box,
                    std::uint32_t step, std::size_t bytes) {
  // Limits of cuTensorMapEncodeIm2col: sizes in 32 bits, strides in 40 bits of bytes, corners in 8 bits.
  constexpr std::int64_t kMostSize = std::int64_t{1} << 31, kMostPitch = std::int64_t{1} << 39, kMostCorner = 127;
  const auto number = [&](const Expr& e, std::int64_t least, std::int64_t most) {
    const std::int64_t x = evaluate(e, symbols);
    if (x < least || x > most) fail(ErrorKind::kUnsupported, "a convolution's images have a size of {}", x);
    return x;
  };
  GpuCall::Map map;
  TensorMapInfo& info = map.info;
  map.buffer = static_cast<std::size_t>(buffer);
  map.offset = static_cast<std::size_t>(number(w.offset, 0, kMostPitch)) * bytes;
  info.bytes = static_cast<std::uint32_t>(bytes);
  info.windows = true;
  info.rank = 4;
  info.box = {step, static_cast<std::uint32_t>(box)};
  info.dims[0] = static_cast<std::uint64_t>(w.channels);
  std::int64_t pitch = w.channels;
  for (const std::size_t k : {0, 1, 2}) {
    const std::int64_t size = number(k < 2 ? w.sizes[k] : w.images, 1, kMostSize);
    info.dims[k + 1] = static_cast<std::uint64_t>(size);
    // The stride of a dim of size 1 is not used, but must be valid.
    if (size > 1) pitch = number(k < 2 ? w.pitches[k] : w.pitch, 1, kMostPitch);
    info.strides[k + 1] = static_cast<std::uint64_t>(pitch) * bytes;
    if (k == 2) break;
    // The window takes as many positions as there are outputs.
    const std::int64_t pad = number(w.pads[k], 0, kMostCorner), out = number(w.out[k], 1, kMostSize),
                       upper = (out - 1) * w.strides[k] + 1 - size - pad;
    if (std::abs(upper) > kMostCorner) fail(ErrorKind::kUnsupported, "a convolution's windows end at {}", upper);
    info.lower[k] = static_cast<std::int32_t>(-pad);
    info.upper[k] = static_cast<std::int32_t>(upper);
    info.steps[k] = static_cast<std::uint32_t>(w.strides[k]);
  }
  return map;
}

}  // namespace

std::vector<GpuCall::Map> operand_maps(const CopiedOperands& operands, const GpuTiling& t, const ProblemSizes& s,
                                       const SymbolValues& symbols, std::size_t bytes) {
  std::vector<GpuCall::Map> maps;
  const auto step = kRow / static_cast<std::uint32_t>(bytes);
  if (operands.windows.empty()) {
    maps.push_back(map_of(operands.a, s, s.m, t.rows, step, bytes));
    maps.push_back(map_of(operands.b, s, s.n, t.cols, step, bytes));
    return maps;
  }
  const CopiedWindows& w = operands.windows.front();
  const std::uint32_t each = w.channels % step == 0 ? step : step / 2;
  maps.push_back(map_of(operands.a.buffer, w, symbols, t.rows, each, bytes));
  maps.push_back(map_of(operands.b, s, s.n, t.cols, each, bytes));
  return maps;
}

}  // namespace sardonyx
