// Sums and concatenations of small tensors by kernels of our own, over cards that reach each other's memory: launches
// like any other, so that they are part of captured graphs, and quicker than a library's for what a decoder's step has.
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

/// A kernel that takes two pointers, in and out, and these numbers.
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

  /// Null in all processes of the group if any of its cards does not reach another's memory, there are too many, or
  /// the kernels can't be compiled. All processes call it at the same time. Throws Error(kDevice) if one goes away.
  static std::unique_ptr<PeerExchange> make(Group& group, const std::shared_ptr<Gpu>& gpu);

  /// None for what is too large, and for types whose sum the kernels don't know.
  std::optional<PeerLaunch> sum(std::size_t elements, DType dtype) const;
  std::optional<PeerLaunch> gather(std::size_t bytes) const;
  /// Ends the waiting of all launches of this process. From any thread.
  void abort() noexcept;

  /// The kernels' text, compiled for a target ("sm_90a", "gfx942").
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

/// What a communicator is besides, if it may have launches in the place of calls.
class LaunchedCollectives {
 public:
  virtual ~LaunchedCollectives() = default;
  virtual std::optional<PeerLaunch> sum_launch(std::size_t elements, DType dtype) const = 0;
  virtual std::optional<PeerLaunch> gather_launch(std::size_t bytes) const = 0;
  /// To be called before so many of these launches are given to a stream. Throws Error(kDevice) if the group is broken.
  virtual void begin_launches(std::size_t count) const = 0;
};

}  // namespace sardonyx
