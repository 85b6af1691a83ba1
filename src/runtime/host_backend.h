// The host's CPU.
#pragma once
#include <map>
#include <memory>
#include <mutex>
#include <vector>

#include "compile/host_module.h"
#include "host/tile_kernel.h"
#include "runtime/backend.h"

namespace sardonyx {

/// Code that codegen::generate_host_loop describes.
using HostKernel = void (*)(char* const* buffers, const std::int64_t* symbols, std::int64_t begin, std::int64_t end);

class HostBackend : public Backend {
 public:
  using Backend::Backend;
  std::size_t alignment() const override { return 64; }
  bool separate_memory() const override { return false; }
  void load(const Program& program, int threads) override;
  std::unique_ptr<Queue> create_queue() override;
  /// On large pages.
  std::shared_ptr<void> allocate_lasting(std::size_t bytes) override;
  std::shared_ptr<void> allocate_on_host(std::size_t bytes) override { return allocate_lasting(bytes); }

  HostKernel kernel(int number) const { return kernels_[static_cast<std::size_t>(number)]; }
  /// Constant weights in the layout that `kernel` reads, packed once for all steps that read them.
  std::shared_ptr<host::PackedWeights> packed(int buffer, const host::TileKernel& kernel, const RunState& run);

 private:
  std::unique_ptr<HostModule> module_;
  std::vector<HostKernel> kernels_;
  std::mutex packed_mutex_;
  std::map<int, std::shared_ptr<host::PackedWeights>> packed_;  ///< by buffer
};

class HostQueue : public Queue {
 public:
  explicit HostQueue(HostBackend& backend) : backend_(backend) {}
  std::shared_ptr<void> allocate(std::size_t bytes) override;
  void copy(void* to, const void* from, std::size_t bytes) override;
  void upload(void* to, const void* from, std::size_t bytes) override { copy(to, from, bytes); }
  void download(void* to, const void* from, std::size_t bytes) override { copy(to, from, bytes); }
  std::unique_ptr<PreparedStep> prepare(const ProgramStep& step, RunState& run) override;

  HostBackend& backend() const { return backend_; }
  /// Working memory of tile kernels, valid until the next call.
  void* scratch(std::size_t bytes);

 private:
  HostBackend& backend_;
  std::shared_ptr<void> scratch_;
  std::size_t scratch_size_ = 0;
};

/// Uninitialised memory of the host at a multiple of 64 bytes. Throws Error for absurd sizes and when there is none.
std::shared_ptr<void> allocate_host(std::size_t bytes);

/// GEMMs and convolutions by the library of kernels (host_tiles.cpp).
std::unique_ptr<PreparedStep> prepare_host_tile(const GemmStep& step, HostQueue& queue, RunState& run);
std::unique_ptr<PreparedStep> prepare_host_tile(const ConvStep& step, HostQueue& queue, RunState& run);
/// host_attention.cpp
std::unique_ptr<PreparedStep> prepare_host_attention(const AttentionStep& step, RunState& run);

}  // namespace sardonyx
