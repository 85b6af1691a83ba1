// Collective operations of processes ("ranks") that compute one model together, each on its own device.
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
  /// A file by which the processes find each other and which they all map; the first process creates it. It must not
  /// have been used by another group, and must be in a directory that only this user may write to, preferably in memory
  /// (/dev/shm).
  std::filesystem::path path;
  int rank = 0;  ///< 0 to size - 1, different in each process
  int size = 1;  ///< number of processes, at most 64
  std::string device = "host";
  /// "auto": NVIDIA and AMD GPUs through NCCL and RCCL, and small tensors of NVIDIA GPUs that can access each other's
  /// memory through Sardonyx's own kernels; the host and simulated GPUs through shared memory. "host": through shared
  /// memory, for GPUs too; "library": through NCCL or RCCL only.
  std::string transport = "auto";
  std::filesystem::path library;  ///< NCCL or RCCL; empty: libnccl.so.2, librccl.so.1 in the system's search path
  /// How long to wait for a process that is alive but does not join. A process that has ended is noticed immediately.
  double timeout_seconds = 600;
};

/// A process's membership in its group. All members must call the same functions with tensors of the same sizes in the
/// same order; they wait for each other. Every function throws Error(kDevice) with the reason if another process has
/// failed or ended; the group is then unusable. Only fail() and check() may be called from several threads at once.
class Communicator {
 public:
  /// Waits until all processes have joined. Throws kInvalidArgument for an invalid rank or size, kIo for an unusable
  /// file, kUnsupported for a library that is not installed, kDevice.
  static std::shared_ptr<Communicator> join(const GroupOptions& options);

  virtual ~Communicator() = default;
  Communicator(const Communicator&) = delete;
  Communicator& operator=(const Communicator&) = delete;
  int rank() const { return rank_; }
  int size() const { return size_; }

  /// out = the elementwise sum of all processes' `in`, bitwise equal in each. `in` and `out` are device memory, and may
  /// be the same. Through shared memory, 16-bit floats are added in float32. On a GPU this is enqueued on `stream`.
  virtual void all_reduce(const void* in, void* out, std::size_t elements, DType dtype, void* stream) = 0;
  /// out = all processes' `in`, concatenated in the order of ranks.
  virtual void all_gather(const void* in, void* out, std::size_t bytes, void* stream) = 0;
  /// Throws if the group is broken. Work that was in flight on a stream has then ended without a result.
  virtual void check() = 0;
  /// Breaks the group: calls of the other processes throw with this reason, those that are waiting immediately.
  virtual void fail(const std::string& why) noexcept = 0;

 protected:
  Communicator(int rank, int size) : rank_(rank), size_(size) {}

 private:
  int rank_, size_;
};

}  // namespace sardonyx
