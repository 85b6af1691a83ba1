// How many CPUs this process may use.
#pragma once
#include <filesystem>
#include <optional>

namespace sardonyx {

/// CPU time per second of wall time that the control groups of this process allow, e.g. 1.5 in a container started with
/// `--cpus=1.5`: the least of the process's group and its ancestors. Reads cgroup v2 (cpu.max) and v1
/// (cpu.cfs_quota_us, cpu.cfs_period_us). Nothing when no group limits it, or files are missing or malformed.
/// `root` stands in for `/` in tests.
std::optional<double> cgroup_cpu_quota(const std::filesystem::path& root = "/");

/// CPUs in this thread's affinity mask (sched_getaffinity), at least 1.
int affinity_cpu_count();

/// Default number of threads: the CPUs of the affinity mask, but no more than the quota rounded up. A quota of 1.5
/// gives two threads, since one would leave a third of it unused.
int cpu_count(int affinity, std::optional<double> quota);
int cpu_count();

}  // namespace sardonyx
