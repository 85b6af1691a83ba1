// The kernels that access other GPUs' memory, on one simulated GPU: the other rank's data and flag are written
// beforehand.
#include "collective/peer.h"

#include <cstddef>
#include <cstring>

#include "device/device.h"
#include "kernels/layout_peer.h"
#include "models.h"

namespace sardonyx {
namespace {

constexpr std::size_t kData = sdx::layout::kPeerData, kSlot = sdx::layout::kPeerSlot;
constexpr std::size_t kTurns = offsetof(sdx::layout::PeerHead, turns), kFlags = offsetof(sdx::layout::PeerHead, flags);
constexpr std::uint32_t kBlocks = 3;

class Peer : public testing::TestWithParam<const char*> {
 protected:
  void SetUp() override {
    gpu_ = open_gpu(std::string("sim:") + GetParam());
    module_ = gpu_->load(PeerExchange::compile(GetParam()));
    stream_ = gpu_->create_stream();
    for (auto& a : areas_) {
      a = gpu_->allocate(kData + 2 * kSlot);
      const std::vector<char> zeros(kData);
      put(a.get(), 0, zeros.data(), zeros.size());
    }
    const std::uint64_t seen[8] = {reinterpret_cast<std::uint64_t>(areas_[0].get()),
                                   reinterpret_cast<std::uint64_t>(areas_[1].get())};
    put(areas_[0].get(), 0, seen, sizeof seen);
  }
  void put(void* to, std::size_t at, const void* from, std::size_t bytes) {
    gpu_->upload(static_cast<char*>(to) + at, from, bytes, stream_.get());
    gpu_->synchronize(stream_.get());
  }
  template <typename T>
  std::vector<T> get(const void* from, std::size_t at, std::size_t n) {
    std::vector<T> v(n);
    gpu_->download(v.data(), static_cast<const char*>(from) + at, n * sizeof(T), stream_.get());
    gpu_->synchronize(stream_.get());
    return v;
  }

  /// Rank 0's call number `turn` with these parts of ranks 0 and 1.
  template <typename T>
  std::vector<T> run(const char* kernel, std::uint32_t turn, const std::vector<T>& mine, const std::vector<T>& other,
                     std::size_t results) {
    put(areas_[1].get(), kData + turn % 2 * kSlot, other.data(), other.size() * sizeof(T));
    for (std::uint32_t b = 0; b < kBlocks; ++b)  // rank 1 has come
      put(areas_[0].get(), kFlags + (b * 8 + 1) * 4, &turn, 4);
    const auto in = gpu_->allocate(mine.size() * sizeof(T)), out = gpu_->allocate(results * sizeof(T));
    put(in.get(), 0, mine.data(), mine.size() * sizeof(T));
    std::int64_t values[] = {static_cast<std::int64_t>(mine.size()), 0, 2,
                             reinterpret_cast<std::int64_t>(areas_[0].get())};
    void *from = in.get(), *to = out.get();
    void* arguments[] = {
        static_cast<void*>(&from), static_cast<void*>(&to), &values[0], &values[1], &values[2], &values[3]};
    gpu_->launch({module_->function(kernel), {kBlocks}, {PeerExchange::kThreads}, 0, arguments}, stream_.get());
    gpu_->synchronize(stream_.get());
    // Rank 1 finds our part, and that it is there.
    EXPECT_EQ(get<T>(areas_[0].get(), kData + turn % 2 * kSlot, mine.size()), mine);
    for (std::uint32_t b = 0; b < kBlocks; ++b) {
      EXPECT_EQ(get<std::uint32_t>(areas_[1].get(), kFlags + b * 8 * 4, 1)[0], turn);
      EXPECT_EQ(get<std::uint32_t>(areas_[0].get(), kTurns + b * 4, 1)[0], turn);
    }
    return get<T>(out.get(), 0, results);
  }

  std::shared_ptr<Gpu> gpu_;
  std::shared_ptr<GpuModule> module_;
  std::shared_ptr<void> stream_, areas_[2];
};

TEST_P(Peer, Sums) {
  std::uint32_t turn = 0;
  for (const std::size_t n : {1, 4, 777, 4096, 20000}) {  // not all in whole packs, and more than the threads
    std::vector<float> a(n), b(n), sum(n);
    std::vector<_Float16> c(n), d(n), half(n);
    for (std::size_t k = 0; k < n; ++k) {
      a[k] = static_cast<float>(k % 31) - 7;
      b[k] = static_cast<float>(k % 17) * 0.5F;
      sum[k] = a[k] + b[k];
      c[k] = static_cast<_Float16>(a[k]);
      d[k] = static_cast<_Float16>(b[k]);
      half[k] = static_cast<_Float16>(sum[k]);
    }
    EXPECT_EQ(run("peer_sum_f32", ++turn, a, b, n), sum) << n;
    EXPECT_TRUE(run("peer_sum_f16", ++turn, c, d, n) == half) << n;
    std::vector<std::uint16_t> e(n), f(n), brain(n);  // bfloat16: the upper half of a float
    const auto upper = [](float x) {
      std::uint32_t u;
      std::memcpy(&u, &x, 4);
      return static_cast<std::uint16_t>(u >> 16);
    };
    for (std::size_t k = 0; k < n; ++k) {
      e[k] = upper(a[k]);
      f[k] = upper(b[k]);
      brain[k] = upper(sum[k]);
    }
    EXPECT_EQ(run("peer_sum_bf16", ++turn, e, f, n), brain) << n;
  }
}

TEST_P(Peer, Gathers) {
  std::uint32_t turn = 0;
  for (const std::size_t n : {1, 16, 1000, 40000}) {
    std::vector<std::uint8_t> a(n), b(n);
    for (std::size_t k = 0; k < n; ++k) {
      a[k] = static_cast<std::uint8_t>(k);
      b[k] = static_cast<std::uint8_t>(7 * k);
    }
    std::vector<std::uint8_t> both = a;
    both.insert(both.end(), b.begin(), b.end());
    EXPECT_EQ(run("peer_gather_bytes", ++turn, a, b, 2 * n), both) << n;
  }
}

INSTANTIATE_TEST_SUITE_P(Chips, Peer, testing::Values("gfx942", "gfx1100"));

TEST(PeerKernels, CompileForNvidia) {
  for (const char* target : {"sm_80", "sm_90a"}) {
    const std::string ptx = PeerExchange::compile(target);
    EXPECT_THAT(ptx, testing::HasSubstr("st.release.sys")) << target;
    EXPECT_THAT(ptx, testing::HasSubstr("ld.acquire.sys")) << target;
  }
}

}  // namespace
}  // namespace sardonyx
