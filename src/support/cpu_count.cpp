// Affinity masks and the CPU quotas of control groups.
#include "support/cpu_count.h"

#include <sched.h>

#include <algorithm>
#include <cmath>
#include <fstream>
#include <sstream>
#include <string>
#include <string_view>
#include <thread>
#include <vector>

namespace sardonyx {
namespace {

namespace fs = std::filesystem;

// Whether a comma-separated list contains `word`.
bool lists(std::string_view list, std::string_view word) {
  while (!list.empty()) {
    const std::size_t comma = std::min(list.find(','), list.size());
    if (list.substr(0, comma) == word) return true;
    list.remove_prefix(std::min(comma + 1, list.size()));
  }
  return false;
}

// The mount of a cgroup hierarchy.
struct Mount {
  std::string root;   // the group that is visible at `point`
  std::string point;  // where it is mounted
};

// Lines of /proc/self/mountinfo (proc(5)): id, parent, device, root, mount point, options, optional fields, "-",
// type, source, super options.
std::vector<Mount> cgroup_mounts(const fs::path& root, bool version_2) {
  std::vector<Mount> mounts;
  std::ifstream file(root / "proc/self/mountinfo");
  for (std::string line; std::getline(file, line);) {
    const std::size_t dash = line.find(" - ");
    if (dash == std::string::npos) continue;
    std::istringstream before(line.substr(0, dash)), after(line.substr(dash + 3));
    std::string skipped, type, options;
    Mount mount;
    before >> skipped >> skipped >> skipped >> mount.root >> mount.point;
    after >> type >> skipped >> options;
    if (version_2 ? type == "cgroup2" : type == "cgroup" && lists(options, "cpu")) mounts.push_back(std::move(mount));
  }
  return mounts;
}

std::optional<double> number(const fs::path& file) {
  std::ifstream in(file);
  double value = 0;
  if (in >> value) return value;
  return std::nullopt;
}

// CPUs allowed by the group in `folder` alone.
std::optional<double> quota_of(const fs::path& folder, bool version_2) {
  std::optional<double> quota, period;
  if (version_2) {
    std::ifstream in(folder / "cpu.max");
    double q = 0, p = 0;
    if (!(in >> q >> p)) return std::nullopt;  // "max 100000": no limit
    quota = q;
    period = p;
  } else {
    quota = number(folder / "cpu.cfs_quota_us");  // -1: no limit
    period = number(folder / "cpu.cfs_period_us");
  }
  if (!quota || !period || *quota <= 0 || *period <= 0) return std::nullopt;
  return *quota / *period;
}

void keep_least(std::optional<double>& least, std::optional<double> other) {
  if (other && (!least || *other < *least)) least = other;
}

// The least quota of `group` and its ancestors, as far as the mount shows them. A container whose namespace hides its
// own path sees its group at the mount point itself.
std::optional<double> least_quota(const fs::path& root, const std::string& group, bool version_2) {
  std::optional<double> least;
  for (const Mount& mount : cgroup_mounts(root, version_2)) {
    const fs::path top = root / fs::path(mount.point).relative_path();
    const fs::path inside = fs::path(group).lexically_relative(mount.root);
    fs::path folder = top;
    keep_least(least, quota_of(folder, version_2));
    if (inside.empty() || *inside.begin() == "..") continue;
    for (const fs::path& part : inside) keep_least(least, quota_of(folder /= part, version_2));
  }
  return least;
}

}  // namespace

std::optional<double> cgroup_cpu_quota(const std::filesystem::path& root) {
  std::optional<double> least;
  std::ifstream file(root / "proc/self/cgroup");
  for (std::string line; std::getline(file, line);) {  // "hierarchy:controllers:group"; version 2: "0::group"
    const std::size_t first = line.find(':');
    const std::size_t second = first == std::string::npos ? first : line.find(':', first + 1);
    if (second == std::string::npos) continue;
    const std::string controllers = line.substr(first + 1, second - first - 1), group = line.substr(second + 1);
    const bool version_2 = controllers.empty();
    if (version_2 || lists(controllers, "cpu")) keep_least(least, least_quota(root, group, version_2));
  }
  return least;
}

int affinity_cpu_count() {
  // The kernel refuses a set that is smaller than its own.
  for (int cpus = 1024; cpus <= 1 << 18; cpus *= 2) {
    cpu_set_t* const set = CPU_ALLOC(cpus);
    if (set == nullptr) break;
    const std::size_t bytes = CPU_ALLOC_SIZE(cpus);
    const int count = ::sched_getaffinity(0, bytes, set) == 0 ? CPU_COUNT_S(bytes, set) : 0;
    CPU_FREE(set);
    if (count > 0) return count;
  }
  return static_cast<int>(std::max(1u, std::thread::hardware_concurrency()));
}

int cpu_count(int affinity, std::optional<double> quota) {
  if (!quota || *quota >= affinity) return std::max(1, affinity);
  return std::max(1, static_cast<int>(std::ceil(*quota - 1e-6)));
}

int cpu_count() { return cpu_count(affinity_cpu_count(), cgroup_cpu_quota()); }

}  // namespace sardonyx
