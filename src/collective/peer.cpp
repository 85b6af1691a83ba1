#include "collective/peer.h"

#include <unistd.h>

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstring>

#include "compile/backend.h"
#include "compile/compiler.h"
#include "device/memory.h"
#include "device/shared_memory.h"
#include "kernel_sources.h"
#include "kernels/layout_peer.h"
#include "peer_kernels.h"
#include "support/error.h"

namespace sardonyx {
namespace {

constexpr std::uint64_t kOffer = 3, kAgree = 4;  // arguments of Group::meet
using sdx::layout::kPeerBlocks;
using sdx::layout::kPeerData;
using sdx::layout::kPeerSlot;
using sdx::layout::PeerHead;
static_assert(kPeerSlot == PeerExchange::kMaxBytes && sdx::layout::kPeerRanks == PeerExchange::kMaxRanks);
// IPC handles cover whole allocations of the driver: one of 2 MiB contains nothing else.
constexpr std::size_t kArea = std::size_t{2} << 20;
static_assert(kArea >= kPeerData + 2 * kPeerSlot);

/// What a process tells the others about its memory.
struct Offer {
  bool good = false;
  pid_t process = 0;
  MemoryHandle handle{};
};

template <typename T>
std::vector<T> exchanged(Group& group, const T& mine, std::uint64_t step) {
  std::memcpy(group.mine(), &mine, sizeof mine);
  group.meet(step);
  std::vector<T> all(static_cast<std::size_t>(group.size()));
  for (int r = 0; r < group.size(); ++r) std::memcpy(&all[static_cast<std::size_t>(r)], group.of(r), sizeof(T));
  return all;
}

}  // namespace

std::string PeerExchange::compile(const std::string& target) {
  std::vector<SourceFile> headers;
  for (const EmbeddedFile& f : kKernelSources) headers.push_back({f.name, std::string(f.text())});
  std::string source;
  for (const EmbeddedFile& f : kPeerKernels) source += f.text();
  CompileOptions options;
  options.extra_cc1 = {"-fwrapv"};
  std::string code = sardonyx::compile(source, headers, parse_target(target), options);
  release_compiler_memory();
  return code;
}

std::unique_ptr<PeerExchange> PeerExchange::make(Group& group, const std::shared_ptr<Gpu>& gpu) {
  if (group.size() > kMaxRanks) return nullptr;
  std::unique_ptr<PeerExchange> x(new PeerExchange);
  x->gpu_ = gpu;
  x->rank_ = group.rank();
  x->size_ = group.size();
  Offer offer;
  offer.process = ::getpid();
  try {
    x->area_ = gpu->allocate(kArea);
    x->abort_stream_ = gpu->create_stream();
    x->one_ = gpu->allocate_pinned(sizeof(std::uint32_t));
    *static_cast<std::uint32_t*>(x->one_.get()) = 1;
    const std::vector<char> zeros(kPeerData);
    GpuTransfers(gpu).upload(x->area_.get(), zeros.data(), zeros.size(), x->abort_stream_.get());
    gpu->synchronize(x->abort_stream_.get());
    if (const auto handle = share_memory(*gpu, x->area_.get())) {
      offer.handle = *handle;
      x->module_ = gpu->load(compile(gpu->info().target));
      x->f32_ = x->module_->function("peer_sum_f32");
      x->f16_ = x->module_->function("peer_sum_f16");
      x->bf16_ = x->module_->function("peer_sum_bf16");
      x->bytes_ = x->module_->function("peer_gather_bytes");
      offer.good = true;
    }
  } catch (const Error&) {
    offer.good = false;  // the library is used in all processes
  }
  const std::vector<Offer> offers = exchanged(group, offer, kOffer);
  bool good = std::all_of(offers.begin(), offers.end(), [](const Offer& o) { return o.good; });
  std::array<std::uint64_t, kMaxRanks> seen{};
  for (int r = 0; good && r < group.size(); ++r) {
    const Offer& o = offers[static_cast<std::size_t>(r)];
    void* memory = x->area_.get();
    if (r != group.rank()) {
      // A handle cannot be opened by the process that made it.
      if (o.process != offer.process) x->others_.push_back(open_memory(gpu, o.handle));
      good = o.process != offer.process && x->others_.back() != nullptr;
      if (good) memory = x->others_.back().get();
    }
    seen[static_cast<std::size_t>(r)] = reinterpret_cast<std::uint64_t>(memory);
  }
  if (good) {
    try {
      GpuTransfers(gpu).upload(x->area_.get(), seen.data(), sizeof seen, x->abort_stream_.get());
      gpu->synchronize(x->abort_stream_.get());
    } catch (const Error&) {
      good = false;
    }
  }
  const std::vector<char> agreed = exchanged(group, static_cast<char>(good), kAgree);
  if (std::any_of(agreed.begin(), agreed.end(), [](char g) { return g == 0; })) return nullptr;
  return x;
}

PeerLaunch PeerExchange::launch(void* function, std::size_t count, std::size_t bytes) const {
  // 16 bytes per thread. Time is dominated by the other cards' latency, which more workgroups do not shorten.
  const std::size_t blocks = std::clamp<std::size_t>((bytes + 16 * kThreads - 1) / (16 * kThreads), 1, kPeerBlocks);
  return {function,
          static_cast<std::uint32_t>(blocks),
          {static_cast<std::int64_t>(count), rank_, size_, reinterpret_cast<std::int64_t>(area_.get())},
          module_->starts_early()};
}

std::optional<PeerLaunch> PeerExchange::sum(std::size_t elements, DType dtype) const {
  void* function = dtype == DType::kFloat32    ? f32_
                   : dtype == DType::kFloat16  ? f16_
                   : dtype == DType::kBFloat16 ? bf16_
                                               : nullptr;
  const std::size_t bytes = elements * size_of(dtype);
  if (!function || elements > kMaxBytes || bytes > kMaxBytes) return std::nullopt;
  return launch(function, elements, bytes);
}

std::optional<PeerLaunch> PeerExchange::gather(std::size_t bytes) const {
  if (bytes > kMaxBytes) return std::nullopt;
  return launch(bytes_, bytes, bytes);
}

void PeerExchange::abort() noexcept {
  try {
    gpu_->upload(static_cast<char*>(area_.get()) + offsetof(PeerHead, abort), one_.get(), sizeof(std::uint32_t),
                 abort_stream_.get());
  } catch (const Error&) {
    return;  // the driver is already unloaded, and with it the waiting kernels
  }
}

}  // namespace sardonyx
