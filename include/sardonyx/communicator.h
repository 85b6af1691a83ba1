// Processes that compute one model together, each on a device of its own ("ranks"): what they sum and gather.
//
//   sardonyx::Options options;                                  // in each of two processes of one machine
//   options.device = rank == 0 ? "cuda:0" : "cuda:1";
//   options.communicator = sardonyx::Communicator::join({.path = "/dev/shm/mine/group", .rank = rank, .size = 2,
//                                                        .device = options.device});
//   auto model = sardonyx::CompiledModel::from_file("shard.onnx", options);     // has nodes AllReduce or AllGather
#pragma once
#include <cstddef>
#include <filesystem>
#include <memory>
#include <string>

#include "sardonyx/dtype.h"

namespace sardonyx {

/// How a process joins a group.
struct GroupOptions {
  /// A file by which the processes find each other and whose pages they share; the first that comes makes it. It must
  /// not be used by another group before, and lie in a folder that only this user may write to. Best in memory
  /// (/dev/shm).
  std::filesystem::path path;
  int rank = 0;  ///< from 0; each once
  int size = 1;  ///< how many processes, at most 64
  std::string device = "host";
  /// "auto": NVIDIA's and AMD's cards through NCCL and RCCL, and small tensors of NVIDIA's cards that reach each
  /// other's memory by kernels that do so; the host and simulated cards through shared memory. "host": through shared
  /// memory, also for cards; "library": through NCCL or RCCL alone.
  std::string transport = "auto";
  std::filesystem::path library;  ///< of NCCL or RCCL; empty: libnccl.so.2, librccl.so.1 where the system finds them
  /// How long to wait for a process that lives but does not come. One that is gone is noticed at once.
  double timeout_seconds = 600;
};

/// A process's part in its group. All members of the group must call the same functions with tensors of the same sizes
/// in the same order; they wait for each other. Every function throws Error(kDevice) with the reason if another process
/// has failed or is gone: the group is of no use then. To be used by one thread at a time, but for fail() and check().
class Communicator {
 public:
  /// Waits until all processes of the group are there. Throws kInvalidArgument for a rank or size that makes no sense,
  /// kIo for a file that can't be used, kUnsupported for a library that is not installed, kDevice.
  static std::shared_ptr<Communicator> join(const GroupOptions& options);

  virtual ~Communicator() = default;
  Communicator(const Communicator&) = delete;
  Communicator& operator=(const Communicator&) = delete;
  int rank() const { return rank_; }
  int size() const { return size_; }

  /// out = the sum of all processes' `in`, element by element: the same bits in each. `in` and `out` are memory of the
  /// device, and may be the same. Through shared memory, floats of 16 bits are added in float32. On a card this is work
  /// of `stream`.
  virtual void all_reduce(const void* in, void* out, std::size_t elements, DType dtype, void* stream) = 0;
  /// out = all processes' `in`, one after the other by rank.
  virtual void all_gather(const void* in, void* out, std::size_t bytes, void* stream) = 0;
  /// Throws if the group is broken: work of a stream that was under way then has ended without a result.
  virtual void check() = 0;
  /// Breaks the group: the others' calls throw with this reason, those that wait at once.
  virtual void fail(const std::string& why) noexcept = 0;

 protected:
  Communicator(int rank, int size) : rank_(rank), size_(size) {}

 private:
  int rank_, size_;
};

}  // namespace sardonyx
