// Sums and concatenations through the group's shared memory: for the host, and for cards through the host. Every
// process adds all parts itself in the order of ranks, so results are bitwise equal.
#include <algorithm>
#include <cstdlib>
#include <cstring>

#include "collective/transports.h"
#include "device/memory.h"
#include "routines/elements.h"
#include "support/error.h"

namespace sardonyx {
namespace {

constexpr std::uint64_t kReduce = 1, kGather = 2;  // kinds of step_key()

// A key of a step, by which processes notice that they do different ones.
std::uint64_t step_key(std::uint64_t kind, DType dtype, std::uint64_t bytes) {
  return kind << 56 | static_cast<std::uint64_t>(dtype) << 48 | (bytes & 0xffffffffffffU);
}

class SharedMemory : public Communicator {
 public:
  SharedMemory(std::unique_ptr<Group> group, std::shared_ptr<Gpu> gpu)
      : Communicator(group->rank(), group->size()), group_(std::move(group)), gpu_(std::move(gpu)) {
    if (!gpu_) return;
    transfers_ = std::make_unique<GpuTransfers>(gpu_);
  }

  void all_reduce(const void* in, void* out, std::size_t elements, DType dtype, void* stream) override {
    group_->check();
    const std::size_t bytes = elements * size_of(dtype);
    const void* from = here(in, bytes, stream);
    void* to = gpu_ ? staging(bytes) : out;
    routines::dispatch(dtype, "a sum over devices", [&](auto zero) {
      using T = decltype(zero);
      const std::size_t piece = Group::kSlotBytes / sizeof(T);
      for (std::size_t begin = 0; begin < elements; begin += piece) {
        const std::size_t n = std::min(piece, elements - begin);
        std::memcpy(group_->mine(), static_cast<const T*>(from) + begin, n * sizeof(T));
        group_->meet(step_key(kReduce, dtype, bytes));
        add<T>(static_cast<T*>(to) + begin, n);
      }
    });
    there(out, to, bytes, stream);
  }

  void all_gather(const void* in, void* out, std::size_t bytes, void* stream) override {
    group_->check();
    const std::size_t all = bytes * static_cast<std::size_t>(size());
    const void* from = here(in, bytes, stream);
    // Others' parts may be stored where `in` is still read.
    void* to = gpu_ || overlap(in, bytes, out, all) ? staging_of_all(all) : out;
    for (std::size_t begin = 0; begin < bytes; begin += Group::kSlotBytes) {
      const std::size_t n = std::min(Group::kSlotBytes, bytes - begin);
      std::memcpy(group_->mine(), static_cast<const char*>(from) + begin, n);
      group_->meet(step_key(kGather, DType::kUInt8, bytes));
      for (int r = 0; r < size(); ++r)
        std::memcpy(static_cast<char*>(to) + static_cast<std::size_t>(r) * bytes + begin, group_->of(r), n);
    }
    if (gpu_)
      there(out, to, all, stream);
    else if (to != out)
      std::memcpy(out, to, all);
  }

  void check() override { group_->check(); }
  void fail(const std::string& why) noexcept override { group_->fail(why); }

 private:
  template <typename T>
  void add(T* out, std::size_t n) {
    using C = routines::compute_of<T>;
    constexpr std::size_t kBlock = 1024;  // sums on the stack, in the L1 cache
    C sums[kBlock];
    for (std::size_t begin = 0; begin < n; begin += kBlock) {
      const std::size_t m = std::min(kBlock, n - begin);
      for (int r = 0; r < size(); ++r) {
        const T* part = reinterpret_cast<const T*>(group_->of(r)) + begin;
        for (std::size_t k = 0; k < m; ++k) {
          const C x = static_cast<C>(part[k]);
          sums[k] = r == 0 ? x : static_cast<C>(sums[k] + x);
        }
      }
      for (std::size_t k = 0; k < m; ++k) out[begin + k] = static_cast<T>(sums[k]);
    }
  }

  static bool overlap(const void* a, std::size_t n, const void* b, std::size_t m) {
    const auto x = reinterpret_cast<std::uintptr_t>(a), y = reinterpret_cast<std::uintptr_t>(b);
    return x < y + m && y < x + n;
  }
  void* grown(std::shared_ptr<void>& memory, std::size_t& size, std::size_t bytes) {
    if (size < bytes) {
      memory = std::shared_ptr<void>(std::aligned_alloc(64, (bytes + 63) / 64 * 64), std::free);
      size = memory ? bytes : 0;
      if (!memory) sardonyx::fail(ErrorKind::kDevice, "out of memory: {} bytes", bytes);
    }
    return memory.get();
  }
  void* staging(std::size_t bytes) { return grown(one_, one_bytes_, bytes); }
  void* staging_of_all(std::size_t bytes) { return grown(all_, all_bytes_, bytes); }

  const void* here(const void* in, std::size_t bytes, void* stream) {
    if (!gpu_) return in;
    transfers_->download(staging(bytes), in, bytes, stream);
    return one_.get();
  }
  void there(void* out, const void* from, std::size_t bytes, void* stream) {
    if (gpu_) transfers_->upload(out, from, bytes, stream);
  }

  std::unique_ptr<Group> group_;
  std::shared_ptr<Gpu> gpu_;
  std::unique_ptr<GpuTransfers> transfers_;
  std::shared_ptr<void> one_, all_;
  std::size_t one_bytes_ = 0, all_bytes_ = 0;
};

}  // namespace

std::shared_ptr<Communicator> shared_memory_communicator(std::unique_ptr<Group> group, std::shared_ptr<Gpu> gpu) {
  return std::make_shared<SharedMemory>(std::move(group), std::move(gpu));
}

}  // namespace sardonyx
