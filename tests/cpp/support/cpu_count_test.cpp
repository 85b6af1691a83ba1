// The default number of threads under affinity masks and CPU quotas.
#include "support/cpu_count.h"

#include <gtest/gtest.h>
#include <sched.h>

#include <fstream>
#include <string>
#include <thread>

namespace sardonyx {
namespace {

// A folder that stands in for the root of the file system.
class CpuQuota : public testing::Test {
 protected:
  void SetUp() override {
    const auto* test = testing::UnitTest::GetInstance()->current_test_info();
    root_ = std::filesystem::path(testing::TempDir()) / (std::string("cpu_quota_") + test->name());
    std::filesystem::remove_all(root_);
  }
  void TearDown() override { std::filesystem::remove_all(root_); }
  void write(const std::string& path, const std::string& text) {
    std::filesystem::create_directories((root_ / path).parent_path());
    std::ofstream(root_ / path) << text;
  }
  std::optional<double> quota() const { return cgroup_cpu_quota(root_); }

  std::filesystem::path root_;
};

constexpr const char* kMountVersion2 =
    "25 30 0:23 / /proc rw - proc proc rw\n"
    "31 25 0:27 / /sys/fs/cgroup rw,nosuid,nodev,noexec,relatime shared:9 - cgroup2 cgroup2 rw,nsdelegate\n";

TEST_F(CpuQuota, NoneWithoutFiles) { EXPECT_EQ(quota(), std::nullopt); }

TEST_F(CpuQuota, Version2InAContainer) {
  write("proc/self/cgroup", "0::/\n");
  write("proc/self/mountinfo", kMountVersion2);
  EXPECT_EQ(quota(), std::nullopt);
  write("sys/fs/cgroup/cpu.max", "max 100000\n");
  EXPECT_EQ(quota(), std::nullopt);
  write("sys/fs/cgroup/cpu.max", "150000 100000\n");
  EXPECT_EQ(quota(), 1.5);
  write("sys/fs/cgroup/cpu.max", "garbage\n");
  EXPECT_EQ(quota(), std::nullopt);
}

TEST_F(CpuQuota, Version2TakesTheLeastOfTheGroupAndItsAncestors) {
  write("proc/self/cgroup", "0::/system.slice/server.service\n");
  write("proc/self/mountinfo", kMountVersion2);
  write("sys/fs/cgroup/system.slice/cpu.max", "300000 100000\n");
  write("sys/fs/cgroup/system.slice/server.service/cpu.max", "max 100000\n");
  write("sys/fs/cgroup/other.slice/cpu.max", "10000 100000\n");
  EXPECT_EQ(quota(), 3);
  write("sys/fs/cgroup/system.slice/server.service/cpu.max", "25000 50000\n");
  EXPECT_EQ(quota(), 0.5);
}

TEST_F(CpuQuota, Version1InAContainer) {
  // The container's group is mounted at the mount point; its path on the host is not below it.
  write("proc/self/cgroup", "5:memory:/docker/abc\n4:cpu,cpuacct:/docker/abc\n1:name=systemd:/docker/abc\n");
  write("proc/self/mountinfo",
        "40 30 0:30 /docker/abc /sys/fs/cgroup/memory ro - cgroup cgroup rw,memory\n"
        "41 30 0:31 /docker/abc /sys/fs/cgroup/cpu,cpuacct ro,nosuid - cgroup cgroup rw,cpu,cpuacct\n"
        "42 30 0:32 /docker/abc /sys/fs/cgroup/cpuset ro - cgroup cgroup rw,cpuset\n");
  write("sys/fs/cgroup/memory/cpu.cfs_quota_us", "1\n");
  write("sys/fs/cgroup/memory/cpu.cfs_period_us", "100000\n");
  write("sys/fs/cgroup/cpu,cpuacct/cpu.cfs_period_us", "100000\n");
  write("sys/fs/cgroup/cpu,cpuacct/cpu.cfs_quota_us", "-1\n");
  EXPECT_EQ(quota(), std::nullopt);
  write("sys/fs/cgroup/cpu,cpuacct/cpu.cfs_quota_us", "150000\n");
  EXPECT_EQ(quota(), 1.5);
}

TEST_F(CpuQuota, Version1OnTheHostBesideVersion2) {
  write("proc/self/cgroup", "4:cpu,cpuacct:/batch/job\n0::/batch/job\n");
  write("proc/self/mountinfo",
        std::string(kMountVersion2) + "41 30 0:31 / /sys/fs/cgroup/cpu,cpuacct rw - cgroup cgroup rw,cpu,cpuacct\n");
  write("sys/fs/cgroup/cpu,cpuacct/batch/cpu.cfs_quota_us", "400000\n");
  write("sys/fs/cgroup/cpu,cpuacct/batch/cpu.cfs_period_us", "100000\n");
  write("sys/fs/cgroup/cpu,cpuacct/batch/job/cpu.cfs_quota_us", "250000\n");
  write("sys/fs/cgroup/cpu,cpuacct/batch/job/cpu.cfs_period_us", "100000\n");
  EXPECT_EQ(quota(), 2.5);
}

TEST(CpuCount, IsTheAffinityMaskLimitedByTheQuotaRoundedUp) {
  EXPECT_EQ(cpu_count(16, std::nullopt), 16);
  EXPECT_EQ(cpu_count(16, 1.5), 2);
  EXPECT_EQ(cpu_count(16, 2.0), 2);
  EXPECT_EQ(cpu_count(16, 0.25), 1);
  EXPECT_EQ(cpu_count(1, 1.5), 1);
  EXPECT_EQ(cpu_count(4, 64.0), 4);
  EXPECT_EQ(cpu_count(0, std::nullopt), 1);
}

TEST(CpuCount, FollowsTheAffinityMask) {
  std::thread([] {  // a thread of its own, whose mask dies with it
    cpu_set_t all, one;
    ASSERT_EQ(::sched_getaffinity(0, sizeof(all), &all), 0);
    EXPECT_EQ(affinity_cpu_count(), CPU_COUNT(&all));
    CPU_ZERO(&one);
    for (int cpu = 0; cpu < CPU_SETSIZE && CPU_COUNT(&one) == 0; ++cpu)
      if (CPU_ISSET(cpu, &all)) CPU_SET(cpu, &one);
    ASSERT_EQ(::sched_setaffinity(0, sizeof(one), &one), 0);
    EXPECT_EQ(affinity_cpu_count(), 1);
    EXPECT_EQ(cpu_count(), 1);
  })
      .join();
}

}  // namespace
}  // namespace sardonyx
