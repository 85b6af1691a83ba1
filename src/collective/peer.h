// AllReduce and AllGather of small tensors by our own kernels, on GPUs that can access each other's memory. They are
// ordinary launches, which captured graphs can contain, and are faster than a library for the sizes of a decoder step.
#pragma once
#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <vector>

#include "collective/group.h"
#include "device/device.h"
#include "sardonyx/dtype.h"

namespace sardonyx {

/// A kernel with two pointers, in and out, and these numbers as arguments.
struct PeerLaunch {
  void* function = nullptr;
  std::uint32_t blocks = 1;
  std::vector<std::int64_t> values;
  bool starts_early = false;  ///< GpuLaunch::starts_early
};

class PeerExchange {
 public:
  static constexpr int kMaxRanks = 8;
  static constexpr std::uint32_t kThreads = 256;                    ///< of a workgroup
  static constexpr std::size_t kMaxBytes = std::size_t{256} << 10;  ///< of one card's tensor

  /// Null in all processes of the group if any two cards cannot access each other's memory, if there are too many
  /// cards, or if the kernels can't be compiled. All processes must call it together. Throws Error(kDevice) if one ends
  /// meanwhile.
  static std::unique_ptr<PeerExchange> make(Group& group, const std::shared_ptr<Gpu>& gpu);

  /// Empty if the tensor is too large, or for types whose sum the kernels don't support.
  std::optional<PeerLaunch> sum(std::size_t elements, DType dtype) const;
  std::optional<PeerLaunch> gather(std::size_t bytes) const;
  /// Makes all launches of this process stop waiting. Thread-safe.
  void abort() noexcept;

  /// The kernels, compiled for a target ("sm_90a", "gfx942").
  static std::string compile(const std::string& target);

 private:
  PeerExchange() = default;
  PeerLaunch launch(void* function, std::size_t count, std::size_t bytes) const;

  std::shared_ptr<Gpu> gpu_;
  int rank_ = 0, size_ = 0;
  std::shared_ptr<void> area_, abort_stream_, one_;
  std::vector<std::shared_ptr<void>> others_;
  std::shared_ptr<GpuModule> module_;
  void *f32_ = nullptr, *f16_ = nullptr, *bf16_ = nullptr, *bytes_ = nullptr;
};

/// Implemented by communicators that can replace calls by launches.
class LaunchedCollectives {
 public:
  virtual ~LaunchedCollectives() = default;
  virtual std::optional<PeerLaunch> sum_launch(std::size_t elements, DType dtype) const = 0;
  virtual std::optional<PeerLaunch> gather_launch(std::size_t bytes) const = 0;
  /// Must be called before `count` of these launches are enqueued. Throws Error(kDevice) if the group is broken.
  virtual void begin_launches(std::size_t count) const = 0;
};

}  // namespace sardonyx
