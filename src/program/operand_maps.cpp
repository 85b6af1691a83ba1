// See operand_maps.h.
#include "program/operand_maps.h"

namespace sardonyx {
namespace {

constexpr std::uint64_t kElementBytes = 2;
constexpr std::uint32_t kStep = 64;  // k's of a copy: 128 bytes

GpuCall::Map map_of(const TileLaunchStep::Copied& operand, const TileSizes& s, std::int64_t lines, std::int32_t box) {
  GpuCall::Map map;
  map.buffer = static_cast<std::size_t>(operand.buffer);
  map.offset = static_cast<std::size_t>(operand.offset) * kElementBytes;
  const auto pitch = static_cast<std::uint64_t>(operand.pitch), batch = static_cast<std::uint64_t>(operand.batch);
  map.info.rank = 3;
  map.info.dims = {static_cast<std::uint64_t>(s.k), static_cast<std::uint64_t>(lines),
                   static_cast<std::uint64_t>(s.batches)};
  // The stride of a dim of size 1 is not used, but must be one.
  map.info.strides = {kElementBytes, pitch * kElementBytes, (s.batches > 1 ? batch : pitch) * kElementBytes};
  map.info.box = {kStep, static_cast<std::uint32_t>(box), 1};
  return map;
}

}  // namespace

std::vector<GpuCall::Map> operand_maps(const TileLaunchStep& step, const codegen::GpuTiling& t, const TileSizes& s) {
  std::vector<GpuCall::Map> maps;
  maps.push_back(map_of(step.copied_a, s, s.m, t.rows));
  maps.push_back(map_of(step.copied_b, s, s.n, t.cols));
  return maps;
}

}  // namespace sardonyx
